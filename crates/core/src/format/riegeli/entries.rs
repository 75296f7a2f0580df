//! Entries for chunks, from a footer or a scan, and checks that they can be true.

use super::block;
use crate::error::{Error, Result};

/// One chunk, as a footer lists it or a scan finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it begins.
    pub offset: u64,
    /// How many records it holds.
    pub records: u64,
    /// Decoded size of the records, if it is known.
    pub decoded: Option<u64>,
}

impl Entry {
    /// Checks that this chunk can come next. `last` is the offset and the number of records of the chunk before it.
    #[inline]
    pub fn check(&self, last: Option<(u64, u64)>) -> Result<()> {
        let wrong = |what: &'static str| Err(Error::format(what).found(self.offset));
        if self.records == 0 {
            return wrong("a chunk holds no records");
        }
        if !block::is_boundary(self.offset) {
            return wrong("a chunk has an offset where no chunk can begin");
        }
        match last {
            Some((offset, _)) if offset >= self.offset => wrong("chunk offsets do not increase"),
            Some(last) => check_room(last, self.offset),
            None => Ok(()),
        }
    }
}

/// Totals over the entries, added in file order. Each entry is checked against the one before it.
#[derive(Clone, Copy, Debug, Default)]
pub struct EntrySum {
    /// How many entries there are.
    pub chunks: u64,
    /// How many records they hold.
    pub records: u64,
    /// Offset and records of the last chunk, if there is one.
    pub last: (u64, u64),
}

impl EntrySum {
    /// Adds the next entry. An error changes nothing.
    #[inline]
    pub fn add(&mut self, entry: &Entry) -> Result<()> {
        entry.check((self.chunks > 0).then_some(self.last))?;
        let records = self.records.checked_add(entry.records);
        self.records =
            records.ok_or_else(|| Error::format("chunks hold too many records").found(entry.offset))?;
        self.chunks += 1;
        self.last = (entry.offset, entry.records);
        Ok(())
    }

    /// Checks the last entry, whose chunk must end by `end`. Returns how many records there are.
    pub fn finish(&self, end: u64) -> Result<u64> {
        if self.chunks > 0 {
            if self.last.0 >= end {
                return Err(
                    Error::format("a chunk begins where all chunks must have ended").found(self.last.0)
                );
            }
            check_room(self.last, end)?;
        }
        Ok(self.records)
    }
}

/// Checks that a chunk has at least one byte per record. The chunk begins at `offset` and ends by `end`.
pub fn check_room((offset, records): (u64, u64), end: u64) -> Result<()> {
    let room = end - offset;
    if records <= room {
        return Ok(());
    }
    Err(Error::format("a chunk cannot hold the records that it declares")
        .at(offset)
        .expected(format_args!("at most {room}"))
        .found(records))
}
