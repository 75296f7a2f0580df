//! Visits every byte of a file in order. After damage, the next record is searched for.

use super::frame::{self, AROUND, HEADER};
use super::stream;
use super::stream_walk;
use crate::bytes;
use crate::error::{Error, Result};
use crate::format::search::{FindHeader, Search};
use crate::format::walk::{OneRecord, SoundChunk, Span, Walk};
use crate::hash::crc32c;
use crate::storage::window::Window;

pub(super) fn walk(walk: &Walk<'_>, visit: &mut dyn FnMut(Span<'_>) -> Result<()>) -> Result<()> {
    let Walk { storage, cx, .. } = *walk;
    let (wrapper, begins_well) = stream::wrapper(storage, cx)?;
    let unwrapped = match wrapper {
        _ if begins_well || !walk.salvages() => None,
        _ => stream::without_wrapper(storage, cx)?,
    };
    match (unwrapped, wrapper) {
        (Some((wrapper, stream)), _) => stream_walk::walk(walk, wrapper, stream, visit),
        (None, Some(wrapper)) => {
            stream_walk::walk(walk, wrapper, stream::UnpackedStream::new(storage, wrapper, cx), visit)
        }
        (None, None) => walk_plain(walk, visit),
    }
}

/// A file that is not compressed.
pub(super) fn walk_plain(walk: &Walk<'_>, visit: &mut dyn FnMut(Span<'_>) -> Result<()>) -> Result<()> {
    let mut file = Search::new(walk);
    let (mut at, mut record, mut found_by_search) = (0, 0, false);
    while at < file.size {
        let next = next(&mut file, at);
        let damaged = match next {
            Ok((end, content)) => {
                let record_bytes = end - at - AROUND;
                visit(Span::Records(SoundChunk {
                    range: at..end,
                    record_bytes,
                    first_record: record,
                    records: 1,
                    decoded_bytes: Some(record_bytes),
                    found_by_search,
                    detail: 0,
                    content: content.as_ref().map(|record| record as _),
                }))?;
                at = end;
                None
            }
            Err(bad) => Some(bad),
        };
        if let Some(Bad { error, end }) = damaged {
            let error = walk.damage(error.for_record(record))?;
            // If the header is right, it says where the next record begins. A header that was found by search may be
            // part of another record, and may claim records that are sound.
            let end = match end {
                Some(end) if !found_by_search || !file.may_hash(end - at) => end,
                _ => {
                    found_by_search = true;
                    file.find(at + 1, &mut Lengths::default())?
                }
            };
            visit(Span::damage(at..end, error))?;
            at = end;
        }
        record += 1;
    }
    Ok(())
}

/// A damaged record. `end` is where it ends, if its header is right.
struct Bad {
    error: Error,
    end: Option<u64>,
}

impl From<Error> for Bad {
    fn from(error: Error) -> Self {
        Bad { error, end: None }
    }
}

/// Where the record at `at` ends, and its data if the walk wants it.
fn next<'f>(file: &'f mut Search<'_>, at: u64) -> std::result::Result<(u64, Option<OneRecord<'f>>), Bad> {
    let (walk, size) = (file.walk, file.size);
    let checksums = walk.options.checksums;
    let head = file.window.get("record header", at, HEADER.min(size - at))?;
    let end = frame::end(frame::length(head, at, checksums)?, at, size)?;
    let in_data = |error: Error| Bad { end: (!error.is_from_outside()).then_some(end), error };
    if walk.wants_content() {
        let stored = file.window.get("record", at, end - at)?;
        let data = frame::data(stored, at, checksums).map_err(in_data)?;
        return Ok((end, Some(OneRecord(data))));
    }
    if !walk.is_headers_only() && checksums {
        let (stored, computed) = hashes(&mut file.window, at, end)?;
        frame::check(stored, computed, at).map_err(in_data)?;
    }
    Ok((end, None))
}

/// The checksum of the data of the record at `at..end`, as it is stored and as it is computed.
fn hashes(window: &mut Window<'_>, at: u64, end: u64) -> Result<(u32, u32)> {
    let mut crc = 0;
    window.pieces("record", at + HEADER, end - at - AROUND, |piece| crc = crc32c::append(crc, piece))?;
    Ok((bytes::u32_le(window.get("record checksum", end - 4, 4)?, 0), crc32c::mask(crc)))
}

/// The lengths that records begin with. Most bytes of a damaged range are none, and are passed over quickly.
#[derive(Default)]
struct Lengths {
    /// The last length whose checksum was computed, and that checksum. Damaged files have long runs of zeros.
    last: Option<(u64, u32)>,
}

impl FindHeader for Lengths {
    const HEADER: u64 = HEADER;
    const SMALLEST: u64 = AROUND;
    /// The length of the data.
    type Header = u64;

    fn find(&mut self, piece: &[u8], at: u64, file_size: u64) -> Option<(u64, u64)> {
        let room = file_size - at;
        piece.windows(HEADER as usize).enumerate().find_map(|(i, head)| {
            let (length, checksum) = head.split_first_chunk()?;
            let length = u64::from_le_bytes(*length);
            // Nearly all bytes that are not a header look like a length that reaches past the end of the file. They
            // cost no hash.
            let fits = length.saturating_add(AROUND + i as u64) <= room;
            (fits && self.is_right(length, bytes::u32_le(checksum, 0))).then_some((at + i as u64, length))
        })
    }

    fn is_chunk(&mut self, at: u64, length: &u64, file: &mut Search<'_>) -> Result<bool> {
        let end = at + length + AROUND;
        if !file.may_hash(end - at) {
            return Ok(false);
        }
        hashes(&mut file.ahead, at, end).map(|(stored, computed)| stored == computed)
    }
}

impl Lengths {
    #[inline]
    fn is_right(&mut self, length: u64, stored: u32) -> bool {
        if self.last.is_none_or(|(last, _)| last != length) {
            self.last = Some((length, crc32c::masked(&length.to_le_bytes())));
        }
        self.last.is_some_and(|(_, computed)| computed == stored)
    }
}
