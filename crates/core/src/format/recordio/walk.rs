//! Every byte of a file, in order. Behind damage, the next chunk is looked for.

use super::header::{HEADER, Header, MAGIC, PREFIX};
use super::payload;
use crate::error::{Error, Result};
use crate::format::{ReadOptions, Span};
use crate::storage::{Storage, window::Window};

/// How much is searched for a header at once.
const PIECE: u64 = 1 << 20;

struct Walk<'a> {
    window: Window<'a>,
    size: u64,
    options: &'a ReadOptions,
    /// Bytes that may still be hashed to find out whether a header is one. A file made of false headers would
    /// otherwise be read once for each of them.
    budget: u64,
}

pub(super) fn walk(
    storage: &dyn Storage,
    options: &ReadOptions,
    visit: &mut dyn FnMut(Span) -> Result<()>,
) -> Result<()> {
    let size = storage.len();
    let mut walk = Walk { window: Window::new(storage), size, options, budget: 4 * size };
    let (mut at, mut record) = (0, 0);
    while at < size {
        let (span, records) = walk.next(at, record)?;
        at = span.range().end;
        record += records;
        visit(span)?;
    }
    Ok(())
}

impl Walk<'_> {
    /// The chunk at `at`, or damage up to the next one; and how many records that is.
    fn next(&mut self, at: u64, record: u64) -> Result<(Span, u64)> {
        let header = match self.header(at) {
            Ok(header) => header,
            Err(error) if error.is_from_outside() => return Err(error),
            Err(error) => return self.damage(at, error.for_record(record)),
        };
        let range = at..at + header.stored();
        match self.bytes(&header, at) {
            Ok(bytes) => {
                let records = u64::from(header.records);
                Ok((Span::Records { range, meta: HEADER, chunks: 1, first: record, records, bytes }, records))
            }
            Err(error) if error.is_from_outside() => Err(error),
            // The header leads to another one or to the end: the damage is in this chunk alone.
            Err(error) if self.leads_on(range.end)? => {
                Ok((Span::Damage(range, error.for_record(record)), header.records.into()))
            }
            Err(error) => self.damage(at, error.for_record(record)),
        }
    }

    fn header(&mut self, at: u64) -> Result<Header> {
        Header::parse(self.window.get("chunk header", at, HEADER.min(self.size - at))?, at, self.size)
    }

    /// The bytes of all records of a chunk, unpacked, if everything about it is right.
    fn bytes(&mut self, header: &Header, at: u64) -> Result<u64> {
        let stored = self.window.get("chunk", at, header.stored())?;
        let unpacked = payload::unpack(header, stored, at, self.options)?;
        payload::split(&unpacked, header.records, at, |_| Ok(()))?;
        Ok(unpacked.len() as u64 - PREFIX as u64 * u64::from(header.records))
    }

    /// Whether a chunk may end here.
    fn leads_on(&mut self, at: u64) -> Result<bool> {
        match if at == self.size { return Ok(true) } else { self.header(at) } {
            Err(error) if error.is_from_outside() => Err(error),
            header => Ok(header.is_ok()),
        }
    }

    fn damage(&mut self, at: u64, error: Error) -> Result<(Span, u64)> {
        let end = self.search(at + 1)?;
        Ok((Span::Damage(at..end, error), 0))
    }

    /// Where the next chunk begins, or else the end of the file.
    fn search(&mut self, mut from: u64) -> Result<u64> {
        while from < self.size {
            let length = PIECE.min(self.size - from);
            let piece = self.window.get("damaged bytes", from, length)?;
            let found = piece.windows(MAGIC.len()).position(|bytes| bytes == MAGIC);
            let Some(found) = found else {
                // A magic number may lie across the end of the piece.
                from += (length - length.min(MAGIC.len() as u64 - 1)).max(1);
                continue;
            };
            from += found as u64;
            if self.is_chunk(from)? {
                return Ok(from);
            }
            from += 1;
        }
        Ok(self.size)
    }

    /// Whether a chunk begins here: it has a header that leads to another one, or a payload with the right hash.
    fn is_chunk(&mut self, at: u64) -> Result<bool> {
        let header = match self.header(at) {
            Ok(header) => header,
            Err(error) if error.is_from_outside() => return Err(error),
            Err(_) => return Ok(false),
        };
        let end = at + header.stored();
        if end < self.size && self.leads_on(end)? {
            return Ok(true);
        }
        let Some(budget) = self.budget.checked_sub(header.stored()) else { return Ok(false) };
        self.budget = budget;
        let mut hash = crc32fast::Hasher::new();
        self.window.pieces("chunk", at + HEADER, header.payload.into(), |piece| hash.update(piece))?;
        Ok(hash.finalize() == header.checksum)
    }
}
