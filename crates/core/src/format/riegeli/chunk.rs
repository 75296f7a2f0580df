//! Chunks: a chunk header, the data, and zeros until there is at least one byte per record. Block headers lie in
//! between.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | hash of the 32 bytes that follow |
//! | 8 | 8 | size of the data |
//! | 16 | 8 | hash of the data |
//! | 24 | 1 | kind |
//! | 25 | 7 | number of records |
//! | 32 | 8 | size of the records, decoded |

use super::block::{self, BLOCK, BLOCK_HEADER, BlockHeader};
use super::{simple, transpose_decode};
use crate::bytes;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::format::Decoded;
use crate::hash::highway;
use crate::storage::{Storage, read_vec};
use std::borrow::Cow;
use std::ops::Range;

/// Size of a chunk header.
pub const CHUNK_HEADER: u64 = 40;
/// Offset of the decoded size in a chunk header.
pub const DECODED: usize = 32;
/// Bytes that always contain a whole chunk header, even if a block header interrupts it.
pub const HEADER_SPAN: u64 = CHUNK_HEADER + BLOCK_HEADER;

/// Kinds of chunk.
pub mod kind {
    /// The first chunk of a file.
    pub const SIGNATURE: u8 = b's';
    /// Metadata of the file. Holds no records.
    pub const METADATA: u8 = b'm';
    /// Zeros.
    pub const PADDING: u8 = b'p';
    /// Records one after the other.
    pub const SIMPLE: u8 = b'r';
    /// Records split by field.
    pub const TRANSPOSED: u8 = b't';
}

/// The header of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Size of the data, without block headers and without padding.
    pub data_size: u64,
    /// Hash of the data.
    pub data_hash: u64,
    /// See [`kind`].
    pub kind: u8,
    /// How many records the data holds.
    pub records: u64,
    /// Size of the records, decoded.
    pub decoded: u64,
}

impl Header {
    /// The stored form.
    pub fn to_bytes(self) -> [u8; CHUNK_HEADER as usize] {
        let mut bytes = [0; CHUNK_HEADER as usize];
        bytes[8..16].copy_from_slice(&self.data_size.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.data_hash.to_le_bytes());
        bytes[24..32].copy_from_slice(&(u64::from(self.kind) | self.records << 8).to_le_bytes());
        bytes[32..].copy_from_slice(&self.decoded.to_le_bytes());
        let hash = highway::hash(&bytes[8..]);
        bytes[..8].copy_from_slice(&hash.to_le_bytes());
        bytes
    }

    /// Reads the header of the chunk that begins at `begin`, where the file holds `stored`.
    pub fn read(begin: u64, stored: &[u8], checksums: bool) -> Result<Self> {
        if !block::is_boundary(begin) {
            return Err(Error::format("no chunk can begin here")
                .at(begin)
                .expected("an offset that is not inside or right after a block header")
                .found(begin));
        }
        let mut bytes = [0; CHUNK_HEADER as usize];
        let mut filled = 0;
        for piece in Pieces::new(begin, stored, 0..CHUNK_HEADER) {
            bytes[filled..filled + piece.len()].copy_from_slice(piece);
            filled += piece.len();
        }
        if filled < bytes.len() {
            return Err(Error::truncated("chunk header is truncated")
                .at(begin)
                .expected(format_args!("{CHUNK_HEADER} bytes"))
                .found(filled));
        }
        if checksums {
            let (expected, found) = (bytes::u64_le(&bytes, 0), highway::hash(&bytes[8..]));
            if expected != found {
                return Err(mismatch("chunk header hash mismatch", begin, expected, found));
            }
        }
        let kind_and_records = bytes::u64_le(&bytes, 24);
        Ok(Header {
            data_size: bytes::u64_le(&bytes, 8),
            data_hash: bytes::u64_le(&bytes, 16),
            kind: kind_and_records as u8,
            records: kind_and_records >> 8,
            decoded: bytes::u64_le(&bytes, 32),
        })
    }

    /// Where the chunk ends if it begins at `begin`. A chunk has at least one byte per record, so an end inside the
    /// file also bounds the number of records.
    pub fn end(&self, begin: u64) -> Result<u64> {
        end_of(begin, self.data_size.saturating_add(CHUNK_HEADER), self.records)
    }
}

/// Where a chunk that begins at `begin` ends, if header and data have `size` bytes.
pub fn end_of(begin: u64, size: u64, records: u64) -> Result<u64> {
    let data = block::end_of(begin, size);
    let records = begin.checked_add(records).and_then(block::next_boundary);
    match (data, records) {
        (Some(data), Some(records)) => Ok(data.max(records)),
        _ => Err(Error::format("chunk has an impossible size").at(begin).found(size - CHUNK_HEADER)),
    }
}

fn mismatch(what: &'static str, at: u64, expected: u64, found: u64) -> Error {
    let error = Error::checksum(what).at(at);
    error.expected(format_args!("{expected:016x}")).found(format_args!("{found:016x}"))
}

/// The parts of a chunk's header and data between block headers. Ends early if `stored` does.
pub(super) struct Pieces<'a> {
    stored: &'a [u8],
    at: u64,
    skipped: u64,
    left: u64,
}

impl<'a> Pieces<'a> {
    fn new(begin: u64, stored: &'a [u8], range: Range<u64>) -> Self {
        let at = block::place_of(begin, range.start).unwrap_or(u64::MAX);
        Pieces { stored, at, skipped: begin, left: range.end.saturating_sub(range.start) }
    }

    /// The data of a chunk that lies in one block.
    pub(super) fn of_one(bytes: &'a [u8]) -> Self {
        // As if they were at the beginning of a block, behind its header.
        Pieces { stored: bytes, at: BLOCK_HEADER, skipped: BLOCK_HEADER, left: bytes.len() as u64 }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.left == 0 {
            return None;
        }
        if self.at.is_multiple_of(BLOCK) {
            self.at += BLOCK_HEADER;
        }
        let rest = self.stored.get(usize::try_from(self.at - self.skipped).ok()?..)?;
        let wanted = self.left.min(block::left_in_block(self.at));
        let piece = &rest[..rest.len().min(wanted as usize)];
        self.at += wanted;
        self.left -= wanted;
        if (piece.len() as u64) < wanted {
            self.left = 0;
        }
        Some(piece)
    }
}

/// A whole chunk in memory.
pub struct ChunkView<'a> {
    /// Its header.
    pub header: Header,
    /// Where it lies in the file.
    pub range: Range<u64>,
    stored: &'a [u8],
    pub(super) checksums: bool,
}

impl<'a> ChunkView<'a> {
    /// The chunk that begins at `begin`, where the file holds `stored`, which may be longer than the chunk.
    pub fn read(begin: u64, stored: &'a [u8], checksums: bool) -> Result<Self> {
        let header = Header::read(begin, stored, checksums)?;
        let end = header.end(begin)?;
        if end - begin > stored.len() as u64 {
            return Err(Error::truncated("chunk is truncated")
                .at(begin)
                .expected(format_args!("{} bytes", end - begin))
                .found(stored.len()));
        }
        Ok(ChunkView { header, range: begin..end, stored: &stored[..(end - begin) as usize], checksums })
    }

    fn pieces(&self, data: Range<u64>) -> Pieces<'a> {
        let range = data.start + CHUNK_HEADER..data.end + CHUNK_HEADER;
        Pieces::new(self.range.start, self.stored, range)
    }

    /// Where the data ends and the padding begins.
    fn data_end(&self) -> u64 {
        let end = block::end_of(self.range.start, CHUNK_HEADER + self.header.data_size);
        end.map_or(self.range.end, |end| end.min(self.range.end))
    }

    /// Whether a block header lies before the end of the data. [`verify`](Self::verify) checks that it names this chunk.
    pub fn has_block_header(&self) -> bool {
        self.range.start + block::left_in_block(self.range.start) < self.data_end()
    }

    /// Checks the block headers in `range`.
    fn check_blocks(&self, range: Range<u64>) -> Result<()> {
        let first = range.start + block::left_in_block(range.start);
        for at in (first..range.end).step_by(BLOCK as usize) {
            let stored = &self.stored[(at - self.range.start) as usize..];
            let stored =
                stored.first_chunk().ok_or_else(|| Error::truncated("block header is truncated").at(at))?;
            BlockHeader::read(stored, at, self.checksums)?.check(at, self.range.start, self.range.end)?;
        }
        Ok(())
    }

    /// Checks the block headers up to the end of the data, and the data's hash.
    pub fn verify(&self, cx: &Cx<'_>) -> Result<()> {
        self.check_data_blocks()?;
        let mut hasher = highway::Hasher::new();
        if self.checksums {
            let mut pace = cx.pace();
            for piece in self.data_pieces() {
                hasher.update(piece);
                pace.step(piece.len() as u64)?;
            }
        }
        self.check_data_hash(|| hasher.finish())
    }

    /// Checks the block headers up to the end of the data.
    pub(super) fn check_data_blocks(&self) -> Result<()> {
        self.check_blocks(self.range.start..self.data_end())
    }

    /// The parts of the data between block headers.
    pub(super) fn data_pieces(&self) -> Pieces<'a> {
        self.pieces(0..self.header.data_size)
    }

    /// Compares the hash of all data with the header's, if hashes are checked.
    pub(super) fn check_data_hash(&self, hash: impl FnOnce() -> u64) -> Result<()> {
        if !self.checksums {
            return Ok(());
        }
        let (expected, found) = (self.header.data_hash, hash());
        if expected == found {
            return Ok(());
        }
        let error = mismatch("chunk data hash mismatch", self.range.start, expected, found);
        Err(error.hint("other chunks are readable"))
    }

    /// Checks what [`verify`](Self::verify) leaves out because no reader needs it: the padding.
    pub fn verify_padding(&self) -> Result<()> {
        let begin = self.data_end();
        self.check_blocks(begin..self.range.end)?;
        let mut at = begin;
        while at < self.range.end {
            if at.is_multiple_of(BLOCK) {
                at += BLOCK_HEADER;
            }
            let until = self.range.end.min(at + block::left_in_block(at));
            let zeros = &self.stored[(at - self.range.start) as usize..(until - self.range.start) as usize];
            if let Some(bad) = zeros.iter().position(|&byte| byte != 0) {
                return Err(Error::format("chunk padding is not zero").at(at + bad as u64));
            }
            at = until;
        }
        Ok(())
    }

    /// Bytes of the data, borrowed where no block header interrupts them.
    pub fn slice(&self, data: Range<u64>, cx: &Cx<'_>) -> Result<Cow<'a, [u8]>> {
        let mut pieces = self.pieces(data.clone());
        let first = pieces.next().unwrap_or(&[]);
        if pieces.left == 0 {
            return Ok(Cow::Borrowed(first));
        }
        self.copied(data, cx).map(Cow::Owned)
    }

    /// A copy of bytes of the data.
    pub fn copied(&self, data: Range<u64>, cx: &Cx<'_>) -> Result<Vec<u8>> {
        let (mut whole, mut pace) = (bytes::reserved("chunk", data.end - data.start)?, cx.pace());
        for piece in self.pieces(data) {
            whole.extend_from_slice(piece);
            pace.step(piece.len() as u64)?;
        }
        Ok(whole)
    }

    /// Verifies and decodes the records.
    pub fn decode(&self, cx: &Cx<'_>) -> Result<Decoded> {
        self.verify(cx)?;
        let at = self.range.start;
        match self.header.kind {
            kind::SIMPLE => simple::decode(self, cx).map_err(|e| e.at(at)),
            kind::TRANSPOSED => {
                let data = self.slice(0..self.header.data_size, cx)?;
                transpose_decode::decode(&data, at, self.header.records, self.header.decoded, cx)
                    .map_err(|e| e.at(at))
            }
            other => Err(unknown(other, at)),
        }
    }

    /// Verifies the chunk and decodes its only record into `out`, which has the record's size. `may_change`: the chunk
    /// may lie in a memory map, and change meanwhile.
    pub fn decode_one(&self, may_change: bool, out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
        let at = self.range.start;
        if self.header.kind == kind::SIMPLE && simple::copy_one(self, out, cx).map_err(|e| e.at(at))? {
            return Ok(());
        }
        // What is not copied must not change between the check of its hash and the decoding.
        if may_change {
            let own = bytes::copied("chunk", self.stored, cx)?;
            return ChunkView::read(at, &own, self.checksums)?.decode_one(false, out, cx);
        }
        if self.header.kind == kind::SIMPLE {
            return simple::decode_one(self, out, cx).map_err(|e| e.at(at));
        }
        let decoded = self.decode(cx)?;
        match decoded.row(0) {
            Some(record) if record.len() == out.len() => bytes::copy_paced(record, out, cx),
            _ => Err(Error::format("chunk does not hold the record").at(at)),
        }
    }
}

/// The error for a chunk that holds records and has an unknown kind.
pub fn unknown(kind: u8, at: u64) -> Error {
    Error::format(format!("unknown chunk type {kind:#04x} with records"))
        .at(at)
        .hint("a newer writer made this file")
}

/// A chunk that was read from a storage, with its own memory.
pub struct StoredChunk {
    begin: u64,
    stored: Vec<u8>,
    checksums: bool,
}

impl StoredChunk {
    /// Reads the chunk that begins at `begin` and must end by `limit`.
    pub fn fetch(
        storage: &dyn Storage,
        begin: u64,
        limit: u64,
        checksums: bool,
        cx: &Cx<'_>,
    ) -> Result<Self> {
        let header = fetch_header(storage, begin, limit, checksums, cx)?;
        let end = header.end(begin)?;
        bytes::range("chunk", begin, end - begin, limit)?;
        Ok(StoredChunk { begin, stored: read_vec(storage, "chunk", begin, end - begin, cx)?, checksums })
    }

    /// The chunk.
    pub fn view(&self) -> Result<ChunkView<'_>> {
        ChunkView::read(self.begin, &self.stored, self.checksums)
    }
}

/// Reads the header of the chunk that begins at `begin`, from bytes before `limit`.
pub fn fetch_header(
    storage: &dyn Storage,
    begin: u64,
    limit: u64,
    checksums: bool,
    cx: &Cx<'_>,
) -> Result<Header> {
    let limit = limit.min(storage.len());
    if begin >= limit {
        return Err(Error::truncated("no chunk at this offset").at(begin));
    }
    let mut stored = [0; HEADER_SPAN as usize];
    let stored = &mut stored[..HEADER_SPAN.min(limit - begin) as usize];
    storage.read_at(begin, stored, cx)?;
    Header::read(begin, stored, checksums)
}
