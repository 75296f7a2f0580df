//! Simple chunks: the sizes of all records, then the records one after the other.
//!
//! ```text
//! compression type (1)  length of sizes (varint)  sizes  values
//! ```
//!
//! Sizes and values are compressed separately. A compressed part begins with its decompressed size.

use super::chunk::{ChunkView, Header, kind};
use crate::budget::Held;
use crate::bytes::{self, Cursor, MAX_VARINT64, put_varint};
use crate::codec::{Codec, Compression, Passed};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::format::Decoded;
use crate::format::encode::GroupSlice;
use std::borrow::Cow;
use std::ops::Range;

/// The codec that a compression type stands for.
pub fn codec_of(byte: u8) -> Result<Codec> {
    match byte {
        0 => Ok(Codec::None),
        b'b' => Ok(Codec::Brotli),
        b'z' => Ok(Codec::Zstd),
        b's' => Ok(Codec::Snappy),
        other => Err(Error::format(format!("unknown compression type {other:#04x}"))),
    }
}

/// The compression type that stands for a codec.
pub fn byte_of(codec: Codec) -> u8 {
    match codec {
        Codec::None => 0,
        Codec::Brotli => b'b',
        Codec::Zstd => b'z',
        Codec::Snappy => b's',
    }
}

/// Where the parts of a simple chunk lie in its data.
pub struct Parts {
    /// How both parts are compressed.
    pub codec: Codec,
    /// The sizes.
    pub sizes: Range<u64>,
    /// The values.
    pub values: Range<u64>,
}

impl Parts {
    /// The most bytes that [`read`](Self::read) needs.
    pub const PREFIX: u64 = 1 + MAX_VARINT64 as u64;

    /// Reads the prefix of the data of a chunk.
    pub fn read(prefix: &[u8], header: &Header, at: u64) -> Result<Self> {
        let mut cursor = Cursor::new("simple chunk", prefix, at);
        let codec = codec_of(cursor.u8()?)?;
        let length = cursor.varint64()?;
        let begin = cursor.position() as u64;
        let sizes = bytes::range("sizes of records", begin, length, header.data_size)
            .map_err(|_| Error::format("sizes of records reach past the chunk").at(at).found(length))?;
        Ok(Parts { codec, values: sizes.end..header.data_size, sizes })
    }
}

/// The declared size of a blob, and its payload.
pub fn declared(codec: Codec, blob: &[u8], at: u64) -> Result<(u64, &[u8])> {
    if codec == Codec::None {
        return Ok((blob.len() as u64, blob));
    }
    let mut cursor = Cursor::new("compressed data", blob, at);
    Ok((cursor.varint64()?, cursor.rest()))
}

/// Decompresses a blob. The memory grows with the decompressed data and counts as held. A declared size over `most` is
/// an error.
pub fn unpack<'a>(
    codec: Codec,
    blob: Cow<'a, [u8]>,
    most: u64,
    at: u64,
    held: &mut Held<'_>,
    cx: &Cx<'_>,
) -> Result<Cow<'a, [u8]>> {
    if codec == Codec::None {
        return Ok(blob);
    }
    let (size, payload) = declared(codec, &blob, at)?;
    if size > most {
        return Err(Error::format("compressed data declares more bytes than it can have")
            .at(at)
            .expected(most)
            .found(size));
    }
    let mut out = Vec::new();
    codec.append(payload, size, &mut out, held, cx)?;
    Ok(Cow::Owned(out))
}

fn parts(chunk: &ChunkView<'_>, cx: &Cx<'_>) -> Result<Parts> {
    let prefix = chunk.slice(0..chunk.header.data_size.min(Parts::PREFIX), cx)?;
    Parts::read(&prefix, &chunk.header, chunk.range.start)
}

fn sizes<'a>(
    chunk: &ChunkView<'a>,
    parts: &Parts,
    held: &mut Held<'_>,
    cx: &Cx<'_>,
) -> Result<Cow<'a, [u8]>> {
    let most = chunk.header.records.saturating_mul(MAX_VARINT64 as u64);
    let stored = chunk.slice(parts.sizes.clone(), cx)?;
    unpack(parts.codec, stored, most, chunk.range.start, held, cx)
}

/// The compressed values with their declared size, and where the payload begins after that size. Checks that the
/// declared size is that of the chunk.
fn stored_values<'a>(chunk: &ChunkView<'a>, parts: &Parts, cx: &Cx<'_>) -> Result<(Cow<'a, [u8]>, usize)> {
    let blob = chunk.slice(parts.values.clone(), cx)?;
    let (size, payload) = declared(parts.codec, &blob, chunk.range.start)?;
    if size != chunk.header.decoded {
        return Err(values_wrong(chunk, size));
    }
    let begin = blob.len() - payload.len();
    Ok((blob, begin))
}

fn values_wrong(chunk: &ChunkView<'_>, found: u64) -> Error {
    Error::format("records have a different size than the chunk declares")
        .at(chunk.range.start)
        .expected(chunk.header.decoded)
        .found(found)
}

/// Checks the decoded size before memory is allocated for it. Uncompressed values must have exactly this size. For
/// compressed values, the limit must allow it.
fn check_decoded(chunk: &ChunkView<'_>, parts: &Parts, cx: &Cx<'_>) -> Result<()> {
    let decoded = chunk.header.decoded;
    if parts.codec == Codec::None {
        let stored = parts.values.end - parts.values.start;
        return if stored == decoded { Ok(()) } else { Err(values_wrong(chunk, stored)) };
    }
    cx.budget.check_chunk(decoded, chunk.range.start)
}

/// Decodes a chunk whose hash was verified.
pub fn decode(chunk: &ChunkView<'_>, cx: &Cx<'_>) -> Result<Decoded> {
    let parts = parts(chunk, cx)?;
    check_decoded(chunk, &parts, cx)?;
    let mut held = cx.budget.nothing();
    let sizes = sizes(chunk, &parts, &mut held, cx)?;
    let ends = ends(&sizes, &chunk.header, chunk.range.start, &mut held, cx)?;
    drop(sizes);
    let mut bytes = Vec::new();
    if parts.codec == Codec::None {
        held.grow(chunk.header.decoded)?;
        bytes = chunk.copied(parts.values, cx)?;
    } else {
        let (blob, begin) = stored_values(chunk, &parts, cx)?;
        parts.codec.append(&blob[begin..], chunk.header.decoded, &mut bytes, &mut held, cx)?;
    }
    Decoded::new(bytes, ends)
}

/// Copies the only record of an uncompressed chunk into a buffer of the record's size, and verifies the copy. Returns
/// false if the chunk has another layout. It may change meanwhile.
pub fn copy_one(chunk: &ChunkView<'_>, out: &mut [u8], cx: &Cx<'_>) -> Result<bool> {
    // This uses the layout of the data before its hash is verified. That is safe: every range is checked, and the copy
    // verifies the hash.
    let Ok(parts) = parts(chunk, cx) else { return Ok(false) };
    if parts.codec != Codec::None || parts.values.end - parts.values.start != out.len() as u64 {
        return Ok(false);
    }
    chunk.verify_copying(parts.values.start, out, cx)?;
    check_one(chunk, &parts, out.len(), cx)?;
    Ok(true)
}

/// Verifies and decodes a chunk of one record into a buffer of the record's size. The chunk must not change meanwhile.
pub fn decode_one(chunk: &ChunkView<'_>, out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
    chunk.verify(cx)?;
    let parts = parts(chunk, cx)?;
    check_one(chunk, &parts, out.len(), cx)?;
    if parts.codec == Codec::None {
        return chunk.verify_copying(parts.values.start, out, cx);
    }
    let (blob, begin) = stored_values(chunk, &parts, cx)?;
    parts.codec.decompress_paced(&blob[begin..], out, cx)
}

/// Where the only record of a chunk begins in its data, if it is stored uncompressed and has that size. The block headers
/// are right then. The hash of the data is not verified.
pub fn begin_of_one(chunk: &ChunkView<'_>, size: usize, cx: &Cx<'_>) -> Result<Option<usize>> {
    if chunk.header.kind != kind::SIMPLE {
        return Ok(None);
    }
    chunk.check_data_blocks()?;
    let parts = parts(chunk, cx)?;
    if parts.codec != Codec::None || parts.values.end - parts.values.start != size as u64 {
        return Ok(None);
    }
    check_one(chunk, &parts, size, cx)?;
    Ok(usize::try_from(parts.values.start).ok())
}

/// Checks that a chunk whose hash was verified holds one record of that size.
fn check_one(chunk: &ChunkView<'_>, parts: &Parts, size: usize, cx: &Cx<'_>) -> Result<()> {
    let header = &chunk.header;
    if header.records != 1 || header.decoded != size as u64 {
        return Err(Error::format("chunk does not match its table entry")
            .at(chunk.range.start)
            .expected(format_args!("1 record of {size} bytes"))
            .found(format_args!("{} of {}", header.records, header.decoded)));
    }
    check_decoded(chunk, parts, cx)?;
    let sizes = sizes(chunk, parts, &mut cx.budget.nothing(), cx)?;
    let mut cursor = Cursor::new("record size", &sizes, chunk.range.start);
    let size = cursor.varint64()?;
    if size != header.decoded || !cursor.is_empty() {
        return Err(sizes_wrong(header, size, chunk.range.start));
    }
    Ok(())
}

fn sizes_wrong(header: &Header, found: u64, at: u64) -> Error {
    Error::format("record sizes do not add up to the size of the chunk")
        .at(at)
        .expected(header.decoded)
        .found(found)
}

/// Where each record ends. The number of records is at most the length of the chunk in the file.
fn ends(sizes: &[u8], header: &Header, at: u64, held: &mut Held<'_>, cx: &Cx<'_>) -> Result<Vec<usize>> {
    let mut cursor = Cursor::new("record sizes", sizes, at);
    // Every size takes at least one byte, so there are at most this many.
    let count = header.records.min(sizes.len() as u64);
    held.grow(count.saturating_mul(size_of::<usize>() as u64))?;
    let mut ends = bytes::list("ends of records", count)?;
    let mut pace = cx.pace();
    let mut end = 0u64;
    for _ in 0..header.records {
        let size = cursor.varint64()?;
        pace.step(8)?;
        end = match end.checked_add(size) {
            Some(end) if end <= header.decoded => end,
            _ => return Err(sizes_wrong(header, end.saturating_add(size), at)),
        };
        bytes::push("ends of records", &mut ends, bytes::in_memory("records", end)?)?;
    }
    if end != header.decoded {
        return Err(sizes_wrong(header, end, at));
    }
    if !cursor.is_empty() {
        return Err(cursor.error("bytes follow the last size"));
    }
    Ok(ends)
}

/// The original passes shorter records to the compressor through a buffer of this size. What is in the buffer at the end
/// is passed together with the end. A longer record is passed by itself.
const BUFFER: usize = 4096;

/// Appends `bytes` as a blob. A compressed blob begins with the decompressed size.
pub fn pack(compression: &Compression, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
    pack_pieces(compression, bytes, bytes.len(), bytes.len(), out)
}

/// How many bytes of a run the original's brotli encoder has got when it chooses its tables. The tables depend on that
/// number, and so do the bytes that it writes. The original passes one record after the other, and the encoder chooses when
/// its first block is full.
fn seen_at_first(compression: &Compression, sizes: impl Iterator<Item = usize>) -> usize {
    let block = match compression.level {
        ..4 => 1 << 14,
        4..9 => 1 << 16,
        _ => 1 << compression.window_log.clamp(16, 18),
    };
    let mut seen = 0;
    for size in sizes {
        seen += size;
        if seen >= block {
            break;
        }
    }
    seen
}

/// Like [`pack`], for bytes that the original passes to the compressor in pieces. The last one has `last` bytes. Brotli
/// has got `first` bytes when it begins. Doing the same makes the compressed bytes identical.
fn pack_pieces(
    compression: &Compression,
    bytes: &[u8],
    first: usize,
    last: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    if compression.codec != Codec::None {
        put_varint(out, bytes.len() as u64);
    }
    let passed = Passed { first: first.max(BUFFER).min(bytes.len()), ends_later: last >= BUFFER };
    compression.compress_pieces(bytes, passed, out)
}

/// Buffers that are reused from chunk to chunk.
#[derive(Default)]
pub struct Scratch {
    sizes: Vec<u8>,
    blob: Vec<u8>,
}

/// Appends the data of a chunk of records. Everything before the values goes to `head`. Compressed values go to `body`.
/// Uncompressed values are not appended.
pub fn encode_run(
    run: GroupSlice<'_>,
    compression: &Compression,
    scratch: &mut Scratch,
    head: &mut Vec<u8>,
    body: &mut Vec<u8>,
) -> Result<()> {
    scratch.sizes.clear();
    run.sizes().for_each(|size| put_varint(&mut scratch.sizes, size as u64));
    put_sizes(&scratch.sizes, compression, &mut scratch.blob, head)?;
    if compression.codec == Codec::None {
        return Ok(());
    }
    let last = run.sizes().last().unwrap_or(0);
    pack_pieces(compression, run.bytes, seen_at_first(compression, run.sizes()), last, body)
}

/// Appends everything before the values.
pub fn put_sizes(
    sizes: &[u8],
    compression: &Compression,
    blob: &mut Vec<u8>,
    head: &mut Vec<u8>,
) -> Result<()> {
    blob.clear();
    pack_pieces(compression, sizes, BUFFER, 1, blob)?;
    head.push(byte_of(compression.codec));
    put_varint(head, blob.len() as u64);
    head.extend_from_slice(blob);
    Ok(())
}
