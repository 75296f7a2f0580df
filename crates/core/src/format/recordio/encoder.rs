//! Writes chunks with the same boundaries as the original writer.

use super::header::{Codec, HEADER, Header, PREFIX};
use crate::codec::gzip::{self, Wrapper};
use crate::codec::snappy_frames::{Compressor, FRAME_BYTES, IDENTIFIER, OVERHEAD};
use crate::error::{Error, Result};
use crate::format::encode::{CarriedChunk, EncodeJob, Encoder, Group, GroupEncoder};
use crate::format::options::WriteOptions;
use crate::format::spare::Spare;
use crate::storage::output::Output;
use std::collections::VecDeque;
use std::sync::Arc;

/// The default of the original writer.
const CHUNK_BYTES: u64 = 32 << 20;
/// With this limit, one record and its overhead always fit in the 32 bits that the header has for the payload size.
const MOST_CHUNK_BYTES: u64 = 2 << 30;
const LEVEL: u32 = 6;
/// A chunk is encoded in parts of about this size, so that several threads can work on one.
const PART: usize = 256 << 10;

pub(super) struct ChunkEncoder {
    codec: Codec,
    level: u32,
    chunk_bytes: u64,
    /// Records of the open chunk that are not encoded yet. Each one comes after its length.
    pending: Group,
    open: OpenChunk,
    /// For each chunk that is complete but not written yet: how many records it has.
    closed: VecDeque<u64>,
    placed: UnfinishedChunk,
    spare: Spare,
}

/// A part of a chunk, ready to be written.
pub(super) struct EncodedPart {
    payload: Vec<u8>,
    checksum: u32,
    records: u64,
}

/// The chunk that records are added to.
#[derive(Default)]
struct OpenChunk {
    records: u64,
    /// Bytes of the records, without the lengths.
    bytes: u64,
    /// The most bytes that the stored records can take.
    worst: u64,
}

/// The encoded parts of a chunk that is not complete yet.
#[derive(Default)]
struct UnfinishedChunk {
    records: u64,
    payload: u64,
    checksum: crc32fast::Hasher,
    bodies: Vec<Vec<u8>>,
}

impl UnfinishedChunk {
    fn push(&mut self, part: EncodedPart) {
        let length = part.payload.len() as u64;
        self.checksum.combine(&crc32fast::Hasher::new_with_initial_len(part.checksum, length));
        self.payload += length;
        self.records += part.records;
        self.bodies.push(part.payload);
    }

    fn header(&self, codec: Codec) -> Result<Header> {
        let too_large = |_| Error::argument("chunk does not fit in 4 GiB").hint("lower chunk_bytes");
        Ok(Header {
            checksum: self.checksum.clone().finalize(),
            codec,
            payload: self.payload.try_into().map_err(too_large)?,
            records: self.records.try_into().map_err(too_large)?,
        })
    }
}

impl ChunkEncoder {
    pub(super) fn new(options: &WriteOptions) -> Result<Self> {
        options.only("recordio", &["codec", "level", "chunk_bytes", "num_records"])?;
        let named = options.word("codec", &Codec::NAMES)?.unwrap_or("snappy");
        let codec = Codec::ALL.into_iter().zip(Codec::NAMES).find(|(_, name)| *name == named);
        let codec = codec.map_or(Codec::Snappy, |(codec, _)| codec);
        let level = options.int("level", 0..=9)?;
        if level.is_some() && codec != Codec::Gzip {
            return Err(Error::argument(format!(
                "level= is for codec='gzip'; codec='{named}' has no levels"
            )));
        }
        let chunk_bytes = options.int("chunk_bytes", 1..=MOST_CHUNK_BYTES)?.unwrap_or(CHUNK_BYTES);
        let level = level.unwrap_or(LEVEL);
        Ok(ChunkEncoder {
            codec,
            level,
            chunk_bytes,
            pending: Group::default(),
            open: OpenChunk::default(),
            closed: VecDeque::new(),
            placed: UnfinishedChunk::default(),
            spare: Spare::default(),
        })
    }

    pub(super) fn codec(&self) -> Codec {
        self.codec
    }

    /// The most bytes that a stored record of that size can take.
    fn worst(&self, size: u64) -> u64 {
        let size_and_length = size + PREFIX as u64;
        match self.codec {
            Codec::None => size_and_length,
            // A frame that does not become smaller is stored uncompressed.
            Codec::Snappy => size_and_length + OVERHEAD as u64 * (1 + size.div_ceil(FRAME_BYTES as u64)),
            Codec::Gzip => size_and_length + size_and_length / 16,
        }
    }
}

impl ChunkEncoder {
    fn take(&mut self) -> Group {
        std::mem::replace(&mut self.pending, Group::in_spare(&self.spare))
    }
}

impl Encoder for ChunkEncoder {
    fn start(&mut self, _out: &mut dyn Output) -> Result<()> {
        Ok(())
    }

    fn push(&mut self, record: &[u8]) -> Result<Option<Group>> {
        let size = record.len() as u64;
        if size >= self.chunk_bytes {
            return Err(Error::argument(format!(
                "record of {size} bytes is too large: with chunk_bytes={} the largest has {}",
                self.chunk_bytes,
                self.chunk_bytes - 1
            ))
            .hint("raise chunk_bytes"));
        }
        // Like the original, this counts only the bytes of the records, without their lengths. So empty records never
        // reach chunk_bytes. After a billion of them, the 32-bit size that the original writes would wrap around. The
        // second condition prevents that.
        let worst = self.worst(size);
        let full =
            self.open.bytes + size > self.chunk_bytes || HEADER + self.open.worst + worst > u32::MAX.into();
        // A gzip stream cannot be compressed in parts here.
        let enough = self.pending.bytes.len() >= PART && self.codec != Codec::Gzip;
        let group = if full { self.flush() } else { enough.then(|| self.take()) };
        self.pending.reserve(PREFIX + record.len())?;
        self.pending.bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
        self.pending.push(record)?;
        self.open.records += 1;
        self.open.bytes += size;
        self.open.worst += worst;
        Ok(group)
    }

    fn flush(&mut self) -> Option<Group> {
        // The last record of the open chunk is always pending, so the group below is never empty.
        let open = std::mem::take(&mut self.open);
        (open.records > 0).then(|| {
            self.closed.push_back(open.records);
            self.take()
        })
    }

    fn takes_chunk(&self, _records: u64) -> bool {
        true
    }

    fn place_chunk(&mut self, chunk: CarriedChunk, out: &mut dyn Output) -> Result<()> {
        out.write_all(&chunk.head)?;
        out.write_all(&chunk.body)
    }

    fn compresses(&self) -> bool {
        self.codec != Codec::None
    }

    fn finish(&mut self, _out: &mut dyn Output) -> Result<()> {
        Ok(())
    }
}

impl GroupEncoder for ChunkEncoder {
    type Encoded = EncodedPart;

    fn job(&self) -> EncodeJob<EncodedPart> {
        let (codec, level, spare) = (self.codec, self.level, self.spare.clone());
        Arc::new(move |group: Group| {
            let records = group.ends.len() as u64;
            let payload = pack(group, codec, level, &spare)?;
            let checksum = crc32fast::hash(&payload);
            Ok(EncodedPart { payload, checksum, records })
        })
    }

    fn place(&mut self, encoded: EncodedPart, out: &mut dyn Output) -> Result<()> {
        if self.codec == Codec::Snappy && self.placed.records == 0 {
            let checksum = crc32fast::hash(&IDENTIFIER);
            self.placed.push(EncodedPart { payload: IDENTIFIER.to_vec(), checksum, records: 0 });
        }
        self.placed.push(encoded);
        if self.closed.front() != Some(&self.placed.records) {
            return Ok(());
        }
        self.closed.pop_front();
        let chunk = std::mem::take(&mut self.placed);
        out.write_all(&chunk.header(self.codec)?.to_bytes())?;
        for body in chunk.bodies {
            out.write_all(&body)?;
            self.spare.put(body);
        }
        Ok(())
    }
}

/// The encoded payload of a part of a chunk, without the stream identifier of snappy frames.
fn pack(group: Group, codec: Codec, level: u32, spare: &Spare) -> Result<Vec<u8>> {
    let mut out = match codec {
        Codec::None => return Ok(group.bytes),
        Codec::Gzip => gzip::compress(Wrapper::Gzip, &group.bytes, level)?,
        Codec::Snappy => spare.take(),
    };
    if codec == Codec::Snappy {
        // The original writes the length and the record separately, and each write makes new frames.
        let mut frames = Compressor::default();
        for record in group.iter() {
            let (length, record) = record.split_at(PREFIX);
            frames.write(length, &mut out)?;
            frames.write(record, &mut out)?;
        }
    }
    spare.put(group.bytes);
    Ok(out)
}
