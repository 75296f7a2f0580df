//! Where the records of a file are: 8 bytes each. A record ends where the next one begins.

use super::frame::{self, AROUND, HEADER};
use super::stream::{self, Stream};
use crate::bytes;
use crate::codec::gzip::Wrapper;
use crate::error::{Error, Result};
use crate::format::{Chunk, Decoded, Description, ReadOptions, Table, side_index};
use crate::storage::file::read_some;
use crate::storage::{Storage, skim::Skim};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;

/// Headers that are looked at before a side index is believed.
const SAMPLES: u64 = 16;
/// Unpacked bytes go to their temporary file in pieces of this size.
const SPOOL_BUFFER: usize = 256 << 10;

/// The records of one file.
pub(super) struct Records {
    offsets: Vec<u64>,
    /// Where the last record ends.
    end: u64,
    checksums: bool,
    spool: Option<Spool>,
}

/// The unpacked bytes of a compressed file, in a temporary file that has no name.
struct Spool {
    wrapper: Wrapper,
    file: File,
    /// Size of the compressed file.
    stored: u64,
}

impl Records {
    pub(super) fn open(storage: &dyn Storage, options: &ReadOptions) -> Result<Self> {
        match stream::wrapper(storage)? {
            (Some(wrapper), _) => Self::spool(storage, wrapper, options),
            (None, _) => Self::skip(storage, options),
        }
    }

    /// Reads the header of each record and skips its data.
    fn skip(storage: &dyn Storage, options: &ReadOptions) -> Result<Self> {
        let (checksums, size) = (options.checksums, storage.len());
        let mut skim = Skim::new(storage);
        let (mut offsets, mut at) = (Vec::new(), 0);
        while at < size {
            let end = read_end(&mut skim, at, size, checksums).map_err(|e| match e.is_from_outside() {
                true => e,
                false => e.for_record(offsets.len() as u64),
            })?;
            offsets.push(at);
            at = end;
        }
        offsets.shrink_to_fit();
        Ok(Records { offsets, end: size, checksums, spool: None })
    }

    /// Unpacks the file, and finds the records as they come by.
    fn spool(storage: &dyn Storage, wrapper: Wrapper, options: &ReadOptions) -> Result<Self> {
        let file = tempfile::tempfile().map_err(spool_failed)?;
        let mut file = BufWriter::with_capacity(SPOOL_BUFFER, file);
        let mut stream = Stream::new(storage, wrapper);
        let mut offsets = Vec::new();
        let limit = options.limits.decoded_chunk_bytes;
        loop {
            let at = stream.position();
            let next = stream.next_length(options.checksums, limit);
            let Some(length) = next.map_err(|e| e.for_record(offsets.len() as u64))? else { break };
            let mut left = length + AROUND;
            while left > 0 {
                let piece = stream.fill(1)?;
                let taken = (piece.len() as u64).min(left) as usize;
                if taken == 0 {
                    return Err(
                        stream::cut(at, length, length + AROUND - left).for_record(offsets.len() as u64)
                    );
                }
                file.write_all(&piece[..taken]).map_err(spool_failed)?;
                stream.take(taken);
                left -= taken as u64;
            }
            offsets.push(at);
        }
        offsets.shrink_to_fit();
        let file = file.into_inner().map_err(|e| spool_failed(e.into_error()))?;
        let end = stream.position();
        Ok(Records {
            offsets,
            end,
            checksums: options.checksums,
            spool: Some(Spool { wrapper, file, stored: storage.len() }),
        })
    }

    /// Takes the offsets from a side index, after a look at some of the headers.
    pub(super) fn open_indexed(
        storage: &dyn Storage,
        index: &[u8],
        options: &ReadOptions,
    ) -> Result<Option<Self>> {
        let (mut offsets, end) = (Vec::new(), storage.len());
        let read = side_index::read(index, "tfrecord", end, AROUND, |offset, _| {
            offsets.push(offset);
            Some(())
        });
        if read.is_none() {
            return Ok(None);
        }
        let table = Records { offsets, end, checksums: options.checksums, spool: None };
        let mut skim = Skim::new(storage);
        for sample in side_index::samples(table.records(), SAMPLES) {
            let range = table.range(sample);
            match read_end(&mut skim, range.start, end, true) {
                Ok(end) if end == range.end => {}
                Err(error) if error.is_from_outside() => return Err(error),
                _ => return Ok(None),
            }
        }
        Ok(Some(table))
    }

    /// A record and all that is around it.
    fn range(&self, record: u64) -> Range<u64> {
        let at = record as usize;
        self.offsets[at]..self.offsets.get(at + 1).copied().unwrap_or(self.end)
    }

    /// Calls `act` with a record and all that is around it: `stored`, or what the spool has.
    fn with_stored<T>(&self, record: u64, stored: &[u8], act: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        let Some(spool) = &self.spool else { return act(stored) };
        let range = self.range(record);
        let mut stored = vec![0; bytes::in_memory("record", range.end - range.start)?];
        spool.read_at(range.start, &mut stored)?;
        act(&stored).map_err(stream::unpacked)
    }
}

/// Where the record at `at` ends, according to its header.
pub(super) fn read_end(skim: &mut Skim<'_>, at: u64, size: u64, checksums: bool) -> Result<u64> {
    let head = skim.get("record header", at, HEADER.min(size - at))?;
    frame::end(frame::length(head, at, checksums)?, at, size)
}

impl Spool {
    fn read_at(&self, at: u64, out: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < out.len() {
            match read_some(&self.file, &mut out[done..], at + done as u64) {
                Ok(0) => return Err(spool_failed(std::io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => done += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(spool_failed(e)),
            }
        }
        Ok(())
    }
}

fn spool_failed(error: std::io::Error) -> Error {
    Error::io("unpacking to a temporary file failed", error)
        .hint("a compressed TFRecord file needs room for all of its data where temporary files go (TMPDIR)")
}

impl Table for Records {
    fn records(&self) -> u64 {
        self.offsets.len() as u64
    }

    fn chunks(&self) -> u64 {
        self.records()
    }

    fn locate(&self, record: u64) -> Result<(Chunk, u64)> {
        // What is in the spool is not fetched from the file.
        let stored = if self.spool.is_some() { 0..0 } else { self.range(record) };
        Ok((Chunk { index: record, stored, first_record: record, records: 1 }, 0))
    }

    fn size(&self, record: u64) -> Result<Option<u64>> {
        let range = self.range(record);
        Ok(Some(range.end - range.start - AROUND))
    }

    fn direct(&self, record: u64) -> Result<Option<Range<u64>>> {
        // The checksum behind the data is not part of this range, so this is for those who do not want it checked.
        let range = self.range(record);
        let unchecked = !self.checksums && self.spool.is_none();
        Ok(unchecked.then(|| range.start + HEADER..range.end - (AROUND - HEADER)))
    }

    fn in_place(&self, _chunk: &Chunk, stored: &[u8], size: usize) -> Option<usize> {
        let is_there = self.spool.is_none() && stored.len() as u64 == size as u64 + AROUND;
        is_there.then_some(HEADER as usize)
    }

    fn decode_into(&self, chunk: &Chunk, stored: &[u8], out: &mut [u8]) -> Result<()> {
        let at = self.range(chunk.first_record).start;
        self.with_stored(chunk.first_record, stored, |stored| {
            let data = frame::data(stored, at, self.checksums)?;
            if data.len() != out.len() {
                return Err(Error::format("record has another length than its place").at(at));
            }
            out.copy_from_slice(data);
            Ok(())
        })
    }

    fn decode(&self, chunk: &Chunk, stored: &[u8]) -> Result<Decoded> {
        let at = self.range(chunk.first_record).start;
        self.with_stored(chunk.first_record, stored, |stored| {
            let data = frame::data(stored, at, self.checksums)?.to_vec();
            let ends = vec![data.len()];
            Decoded::new(data, ends)
        })
    }

    fn describe(&self) -> Description {
        let codec = self.spool.as_ref().map_or("none", |spool| spool.wrapper.name());
        let decoded_bytes = self.end - AROUND * self.records();
        let record_bytes = match &self.spool {
            None => decoded_bytes,
            // One stream, in which records cannot be told from what is around them.
            Some(spool) if self.records() > 0 => spool.stored.saturating_sub(spool.wrapper.around()),
            Some(_) => 0,
        };
        let decoded_bytes = Some(decoded_bytes);
        Description { codec: Some(codec.into()), record_bytes, decoded_bytes, options: None }
    }

    fn index_bytes(&self) -> Option<Vec<u8>> {
        // An index of a compressed file would save nothing: it has to be unpacked all the same.
        let entries = || self.offsets.iter().map(|&offset| (offset, None));
        self.spool.is_none().then(|| side_index::write("tfrecord", self.end, 0, entries()))
    }
}
