//! The fast path for a chunk that holds one uncompressed record. Files with one record per chunk consist of such
//! chunks.
//!
//! The code knows the layout of such a chunk byte for byte. It copies and hashes the record in one pass, so the
//! bytes are loaded from memory once. Any other chunk takes the general path, which decodes it or reports what is wrong
//! with it.
//!
//! The copy comes first, and the hash is that of the copy. The chunk may lie in a memory map, and another process may
//! overwrite the file between the two.

use super::block::{BLOCK, left_in_block};
use super::chunk::{CHUNK_HEADER, ChunkView, kind};
use crate::bytes;
use crate::cx::Cx;
use crate::hash::highway;
use crate::hash::highway_copy::CopyHasher;
use std::mem::MaybeUninit;

/// Up to this size a chunk is copied to the stack first. A hash of one piece takes 50 instructions less than a hash of
/// two.
const TINY: usize = 256;
const HEADER: usize = CHUNK_HEADER as usize;
/// The longest stored form of a record size: nine bytes of seven bits.
const MOST_SIZE_BYTES: usize = 9;

/// A chunk with the expected layout.
pub struct Lone<'a> {
    header: &'a [u8; HEADER],
    /// The data: a few bytes, and the record.
    pub data: &'a [u8],
    /// Where the record begins in the chunk.
    pub record: usize,
}

impl Lone<'_> {
    /// Whether the hash of the header is right.
    #[inline]
    pub fn has_sound_header(&self) -> bool {
        highway::hash(&self.header[8..]) == bytes::u64_le(self.header, 0)
    }

    /// The hash of the data, as the header has it.
    #[inline]
    pub fn data_hash(&self) -> u64 {
        bytes::u64_le(self.header, 16)
    }

    /// Where the record begins in the data.
    #[inline]
    pub fn record_in_data(&self) -> usize {
        self.record - HEADER
    }
}

/// Checks whether the chunk that begins at `begin` is whole, has no block header in it, and holds one record of `size`
/// bytes.
#[inline]
pub fn find(begin: u64, stored: &[u8], size: usize) -> Option<Lone<'_>> {
    // No block header may lie at its beginning or inside it.
    if begin.is_multiple_of(BLOCK) || left_in_block(begin) < stored.len() as u64 {
        return None;
    }
    let (header, behind) = stored.split_first_chunk::<HEADER>()?;
    let data_size = bytes::u64_le(header, 8);
    let one_simple_record = u64::from(kind::SIMPLE) | 1 << 8;
    if bytes::u64_le(header, 24) != one_simple_record
        || bytes::u64_le(header, 32) != size as u64
        || data_size > behind.len() as u64
    {
        return None;
    }
    let data = &behind[..data_size as usize];
    // The layout: 0 for uncompressed, the length of the sizes, the one size, the record.
    let (&[0, sizes], rest) = data.split_first_chunk::<2>()? else { return None };
    let sizes = usize::from(sizes);
    if sizes > MOST_SIZE_BYTES || rest.len() != sizes + size || !is_varint_of(&rest[..sizes], size) {
        return None;
    }
    Some(Lone { header, data, record: HEADER + 2 + sizes })
}

/// Copies the record into `out`, which has the record's size, if the chunk that begins at `begin` has the expected
/// layout and right hashes. Returns false if the caller must use the general path. The content of `out` is then
/// undefined.
#[inline]
pub fn decode(begin: u64, stored: &[u8], checksums: bool, out: &mut [u8]) -> bool {
    let Some(lone) = find(begin, stored, out.len()) else { return false };
    let (before, content) = lone.data.split_at(lone.record_in_data());
    if !checksums {
        out.copy_from_slice(content);
        return true;
    }
    if !lone.has_sound_header() {
        return false;
    }
    let found = if lone.data.len() <= TINY {
        copy_tiny(lone.data, before.len(), out)
    } else {
        let mut hasher = CopyHasher::new();
        hasher.update(before);
        hasher.copy(content, out);
        hasher.finish()
    };
    found == lone.data_hash()
}

/// Copies `data`, which has at most [`TINY`] bytes, from `from` on to `out`, and hashes the copy of all of it.
#[inline]
fn copy_tiny(data: &[u8], from: usize, out: &mut [u8]) -> u64 {
    let mut own = MaybeUninit::<[u8; TINY]>::uninit();
    let length = data.len().min(TINY);
    // SAFETY: the array has room for `length` bytes, which are copied before they are read.
    let own = unsafe {
        std::ptr::copy_nonoverlapping(data.as_ptr(), own.as_mut_ptr().cast::<u8>(), length);
        std::slice::from_raw_parts(own.as_ptr().cast::<u8>(), length)
    };
    out.copy_from_slice(&own[from..]);
    highway::hash(own)
}

/// Whether `bytes` are the shortest varint of `number`.
#[inline]
fn is_varint_of(bytes: &[u8], mut number: usize) -> bool {
    let Some((last, before)) = bytes.split_last() else { return false };
    for &byte in before {
        if byte != number as u8 | 0x80 {
            return false;
        }
        number >>= 7;
    }
    usize::from(*last) == number && *last < 0x80
}

impl ChunkView<'_> {
    /// Does what [`verify`](Self::verify) does, and copies the data from `from` on to `out` in the same pass.
    pub fn verify_copying(&self, from: u64, out: &mut [u8], cx: &Cx<'_>) -> crate::Result<()> {
        self.check_data_blocks()?;
        let mut hasher = CopyHasher::new();
        let (mut skip, mut done, mut pace) = (from as usize, 0, cx.pace());
        for piece in self.data_pieces() {
            let (before, wanted) = piece.split_at(skip.min(piece.len()));
            skip -= before.len();
            let (wanted, behind) = wanted.split_at(wanted.len().min(out.len() - done));
            let copy = &mut out[done..done + wanted.len()];
            if self.checksums {
                hasher.update(before);
                hasher.copy(wanted, copy);
                hasher.update(behind);
            } else {
                copy.copy_from_slice(wanted);
            }
            done += wanted.len();
            pace.step(piece.len() as u64)?;
        }
        self.check_data_hash(|| hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::put_varint;
    use crate::format::riegeli::chunk::Header;

    fn chunk(record: &[u8]) -> Vec<u8> {
        let mut data = vec![0];
        let mut size = Vec::new();
        put_varint(&mut size, record.len() as u64);
        data.push(size.len() as u8);
        data.extend(size);
        data.extend_from_slice(record);
        let header = Header {
            data_size: data.len() as u64,
            data_hash: highway::hash(&data),
            kind: kind::SIMPLE,
            records: 1,
            decoded: record.len() as u64,
        };
        [&header.to_bytes()[..], &data].concat()
    }

    #[test]
    fn records_of_every_size_come_out_whole() {
        for size in (0..300).chain([4000, 8187, 8188, 8189, 8190, 16_383, 16_384, 60_000]) {
            let record: Vec<u8> = (0..size).map(|i| (i * 7 % 251) as u8).collect();
            for checksums in [true, false] {
                let mut out = vec![1; size];
                assert!(decode(64, &chunk(&record), checksums, &mut out), "{size}");
                assert!(out == record, "{size}");
            }
        }
    }

    #[test]
    fn no_flipped_bit_is_accepted_and_none_panics() {
        for size in [0, 1, 100, 5000] {
            let stored = chunk(&vec![7; size]);
            for bit in (0..8 * stored.len()).step_by(if size > 1000 { 37 } else { 1 }) {
                let mut damaged = stored.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(!decode(64, &damaged, true, &mut vec![0; size]), "bit {bit} of {size} bytes");
            }
            for cut in 0..stored.len().min(200) {
                assert!(!decode(64, &stored[..cut], true, &mut vec![0; size]));
            }
        }
    }

    #[test]
    fn a_chunk_with_a_block_header_takes_the_general_path() {
        let stored = chunk(&[7; 100]);
        assert!(decode(65_536 - stored.len() as u64, &stored, true, &mut [0; 100]));
        assert!(!decode(65_536 - stored.len() as u64 + 1, &stored, true, &mut [0; 100]));
        assert!(!decode(65_536, &stored, true, &mut [0; 100]));
    }
}
