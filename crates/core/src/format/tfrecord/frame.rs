//! The framing of a record: its length and a checksum of the length before the data, and a checksum of the data after
//! it.

use crate::bytes;
use crate::error::{Error, Result};
use crate::format::copy_record;
use crate::hash::crc32c;

/// Bytes before the data: the length and its checksum.
pub(in crate::format) const HEADER: u64 = 12;
/// Bytes after the data: its checksum.
pub(in crate::format) const TRAILER: usize = 4;
/// Bytes of framing: the header before the data and the checksum after it.
pub(super) const AROUND: u64 = HEADER + TRAILER as u64;

/// Reads the length from a record header. `head` is its 12 bytes, or as many of them as there are. `at` is its offset.
pub(super) fn length(head: &[u8], at: u64, checksums: bool) -> Result<u64> {
    if (head.len() as u64) < HEADER {
        return Err(Error::truncated("record header is truncated")
            .at(at)
            .expected(format_args!("{HEADER} bytes"))
            .found(head.len()));
    }
    let (stored, computed) = (bytes::u32_le(head, 8), crc32c::masked(&head[..8]));
    if checksums && stored != computed {
        return Err(Error::checksum("record length checksum mismatch")
            .at(at)
            .expected(format_args!("{stored:#010x}"))
            .found(format_args!("{computed:#010x} for a length of {}", bytes::u64_le(head, 0))));
    }
    Ok(bytes::u64_le(head, 0))
}

/// Where a record with `length` bytes of data ends if it begins at `at`, in a file of `size` bytes.
pub(super) fn end(length: u64, at: u64, size: u64) -> Result<u64> {
    let whole = length.checked_add(AROUND).ok_or_else(|| impossible(length, at))?;
    bytes::range("record", at, whole, size).map(|range| range.end)
}

pub(super) fn impossible(length: u64, at: u64) -> Error {
    Error::format("impossible record length").at(at).expected("less than 2^64 - 16").found(length)
}

/// The verified data of a record. `stored` is the record with its framing.
pub(super) fn data(stored: &[u8], at: u64, checksums: bool) -> Result<&[u8]> {
    let (data, checksum) = split(stored, at, checksums)?;
    if checksums {
        check(bytes::u32_le(checksum, 0), crc32c::masked(data), at)?;
    }
    Ok(data)
}

/// Copies the data of a record to `out`, which must have its size, and verifies the copy. `stored` is the record with
/// its framing. It may lie in a memory map, and change between the copy and the check.
pub(super) fn copy(stored: &[u8], at: u64, checksums: bool, out: &mut [u8]) -> Result<()> {
    let (data, checksum) = split(stored, at, checksums)?;
    copy_record(data, out, at)?;
    if checksums { check(bytes::u32_le(checksum, 0), crc32c::masked(out), at) } else { Ok(()) }
}

/// The data of a record, not verified, and the checksum behind it. `stored` is the record with its framing.
fn split(stored: &[u8], at: u64, checksums: bool) -> Result<(&[u8], &[u8])> {
    let length = length(&stored[..stored.len().min(HEADER as usize)], at, checksums)?;
    if end(length, 0, stored.len() as u64).ok() != Some(stored.len() as u64) {
        return Err(Error::format("record length differs from the table")
            .at(at)
            .expected(format_args!("{} bytes", (stored.len() as u64).saturating_sub(AROUND)))
            .found(length)
            .hint("the file changed, or its side index belongs to another file"));
    }
    Ok(stored[HEADER as usize..].split_at(stored.len() - AROUND as usize))
}

/// Compares the checksum of the data of the record at `at`.
pub(super) fn check(stored: u32, computed: u32, at: u64) -> Result<()> {
    if stored == computed {
        return Ok(());
    }
    Err(Error::checksum("record data checksum mismatch")
        .at(at + HEADER)
        .expected(format_args!("{stored:#010x}"))
        .found(format_args!("{computed:#010x}"))
        .hint("other records are readable"))
}

/// What is stored before the data of a record.
#[inline]
pub(in crate::format) fn header(record: &[u8]) -> [u8; HEADER as usize] {
    let length = (record.len() as u64).to_le_bytes();
    let mut header = [0; HEADER as usize];
    header[..8].copy_from_slice(&length);
    header[8..].copy_from_slice(&crc32c::masked(&length).to_le_bytes());
    header
}

/// What is stored after the data of a record.
#[inline]
pub(in crate::format) fn trailer(record: &[u8]) -> [u8; TRAILER] {
    crc32c::masked(record).to_le_bytes()
}

/// Appends a record in its stored form.
pub(in crate::format) fn put(out: &mut Vec<u8>, record: &[u8]) {
    out.extend_from_slice(&header(record));
    out.extend_from_slice(record);
    out.extend_from_slice(&trailer(record));
}
