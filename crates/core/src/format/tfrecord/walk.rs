//! Every byte of a file, in order. Behind damage, the next record is looked for.

use super::frame::{self, AROUND, HEADER};
use super::scan;
use super::stream::{self, Stream};
use crate::bytes;
use crate::codec::gzip::Wrapper;
use crate::error::{Error, Result};
use crate::format::{ReadOptions, Span};
use crate::hash::crc32c;
use crate::storage::{Storage, window::Window};
use std::ops::Range;

/// How much is searched for a header at once.
const PIECE: u64 = 1 << 20;

pub(super) fn walk(
    storage: &dyn Storage,
    options: &ReadOptions,
    visit: &mut dyn FnMut(Span) -> Result<()>,
) -> Result<()> {
    if let (Some(wrapper), _) = stream::wrapper(storage)? {
        return walk_stream(storage, wrapper, options, visit);
    }
    let size = storage.len();
    let mut walk = Walk { window: Window::new(storage), size, options, budget: 4 * size };
    let (mut at, mut record) = (0, 0);
    while at < size {
        let span = match walk.next(at, record) {
            Ok(span) => span,
            Err(error) if error.is_from_outside() => return Err(error),
            Err(error) => Span::Damage(at..walk.search(at + 1)?, error),
        };
        at = span.range().end;
        visit(match span {
            Span::Damage(range, error) => Span::Damage(range, error.for_record(record)),
            span => span,
        })?;
        record += 1;
    }
    Ok(())
}

struct Walk<'a> {
    window: Window<'a>,
    size: u64,
    options: &'a ReadOptions,
    /// Bytes that may still be hashed to find out whether a header is one. A file made of false headers would
    /// otherwise be read once for each of them.
    budget: u64,
}

impl Walk<'_> {
    /// Where the record at `at` ends.
    fn end(&mut self, at: u64, checksums: bool) -> Result<u64> {
        let head = self.window.get("record header", at, HEADER.min(self.size - at))?;
        frame::end(frame::length(head, at, checksums)?, at, self.size)
    }

    /// The record at `at`, or damage in its data; an error where no record begins.
    fn next(&mut self, at: u64, record: u64) -> Result<Span> {
        let end = self.end(at, self.options.checksums)?;
        let checked = if self.options.checksums { self.check(at, end)? } else { Ok(()) };
        let (range, bytes) = (at..end, end - at - AROUND);
        Ok(match checked {
            Ok(()) => Span::Records { range, meta: AROUND, chunks: 1, first: record, records: 1, bytes },
            Err(error) => Span::Damage(range, error),
        })
    }

    /// Hashes the data of the record at `at..end`, in pieces. The outer error is one of reading.
    fn check(&mut self, at: u64, end: u64) -> Result<Result<()>> {
        let mut crc = 0;
        self.window
            .pieces("record", at + HEADER, end - at - AROUND, |piece| crc = crc32c::append(crc, piece))?;
        let stored = bytes::u32_le(self.window.get("record checksum", end - 4, 4)?, 0);
        Ok(frame::check(stored, crc32c::mask(crc), at))
    }

    /// Where the next record begins, or else the end of the file.
    fn search(&mut self, mut from: u64) -> Result<u64> {
        while self.size.saturating_sub(from) >= AROUND {
            let length = PIECE.min(self.size - from);
            let piece = self.window.get("damaged bytes", from, length)?;
            let found = piece.windows(HEADER as usize).position(|head| frame::length(head, 0, true).is_ok());
            let Some(found) = found else {
                from += length - (HEADER - 1);
                continue;
            };
            from += found as u64;
            if self.is_record(from)? {
                return Ok(from);
            }
            from += 1;
        }
        Ok(self.size)
    }

    /// Whether a record begins here: its header leads to another one, or its data has the right checksum.
    fn is_record(&mut self, at: u64) -> Result<bool> {
        let Some(end) = inside(self.end(at, true))? else { return Ok(false) };
        if end < self.size && inside(self.end(end, true))?.is_some() {
            return Ok(true);
        }
        let Some(budget) = self.budget.checked_sub(end - at) else { return Ok(false) };
        self.budget = budget;
        self.check(at, end).map(|checked| checked.is_ok())
    }
}

/// None instead of an error about the bytes.
fn inside<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(error) if error.is_from_outside() => Err(error),
        result => Ok(result.ok()),
    }
}

/// A compressed file. Spans are told in the bytes of the file: a record's are those that were unpacked to get at it.
fn walk_stream(
    storage: &dyn Storage,
    wrapper: Wrapper,
    options: &ReadOptions,
    visit: &mut dyn FnMut(Span) -> Result<()>,
) -> Result<()> {
    let size = storage.len();
    let mut stream = Stream::new(storage, wrapper);
    let (mut told, mut record) = (0, 0);
    // Records since the last span.
    let (mut records, mut bytes) = (0, 0);
    // Each of them is a chunk. What is around the stream as a whole counts with the first of them.
    let of_records = |range: Range<u64>, first: u64, records: u64, bytes: u64| {
        let meta = if range.start == 0 { wrapper.around().min(range.end) } else { 0 };
        Span::Records { range, meta, chunks: records, first, records, bytes }
    };
    loop {
        let whole = match scan::next(&mut stream, options) {
            Ok(whole) => whole,
            Err(error) if error.is_from_outside() => return Err(error),
            Err(error) => {
                // Neither what follows damage in the stream nor what follows a wrong length can be made out.
                let reached = stream.consumed().min(size);
                if records > 0 {
                    visit(of_records(told..reached, record - records, records, bytes))?;
                    told = reached;
                }
                return visit(Span::Damage(told..size, error.for_record(record)));
            }
        };
        let Some(whole) = whole else { break };
        let at = stream.position();
        let damage = frame::data(&stream.fill(whole as u64)?[..whole], at, options.checksums).err();
        stream.take(whole);
        match damage {
            None => (records, bytes) = (records + 1, bytes + whole as u64 - AROUND),
            Some(error) => {
                let reached = stream.consumed();
                if records > 0 {
                    visit(of_records(told..reached, record - records, records, bytes))?;
                    (told, records, bytes) = (reached, 0, 0);
                }
                let error: Error = stream::unpacked(error).for_record(record);
                visit(Span::Damage(told..reached, error))?;
                told = reached;
            }
        }
        record += 1;
    }
    let rest = told..size;
    visit(if records > 0 { of_records(rest, record - records, records, bytes) } else { Span::Meta(rest) })
}
