//! The walk through a file. Counting, scanning and verifying are built on it.
//!
//! Only [`Format::walk`] knows the framing of a format. It visits every byte of a file once, from the first to the
//! last, as [`Span`]s. The code in this module is the same for all formats.

use super::encode::CarriedChunk;
use super::{Format, ReadOptions, Table};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::format::options::WriteOptions;
use crate::storage::{Storage, window::Window};
use std::ops::Range;

/// How much of a file a walk reads and checks.
#[derive(Clone, Copy, Debug)]
pub enum Depth<'a> {
    /// Framing only: data is skipped.
    Headers,
    /// The walk checks every hash and decodes everything that can be decoded.
    Checked,
    /// As `Checked`, and the visitor gets every chunk of records with its [`Content`].
    Content {
        /// The options of a writer of the same format. If they allow it, that writer copies chunks in their stored
        /// form. The walk checks the hash of such a chunk and does not decode it.
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
    /// How much to read and check.
    pub depth: Depth<'a>,
    /// Whether the walk continues after damage. True: the walk visits the damage as [`Span::Damage`] and searches for
    /// the next sound chunk after it. False: the walk ends with the error.
    pub resumes: bool,
    /// Whether the walk also checks parts that no reader uses, such as padding.
    pub checks_unused: bool,
}

impl<'a> Walk<'a> {
    /// A walk that ends at the first damage.
    pub fn strict(
        storage: &'a dyn Storage,
        options: &'a ReadOptions,
        depth: Depth<'a>,
        cx: &'a Cx<'a>,
    ) -> Self {
        Walk { storage, options, cx, depth, resumes: false, checks_unused: false }
    }

    /// A walk that continues after damage.
    pub fn resuming(
        storage: &'a dyn Storage,
        options: &'a ReadOptions,
        depth: Depth<'a>,
        cx: &'a Cx<'a>,
    ) -> Self {
        Walk { resumes: true, checks_unused: true, ..Self::strict(storage, options, depth, cx) }
    }

    /// A walk that visits the content of every chunk that can be read. It continues after damage. Damage to parts that
    /// no reader uses costs no record.
    pub fn salvaging(storage: &'a dyn Storage, options: &'a ReadOptions, cx: &'a Cx<'a>) -> Self {
        let depth = Depth::Content { carry_for: None };
        Walk { resumes: true, ..Self::strict(storage, options, depth, cx) }
    }

    /// Whether damage to parts that no reader uses is ignored.
    pub fn salvages(&self) -> bool {
        self.resumes && !self.checks_unused
    }

    /// Whether only the framing is wanted.
    pub fn is_headers_only(&self) -> bool {
        matches!(self.depth, Depth::Headers)
    }

    /// Whether the content of chunks is wanted.
    pub fn wants_content(&self) -> bool {
        matches!(self.depth, Depth::Content { .. })
    }

    /// The options of the writer that may copy chunks in their stored form, if there is one.
    pub fn carry_for(&self) -> Option<&'a WriteOptions> {
        if let Depth::Content { carry_for } = self.depth { carry_for } else { None }
    }

    /// Returns `Ok(error)` if the walk visits the error as damage. Returns `Err(error)` if the walk ends at damage, or
    /// if the error says nothing about the file.
    pub fn damage(&self, error: Error) -> Result<Error> {
        if self.resumes && !error.is_from_outside() { Ok(error) } else { Err(error) }
    }
}

/// A range of a file. The spans of a walk follow each other without a gap, from the first byte to the last.
#[derive(Debug)]
pub enum Span<'a> {
    /// Structure: headers, tables and padding. The hashes that it has are verified.
    Meta(Range<u64>),
    /// A chunk of records.
    Records(SoundChunk<'a>),
    /// Filler that the table counts as part of the chunk of records before it.
    Filler(Range<u64>),
    /// Bytes that no reader uses and no hash covers. The format allows them.
    Unused(Range<u64>),
    /// Damaged bytes. The error names the first lost record. If the walk cannot tell what the bytes were, that is the
    /// next record. If they were structure that belongs to no record, the error names no record.
    Damage(Range<u64>, Error),
}

impl Span<'_> {
    /// Damage that was found at the beginning of `range`. An error can point past the range, because a wrong header can
    /// claim bytes that belong to other chunks. Its offset is then moved to the beginning of the range.
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

/// A chunk of records in which the walk found no damage.
pub struct SoundChunk<'a> {
    /// The bytes of the file that the chunk occupies.
    pub range: Range<u64>,
    /// How many of these bytes hold records. The others are structure.
    pub record_bytes: u64,
    /// Number of its first record. After a search (see [`found_by_search`](Self::found_by_search)), this number
    /// includes the lost records as far as their count is known.
    pub first_record: u64,
    /// How many records it holds.
    pub records: u64,
    /// Decoded size of the records. Known at [`Depth::Checked`], and wherever a header states it.
    pub decoded_bytes: Option<u64>,
    /// Whether a search after damage found the chunk. Such a chunk may in fact be part of a record.
    pub found_by_search: bool,
    /// A byte that only the format interprets.
    pub detail: u8,
    /// The content of the chunk, at [`Depth::Content`].
    pub content: Option<&'a dyn Content>,
}

impl std::fmt::Debug for SoundChunk<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} records from {} on in {:?}", self.records, self.first_record, self.range)
    }
}

/// The content of a sound chunk.
pub trait Content {
    /// Visits the records in order. The whole chunk is verified before the first visit.
    fn rows(&self, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;

    /// The chunk in its stored form, for the writer of [`Depth::Content`]. `None` if the chunk must be encoded again.
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

/// Counts the records of a file as cheaply as the format allows. Keeps no table.
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

/// Visits all records in order. Verifies everything that a reader relies on. Holds about one chunk at a time.
pub fn scan(
    format: &Format,
    storage: &dyn Storage,
    options: &ReadOptions,
    cx: &Cx<'_>,
    visit: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    scan_chunks(format, storage, options, None, cx, &mut |_, content| content.rows(visit))
}

/// Visits all chunks of records in order, each with its number of records. `carry_for`: see [`Depth::Content`].
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

/// Visits the records of `range` in order, as the table locates them. Holds one chunk at a time.
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
