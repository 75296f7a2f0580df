//! Every byte of a file, in order. Behind damage, the next record is looked for.

use super::frame::{self, AROUND, HEADER};
use super::stream;
use super::stream_walk;
use crate::bytes;
use crate::error::{Error, Result};
use crate::format::walk::{OneRecord, SoundChunk, Span, Walk};
use crate::hash::crc32c;
use crate::storage::window::Window;

/// How much is searched for a header at once.
const PIECE: u64 = 1 << 20;
/// What a look at another place of the file costs, in bytes that could be hashed instead.
const LOOK: u64 = 1 << 10;

pub(super) fn walk(walk: &Walk<'_>, visit: &mut dyn FnMut(Span<'_>) -> Result<()>) -> Result<()> {
    match stream::wrapper(walk.storage, walk.cx)? {
        (Some(wrapper), _) => stream_walk::walk(walk, wrapper, visit),
        (None, _) => walk_plain(walk, visit),
    }
}

/// A file that is not compressed.
pub(super) fn walk_plain(walk: &Walk<'_>, visit: &mut dyn FnMut(Span<'_>) -> Result<()>) -> Result<()> {
    let mut frames = Frames::new(walk);
    let (mut at, mut record, mut found_by_search) = (0, 0, false);
    while at < frames.size {
        let next = frames.next(at);
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
            // A right header says where the next record begins.
            let end = match end {
                Some(end) => end,
                None => {
                    found_by_search = true;
                    frames.search(at + 1)?
                }
            };
            visit(Span::damage(at..end, error))?;
            at = end;
        }
        record += 1;
    }
    Ok(())
}

/// A record that is not right; where it ends, if its header is.
struct Bad {
    error: Error,
    end: Option<u64>,
}

impl From<Error> for Bad {
    fn from(error: Error) -> Self {
        Bad { error, end: None }
    }
}

/// The records of a file, as their headers tell.
struct Frames<'a> {
    walk: &'a Walk<'a>,
    window: Window<'a>,
    /// Where a header leads to. Looked at apart, so that the search goes on where it was.
    ahead: Window<'a>,
    size: u64,
    /// Work that may still be done to find out whether a header is one, in bytes. A file made of false headers would
    /// otherwise be read once for each of them.
    budget: u64,
}

impl<'a> Frames<'a> {
    fn new(walk: &'a Walk<'a>) -> Self {
        let size = walk.storage.len();
        let window = || Window::new(walk.storage, walk.cx);
        Frames { walk, window: window(), ahead: window(), size, budget: size.saturating_mul(4) }
    }

    /// Where the record at `at` ends, and its data if that is wanted.
    fn next(&mut self, at: u64) -> std::result::Result<(u64, Option<OneRecord<'_>>), Bad> {
        let checksums = self.walk.options.checksums;
        let head = self.window.get("record header", at, HEADER.min(self.size - at))?;
        let end = frame::end(frame::length(head, at, checksums)?, at, self.size)?;
        let in_data = |error: Error| Bad { end: (!error.is_from_outside()).then_some(end), error };
        if self.walk.wants_content() {
            let stored = self.window.get("record", at, end - at)?;
            let data = frame::data(stored, at, checksums).map_err(in_data)?;
            return Ok((end, Some(OneRecord(data))));
        }
        if !self.walk.is_headers_only() && checksums {
            self.check(at, end)?.map_err(in_data)?;
        }
        Ok((end, None))
    }

    /// Hashes the data of the record at `at..end`, in pieces. The outer error is one of reading.
    fn check(&mut self, at: u64, end: u64) -> Result<Result<()>> {
        let (stored, computed) = hashes(&mut self.window, at, end)?;
        Ok(frame::check(stored, computed, at))
    }

    /// Where the next record begins, or else the end of the file.
    fn search(&mut self, mut from: u64) -> Result<u64> {
        let (mut lengths, mut end) = (Lengths::default(), from);
        while self.size - from >= AROUND {
            if end - from < HEADER {
                end = self.size.min(from + PIECE);
            }
            let piece = self.window.get("damaged bytes", from, end - from)?;
            let Some((found, length)) = lengths.find(piece, from, self.size) else {
                // A header may lie across the end of the piece.
                from = end - (HEADER - 1);
                continue;
            };
            if self.is_record(found, found + length + AROUND, &mut lengths)? {
                return Ok(found);
            }
            from = found + 1;
        }
        Ok(self.size)
    }

    /// Whether this is a record: its header leads to another one, or its data has the right checksum.
    fn is_record(&mut self, at: u64, end: u64, lengths: &mut Lengths) -> Result<bool> {
        if self.size - end >= AROUND && self.spend(LOOK) {
            let head = self.ahead.get("record header", end, HEADER)?;
            if lengths.find(head, end, self.size).is_some() {
                return Ok(true);
            }
        }
        if !self.spend(end - at) {
            return Ok(false);
        }
        hashes(&mut self.ahead, at, end).map(|(stored, computed)| stored == computed)
    }

    /// Whether so much work may still be done.
    fn spend(&mut self, bytes: u64) -> bool {
        let left = self.budget.checked_sub(bytes);
        self.budget = left.unwrap_or(self.budget);
        left.is_some()
    }
}

/// The checksum of the data of the record at `at..end`, as it is stored and as it is computed.
fn hashes(window: &mut Window<'_>, at: u64, end: u64) -> Result<(u32, u32)> {
    let mut crc = 0;
    window.pieces("record", at + HEADER, end - at - AROUND, |piece| crc = crc32c::append(crc, piece))?;
    Ok((bytes::u32_le(window.get("record checksum", end - 4, 4)?, 0), crc32c::mask(crc)))
}

/// Looks for headers among bytes that may be anything. Says yes or no, and is quick about no.
#[derive(Default)]
struct Lengths {
    /// The last length whose checksum was computed, and that checksum: damaged files have long runs of zeros.
    last: Option<(u64, u32)>,
}

impl Lengths {
    /// Where the first header is in `piece`, which begins at `at`, and the length that it tells.
    fn find(&mut self, piece: &[u8], at: u64, file_size: u64) -> Option<(u64, u64)> {
        let room = file_size - at;
        piece.windows(HEADER as usize).enumerate().find_map(|(i, head)| {
            let (length, checksum) = head.split_first_chunk()?;
            let length = u64::from_le_bytes(*length);
            // A length that reaches past the end of the file is nearly always what other bytes look like. It costs no
            // hash.
            let fits = length.saturating_add(AROUND + i as u64) <= room;
            (fits && self.is_right(length, bytes::u32_le(checksum, 0))).then_some((at + i as u64, length))
        })
    }

    #[inline]
    fn is_right(&mut self, length: u64, stored: u32) -> bool {
        if self.last.is_none_or(|(last, _)| last != length) {
            self.last = Some((length, crc32c::masked(&length.to_le_bytes())));
        }
        self.last.is_some_and(|(_, computed)| computed == stored)
    }
}
