//! Where the records of a chunk are. This is found when the chunk is first read, and then cached.
//!
//! A chunk has 32 MiB by default, and no table of its records. Once the positions of its records are known, a record
//! costs only its own bytes. In an uncompressed chunk, these are the bytes of the record. In a snappy chunk, they are a
//! few frames, if no frame holds bytes of two records. The original writes such frames. To read a record of any other
//! chunk, the whole chunk must be unpacked.

use super::header::{Codec, HEADER, Header, PREFIX};
use crate::bytes;
use crate::cache::Weight;
use crate::codec::snappy_frames::Frames;
use crate::cx::Cx;
use crate::error::Result;
use std::ops::Range;

/// A record of an uncompressed chunk. A payload has less than 2^32 bytes, so 32 bits are enough.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plain {
    /// Where it ends in the payload. It begins after its length, which follows the record before it.
    pub(super) end: u32,
    /// CRC-32 of its bytes. Later reads are verified with it.
    pub(super) checksum: u32,
}

/// A record of a snappy chunk that shares no frame with another record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Framed {
    /// Where its frames begin in the payload. The frame of its length comes first. They end where the frames of the
    /// next record begin.
    begin: u32,
    /// Its size, unpacked.
    size: u32,
}

/// The records of one chunk.
pub(super) enum Rows {
    Plain(Vec<Plain>),
    Framed(Vec<Framed>, u32),
}

impl Weight for Rows {
    fn weight(&self) -> usize {
        let heap = match self {
            Rows::Plain(rows) => rows.capacity() * size_of::<Plain>(),
            Rows::Framed(rows, _) => rows.capacity() * size_of::<Framed>(),
        };
        heap + size_of::<Self>()
    }
}

impl Rows {
    /// The bytes needed to cache the positions of `records` records.
    pub(super) fn weight_of(records: u64) -> u64 {
        records.saturating_mul(size_of::<Plain>() as u64) + size_of::<Self>() as u64
    }

    /// The records of an unpacked chunk. `ends` is where each ends in `unpacked`. `None` if they cannot be read one by
    /// one.
    pub(super) fn of(
        header: &Header,
        stored: &[u8],
        unpacked: &[u8],
        ends: &[usize],
        checksums: bool,
        cx: &Cx<'_>,
    ) -> Result<Option<Self>> {
        let begins = std::iter::once(0).chain(ends.iter().copied());
        let mut pace = cx.pace();
        match header.codec {
            Codec::None => {
                let mut rows = bytes::list("rows of a chunk", ends.len() as u64)?;
                for (begin, &end) in begins.zip(ends) {
                    pace.step((end - begin) as u64 + 32)?;
                    let checksum =
                        if checksums { crc32fast::hash(&unpacked[begin + PREFIX..end]) } else { 0 };
                    rows.push(Plain { end: end as u32, checksum });
                }
                Ok(Some(Rows::Plain(rows)))
            }
            Codec::Snappy => Self::framed(&stored[HEADER as usize..], ends, cx),
            Codec::Gzip => Ok(None),
        }
    }

    /// Where the frames of each record begin. `None` if a frame holds bytes of two records.
    fn framed(payload: &[u8], ends: &[usize], cx: &Cx<'_>) -> Result<Option<Self>> {
        let mut frames = Frames::of_stream(payload, 0);
        let mut rows = bytes::list("rows of a chunk", ends.len() as u64)?;
        // Unpacked bytes before the next frame.
        let (mut reached, mut pace) = (0, cx.pace());
        for (begin, &end) in std::iter::once(0).chain(ends.iter().copied()).zip(ends) {
            let mut first = None;
            while reached < end {
                let Ok(Some(frame)) = frames.next_frame() else { return Ok(None) };
                if reached == begin {
                    first.get_or_insert(frame.begin as u32);
                }
                reached += frame.decoded_bytes();
                pace.step(64)?;
            }
            // The last frame must not hold bytes of the next record.
            let Some(first) = first.filter(|_| reached == end) else { return Ok(None) };
            rows.push(Framed { begin: first, size: (end - begin - PREFIX) as u32 });
        }
        Ok(Some(Rows::Framed(rows, payload.len() as u32)))
    }

    /// The size of a record.
    pub(super) fn size(&self, row: u64) -> Option<u64> {
        match self {
            Rows::Plain(_) => self.bytes(row).map(|bytes| bytes.end - bytes.start),
            Rows::Framed(rows, _) => rows.get(row as usize).map(|row| row.size.into()),
        }
    }

    /// Where the bytes of a record of an uncompressed chunk are, relative to the chunk header.
    pub(super) fn bytes(&self, row: u64) -> Option<Range<u64>> {
        let Rows::Plain(rows) = self else { return None };
        let end = rows.get(row as usize)?.end;
        let before = if row == 0 { 0 } else { rows[row as usize - 1].end };
        Some(HEADER + u64::from(before) + PREFIX as u64..HEADER + u64::from(end))
    }

    /// The checksum of a record of an uncompressed chunk.
    pub(super) fn checksum(&self, row: u64) -> Option<u32> {
        let Rows::Plain(rows) = self else { return None };
        rows.get(row as usize).map(|row| row.checksum)
    }

    /// Where the frames of a record are, relative to the chunk header.
    pub(super) fn frames(&self, row: u64) -> Option<Range<u64>> {
        let Rows::Framed(rows, payload) = self else { return None };
        let begin = rows.get(row as usize)?.begin;
        let end = rows.get(row as usize + 1).map_or(*payload, |next| next.begin);
        Some(HEADER + u64::from(begin)..HEADER + u64::from(end))
    }
}
