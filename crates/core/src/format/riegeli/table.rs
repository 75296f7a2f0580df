//! The table of chunks of a file: at most 16 bytes per chunk, for groups of any size.
//!
//! | groups | words per entry |
//! |---|---|
//! | one record each | offset, decoded size: the size of every record is known; in memory both in one word |
//! | equal, the last may be smaller | offset |
//! | anything else | offset, number of the first record |

use super::chunk::{CHUNK_HEADER, ChunkView};
use super::compact::Compact;
use super::entries::{Entry, EntrySum};
use super::single;
use super::two;
use super::words::{Words, WordsWriter};
use crate::bytes;
use crate::cx::Cx;
use crate::error::{Error, Kind, Result};
use crate::format::{Chunk, Decoded, Description, ReadOptions, Table, TableHome, Undecoded, Way};
use crate::hash::highway_copy::CopyHasher;
use std::ops::Range;

/// A size in a table is trusted up to this: a caller allocates memory for it before the chunk is read.
const TRUSTED_SIZE: u64 = 1 << 20;
/// A larger size is trusted up to this many times the stored bytes. Nearly all data has a lower ratio. Other data is
/// decoded first, into memory that grows with it, and then copied.
const TRUSTED_RATIO: u64 = 256;
/// Stands for a decoded size that the file does not state.
const UNKNOWN: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// One record each, in a [`Compact`] list: `words` is empty.
    Compact,
    One,
    Equal {
        group: u64,
    },
    Unequal,
}

impl Shape {
    fn words(self) -> u64 {
        if matches!(self, Shape::Equal { .. }) { 1 } else { 2 }
    }
}

/// Takes entries in the order of the file, checks them, and keeps them in the smallest shape that can hold them.
pub struct Builder<'a> {
    options: ReadOptions,
    cx: Cx<'a>,
    compact: Compact,
    words: WordsWriter<'a>,
    shape: Shape,
    listed: EntrySum,
    decoded: Option<u64>,
    expected_chunks: u64,
}

impl<'a> Builder<'a> {
    /// A builder without chunks.
    pub fn new(options: &ReadOptions, cx: &Cx<'a>) -> Self {
        Builder {
            options: *options,
            cx: *cx,
            compact: Compact::default(),
            words: WordsWriter::new(options.table, cx),
            shape: if options.table == TableHome::Memory { Shape::Compact } else { Shape::One },
            listed: EntrySum::default(),
            decoded: Some(0),
            expected_chunks: 0,
        }
    }

    /// Sets how many chunks will follow, so that the table allocates no more than its final size. The caller must have
    /// checked the number against what the file can hold.
    #[must_use]
    pub fn expecting(mut self, chunks: u64) -> Self {
        self.expected_chunks = chunks;
        self
    }

    /// Adds the next chunk.
    #[inline]
    pub fn push(&mut self, entry: Entry) -> Result<()> {
        let before = self.listed;
        self.listed.add(&entry)?;
        if self.shape == Shape::Compact && entry.records == 1 {
            if before.chunks == 0 {
                self.compact.reserve(self.expected_chunks);
            }
            if !self.compact.push(entry.offset, entry.decoded)? {
                self.become_one()?;
            }
        }
        match self.shape {
            Shape::Compact | Shape::One if entry.records == 1 => {}
            Shape::Compact | Shape::One if before.chunks == 0 => {
                self.shape = Shape::Equal { group: entry.records };
            }
            Shape::Equal { group } => {
                // Only the last group may be smaller, and the group before is no longer the last.
                if before.last.1 != group || entry.records > group {
                    self.become_unequal(before.chunks)?;
                }
            }
            Shape::Compact => {
                self.become_one()?;
                self.become_unequal(before.chunks)?;
            }
            Shape::One => self.become_unequal(before.chunks)?,
            Shape::Unequal => {}
        }
        if self.shape != Shape::Compact {
            if before.chunks == 0 {
                self.words.reserve(self.expected_chunks.saturating_mul(self.shape.words()));
            }
            self.words.push(entry.offset)?;
        }
        match self.shape {
            Shape::One => self.words.push(entry.decoded.unwrap_or(UNKNOWN))?,
            Shape::Compact | Shape::Equal { .. } => {}
            Shape::Unequal => self.words.push(before.records)?,
        }
        self.decoded = self.decoded.zip(entry.decoded).and_then(|(sum, decoded)| sum.checked_add(decoded));
        Ok(())
    }

    /// Gives every entry two words, for numbers that are too large for half a word.
    fn become_one(&mut self) -> Result<()> {
        let compact = std::mem::take(&mut self.compact);
        self.words.reserve(self.expected_chunks.saturating_mul(Shape::One.words()));
        for (offset, size) in (0..compact.count()).map_while(|index| compact.get(index)) {
            self.words.push(offset)?;
            self.words.push(size.unwrap_or(UNKNOWN))?;
        }
        self.shape = Shape::One;
        Ok(())
    }

    /// Stores the number of the first record in every entry so far. It can no longer be computed.
    fn become_unequal(&mut self, chunks: u64) -> Result<()> {
        let stride = self.shape.words();
        let group = if let Shape::Equal { group } = self.shape { group } else { 1 };
        let mut words = WordsWriter::new(self.options.table, &self.cx);
        words.reserve(self.expected_chunks.saturating_mul(Shape::Unequal.words()));
        let before = std::mem::replace(&mut self.words, WordsWriter::Memory(Vec::new())).finish()?;
        for chunk in 0..chunks {
            let mut offset = [0];
            before.get(chunk * stride, &mut offset)?;
            words.push(offset[0])?;
            words.push(chunk * group)?;
        }
        self.words = words;
        self.shape = Shape::Unequal;
        Ok(())
    }

    /// How many records there are so far.
    pub fn records(&self) -> u64 {
        self.listed.records
    }

    /// The finished table. The last chunk must end by `end`.
    pub fn finish(mut self, end: u64, description: Description) -> Result<ChunkTable> {
        self.listed.finish(end)?;
        self.compact.seal();
        let mut table = ChunkTable {
            description: Description { decoded_bytes: self.decoded, ..description },
            compact: self.compact,
            words: self.words.finish()?,
            shape: self.shape,
            chunks: self.listed.chunks,
            records: self.listed.records,
            end,
            options: self.options,
        };
        if table.chunks > 0 {
            // A chunk extends to the next one. Bytes between two chunks count as part of the first.
            let stored = end - table.entry(0)?.stored.start;
            table.description.record_bytes = stored.saturating_sub(CHUNK_HEADER * table.chunks);
        }
        Ok(table)
    }
}

/// The table of chunks of one file.
pub struct ChunkTable {
    compact: Compact,
    words: Words,
    shape: Shape,
    chunks: u64,
    records: u64,
    end: u64,
    description: Description,
    options: ReadOptions,
}

impl ChunkTable {
    /// Where a chunk of one record begins and ends, and the size of its record.
    #[inline]
    fn single(&self, index: u64) -> Result<(u64, u64, Option<u64>)> {
        if self.shape == Shape::Compact {
            let missing = || Error::format(format!("table lookup out of range: {index}"));
            let (begin, size) = self.compact.get(index).ok_or_else(missing)?;
            let end = self.compact.get(index + 1).map_or(self.end, |(next, _)| next);
            return Ok((begin, end, size));
        }
        let is_last = index + 1 == self.chunks;
        // One lookup: this entry and, unless it is the last, the offset of the next.
        let mut words = [0; 3];
        self.words.get(index * 2, &mut words[..if is_last { 2 } else { 3 }])?;
        let end = if is_last { self.end } else { words[2] };
        Ok((words[0], end, Some(words[1]).filter(|&size| size != UNKNOWN)))
    }

    fn entry(&self, index: u64) -> Result<Chunk> {
        if self.is_single() {
            let (begin, end, _) = self.single(index)?;
            return Ok(Chunk { index, stored: begin..end, first_record: index, records: 1 });
        }
        let stride = self.shape.words();
        let is_last = index + 1 == self.chunks;
        let mut words = [0; 4];
        let wanted = if is_last { stride } else { 2 * stride } as usize;
        self.words.get(index * stride, &mut words[..wanted])?;
        let next = words[stride as usize];
        let stored = words[0]..if is_last { self.end } else { next };
        let (first_record, records) = match self.shape {
            Shape::Compact | Shape::One => (index, 1),
            Shape::Equal { group } => (index * group, group.min(self.records - index * group)),
            Shape::Unequal => (words[1], if is_last { self.records } else { words[3] } - words[1]),
        };
        Ok(Chunk { index, stored, first_record, records })
    }

    /// The size of the only record of a chunk, if the stored bytes and the limits make it plausible. Nothing may be
    /// allocated for any other size. Decoding then finds out whether it is right.
    #[inline]
    fn trusted_size(&self, size: u64, stored: Range<u64>) -> Option<u64> {
        let stored = stored.end.saturating_sub(stored.start);
        let most = self.options.limits.decoded_chunk_bytes.max(stored);
        let likely = stored.saturating_mul(TRUSTED_RATIO).max(TRUSTED_SIZE);
        Some(size).filter(|&size| size <= most && size <= likely)
    }

    /// Whether every chunk holds one record.
    fn is_single(&self) -> bool {
        matches!(self.shape, Shape::Compact | Shape::One)
    }

    /// The chunk that holds a record, for unequal groups.
    fn search(&self, record: u64) -> Result<u64> {
        let (mut low, mut high) = (0, self.chunks);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let mut first = [0];
            self.words.get(middle * 2 + 1, &mut first)?;
            if first[0] <= record {
                low = middle;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    fn view<'a>(&self, begin: u64, stored: &'a [u8], records: u64, checksums: bool) -> Result<ChunkView<'a>> {
        let view = ChunkView::read(begin, stored, checksums)?;
        if view.header.records != records {
            return Err(Error::format("number of records in a chunk differs from the table")
                .at(begin)
                .expected(records)
                .found(view.header.records));
        }
        Ok(view)
    }
}

impl Table for ChunkTable {
    fn records(&self) -> u64 {
        self.records
    }

    fn chunks(&self) -> u64 {
        self.chunks
    }

    fn locate(&self, record: u64) -> Result<(Chunk, u64)> {
        if record >= self.records {
            return Err(
                Error::new(Kind::Index, format!("there are {} records", self.records)).for_record(record)
            );
        }
        let index = match self.shape {
            Shape::Compact | Shape::One => record,
            Shape::Equal { group } => record / group,
            Shape::Unequal => self.search(record)?,
        };
        let chunk = self.entry(index)?;
        let row = record - chunk.first_record;
        Ok((chunk, row))
    }

    fn size(&self, record: u64) -> Result<Option<u64>> {
        if !self.is_single() || record >= self.records {
            return Ok(None);
        }
        let (begin, end, size) = self.single(record)?;
        Ok(size.and_then(|size| self.trusted_size(size, begin..end)))
    }

    #[inline]
    fn way(&self, record: u64) -> Result<Way> {
        if !self.is_single() {
            let (chunk, row) = self.locate(record)?;
            return Ok(Way::Shared(chunk, row));
        }
        let (begin, end, size) = self.single(record)?;
        Ok(match size.and_then(|size| self.trusted_size(size, begin..end)) {
            Some(size) => Way::Alone { stored: begin..end, size: bytes::in_memory("record", size)? },
            None => {
                Way::Shared(Chunk { index: record, stored: begin..end, first_record: record, records: 1 }, 0)
            }
        })
    }

    fn prefetch(&self, record: u64) {
        match self.shape {
            Shape::Compact => self.compact.prefetch(record),
            Shape::One => self.words.prefetch(record * 2),
            Shape::Equal { group } => self.words.prefetch(record / group),
            Shape::Unequal => {}
        }
    }

    fn in_place(&self, at: u64, stored: &[u8], size: usize) -> Option<usize> {
        single::find(at, stored, size).map(|found| found.record)
    }

    fn decode_into(&self, _record: u64, at: u64, stored: &[u8], out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
        self.decode_alone(at, stored, self.options.checksums, out, cx)
    }

    fn two_at_once_from(&self) -> Option<usize> {
        // Without hashes there is nothing to wait for.
        (self.options.checksums && CopyHasher::has_two_at_once()).then_some(two::LEAST)
    }

    fn decode_two_into(&self, two: [Undecoded<'_, '_>; 2], cx: &Cx<'_>) -> Result<bool> {
        if !self.options.checksums {
            return Ok(false);
        }
        two::decode(two, cx)
    }

    fn decode(&self, chunk: &Chunk, stored: &[u8], cx: &Cx<'_>) -> Result<Decoded> {
        self.unpack(chunk, stored, self.options.checksums, cx)
    }

    fn decode_verified_into(
        &self,
        _record: u64,
        at: u64,
        stored: &[u8],
        out: &mut [u8],
        cx: &Cx<'_>,
    ) -> Result<()> {
        self.decode_alone(at, stored, false, out, cx)
    }

    fn decode_verified(&self, chunk: &Chunk, stored: &[u8], cx: &Cx<'_>) -> Result<Decoded> {
        self.unpack(chunk, stored, false, cx)
    }

    fn describe(&self) -> Description {
        self.description.clone()
    }
}

impl ChunkTable {
    #[inline]
    fn decode_alone(
        &self,
        at: u64,
        stored: &[u8],
        checksums: bool,
        out: &mut [u8],
        cx: &Cx<'_>,
    ) -> Result<()> {
        if single::decode(at, stored, checksums, out) {
            return Ok(());
        }
        // The caller decodes a file in its memory map if the file says that it is not compressed.
        let may_change = self.description.codec.as_deref() == Some("none");
        self.view(at, stored, 1, checksums)?.decode_one(may_change, out, cx)
    }

    fn unpack(&self, chunk: &Chunk, stored: &[u8], checksums: bool, cx: &Cx<'_>) -> Result<Decoded> {
        let view = self.view(chunk.stored.start, stored, chunk.records, checksums)?;
        if self.is_single()
            && let (.., Some(size)) = self.single(chunk.index)?
            && size != view.header.decoded
        {
            return Err(Error::format("decoded size of a chunk differs from the table")
                .at(chunk.stored.start)
                .expected(size)
                .found(view.header.decoded));
        }
        view.decode(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::limits::Limits;
    use crate::storage::file_set::FileSet;

    fn with_cx(act: impl FnOnce(&Cx<'_>)) {
        let limits = Limits::default();
        let files = FileSet::new(&limits);
        act(&Cx::new(&Budget::new(&limits, &files)));
    }

    fn build(home: TableHome, groups: &[u64]) -> ChunkTable {
        let options = ReadOptions { table: home, ..ReadOptions::default() };
        let files = FileSet::new(&options.limits);
        let budget = Budget::new(&options.limits, &files);
        let mut builder = Builder::new(&options, &Cx::new(&budget));
        for (i, &records) in groups.iter().enumerate() {
            builder.push(Entry { offset: 64 + 1000 * i as u64, records, decoded: Some(7) }).unwrap();
        }
        builder.finish(64 + 1000 * groups.len() as u64, Description::default()).unwrap()
    }

    #[test]
    fn every_record_is_found_in_every_shape_in_both_homes() {
        let cases: [(&[u64], Shape); 8] = [
            (&[1, 1, 1], Shape::One),
            (&[4, 4, 4], Shape::Equal { group: 4 }),
            (&[4, 4, 3], Shape::Equal { group: 4 }),
            (&[9], Shape::Equal { group: 9 }),
            (&[1, 1, 2], Shape::Unequal),
            (&[4, 4, 5], Shape::Unequal),
            (&[4, 2, 4, 2], Shape::Unequal),
            (&[3, 1, 1, 7, 2], Shape::Unequal),
        ];
        for home in [TableHome::Memory, TableHome::Disk] {
            for (groups, shape) in cases {
                let table = build(home, groups);
                let compact = home == TableHome::Memory && shape == Shape::One;
                assert_eq!(table.shape, if compact { Shape::Compact } else { shape }, "{groups:?}");
                let mut record = 0;
                for (index, &records) in groups.iter().enumerate() {
                    for row in 0..records {
                        let begin = 64 + 1000 * index as u64;
                        let expected = Chunk {
                            index: index as u64,
                            stored: begin..begin + 1000,
                            first_record: record - row,
                            records,
                        };
                        assert_eq!(table.locate(record).unwrap(), (expected, row), "{groups:?}");
                        let size = (shape == Shape::One).then_some(7);
                        assert_eq!(table.size(record).unwrap(), size);
                        record += 1;
                    }
                }
                assert!(table.locate(record).is_err());
            }
        }
    }

    #[test]
    fn numbers_of_any_size_are_kept() {
        let entries = [(64, Some(3)), (70, None), (99, Some(1 << 50)), (1 << 40, Some(5)), (1 << 41, None)];
        for count in 1..=entries.len() {
            with_cx(|cx| {
                let mut builder = Builder::new(&ReadOptions::default(), cx);
                for &(offset, decoded) in &entries[..count] {
                    builder.push(Entry { offset, records: 1, decoded }).unwrap();
                }
                let table = builder.finish(1 << 42, Description::default()).unwrap();
                assert_eq!(table.shape, if count < 3 { Shape::Compact } else { Shape::One });
                for (index, &(offset, decoded)) in entries[..count].iter().enumerate() {
                    let end = entries[..count].get(index + 1).map_or(1 << 42, |next| next.0);
                    assert_eq!(table.single(index as u64).unwrap(), (offset, end, decoded));
                    assert_eq!(table.locate(index as u64).unwrap().0.stored, offset..end);
                }
            });
        }
    }

    #[test]
    fn a_size_is_trusted_as_far_as_the_stored_bytes_make_it_likely() {
        for (stored, size, alone) in [
            (1_000, TRUSTED_SIZE, true),
            (1_000, TRUSTED_SIZE + 1, false),
            (10_000, 10_000 * TRUSTED_RATIO, true),
            (10_000, 10_000 * TRUSTED_RATIO + 1, false),
            (1_000, 4 << 30, false),
        ] {
            with_cx(|cx| {
                let mut builder = Builder::new(&ReadOptions::default(), cx);
                builder.push(Entry { offset: 64, records: 1, decoded: Some(size) }).unwrap();
                let table = builder.finish(64 + stored, Description::default()).unwrap();
                assert_eq!(matches!(table.way(0).unwrap(), Way::Alone { .. }), alone, "{stored} {size}");
                assert_eq!(table.size(0).unwrap().is_some(), alone);
            });
        }
    }

    #[test]
    fn entries_that_cannot_be_are_refused() {
        let entry = |offset, records| Entry { offset, records, decoded: None };
        for (first, second) in [
            (entry(64, 1), entry(64, 1)),
            (entry(64, 1), entry(10, 1)),
            (entry(64, 11), entry(74, 1)),
            (entry(64, 1), entry(100, 0)),
            (entry(64, 1), entry(65540, 1)),
        ] {
            with_cx(|cx| {
                let mut builder = Builder::new(&ReadOptions::default(), cx);
                builder.push(first).unwrap();
                assert!(builder.push(second).is_err(), "{first:?} {second:?}");
            });
        }
    }
}
