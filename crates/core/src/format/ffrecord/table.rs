//! The table at the front of a file: 12 bytes per sample, kept in memory in their stored form.

use super::{ENTRY, HEADER};
use crate::bytes;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::format::{Chunk, Decoded, Description, ReadOptions, Table, Way, copy_record};
use crate::hash::crc32_copy;
use crate::prefetch;
use crate::storage::{self, Storage};
use std::ops::Range;

/// The table does not store where the last sample ends. Only the checksum of that sample shows that a file was cut or
/// appended to. Opening verifies it, unless the sample has more bytes than this.
const LAST_SAMPLE_AT_OPEN: u64 = 1 << 20;

/// Bytes, or offsets, of the table that are processed between two interruption checks.
const PIECE: usize = 1 << 20;

/// The samples of one file.
pub(super) struct Samples {
    /// The checksums, then the offsets, both little-endian as in the file. Parsing them into other vectors would hold
    /// the table twice.
    tables: Vec<u8>,
    n: u64,
    file_size: u64,
    checksums: bool,
    old: bool,
}

impl Samples {
    pub(super) fn open(storage: &dyn Storage, options: &ReadOptions, cx: &Cx<'_>) -> Result<Self> {
        let (samples, header) = Self::read(storage, options.checksums, cx)?;
        // Report a wrong checksum first. Offsets that are out of order are then only a consequence.
        header?;
        samples.check_offsets(cx)?;
        // An object in a store is never cut, and the request would double the time of opening.
        if !options.reads_on && !storage.distance().is_far() {
            samples.check_last(storage, cx)?;
        }
        Ok(samples)
    }

    /// Reads the tables, and reports separately whether their checksum is right. Does not check the offsets.
    pub(super) fn read(storage: &dyn Storage, checksums: bool, cx: &Cx<'_>) -> Result<(Self, Result<()>)> {
        let file_size = storage.len();
        if file_size < HEADER {
            return Err(Error::truncated("FFRecord header is truncated")
                .at(file_size)
                .expected(format_args!("at least {HEADER} bytes"))
                .found(format_args!("{file_size} bytes")));
        }
        let mut head = [0; HEADER as usize];
        storage.read_at(0, &mut head, cx)?;
        let (stored, n) = (bytes::u32_le(&head, 0), bytes::u64_le(&head, 4));
        let tables = check_count(n, file_size)?;
        if n == 0 && file_size > HEADER {
            return Err(unfinished(stored, file_size));
        }
        let tables = storage::read_vec(storage, "FFRecord table", HEADER, tables, cx)?;

        let samples = Samples { tables, n, file_size, checksums, old: stored == 0 && checksums };
        let header = if checksums && stored != 0 { samples.check_header(stored, cx)? } else { Ok(()) };
        Ok((samples, header))
    }

    /// Reads the tables of a file that has `n` samples, whatever its header says. The caller has checked that the file is
    /// large enough.
    pub(super) fn with_count(storage: &dyn Storage, n: u64, cx: &Cx<'_>) -> Result<Self> {
        let file_size = storage.len();
        let tables = storage::read_vec(storage, "FFRecord table", HEADER, check_count(n, file_size)?, cx)?;
        Ok(Samples { tables, n, file_size, checksums: true, old: false })
    }

    /// Whether the tables have no checksum.
    pub(super) fn is_old(&self) -> bool {
        self.old
    }

    /// The checksum of a sample.
    #[inline]
    pub(super) fn checksum(&self, sample: u64) -> u32 {
        bytes::u32_le(&self.tables, 4 * sample as usize)
    }

    /// Replaces the checksum of a sample.
    pub(super) fn set_checksum(&mut self, sample: u64, checksum: u32) {
        let at = 4 * sample as usize;
        self.tables[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Replaces the offset of a sample.
    pub(super) fn set_offset(&mut self, sample: u64, offset: u64) {
        let at = 4 * self.n as usize + 8 * sample as usize;
        self.tables[at..at + 8].copy_from_slice(&offset.to_le_bytes());
    }

    /// Sets where the last sample ends.
    pub(super) fn set_end(&mut self, end: u64) {
        self.file_size = end;
    }

    /// The checksum of the tables, computed.
    pub(super) fn header_checksum(&self, cx: &Cx<'_>) -> Result<u32> {
        let mut hash = crc32fast::Hasher::new();
        hash.update(&self.n.to_le_bytes());
        for piece in self.tables.chunks(PIECE) {
            cx.check()?;
            hash.update(piece);
        }
        Ok(hash.finalize())
    }

    /// Checks the checksum of the tables. The outer error means that the call was interrupted.
    fn check_header(&self, stored: u32, cx: &Cx<'_>) -> Result<Result<()>> {
        let computed = self.header_checksum(cx)?;
        if computed == stored {
            return Ok(Ok(()));
        }
        Ok(Err(Error::checksum("FFRecord table checksum mismatch")
            .at(0)
            .expected(format_args!("{stored:#010x}"))
            .found(format_args!("{computed:#010x} computed over bytes 4..{}", self.data_begin()))
            .hint("the table is damaged; pass checksums=False to read it without verification")))
    }

    /// Checks that every offset lies inside the file and is not less than the offset before it.
    pub(super) fn check_offsets(&self, cx: &Cx<'_>) -> Result<()> {
        let offsets = self.tables[4 * self.n as usize..].as_chunks::<8>().0;
        let (mut previous, mut sample) = (self.data_begin(), 0);
        for piece in offsets.chunks(PIECE) {
            cx.check()?;
            for offset in piece {
                let offset = u64::from_le_bytes(*offset);
                if offset < previous || offset > self.file_size {
                    return Err(self.bad_offset(sample, previous).at(HEADER + 4 * self.n + 8 * sample));
                }
                (previous, sample) = (offset, sample + 1);
            }
        }
        Ok(())
    }

    /// The error for an offset that cannot follow `previous`.
    fn bad_offset(&self, sample: u64, previous: u64) -> Error {
        let offset = self.offset(sample);
        let found = format!("offset {}", offset as i64);
        let error = if offset > self.file_size && offset as i64 > 0 {
            Error::truncated("sample begins past the end of the file")
                .expected(format_args!("at most {}, the size of the file", self.file_size))
        } else {
            Error::format("sample offset out of order").expected(format_args!("at least {previous}"))
        };
        error.for_record(sample).found(found)
    }

    /// Reads and verifies the last sample, if that is cheap.
    fn check_last(&self, storage: &dyn Storage, cx: &Cx<'_>) -> Result<()> {
        let Some(last) = self.n.checked_sub(1) else { return Ok(()) };
        let range = self.range(last);
        if !self.checksums || range.end - range.start > LAST_SAMPLE_AT_OPEN {
            return Ok(());
        }
        let sample = storage::read_vec(storage, "sample", range.start, range.end - range.start, cx)?;
        self.check(last, None, &sample).map_err(|e| e.for_record(last))
    }

    /// Where the header ends.
    pub(super) fn data_begin(&self) -> u64 {
        HEADER + ENTRY * self.n
    }

    pub(super) fn n(&self) -> u64 {
        self.n
    }

    /// Compares the computed checksum of a sample with the one in the table.
    #[inline]
    pub(super) fn check_hash(&self, sample: u64, computed: u32) -> Result<()> {
        let stored = self.checksum(sample);
        if stored == computed || !self.checksums {
            Ok(())
        } else {
            Err(self.mismatch(sample, stored, computed))
        }
    }

    #[cold]
    fn mismatch(&self, sample: u64, stored: u32, computed: u32) -> Error {
        Error::checksum("sample checksum mismatch")
            .at(self.offset(sample))
            .expected(format_args!("{stored:#010x}"))
            .found(format_args!("{computed:#010x}"))
            .hint(if sample + 1 == self.n {
                let end = self.file_size;
                format!("the last sample ends where the file ends, at byte {end}: it was truncated, appended to or damaged")
            } else {
                "other samples are readable".to_owned()
            })
    }

    pub(super) fn offset(&self, sample: u64) -> u64 {
        bytes::u64_le(&self.tables, 4 * self.n as usize + 8 * sample as usize)
    }

    /// The range of a sample, if its offsets are possible after `reached`, the end of what was visited before.
    pub(super) fn range_after(&self, sample: u64, reached: u64) -> Result<Range<u64>> {
        let range = self.range(sample);
        let bad = if range.start < reached || range.start > self.file_size {
            self.bad_offset(sample, reached)
        } else if range.end < range.start || range.end > self.file_size {
            self.bad_offset(sample + 1, range.start)
        } else {
            return Ok(range);
        };
        Err(bad.at(reached).for_record(sample))
    }

    /// The range of a sample, as the table has it. It is valid only if `check_offsets` found no error.
    pub(super) fn range(&self, sample: u64) -> Range<u64> {
        let end = if sample + 1 < self.n { self.offset(sample + 1) } else { self.file_size };
        self.offset(sample)..end
    }
}

/// The size of the tables, if a file of `file_size` bytes can hold them.
fn check_count(n: u64, file_size: u64) -> Result<u64> {
    if n > i64::MAX as u64 / ENTRY {
        return Err(Error::format("impossible number of samples")
            .at(4)
            .expected("a count that is not negative and whose table fits in a file")
            .found(n as i64));
    }
    let tables = ENTRY * n;
    if tables > file_size - HEADER {
        return Err(Error::truncated("FFRecord table reaches past the end of the file")
            .at(4)
            .expected(format_args!("at least {} bytes for {n} samples", HEADER + tables))
            .found(format_args!("{file_size} bytes")));
    }
    Ok(tables)
}

fn unfinished(stored: u32, file_size: u64) -> Error {
    let error = if stored == 0 {
        Error::format("unfinished FFRecord file: its writer never closed it").hint("write it again")
    } else {
        Error::format("FFRecord file without samples has bytes after its header")
    };
    error
        .at(HEADER)
        .expected(format_args!("{HEADER} bytes for 0 samples"))
        .found(format_args!("{file_size} bytes"))
}

impl Table for Samples {
    fn records(&self) -> u64 {
        self.n
    }

    fn chunks(&self) -> u64 {
        self.n
    }

    fn locate(&self, record: u64) -> Result<(Chunk, u64)> {
        Ok((Chunk { index: record, stored: self.range(record), first_record: record, records: 1 }, 0))
    }

    fn size(&self, record: u64) -> Result<Option<u64>> {
        let range = self.range(record);
        Ok(Some(range.end - range.start))
    }

    #[inline]
    fn way(&self, record: u64) -> Result<Way> {
        // The checksum lies elsewhere in memory. The CPU can load it while the record is read.
        self.prefetch(record);
        Ok(Way::Plain { stored: self.range(record), checksum: None })
    }

    fn decode_into(&self, record: u64, _at: u64, stored: &[u8], out: &mut [u8], _cx: &Cx<'_>) -> Result<()> {
        self.check(record, None, stored)?;
        copy_record(stored, out, self.range(record).start)
    }

    fn prefetch(&self, record: u64) {
        let (checksum, offset) = (4 * record as usize, 4 * self.n as usize + 8 * record as usize);
        for at in [checksum, offset] {
            if let Some(entry) = self.tables.get(at) {
                prefetch::address(entry);
            }
        }
    }

    fn check(&self, record: u64, _checksum: Option<u32>, bytes: &[u8]) -> Result<()> {
        if !self.checksums {
            return Ok(());
        }
        self.check_hash(record, crc32fast::hash(bytes))
    }

    #[inline]
    fn copy_plain(&self, record: u64, _checksum: Option<u32>, stored: &[u8], out: &mut [u8]) -> Result<()> {
        if !self.checksums {
            out.copy_from_slice(stored);
            return Ok(());
        }
        self.check_hash(record, crc32_copy::copy(stored, out))
    }

    fn decode(&self, chunk: &Chunk, stored: &[u8], cx: &Cx<'_>) -> Result<Decoded> {
        self.check(chunk.first_record, None, stored)?;
        Decoded::new(bytes::copied("record", stored, cx)?, vec![stored.len()])
    }

    fn describe(&self) -> Description {
        let begin = if self.n == 0 { self.file_size } else { self.offset(0) };
        let record_bytes = self.file_size - begin;
        Description {
            codec: Some("none".into()),
            record_bytes,
            unused_bytes: begin - self.data_begin(),
            decoded_bytes: Some(record_bytes),
            options: None,
        }
    }

    fn warning(&self) -> Option<&'static str> {
        self.old.then_some(
            "an old FFRecord file whose table has no checksum; write it again to protect its table against damage",
        )
    }
}
