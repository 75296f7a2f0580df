//! The table of chunks of a file: 16 bytes per chunk, found by skipping from header to header.

use super::header::{Codec, HEADER, Header, PREFIX};
use super::payload;
use super::rows::Rows;
use super::survey;
use super::walk;
use crate::bytes;
use crate::cache::Cache;
use crate::codec::snappy_frames::Frames;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::format::walk::{Depth, Span, Walk};
use crate::format::{Chunk, Decoded, Description, ReadOptions, Surveyed, Table, Way, side_index};
use crate::hash::crc32_copy;
use crate::storage::{Storage, window::Window};
use std::sync::Arc;

/// Bytes for the cache of where records are in their chunks.
const ROWS_BYTES: usize = 64 << 20;
/// How many headers are checked before a side index is trusted.
const SAMPLES: u64 = 16;

#[derive(Clone, Copy, Debug)]
struct ChunkPlace {
    offset: u64,
    /// Number of the first record after this chunk.
    end: u64,
}

/// The chunks of one file.
pub(super) struct Chunks {
    places: Vec<ChunkPlace>,
    file_size: u64,
    /// One bit for each codec that a chunk of the file uses.
    codecs: u8,
    options: ReadOptions,
    rows: Cache<u64, Rows>,
}

impl Chunks {
    fn empty(storage: &dyn Storage, options: &ReadOptions) -> Self {
        let rows = Cache::new(ROWS_BYTES);
        Chunks { places: Vec::new(), file_size: storage.len(), codecs: 0, options: *options, rows }
    }

    /// Skips from header to header.
    pub(super) fn open(storage: &dyn Storage, options: &ReadOptions, cx: &Cx<'_>) -> Result<Self> {
        let mut table = Self::empty(storage, options);
        walk::walk(&Walk::strict(storage, options, Depth::Headers, cx), &mut |span| {
            if let Span::Records(chunk) = span {
                table.codecs |= chunk.detail;
                let end = table.records() + chunk.records;
                bytes::push(
                    "table of chunks",
                    &mut table.places,
                    ChunkPlace { offset: chunk.range.start, end },
                )?;
            }
            Ok(())
        })?;
        table.places.shrink_to_fit();
        Ok(table)
    }

    /// Takes the places from a side index, after a check of some headers. `None` if the index does not fit the file.
    pub(super) fn open_indexed(
        storage: &dyn Storage,
        index: &[u8],
        options: &ReadOptions,
        cx: &Cx<'_>,
    ) -> Result<Option<Self>> {
        let mut table = Self::empty(storage, options);
        let size = table.file_size;
        let mut records = 0u64;
        let detail = side_index::read(index, "recordio", size, HEADER, |offset, count| {
            records = records.checked_add(count).filter(|_| count > 0)?;
            // If memory is missing, ignore the index. Opening without it then reports the error.
            bytes::push("table of chunks", &mut table.places, ChunkPlace { offset, end: records }).ok()
        });
        let Some(detail) = detail else { return Ok(None) };
        table.codecs = detail;
        let mut window = Window::new(storage, cx);
        for sample in side_index::samples(table.chunks(), SAMPLES) {
            let chunk = table.whole(sample);
            match read_header(&mut window, chunk.stored.start, size) {
                Ok(header) if header.is_of(&chunk) && detail & (1 << header.codec.number()) != 0 => {}
                Err(error) if error.is_from_outside() => return Err(error),
                _ => return Ok(None),
            }
        }
        Ok(Some(table))
    }

    /// The number of the chunk that holds a record, and the record's row in it.
    fn find(&self, record: u64) -> (u64, u64) {
        let chunk = self.places.partition_point(|place| place.end <= record);
        let first = if chunk == 0 { 0 } else { self.places[chunk - 1].end };
        (chunk as u64, record - first)
    }

    /// The chunk with this number.
    fn whole(&self, index: u64) -> Chunk {
        let at = index as usize;
        let first_record = if at == 0 { 0 } else { self.places[at - 1].end };
        let ChunkPlace { offset, end } = self.places[at];
        let next = self.places.get(at + 1).map_or(self.file_size, |next| next.offset);
        Chunk { index, stored: offset..next, first_record, records: end - first_record }
    }

    /// What is cached about the chunk that holds a record: where the chunk begins, its rows, and the record's row.
    fn cached(&self, record: u64) -> Option<(u64, Arc<Rows>, u64)> {
        let (chunk, row) = self.find(record);
        Some((self.places.get(chunk as usize)?.offset, self.rows.get(chunk)?, row))
    }

    /// Compares the checksum of a record with the one that was computed when its chunk was first read.
    fn compare(&self, record: u64, expected: u32, computed: u32) -> Result<()> {
        if expected == computed {
            return Ok(());
        }
        let place = self.cached(record).and_then(|(offset, rows, row)| Some(offset + rows.bytes(row)?.start));
        Err(Error::checksum("record changed since its chunk was first read")
            .at(place.unwrap_or(self.locate(record)?.0.stored.start))
            .expected(format_args!("{expected:#010x}"))
            .found(format_args!("{computed:#010x}"))
            .hint("the file changed; open it again"))
    }

    fn unpack(&self, chunk: &Chunk, stored: &[u8], options: &ReadOptions, cx: &Cx<'_>) -> Result<Decoded> {
        let at = chunk.stored.start;
        let head = &stored[..stored.len().min(HEADER as usize)];
        let header = Header::parse(head, at, self.file_size)?;
        if !header.is_of(chunk) || stored.len() as u64 != header.stored() {
            return Err(Error::format("chunk does not match its table entry")
                .at(at)
                .expected(format_args!(
                    "{} records in {} bytes",
                    chunk.records,
                    chunk.stored.end.saturating_sub(at)
                ))
                .found(format_args!("{} in {}", header.records, header.stored()))
                .hint("the file changed, or its side index belongs to another file"));
        }
        let mut held = cx.budget.nothing();
        let unpacked = payload::unpack(&header, stored, at, options, &mut held, cx)?;
        let mut ends = payload::ends(&header, &unpacked, &mut held)?;
        payload::split(&unpacked, header.records, at, cx, |place| {
            bytes::push("ends of records", &mut ends, place.end)
        })
        .map_err(|e| e.for_record(chunk.first_record + ends.len() as u64))?;
        // Rows have checksums of the records, so they must come from bytes that were verified.
        if options.checksums == self.options.checksums
            && Rows::weight_of(chunk.records) <= ROWS_BYTES as u64
            && let Some(rows) = Rows::of(&header, stored, &unpacked, &ends, self.options.checksums, cx)?
        {
            self.rows.put(chunk.index, Arc::new(rows));
        }
        let bytes = payload::without_lengths(unpacked, &mut ends, &mut held, cx)?;
        Decoded::new(bytes, ends)
    }
}

impl Header {
    fn is_of(&self, chunk: &Chunk) -> bool {
        let stored = chunk.stored.end.saturating_sub(chunk.stored.start);
        self.stored() == stored && u64::from(self.records) == chunk.records
    }
}

fn read_header(window: &mut Window<'_>, at: u64, file_size: u64) -> Result<Header> {
    Header::parse(window.get("chunk header", at, HEADER.min(file_size - at))?, at, file_size)
}

/// Unpacks the frames of one record into `out`. The frame of its length comes first.
fn decode_frames(stored: &[u8], at: u64, out: &mut [u8], checksums: bool, cx: &Cx<'_>) -> Result<()> {
    let mut length = [0; PREFIX];
    let mut pace = cx.pace();
    let mut frames = Frames::of_part(stored, at);
    let total = PREFIX + out.len();
    let mut reached = 0;
    while let Some(frame) = frames.next_frame()? {
        let next = reached + frame.decoded_bytes();
        pace.step(frame.decoded_bytes() as u64 + 64)?;
        if next > total {
            reached = next;
            break;
        }
        if next <= PREFIX {
            frame.decode_into(&mut length[reached..next], checksums)?;
        } else if reached >= PREFIX {
            frame.decode_into(&mut out[reached - PREFIX..next - PREFIX], checksums)?;
        } else {
            let mut both = bytes::zeroed("snappy frame", (next - reached) as u64)?;
            frame.decode_into(&mut both, checksums)?;
            let (head, tail) = both.split_at(PREFIX - reached);
            length[reached..].copy_from_slice(head);
            out[..tail.len()].copy_from_slice(tail);
        }
        reached = next;
    }
    if reached == total && u32::from_le_bytes(length) as usize == out.len() {
        return Ok(());
    }
    Err(Error::format("record changed since its chunk was first read")
        .at(at)
        .expected(format_args!("{} bytes", out.len()))
        .found(format_args!("{} of {}", reached.saturating_sub(PREFIX), u32::from_le_bytes(length)))
        .hint("the file changed; open it again"))
}

impl Table for Chunks {
    fn records(&self) -> u64 {
        self.places.last().map_or(0, |place| place.end)
    }

    fn chunks(&self) -> u64 {
        self.places.len() as u64
    }

    fn locate(&self, record: u64) -> Result<(Chunk, u64)> {
        let (chunk, row) = self.find(record);
        Ok((self.whole(chunk), row))
    }

    fn shared_chunk(&self, record: u64) -> Option<(u64, u64)> {
        Some(self.find(record))
    }

    fn way(&self, record: u64) -> Result<Way> {
        if let Some((offset, rows, row)) = self.cached(record) {
            if let Some(bytes) = rows.bytes(row) {
                // The rows may leave the cache before the bytes are read.
                let checksum = rows.checksum(row).filter(|_| self.options.checksums);
                return Ok(Way::Plain { stored: offset + bytes.start..offset + bytes.end, checksum });
            }
            if let (Some(frames), Some(size)) = (rows.frames(row), rows.size(row)) {
                let stored = offset + frames.start..offset + frames.end;
                return Ok(Way::Alone { stored, size: bytes::in_memory("record", size)? });
            }
        }
        let (chunk, row) = self.locate(record)?;
        Ok(Way::Shared(chunk, row))
    }

    fn size(&self, record: u64) -> Result<Option<u64>> {
        Ok(self.cached(record).and_then(|(_, rows, row)| rows.size(row)))
    }

    fn check(&self, record: u64, checksum: Option<u32>, bytes: &[u8]) -> Result<()> {
        checksum.map_or(Ok(()), |expected| self.compare(record, expected, crc32fast::hash(bytes)))
    }

    fn copy_plain(&self, record: u64, checksum: Option<u32>, stored: &[u8], out: &mut [u8]) -> Result<()> {
        if let Some(expected) = checksum {
            return self.compare(record, expected, crc32_copy::copy(stored, out));
        }
        out.copy_from_slice(stored);
        Ok(())
    }

    fn decode_into(&self, _record: u64, at: u64, stored: &[u8], out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
        decode_frames(stored, at, out, self.options.checksums, cx)
    }

    fn survey_bytes(&self, chunk: &Chunk) -> Option<u64> {
        let has_plain_chunks = self.codecs & (1 << Codec::None.number()) != 0;
        let bytes = Rows::weight_of(chunk.records);
        has_plain_chunks.then_some(bytes)
    }

    fn survey(&self, chunk: &Chunk, stored: &[u8], cx: &Cx<'_>) -> Result<Option<Surveyed<'_>>> {
        // A copy, because the bytes may change meanwhile.
        let Some(&head) = stored.first_chunk::<{ HEADER as usize }>() else { return Ok(None) };
        let Ok(header) = Header::parse(&head, chunk.stored.start, self.file_size) else { return Ok(None) };
        if header.codec != Codec::None || !header.is_of(chunk) || stored.len() as u64 != header.stored() {
            return Ok(None);
        }
        let rows = survey::rows(&header, &stored[HEADER as usize..], self.options.checksums, cx)?;
        let index = chunk.index;
        Ok(rows.map(|rows| Box::new(move || self.rows.put(index, Arc::new(rows))) as Surveyed<'_>))
    }

    fn decode(&self, chunk: &Chunk, stored: &[u8], cx: &Cx<'_>) -> Result<Decoded> {
        self.unpack(chunk, stored, &self.options, cx)
    }

    fn decode_verified_into(
        &self,
        _record: u64,
        at: u64,
        stored: &[u8],
        out: &mut [u8],
        cx: &Cx<'_>,
    ) -> Result<()> {
        decode_frames(stored, at, out, false, cx)
    }

    fn decode_verified(&self, chunk: &Chunk, stored: &[u8], cx: &Cx<'_>) -> Result<Decoded> {
        // If the rows have left the cache, only verified bytes can bring them back. A gzip chunk never has any.
        let has_rows = self.codecs != 1 << Codec::Gzip.number();
        let checksums = self.options.checksums && has_rows && self.rows.get(chunk.index).is_none();
        self.unpack(chunk, stored, &ReadOptions { checksums, ..self.options }, cx)
    }

    fn describe(&self) -> Description {
        let only = |codec: Codec| self.codecs == 1 << codec.number();
        let codec = Codec::ALL.into_iter().zip(Codec::NAMES).find(|(codec, _)| only(*codec));
        let plain = only(Codec::None) || self.places.is_empty();
        let payloads = self.file_size.saturating_sub(HEADER * self.chunks());
        Description {
            codec: codec.map(|(_, name)| name.to_owned()),
            record_bytes: payloads,
            unused_bytes: 0,
            decoded_bytes: plain.then(|| payloads.saturating_sub(PREFIX as u64 * self.records())),
            options: None,
        }
    }

    fn index_bytes(&self) -> Option<Vec<u8>> {
        let mut first = 0;
        let entries = self.places.iter().map(|place| {
            let count = place.end - first;
            first = place.end;
            (place.offset, Some(count))
        });
        Some(side_index::write("recordio", self.file_size, self.codecs, entries))
    }
}
