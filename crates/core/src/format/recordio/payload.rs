//! Verifies and unpacks the payload of a chunk, and splits it into records.

use super::header::{Codec, HEADER, Header, PREFIX};
use crate::budget::Held;
use crate::bytes;
use crate::codec::gzip::{self, Wrapper};
use crate::codec::snappy_frames;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::format::ReadOptions;
use std::borrow::Cow;
use std::ops::Range;

/// Bytes that are hashed between two interruption checks.
const PIECE: usize = 4 << 20;

/// Compares the checksum of a chunk whose header and payload are `stored`, at `at` in the file.
pub(super) fn check(
    header: &Header,
    stored: &[u8],
    at: u64,
    options: &ReadOptions,
    cx: &Cx<'_>,
) -> Result<()> {
    if !options.checksums {
        return Ok(());
    }
    let mut hasher = crc32fast::Hasher::new();
    for piece in stored[HEADER as usize..].chunks(PIECE) {
        cx.check()?;
        hasher.update(piece);
    }
    compare(header, hasher.finalize(), at)
}

/// Compares the checksum of a chunk with the computed one.
pub(super) fn compare(header: &Header, computed: u32, at: u64) -> Result<()> {
    if computed == header.checksum {
        return Ok(());
    }
    Err(Error::checksum("chunk checksum mismatch")
        .at(at)
        .expected(format_args!("{:#010x}", header.checksum))
        .found(format_args!("{computed:#010x}"))
        .hint("other chunks are readable"))
}

/// An empty list with room for where each record ends, for as many records as the payload can hold.
pub(super) fn ends(header: &Header, unpacked: &[u8], held: &mut Held<'_>) -> Result<Vec<usize>> {
    let count = u64::from(header.records).min((unpacked.len() / PREFIX) as u64);
    held.grow(count * size_of::<usize>() as u64)?;
    bytes::list("ends of records", count)
}

/// The unpacked payload of a chunk whose header and payload are `stored`, at `at` in the file. Its memory counts as
/// held.
pub(super) fn unpack<'a>(
    header: &Header,
    stored: &'a [u8],
    at: u64,
    options: &ReadOptions,
    held: &mut Held<'_>,
    cx: &Cx<'_>,
) -> Result<Cow<'a, [u8]>> {
    let payload = &stored[HEADER as usize..];
    let base = at + HEADER;
    check(header, stored, at, options, cx)?;
    // The list of where each record ends is kept with the bytes, so both count against the limit.
    let ends = u64::from(header.records) * size_of::<usize>() as u64;
    let limit = options.limits.decoded_chunk_bytes.saturating_sub(ends);
    let unpacked = match header.codec {
        Codec::None => return Ok(Cow::Borrowed(payload)),
        Codec::Gzip => gzip::decompress(Wrapper::Gzip, payload, base, limit, held, cx)?,
        Codec::Snappy => {
            let checksums = options.checksums;
            let (unpacked, end) = snappy_frames::decompress(payload, base, limit, checksums, held, cx)?;
            if end != payload.len() {
                return Err(Error::format("snappy frames after the last record of a chunk")
                    .at(base + end as u64)
                    .expected("the end of the chunk")
                    .found(format_args!("{} bytes", payload.len() - end)));
            }
            unpacked
        }
    };
    Ok(Cow::Owned(unpacked))
}

/// Calls `each` with the range of every record in an unpacked payload, which must hold exactly `records` of them.
pub(super) fn split(
    unpacked: &[u8],
    records: u32,
    at: u64,
    cx: &Cx<'_>,
    mut each: impl FnMut(Range<usize>) -> Result<()>,
) -> Result<()> {
    let (mut position, mut pace) = (0, cx.pace());
    for record in 0..records {
        pace.step(32)?;
        let left = unpacked.len() - position;
        if left < PREFIX {
            return Err(Error::format("chunk holds fewer records than its header says")
                .at(at)
                .expected(records)
                .found(record));
        }
        let length = bytes::u32_le(unpacked, position) as usize;
        position += PREFIX;
        if length > left - PREFIX {
            return Err(Error::format("record reaches past the end of its chunk")
                .at(at)
                .expected(format_args!("at most {} bytes for record {record} of the chunk", left - PREFIX))
                .found(length));
        }
        each(position..position + length)?;
        position += length;
    }
    if position == unpacked.len() {
        return Ok(());
    }
    Err(Error::format("bytes after the last record of a chunk")
        .at(at)
        .expected(format_args!("{position} bytes for {records} records"))
        .found(unpacked.len()))
}

/// The records of an unpacked payload, without the lengths between them.
///
/// `places` holds where each record ends in the payload. On return, it holds where each record ends in the result.
pub(super) fn without_lengths(
    unpacked: Cow<'_, [u8]>,
    places: &mut [usize],
    held: &mut Held<'_>,
    cx: &Cx<'_>,
) -> Result<Vec<u8>> {
    let total = unpacked.len() - PREFIX * places.len();
    let (mut begin, mut filled, mut pace) = (PREFIX, 0, cx.pace());
    match unpacked {
        Cow::Borrowed(unpacked) => {
            held.grow(total as u64)?;
            let mut out = bytes::reserved("chunk", total as u64)?;
            for end in places {
                out.extend_from_slice(&unpacked[begin..*end]);
                pace.step((*end - begin) as u64 + 16)?;
                begin = *end + PREFIX;
                *end = out.len();
            }
            Ok(out)
        }
        // Moved forward in place: a second buffer would double the memory of a large chunk.
        Cow::Owned(mut unpacked) => {
            for end in places {
                unpacked.copy_within(begin..*end, filled);
                filled += *end - begin;
                pace.step((*end - begin) as u64 + 16)?;
                begin = *end + PREFIX;
                *end = filled;
            }
            unpacked.truncate(total);
            Ok(unpacked)
        }
    }
}
