//! One walk through a file, and what is made of it: counting, going through all records, verifying.
//!
//! A format knows its framing in one place: [`Format::walk`]. It visits every byte of a file once, from the first to the
//! last, as [`Span`]s. Everything here is the same for all formats.

use super::encode::CarriedChunk;
use super::{Format, ReadOptions, Table};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::format::options::WriteOptions;
use crate::storage::{Storage, window::Window};
use std::ops::Range;

/// How closely a walk looks.
#[derive(Clone, Copy, Debug)]
pub enum Depth<'a> {
    /// Framing only: data is skipped.
    Headers,
    /// Every hash is compared, and everything that can be decoded is.
    Checked,
    /// Chunks of records are checked as above, and then handed out as [`Content`].
    Content {
        /// The options of a writer of the same format. It takes chunks as they are stored where that is right, and such a
        /// chunk is hashed but not decoded.
        carry_for: Option<&'a WriteOptions>,
    },
}

/// A walk through one file.
#[derive(Clone, Copy)]
pub struct Walk<'a> {
    /// The file.
    pub storage: &'a dyn Storage,
    /// How it is read.
    pub options: &'a ReadOptions,
    /// The context of the call.
    pub cx: &'a Cx<'a>,
    /// How closely to look.
    pub depth: Depth<'a>,
    /// What happens at damage. True: it is visited as [`Span::Damage`], and the walk looks for the next sound chunk behind
    /// it. False: the walk ends with the error, and parts that no reader looks at are not looked at.
    pub resumes: bool,
}

impl<'a> Walk<'a> {
    /// A walk that ends at the first damage.
    pub fn strict(
        storage: &'a dyn Storage,
        options: &'a ReadOptions,
        depth: Depth<'a>,
        cx: &'a Cx<'a>,
    ) -> Self {
        Walk { storage, options, cx, depth, resumes: false }
    }

    /// A walk that goes on behind damage.
    pub fn resuming(
        storage: &'a dyn Storage,
        options: &'a ReadOptions,
        depth: Depth<'a>,
        cx: &'a Cx<'a>,
    ) -> Self {
        Walk { resumes: true, ..Self::strict(storage, options, depth, cx) }
    }

    /// Whether only the framing is wanted.
    pub fn is_headers_only(&self) -> bool {
        matches!(self.depth, Depth::Headers)
    }

    /// Whether the content of chunks is wanted.
    pub fn wants_content(&self) -> bool {
        matches!(self.depth, Depth::Content { .. })
    }

    /// The options of a writer that may take chunks as they are stored.
    pub fn carry_for(&self) -> Option<&'a WriteOptions> {
        if let Depth::Content { carry_for } = self.depth { carry_for } else { None }
    }

    /// An error to be visited as damage. It is returned instead where the walk ends at damage, and where it tells nothing
    /// about the file.
    pub fn damage(&self, error: Error) -> Result<Error> {
        if self.resumes && !error.is_from_outside() { Ok(error) } else { Err(error) }
    }
}

/// A stretch of a file. The spans of a walk follow each other without a gap, from the first byte to the last.
#[derive(Debug)]
pub enum Span<'a> {
    /// Structure: headers, tables, padding, with the hashes it has verified.
    Meta(Range<u64>),
    /// A chunk of records.
    Records(SoundChunk<'a>),
    /// Filler that the table counts to the chunk of records before it.
    Filler(Range<u64>),
    /// Bytes that no reader looks at and no hash covers, though the format allows them.
    Unused(Range<u64>),
    /// Bytes that are not as they should be. The error names the first record that is lost. Where nothing tells what the
    /// bytes were, that is the one that comes next; where they were structure that belongs to no record, it names none.
    Damage(Range<u64>, Error),
}

impl Span<'_> {
    /// Damage that was found at the beginning of a range. An error may point behind it: a wrong header claims bytes that
    /// turn out to belong to others.
    pub fn damage(range: Range<u64>, error: Error) -> Self {
        let error = error.moved_into(&range);
        Span::Damage(range, error)
    }

    /// The bytes of the file that the span covers.
    pub fn range(&self) -> &Range<u64> {
        match self {
            Span::Meta(range) | Span::Filler(range) | Span::Unused(range) | Span::Damage(range, _) => range,
            Span::Records(chunk) => &chunk.range,
        }
    }
}

/// A chunk of records with nothing wrong as far as the walk has looked.
pub struct SoundChunk<'a> {
    /// The bytes of the file that it takes.
    pub range: Range<u64>,
    /// How many of them hold records. The others are structure.
    pub record_bytes: u64,
    /// Number of its first record. Counted, so that records lost before a [`found_by_search`](Self::found_by_search) are
    /// counted as far as anything tells how many they were.
    pub first_record: u64,
    /// How many records it holds.
    pub records: u64,
    /// Their size, decoded. Known at [`Depth::Checked`], and wherever a header tells it.
    pub decoded_bytes: Option<u64>,
    /// Whether it was found by searching behind damage. What looks like a chunk there may be part of a record.
    pub found_by_search: bool,
    /// A byte that only the format knows the meaning of.
    pub detail: u8,
    /// What is in it, at [`Depth::Content`].
    pub content: Option<&'a dyn Content>,
}

impl std::fmt::Debug for SoundChunk<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} records from {} on in {:?}", self.records, self.first_record, self.range)
    }
}

/// The content of a sound chunk.
pub trait Content {
    /// Visits the records in order. Nothing is visited before all of the chunk is known to be right.
    fn rows(&self, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;

    /// The chunk as it is stored, for the writer that the walk is for. None where it has to be encoded anew.
    fn carry(&self) -> Result<Option<CarriedChunk>> {
        Ok(None)
    }
}

/// A chunk of one record.
pub struct OneRecord<'a>(pub &'a [u8]);

impl Content for OneRecord<'_> {
    #[inline]
    fn rows(&self, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        visit(self.0)
    }
}

/// How many records a file has, found out as cheaply as the format allows and without keeping a table.
pub fn count(format: &Format, storage: &dyn Storage, options: &ReadOptions, cx: &Cx<'_>) -> Result<u64> {
    let mut records = 0u64;
    let mut pace = cx.pace();
    let walk = Walk::strict(storage, options, Depth::Headers, cx);
    (format.walk)(&walk, &mut |span| {
        if let Span::Records(chunk) = span {
            let too_many = || Error::format("the file has more than 2^64 records").at(chunk.range.start);
            records = records.checked_add(chunk.records).ok_or_else(too_many)?;
        }
        pace.step(64)
    })?;
    Ok(records)
}

/// Visits all records in order, with everything verified that a reader relies on. Holds about one chunk at a time.
pub fn scan(
    format: &Format,
    storage: &dyn Storage,
    options: &ReadOptions,
    cx: &Cx<'_>,
    visit: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    scan_chunks(format, storage, options, None, cx, &mut |_, content| content.rows(visit))
}

/// Visits all chunks of records in order, each with how many records it has. `carry_for`: see [`Depth::Content`].
pub fn scan_chunks(
    format: &Format,
    storage: &dyn Storage,
    options: &ReadOptions,
    carry_for: Option<&WriteOptions>,
    cx: &Cx<'_>,
    visit: &mut dyn FnMut(u64, &dyn Content) -> Result<()>,
) -> Result<()> {
    let walk = Walk::strict(storage, options, Depth::Content { carry_for }, cx);
    (format.walk)(&walk, &mut |span| match span {
        Span::Records(SoundChunk { records, content: Some(content), .. }) => visit(records, content),
        _ => Ok(()),
    })
}

/// Visits the records of that range, in order, as a table has them. Holds one chunk at a time.
pub fn scan_table(
    table: &dyn Table,
    storage: &dyn Storage,
    range: Range<u64>,
    cx: &Cx<'_>,
    visit: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut window = Window::new(storage, cx);
    let mut record = range.start;
    while record < range.end {
        let (chunk, row) = table.locate(record)?;
        let stored = chunk.stored.end.saturating_sub(chunk.stored.start);
        let decoded = window
            .get("chunk", chunk.stored.start, stored)
            .and_then(|stored| table.decode(&chunk, stored, cx))
            .map_err(|e| e.for_record(record))?;
        for row in row..chunk.records.min(row + (range.end - record)) {
            visit(decoded.row(row).ok_or_else(|| {
                Error::format("chunk holds fewer records than the table says")
                    .at(chunk.stored.start)
                    .for_record(record)
                    .expected(chunk.records)
                    .found(decoded.rows())
            })?)?;
            record += 1;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
