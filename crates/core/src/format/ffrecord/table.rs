//! The table at the front of a file: 12 bytes a sample, kept as they are stored.

use super::{ENTRY, HEADER};
use crate::bytes;
use crate::error::{Error, Result};
use crate::format::{Chunk, Decoded, Description, ReadOptions, Table};
use crate::prefetch;
use crate::storage::{self, Storage};
use std::ops::Range;

/// The last sample has no stored end, so its checksum is what tells that a file was cut or appended to. It is
/// verified at open unless that would mean reading more than this.
const LAST_SAMPLE_AT_OPEN: u64 = 1 << 20;

/// The samples of one file.
pub(super) struct Samples {
    /// The checksums, then the offsets, both little-endian as in the file: parsing them into other vectors
    /// would hold the table twice.
    tables: Vec<u8>,
    n: u64,
    file_size: u64,
    checksums: bool,
    old: bool,
}

impl Samples {
    pub(super) fn open(storage: &dyn Storage, options: &ReadOptions) -> Result<Self> {
        let (samples, header) = Self::read(storage, options.checksums)?;
        header?;
        samples.check_last(storage)?;
        Ok(samples)
    }

    /// The tables, structurally sound, and apart from them whether their checksum is right.
    fn read(storage: &dyn Storage, checksums: bool) -> Result<(Self, Result<()>)> {
        let (samples, header) = Self::load(storage, checksums)?;
        match samples.check_offsets() {
            Ok(()) => Ok((samples, header)),
            // The checksum tells more: offsets that are out of order because of it are its consequence.
            Err(structure) => Err(header.err().unwrap_or(structure)),
        }
    }

    /// The tables, whatever is in them, and apart from them whether their checksum is right.
    pub(super) fn load(storage: &dyn Storage, checksums: bool) -> Result<(Self, Result<()>)> {
        let file_size = storage.len();
        if file_size < HEADER {
            return Err(Error::truncated("FFRecord header is cut")
                .at(file_size)
                .expected(format_args!("at least {HEADER} bytes"))
                .found(format_args!("{file_size} bytes")));
        }
        let mut head = [0; HEADER as usize];
        storage.read_at(0, &mut head)?;
        let (stored, n) = (bytes::u32_le(&head, 0), bytes::u64_le(&head, 4));
        let tables = check_count(n, file_size)?;
        if n == 0 && file_size > HEADER {
            return Err(unfinished(stored, file_size));
        }
        let tables = storage::read_vec(storage, "FFRecord table", HEADER, tables)?;

        let samples = Samples { tables, n, file_size, checksums, old: stored == 0 && checksums };
        let header = if checksums && stored != 0 { samples.check_header(stored, &head[4..]) } else { Ok(()) };
        Ok((samples, header))
    }

    fn check_header(&self, stored: u32, count: &[u8]) -> Result<()> {
        let mut hash = crc32fast::Hasher::new();
        hash.update(count);
        hash.update(&self.tables);
        let computed = hash.finalize();
        if computed == stored {
            return Ok(());
        }
        Err(Error::checksum("FFRecord table checksum mismatch")
            .at(0)
            .expected(format_args!("{stored:#010x}"))
            .found(format_args!("{computed:#010x} computed over bytes 4..{}", self.data_begin()))
            .hint("the table is damaged; checksums=False reads it as it is"))
    }

    pub(super) fn check_offsets(&self) -> Result<()> {
        let offsets = self.tables[4 * self.n as usize..].as_chunks::<8>().0;
        let mut previous = self.data_begin();
        for (i, offset) in offsets.iter().enumerate() {
            let offset = u64::from_le_bytes(*offset);
            if offset < previous || offset > self.file_size {
                return Err(self.bad_offset(i as u64, offset, previous));
            }
            previous = offset;
        }
        Ok(())
    }

    /// What is wrong with the offset of a sample, if it cannot begin there behind one that begins at `previous`.
    pub(super) fn bad_offset(&self, sample: u64, offset: u64, previous: u64) -> Error {
        let place = HEADER + 4 * self.n + 8 * sample;
        let found = format!("offset {}", offset as i64);
        let error = if offset > self.file_size && offset as i64 > 0 {
            Error::truncated("sample begins past the end of the file")
                .expected(format_args!("at most {}, the size of the file", self.file_size))
        } else {
            Error::format("sample offset out of order").expected(format_args!("at least {previous}"))
        };
        error.at(place).for_record(sample).found(found)
    }

    /// Reads and verifies the last sample, if that is cheap.
    fn check_last(&self, storage: &dyn Storage) -> Result<()> {
        let Some(last) = self.n.checked_sub(1) else { return Ok(()) };
        let range = self.range(last);
        if !self.checksums || range.end - range.start > LAST_SAMPLE_AT_OPEN {
            return Ok(());
        }
        let sample = storage::read_vec(storage, "sample", range.start, range.end - range.start)?;
        self.check(last, &sample).map_err(|e| {
            e.for_record(last)
                .hint("the last sample ends where the file ends: it was cut, appended to or damaged")
        })
    }

    /// Where the header ends.
    pub(super) fn data_begin(&self) -> u64 {
        HEADER + ENTRY * self.n
    }

    pub(super) fn n(&self) -> u64 {
        self.n
    }

    pub(super) fn checksum(&self, sample: u64) -> u32 {
        bytes::u32_le(&self.tables, 4 * sample as usize)
    }

    pub(super) fn offset(&self, sample: u64) -> u64 {
        bytes::u64_le(&self.tables, 4 * self.n as usize + 8 * sample as usize)
    }

    /// The bytes of a sample, which `check_offsets` has found to lie inside the file and in order.
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

    fn direct(&self, record: u64) -> Result<Option<Range<u64>>> {
        // The checksum lies elsewhere; it can come while the record does.
        self.prefetch(record);
        Ok(Some(self.range(record)))
    }

    fn prefetch(&self, record: u64) {
        let (checksum, offset) = (4 * record as usize, 4 * self.n as usize + 8 * record as usize);
        for at in [checksum, offset] {
            if let Some(entry) = self.tables.get(at) {
                prefetch::address(entry);
            }
        }
    }

    fn check(&self, record: u64, bytes: &[u8]) -> Result<()> {
        if !self.checksums {
            return Ok(());
        }
        let (stored, computed) = (self.checksum(record), crc32fast::hash(bytes));
        if stored == computed { Ok(()) } else { Err(mismatch(self.range(record).start, stored, computed)) }
    }

    fn decode(&self, chunk: &Chunk, stored: &[u8]) -> Result<Decoded> {
        self.check(chunk.first_record, stored)?;
        Decoded::new(stored.to_vec(), vec![stored.len()])
    }

    fn describe(&self) -> Description {
        let begin = if self.n == 0 { self.file_size } else { self.offset(0) };
        let record_bytes = self.file_size - begin;
        let decoded_bytes = Some(record_bytes);
        Description { codec: Some("none".into()), record_bytes, decoded_bytes, options: None }
    }

    fn warning(&self) -> Option<&'static str> {
        self.old.then_some(
            "an old FFRecord file whose table has no checksum; write it again to protect its table against damage",
        )
    }
}

pub(super) fn mismatch(at: u64, stored: u32, computed: u32) -> Error {
    Error::checksum("sample checksum mismatch")
        .at(at)
        .expected(format_args!("{stored:#010x}"))
        .found(format_args!("{computed:#010x}"))
        .hint("other samples are readable")
}
