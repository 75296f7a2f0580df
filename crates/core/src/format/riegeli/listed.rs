//! What a footer or a scan tells about chunks, and whether it can be.

use super::block;
use crate::error::{Error, Result};

/// One chunk, as a footer or a scan tells about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it begins.
    pub offset: u64,
    /// How many records it holds.
    pub records: u64,
    /// Their size, where it is known.
    pub decoded: Option<u64>,
}

/// The sum of entries in the order of the file, each checked against the one before it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Listed {
    /// How many entries there are.
    pub chunks: u64,
    /// How many records they hold.
    pub records: u64,
    /// Offset and records of the last chunk, if there is one.
    pub last: (u64, u64),
}

impl Listed {
    /// Adds the next entry. After an error everything is as before.
    #[inline]
    pub fn add(&mut self, entry: &Entry) -> Result<()> {
        let wrong = |what: &'static str| Error::format(what).found(entry.offset);
        if entry.records == 0 {
            return Err(wrong("a chunk holds no records"));
        }
        if !block::is_boundary(entry.offset) {
            return Err(wrong("a chunk's offset is one where no chunk can begin"));
        }
        if self.chunks > 0 {
            if self.last.0 >= entry.offset {
                return Err(wrong("chunk offsets do not increase"));
            }
            check_room(self.last, entry.offset)?;
        }
        let records = self.records.checked_add(entry.records);
        self.records = records.ok_or_else(|| wrong("chunks hold too many records"))?;
        self.chunks += 1;
        self.last = (entry.offset, entry.records);
        Ok(())
    }

    /// Checks the last entry, whose chunk ends by `end`. Returns how many records there are.
    pub fn finish(&self, end: u64) -> Result<u64> {
        if self.chunks > 0 {
            if self.last.0 >= end {
                return Err(Error::format("a chunk lies behind the end of the chunks").found(self.last.0));
            }
            check_room(self.last, end)?;
        }
        Ok(self.records)
    }
}

/// A chunk is at least one byte a record long.
fn check_room((offset, records): (u64, u64), end: u64) -> Result<()> {
    let room = end - offset;
    if records <= room {
        return Ok(());
    }
    Err(Error::format("a chunk cannot hold the records that it declares")
        .at(offset)
        .expected(format_args!("at most {room}"))
        .found(records))
}
