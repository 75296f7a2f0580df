//! The payload of a chunk: verified, unpacked, and cut into its records.

use super::header::{Codec, HEADER, Header, PREFIX};
use crate::bytes;
use crate::codec::gzip::{self, Wrapper};
use crate::codec::snappy_frames;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::format::ReadOptions;
use std::borrow::Cow;
use std::ops::Range;

/// Compares the checksum of a chunk whose header and payload are `stored`, at `at` in the file.
pub(super) fn check(header: &Header, stored: &[u8], at: u64, options: &ReadOptions) -> Result<()> {
    if !options.checksums {
        return Ok(());
    }
    let computed = crc32fast::hash(&stored[HEADER as usize..]);
    if computed == header.checksum {
        return Ok(());
    }
    Err(Error::checksum("chunk checksum mismatch")
        .at(at)
        .expected(format_args!("{:#010x}", header.checksum))
        .found(format_args!("{computed:#010x}"))
        .hint("other chunks are readable"))
}

/// The unpacked payload of a chunk whose header and payload are `stored`, at `at` in the file.
pub(super) fn unpack<'a>(
    header: &Header,
    stored: &'a [u8],
    at: u64,
    options: &ReadOptions,
    _cx: &Cx<'_>,
) -> Result<Cow<'a, [u8]>> {
    let payload = &stored[HEADER as usize..];
    let base = at + HEADER;
    check(header, stored, at, options)?;
    // Where each record ends is kept beside the bytes, so it counts against the limit with them.
    let ends = u64::from(header.records) * size_of::<usize>() as u64;
    let limit = options.limits.decoded_chunk_bytes.saturating_sub(ends);
    let unpacked = match header.codec {
        Codec::None => return Ok(Cow::Borrowed(payload)),
        Codec::Gzip => gzip::decompress(Wrapper::Gzip, payload, base, limit)?,
        Codec::Snappy => {
            let (unpacked, end) = snappy_frames::decompress(payload, base, limit, options.checksums)?;
            if end != payload.len() {
                return Err(Error::format("snappy frames behind the last record of a chunk")
                    .at(base + end as u64)
                    .expected("the end of the chunk")
                    .found(format_args!("{} bytes", payload.len() - end)));
            }
            unpacked
        }
    };
    Ok(Cow::Owned(unpacked))
}

/// Calls `each` with the place of every record in an unpacked payload, which must hold exactly `records` of them.
pub(super) fn split(
    unpacked: &[u8],
    records: u32,
    at: u64,
    mut each: impl FnMut(Range<usize>) -> Result<()>,
) -> Result<()> {
    let mut position = 0;
    for record in 0..records {
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
    Err(Error::format("bytes behind the last record of a chunk")
        .at(at)
        .expected(format_args!("{position} bytes for {records} records"))
        .found(unpacked.len()))
}

/// The records of an unpacked payload without the lengths between them, and where each ends.
///
/// `places` are their places, in order.
pub(super) fn without_lengths(unpacked: Cow<'_, [u8]>, places: &mut [usize]) -> Vec<u8> {
    let total = unpacked.len() - PREFIX * places.len();
    let (mut begin, mut filled) = (PREFIX, 0);
    match unpacked {
        Cow::Borrowed(unpacked) => {
            let mut out = Vec::with_capacity(total);
            for end in places {
                out.extend_from_slice(&unpacked[begin..*end]);
                begin = *end + PREFIX;
                *end = out.len();
            }
            out
        }
        // Moved forward in place: a second buffer would double the memory of a large chunk.
        Cow::Owned(mut unpacked) => {
            for end in places {
                unpacked.copy_within(begin..*end, filled);
                filled += *end - begin;
                begin = *end + PREFIX;
                *end = filled;
            }
            unpacked.truncate(total);
            unpacked
        }
    }
}
