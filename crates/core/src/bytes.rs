//! All arithmetic on numbers that come from a file.
//!
//! Lengths and offsets in a file are untrusted claims. A [`Cursor`] reads a buffer. A read beyond the end of the buffer
//! is an [`Error`] with the byte offset. [`range`] checks that a claimed range lies inside the file.

use crate::budget::Held;
use crate::cx::Cx;
use crate::error::{Error, Kind, Result};
use crate::memory;
use std::alloc::Layout;
use std::collections::TryReserveError;
use std::ops::Range;

/// Bytes copied between two interruption checks.
const PIECE: usize = 1 << 20;
/// The first capacity of a buffer that grows as data arrives.
const FIRST_ROOM: usize = 64 << 10;

/// The most bytes that a 64-bit varint takes.
pub const MAX_VARINT64: usize = 10;

/// `begin..begin + length` if it lies inside a file of `size` bytes, else a truncation error.
pub fn range(what: &'static str, begin: u64, length: u64, size: u64) -> Result<Range<u64>> {
    match begin.checked_add(length) {
        Some(end) if end <= size => Ok(begin..end),
        end => Err(Error::truncated(format!("{what} reaches past the end of the file"))
            .at(begin)
            .expected(match end {
                Some(end) => format!("a file of at least {end} bytes"),
                None => format!("a length below {length}"),
            })
            .found(format_args!("{size} bytes"))),
    }
}

/// A length from a file as a size in memory. An error if it does not fit in an address.
pub fn in_memory(what: &'static str, length: u64) -> Result<usize> {
    usize::try_from(length)
        .map_err(|_| Error::limit(format!("{what} of {length} bytes does not fit in memory")))
}

/// A buffer of `length` zeros, or an error if there is not enough memory. A sparse file that takes a few bytes on disk
/// can really be larger than the memory of the machine.
pub fn zeroed(what: &'static str, length: u64) -> Result<Vec<u8>> {
    let size = in_memory(what, length)?;
    if size == 0 {
        return Ok(Vec::new());
    }
    let layout = Layout::array::<u8>(size).map_err(|_| no_memory(what, length))?;
    // SAFETY: the layout has a non-zero size. `alloc_zeroed`, unlike writing zeros, leaves pages untouched until they
    // are used.
    let zeros = unsafe { std::alloc::alloc_zeroed(layout) };
    if zeros.is_null() {
        return Err(no_memory(what, length));
    }
    memory::expect_written(zeros, size);
    // SAFETY: allocated by the global allocator with the layout of `size` bytes, all of which are zero.
    Ok(unsafe { Vec::from_raw_parts(zeros, size, size) })
}

/// An empty buffer with room for `length` bytes, or an error if there is not enough memory.
pub fn reserved(what: &'static str, length: u64) -> Result<Vec<u8>> {
    let mut buffer = Vec::new();
    let reserved = buffer.try_reserve_exact(in_memory(what, length)?);
    reserved.map_err(|_| no_memory(what, length))?;
    expect_filled(&mut buffer);
    Ok(buffer)
}

/// Makes room in a buffer for `length` bytes in total. Returns an error if there is not enough memory.
pub fn reserve_bytes(what: &'static str, buffer: &mut Vec<u8>, length: u64) -> Result<()> {
    let more = in_memory(what, length)?.saturating_sub(buffer.len());
    reserve(buffer, more).map_err(|_| no_memory(what, length))
}

/// Makes room in a buffer for `more` additional bytes.
#[inline]
pub fn reserve(buffer: &mut Vec<u8>, more: usize) -> std::result::Result<(), TryReserveError> {
    let before = buffer.capacity();
    buffer.try_reserve(more)?;
    if buffer.capacity() != before {
        expect_filled(buffer);
    }
    Ok(())
}

/// Call this when memory was allocated that will be filled.
fn expect_filled(buffer: &mut Vec<u8>) {
    let room = buffer.spare_capacity_mut();
    memory::expect_written(room.as_mut_ptr().cast(), room.len());
}

/// Makes room in a full buffer that grows as data arrives. Doubles its capacity, up to `most` bytes in total, and
/// counts the new bytes as held. Does nothing if the buffer is not full, or already has the capacity `most`.
pub fn grow_as_filled(
    what: &'static str,
    buffer: &mut Vec<u8>,
    most: usize,
    held: &mut Held<'_>,
) -> Result<()> {
    let before = buffer.capacity();
    if buffer.len() < before || before >= most {
        return Ok(());
    }
    let wanted = before.saturating_mul(2).max(FIRST_ROOM).min(most);
    held.grow((wanted - before) as u64)?;
    buffer.try_reserve_exact(wanted - buffer.len()).map_err(|_| no_memory(what, wanted as u64))?;
    expect_filled(buffer);
    Ok(())
}

/// Makes room in a buffer for `more` additional bytes. Returns an error if there is not enough memory.
pub fn reserve_more(what: &'static str, buffer: &mut Vec<u8>, more: usize) -> Result<()> {
    reserve(buffer, more).map_err(|_| no_memory(what, buffer.len() as u64 + more as u64))
}

/// A copy of bytes whose number comes from a file or a caller. Runs interruption checks.
pub fn copied(what: &'static str, bytes: &[u8], cx: &Cx<'_>) -> Result<Vec<u8>> {
    let mut copy = reserved(what, bytes.len() as u64)?;
    for piece in bytes.chunks(PIECE) {
        copy.extend_from_slice(piece);
        if bytes.len() > PIECE {
            cx.check()?;
        }
    }
    Ok(copy)
}

/// Copies bytes to a buffer of the same size. Runs interruption checks.
pub fn copy_paced(from: &[u8], to: &mut [u8], cx: &Cx<'_>) -> Result<()> {
    if from.len() <= PIECE {
        to.copy_from_slice(from);
        return Ok(());
    }
    for (from, to) in from.chunks(PIECE).zip(to.chunks_mut(PIECE)) {
        cx.check()?;
        to.copy_from_slice(from);
    }
    Ok(())
}

/// An empty list with room for `count` entries, or an error if there is not enough memory.
pub fn list<T>(what: &'static str, count: u64) -> Result<Vec<T>> {
    let mut list = Vec::new();
    let reserved = list.try_reserve_exact(in_memory(what, count)?);
    reserved.map_err(|_| no_memory(what, count.saturating_mul(size_of::<T>() as u64)))?;
    Ok(list)
}

/// Appends to a list whose length comes from a file or a caller. Returns an error if there is no memory for one more
/// entry.
#[inline]
pub fn push<T>(what: &'static str, list: &mut Vec<T>, entry: T) -> Result<()> {
    if list.len() == list.capacity() {
        grow(what, list)?;
    }
    list.push(entry);
    Ok(())
}

#[cold]
fn grow<T>(what: &'static str, list: &mut Vec<T>) -> Result<()> {
    let bytes = 2 * list.len() as u64 * size_of::<T>() as u64;
    list.try_reserve(list.len().max(4)).map_err(|_| no_memory(what, bytes))
}

/// The error for a failed allocation.
#[cold]
pub fn no_memory(what: &str, bytes: u64) -> Error {
    Error::new(Kind::Memory, format!("no memory for {what} of {bytes} bytes"))
}

/// The little-endian u32 at `at`. The caller guarantees that it lies inside `bytes`.
pub fn u32_le(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

/// The little-endian u64 at `at`. The caller guarantees that it lies inside `bytes`.
pub fn u64_le(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Appends `value` as a base-128 varint in its shortest form.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// How many bytes [`put_varint`] writes for `value`.
pub fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Reads numbers and slices from a buffer, never past its end.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    what: &'static str,
    bytes: &'a [u8],
    at: usize,
    base: u64,
}

impl<'a> Cursor<'a> {
    /// A cursor over `bytes`, called `what` in errors; `base` is their offset in the file.
    pub fn new(what: &'static str, bytes: &'a [u8], base: u64) -> Self {
        Cursor { what, bytes, at: 0, base }
    }

    /// How many bytes were read so far.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The bytes not yet read.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// Whether all bytes are read.
    pub fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// An error at the cursor's position.
    pub fn error(&self, problem: impl std::fmt::Display) -> Error {
        Error::format(format!("{}: {problem}", self.what)).at(self.base + self.at as u64)
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: u64) -> Result<&'a [u8]> {
        let left = self.bytes.len() - self.at;
        match usize::try_from(n) {
            Ok(n) if n <= left => {
                let taken = &self.bytes[self.at..self.at + n];
                self.at += n;
                Ok(taken)
            }
            _ => Err(self.error("ends early").expected(format_args!("{n} more bytes")).found(left)),
        }
    }

    /// The next byte.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    /// The next little-endian u32.
    pub fn u32_le(&mut self) -> Result<u32> {
        Ok(u32_le(self.take(4)?, 0))
    }

    /// The next little-endian u64.
    pub fn u64_le(&mut self) -> Result<u64> {
        Ok(u64_le(self.take(8)?, 0))
    }

    /// The next varint of at most 64 bits.
    pub fn varint64(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for (i, &byte) in self.rest().iter().take(MAX_VARINT64).enumerate() {
            if i == MAX_VARINT64 - 1 && byte > 1 {
                return Err(self.error("a varint is longer than 64 bits"));
            }
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.at += i + 1;
                return Ok(value);
            }
        }
        Err(self.error("a varint ends early"))
    }

    /// The next varint of at most 32 bits.
    pub fn varint32(&mut self) -> Result<u32> {
        let mut look = self.clone();
        let value = look.varint64()?;
        if look.at - self.at > 5 {
            return Err(self.error("a varint is longer than 32 bits"));
        }
        let value = u32::try_from(value)
            .map_err(|_| self.error(format_args!("a varint is over 32 bits: {value}")))?;
        self.at = look.at;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_round_trip_in_their_shortest_form(value: u64) {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            prop_assert_eq!(out.len(), varint_len(value));
            let mut cursor = Cursor::new("test", &out, 0);
            prop_assert_eq!(cursor.varint64().unwrap(), value);
            prop_assert!(cursor.is_empty());
        }

        #[test]
        fn no_input_makes_a_cursor_panic(bytes: Vec<u8>, n: u64) {
            let mut cursor = Cursor::new("test", &bytes, 0);
            let _ = cursor.varint32();
            let _ = cursor.varint64();
            let _ = cursor.take(n);
            let _ = cursor.u64_le();
        }
    }

    #[test]
    fn a_varint_that_is_too_long_or_cut_is_an_error_at_its_place() {
        for bytes in [&[0x80u8; 11][..], &[0xff; 9], &[0x80, 0x80]] {
            let error = Cursor::new("sizes", bytes, 40).varint64().unwrap_err();
            assert_eq!(error.offset(), Some(40));
        }
        assert!(Cursor::new("x", &[0xff, 0xff, 0xff, 0xff, 0x1f], 0).varint32().is_err());
        assert_eq!(Cursor::new("x", &[0xff, 0xff, 0xff, 0xff, 0x0f], 0).varint32().unwrap(), u32::MAX);
    }

    #[test]
    fn a_range_that_overflows_or_leaves_the_file_is_refused() {
        assert_eq!(range("x", 2, 3, 5).unwrap(), 2..5);
        assert!(range("x", 3, 3, 5).is_err());
        assert!(range("x", u64::MAX, 2, 5).is_err());
    }
}
