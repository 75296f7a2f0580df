//! Reads a simple chunk record by record. The memory is bounded, however large the chunk is.
//!
//! Sizes and values are two compressed streams, one after the other in the file. They are read side by side, each with
//! its own decompressor. The hash of the data is verified first, in a separate pass.

use super::block::{self, BLOCK, BLOCK_HEADER, BlockHeader};
use super::chunk::{CHUNK_HEADER, Header, fetch_header};
use super::simple::Parts;
use crate::bytes::{self, Cursor, MAX_VARINT64};
use crate::codec::zstd::{STREAMED_WINDOW, window_bytes};
use crate::codec::{Codec, Decompressor};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::hash::highway;
use crate::storage::Storage;
use std::ops::Range;

/// Bytes that are read or decompressed at a time.
const PIECE: usize = 1 << 16;
/// The longest record that is read this way.
const MAX_RECORD: u64 = 1 << 20;

/// The data of a chunk that stays in its storage.
#[derive(Clone, Copy)]
pub struct ChunkData<'a> {
    storage: &'a dyn Storage,
    cx: &'a Cx<'a>,
    /// The chunk's header.
    pub header: Header,
    begin: u64,
    end: u64,
    checksums: bool,
}

impl<'a> ChunkData<'a> {
    /// The chunk that begins at `begin` and must end by `limit`.
    pub fn find(
        storage: &'a dyn Storage,
        begin: u64,
        limit: u64,
        checksums: bool,
        cx: &'a Cx<'a>,
    ) -> Result<Self> {
        let header = fetch_header(storage, begin, limit, checksums, cx)?;
        let end = header.end(begin)?;
        bytes::range("chunk", begin, end - begin, limit.min(storage.len()))?;
        Ok(ChunkData { storage, cx, header, begin, end, checksums })
    }

    /// Checks block headers and the data's hash.
    pub fn verify(&self) -> Result<()> {
        let data_end = block::end_of(self.begin, CHUNK_HEADER + self.header.data_size).unwrap_or(self.end);
        let first = self.begin + block::left_in_block(self.begin);
        let mut pace = self.cx.pace();
        for at in (first..data_end).step_by(BLOCK as usize) {
            let mut stored = [0; BLOCK_HEADER as usize];
            self.storage.read_at(at, &mut stored, self.cx)?;
            BlockHeader::read(&stored, at, self.checksums)?.check(at, self.begin, self.end)?;
            pace.step(4 * BLOCK_HEADER)?;
        }
        if !self.checksums {
            return Ok(());
        }
        let mut hasher = highway::Hasher::new();
        let mut piece = bytes::zeroed("piece of a chunk", PIECE as u64)?;
        let mut range = 0..self.header.data_size;
        while !range.is_empty() {
            let n = self.read(&mut range, &mut piece)?;
            hasher.update(&piece[..n]);
            self.cx.check()?;
        }
        let (expected, found) = (self.header.data_hash, hasher.finish());
        if expected == found {
            return Ok(());
        }
        Err(Error::checksum("chunk data hash mismatch")
            .at(self.begin)
            .expected(format_args!("{expected:016x}"))
            .found(format_args!("{found:016x}")))
    }

    /// Reads from the front of `range` of the data, at most up to the next block header. Removes what it read from the
    /// range.
    fn read(&self, range: &mut Range<u64>, out: &mut [u8]) -> Result<usize> {
        let at = block::place_of(self.begin, CHUNK_HEADER + range.start)
            .ok_or_else(|| Error::format("chunk has an impossible size").at(self.begin))?;
        let n = (range.end - range.start).min(block::left_in_block(at)).min(out.len() as u64);
        self.storage.read_at(at, &mut out[..n as usize], self.cx)?;
        range.start += n;
        Ok(n as usize)
    }

    /// The bytes of a short range.
    fn read_whole(&self, mut range: Range<u64>) -> Result<Vec<u8>> {
        let mut out = bytes::zeroed("part of a chunk", range.end - range.start)?;
        let mut filled = 0;
        while !range.is_empty() {
            filled += self.read(&mut range, &mut out[filled..])?;
        }
        Ok(out)
    }
}

/// One of the two streams of a chunk.
struct Blob<'a> {
    data: ChunkData<'a>,
    /// The part that is not yet read from the storage.
    stored: Range<u64>,
    decompressor: Box<dyn Decompressor>,
    finished: bool,
    input: Vec<u8>,
    read: usize,
    output: Vec<u8>,
    /// The part of `output` that is not yet taken.
    ready: Range<usize>,
}

impl<'a> Blob<'a> {
    /// `None` if the stream cannot be read in pieces, or only with a window over [`STREAMED_WINDOW`].
    fn open(
        data: ChunkData<'a>,
        codec: Codec,
        mut stored: Range<u64>,
        declared: Option<u64>,
    ) -> Result<Option<Self>> {
        if codec != Codec::None {
            let front = stored.start..stored.end.min(stored.start + 32);
            let front = data.read_whole(front)?;
            let mut cursor = Cursor::new("compressed data", &front, data.begin);
            let size = cursor.varint64()?;
            if declared.is_some_and(|declared| declared != size) {
                return Err(Error::format("records have a different size than the chunk declares")
                    .at(data.begin)
                    .found(size));
            }
            stored.start += cursor.position() as u64;
            if codec == Codec::Zstd && window_bytes(cursor.rest(), size) > STREAMED_WINDOW {
                return Ok(None);
            }
        }
        let Some(decompressor) = codec.decompressor()? else { return Ok(None) };
        Ok(Some(Blob {
            data,
            stored,
            decompressor,
            finished: codec == Codec::None,
            input: Vec::new(),
            read: 0,
            output: bytes::zeroed("piece of a chunk", PIECE as u64)?,
            ready: 0..0,
        }))
    }

    /// Makes more output ready. Returns false at the end of the stream.
    fn fill(&mut self) -> Result<bool> {
        loop {
            self.data.cx.check()?;
            if self.read == self.input.len() && !self.stored.is_empty() {
                self.input.resize(PIECE, 0);
                let n = self.data.read(&mut self.stored, &mut self.input)?;
                self.input.truncate(n);
                self.read = 0;
            }
            let no_input = self.read == self.input.len();
            let progress = self.decompressor.decompress_some(&self.input[self.read..], &mut self.output)?;
            self.read += progress.consumed;
            self.finished = progress.finished;
            self.ready = 0..progress.produced;
            if progress.produced > 0 {
                return Ok(true);
            }
            if no_input || (progress.finished && progress.consumed == 0) {
                return Ok(false);
            }
            if progress.consumed == 0 {
                return Err(Error::format("decompression makes no progress").at(self.data.begin));
            }
        }
    }

    fn take(&mut self, mut out: &mut [u8]) -> Result<()> {
        while !out.is_empty() {
            if self.ready.is_empty() && !self.fill()? {
                return Err(Error::format("chunk holds less than it declares").at(self.data.begin));
            }
            let n = self.ready.len().min(out.len());
            let (now, later) = out.split_at_mut(n);
            now.copy_from_slice(&self.output[self.ready.start..self.ready.start + n]);
            self.ready.start += n;
            out = later;
        }
        Ok(())
    }

    #[inline]
    fn varint(&mut self) -> Result<u64> {
        // Nearly all sizes are one byte.
        if let Some(&byte @ ..0x80) = self.output[self.ready.clone()].first() {
            self.ready.start += 1;
            return Ok(byte.into());
        }
        let mut bytes = [0; MAX_VARINT64];
        for i in 0..MAX_VARINT64 {
            self.take(&mut bytes[i..=i])?;
            if bytes[i] < 0x80 {
                return Cursor::new("record sizes", &bytes[..=i], self.data.begin).varint64();
            }
        }
        Err(Error::format("record sizes: a varint is longer than 64 bits").at(self.data.begin))
    }

    fn finish(&mut self) -> Result<()> {
        let more = !self.ready.is_empty() || self.fill()?;
        if more || !self.finished || self.read < self.input.len() || !self.stored.is_empty() {
            return Err(Error::format("chunk holds more than it declares").at(self.data.begin));
        }
        Ok(())
    }
}

/// The records of a simple chunk, one at a time.
pub struct SimpleStream<'a> {
    sizes: Blob<'a>,
    values: Blob<'a>,
    left: u64,
    bytes_left: u64,
    record: Vec<u8>,
}

impl<'a> SimpleStream<'a> {
    /// The records of a verified chunk. `None` if the chunk must be decoded as a whole.
    pub fn open(data: ChunkData<'a>) -> Result<Option<Self>> {
        let prefix = data.read_whole(0..data.header.data_size.min(Parts::PREFIX))?;
        let parts = Parts::read(&prefix, &data.header, data.begin)?;
        let decoded = Some(data.header.decoded);
        let sizes = Blob::open(data, parts.codec, parts.sizes, None)?;
        let values = Blob::open(data, parts.codec, parts.values, decoded)?;
        Ok(sizes.zip(values).map(|(sizes, values)| SimpleStream {
            sizes,
            values,
            left: data.header.records,
            bytes_left: data.header.decoded,
            record: Vec::new(),
        }))
    }

    /// The next record. `None` after the last one, once both streams were checked to end there.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<&[u8]>> {
        let at = self.sizes.data.begin;
        if self.left == 0 {
            if self.bytes_left != 0 {
                return Err(Error::format("record sizes do not add up to the size of the chunk").at(at));
            }
            self.sizes.finish()?;
            self.values.finish()?;
            return Ok(None);
        }
        let size = self.sizes.varint()?;
        self.bytes_left = self
            .bytes_left
            .checked_sub(size)
            .ok_or_else(|| Error::format("record sizes do not add up to the size of the chunk").at(at))?;
        if size > MAX_RECORD {
            return Err(Error::limit("record of a footer is too long")
                .at(at)
                .expected(format_args!("at most {MAX_RECORD}"))
                .found(size));
        }
        self.left -= 1;
        if self.values.ready.len() >= size as usize {
            let begin = self.values.ready.start;
            self.values.ready.start += size as usize;
            return Ok(Some(&self.values.output[begin..self.values.ready.start]));
        }
        bytes::reserve_bytes("record", &mut self.record, size)?;
        self.record.resize(size as usize, 0);
        self.values.take(&mut self.record)?;
        Ok(Some(&self.record))
    }
}
