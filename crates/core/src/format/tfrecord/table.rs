//! The table of a file: one offset of 8 bytes per record. A record ends where the next one begins.

use super::frame::{self, AROUND, HEADER};
use super::stream::{self, UnpackedStream};
use super::{stream_walk, walk};
use crate::bytes;
use crate::codec::gzip::Wrapper;
use crate::cx::Cx;
use crate::error::Result;
use crate::format::walk::{Depth, Span, Walk};
use crate::format::{Chunk, Decoded, Description, ReadOptions, Table, Way, side_index};
use crate::storage::spool::Part;
use crate::storage::{Storage, window::Window};
use std::ops::Range;

/// How many headers are checked before a side index is trusted.
const SAMPLES: u64 = 16;

/// The records of one file.
pub(super) struct Records {
    offsets: Vec<u64>,
    /// Where the last record ends.
    end: u64,
    file_size: u64,
    checksums: bool,
    spool: Option<Spooled>,
}

/// The unpacked bytes of a compressed file, in a temporary file.
struct Spooled {
    wrapper: Wrapper,
    part: Part,
}

impl Records {
    pub(super) fn open(storage: &dyn Storage, options: &ReadOptions, cx: &Cx<'_>) -> Result<Self> {
        match stream::wrapper(storage, cx)? {
            (Some(wrapper), _) => Self::spool(storage, wrapper, options, cx),
            (None, _) => Self::skip(storage, options, cx),
        }
    }

    /// Reads the header of each record and skips its data.
    fn skip(storage: &dyn Storage, options: &ReadOptions, cx: &Cx<'_>) -> Result<Self> {
        let mut offsets = Vec::new();
        walk::walk_plain(&Walk::strict(storage, options, Depth::Headers, cx), &mut |span| match span {
            Span::Records(record) => bytes::push("table of records", &mut offsets, record.range.start),
            _ => Ok(()),
        })?;
        offsets.shrink_to_fit();
        let size = storage.len();
        Ok(Records { offsets, end: size, file_size: size, checksums: options.checksums, spool: None })
    }

    /// Unpacks the file into a spool, and finds the records on the way.
    fn spool(storage: &dyn Storage, wrapper: Wrapper, options: &ReadOptions, cx: &Cx<'_>) -> Result<Self> {
        let mut part = cx.budget.files().spool.begin();
        let mut stream = UnpackedStream::new(storage, wrapper, cx);
        let mut offsets = Vec::new();
        let limit = options.limits.decoded_chunk_bytes;
        loop {
            let (at, record) = (stream.position(), offsets.len() as u64);
            let next = stream.next_length(options.checksums, limit);
            let Some(length) = next.map_err(|e| e.for_record(record))? else { break };
            stream::take_record(&mut stream, length, |piece| part.write_all(piece))
                .map_err(|e| if e.is_from_outside() { e } else { e.for_record(record) })?;
            bytes::push("table of records", &mut offsets, at)?;
        }
        offsets.shrink_to_fit();
        let end = stream.position();
        let spool = Some(Spooled { wrapper, part: part.finish()? });
        Ok(Records { offsets, end, file_size: storage.len(), checksums: options.checksums, spool })
    }

    /// Takes the offsets from a side index, after a check of some headers. `None` if the index does not fit the file.
    pub(super) fn open_indexed(
        storage: &dyn Storage,
        index: &[u8],
        options: &ReadOptions,
        cx: &Cx<'_>,
    ) -> Result<Option<Self>> {
        let (mut offsets, end) = (Vec::new(), storage.len());
        let read = side_index::read(index, "tfrecord", end, AROUND, |offset, _| {
            // If memory is missing, ignore the index. Opening without it then reports the error.
            bytes::push("table of records", &mut offsets, offset).ok()
        });
        if read.is_none() {
            return Ok(None);
        }
        let table = Records { offsets, end, file_size: end, checksums: options.checksums, spool: None };
        let mut window = Window::new(storage, cx);
        for sample in side_index::samples(table.records(), SAMPLES) {
            let range = table.range(sample);
            match read_end(&mut window, range.start, end, true) {
                Ok(end) if end == range.end => {}
                Err(error) if error.is_from_outside() => return Err(error),
                _ => return Ok(None),
            }
        }
        Ok(Some(table))
    }

    /// The range of a record with its framing.
    fn range(&self, record: u64) -> Range<u64> {
        let at = record as usize;
        self.offsets[at]..self.offsets.get(at + 1).copied().unwrap_or(self.end)
    }

    /// Calls `act` with a record and its framing: `stored`, or the bytes in the spool if the file is compressed.
    fn with_stored<T>(
        &self,
        record: u64,
        stored: &[u8],
        cx: &Cx<'_>,
        act: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<T> {
        let Some(spool) = &self.spool else { return act(stored) };
        let range = self.range(record);
        let _held = cx.budget.hold(range.end - range.start)?;
        let mut stored = bytes::zeroed("record", range.end - range.start)?;
        spool.part.read_at(range.start, &mut stored, cx.stop)?;
        act(&stored).map_err(stream::unpacked)
    }
}

/// Where the record at `at` ends, according to its header.
fn read_end(window: &mut Window<'_>, at: u64, size: u64, checksums: bool) -> Result<u64> {
    let head = window.get("record header", at, HEADER.min(size - at))?;
    frame::end(frame::length(head, at, checksums)?, at, size)
}

impl Table for Records {
    fn records(&self) -> u64 {
        self.offsets.len() as u64
    }

    fn chunks(&self) -> u64 {
        self.records()
    }

    fn locate(&self, record: u64) -> Result<(Chunk, u64)> {
        // A record in the spool needs no bytes from the file.
        let stored = if self.spool.is_some() { 0..0 } else { self.range(record) };
        Ok((Chunk { index: record, stored, first_record: record, records: 1 }, 0))
    }

    fn size(&self, record: u64) -> Result<Option<u64>> {
        let range = self.range(record);
        Ok(Some(range.end - range.start - AROUND))
    }

    #[inline]
    fn way(&self, record: u64) -> Result<Way> {
        let range = self.range(record);
        let (begin, end) = (range.start + HEADER, range.end - (AROUND - HEADER));
        // This range does not include the checksum after the data, so it is only used if checksums are off.
        if !self.checksums && self.spool.is_none() {
            return Ok(Way::Plain { stored: begin..end, checksum: None });
        }
        // A record in the spool needs no bytes from the file.
        let stored = if self.spool.is_some() { 0..0 } else { range };
        Ok(Way::Alone { stored, size: bytes::in_memory("record", end - begin)? })
    }

    fn in_place(&self, _at: u64, stored: &[u8], size: usize) -> Option<usize> {
        let is_there = self.spool.is_none() && stored.len() as u64 == size as u64 + AROUND;
        is_there.then_some(HEADER as usize)
    }

    fn decode_into(&self, record: u64, _at: u64, stored: &[u8], out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
        let at = self.range(record).start;
        self.with_stored(record, stored, cx, |stored| frame::copy(stored, at, self.checksums, out))
    }

    fn decode_verified_into(
        &self,
        record: u64,
        _at: u64,
        stored: &[u8],
        out: &mut [u8],
        cx: &Cx<'_>,
    ) -> Result<()> {
        let at = self.range(record).start;
        self.with_stored(record, stored, cx, |stored| frame::copy(stored, at, false, out))
    }

    fn decode(&self, chunk: &Chunk, stored: &[u8], cx: &Cx<'_>) -> Result<Decoded> {
        let at = self.range(chunk.first_record).start;
        self.with_stored(chunk.first_record, stored, cx, |stored| {
            let mut data = bytes::zeroed("record", (stored.len() as u64).saturating_sub(AROUND))?;
            frame::copy(stored, at, self.checksums, &mut data)?;
            let ends = vec![data.len()];
            Decoded::new(data, ends)
        })
    }

    fn describe(&self) -> Description {
        let codec = self.spool.as_ref().map_or("none", |spool| spool.wrapper.name());
        let data = self.end - AROUND * self.records();
        let record_bytes = match &self.spool {
            None => data,
            Some(_) if self.records() == 0 => 0,
            Some(spool) => {
                let packed = stream_walk::packed(spool.wrapper, self.file_size);
                packed.end - packed.start
            }
        };
        Description {
            codec: Some(codec.into()),
            record_bytes,
            unused_bytes: 0,
            decoded_bytes: Some(data),
            options: None,
        }
    }

    fn index_bytes(&self) -> Option<Vec<u8>> {
        // An index of a compressed file would save nothing: the file must be unpacked anyway.
        let entries = || self.offsets.iter().map(|&offset| (offset, None));
        self.spool.is_none().then(|| side_index::write("tfrecord", self.end, 0, entries()))
    }
}
