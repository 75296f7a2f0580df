//! Writing chunks, cut where the original cuts them.

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

/// What the original takes when nothing is said.
const CHUNK_BYTES: u64 = 32 << 20;
/// So that one record and everything around it always fit in the 32 bits that a header has for their size.
const MOST_CHUNK_BYTES: u64 = 2 << 30;
const LEVEL: u32 = 6;
/// A chunk is encoded in parts of about this size, so that several threads can work on one.
const PART: usize = 256 << 10;

pub(super) struct ChunkEncoder {
    codec: Codec,
    level: u32,
    chunk_bytes: u64,
    /// Records of the open chunk that are not handed on yet, each behind its length.
    pending: Group,
    open: Open,
    /// How many records the chunks have that are closed and not placed yet.
    closed: VecDeque<u64>,
    placed: Parts,
    spare: Spare,
}

/// A part of a chunk, ready to be written.
pub(super) struct EncodedPart {
    payload: Vec<u8>,
    checksum: u32,
    records: u64,
}

/// The chunk that takes records.
#[derive(Default)]
struct Open {
    records: u64,
    /// Their bytes, without the lengths.
    bytes: u64,
    /// The most that they can take when they are stored.
    worst: u64,
}

/// The parts of a chunk of which some are still to come.
#[derive(Default)]
struct Parts {
    records: u64,
    payload: u64,
    checksum: crc32fast::Hasher,
    bodies: Vec<Vec<u8>>,
}

impl Parts {
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
            open: Open::default(),
            closed: VecDeque::new(),
            placed: Parts::default(),
            spare: Spare::default(),
        })
    }

    pub(super) fn codec(&self) -> Codec {
        self.codec
    }

    /// The most that a record of that size takes when it is stored.
    fn worst(&self, size: u64) -> u64 {
        let size_and_length = size + PREFIX as u64;
        match self.codec {
            Codec::None => size_and_length,
            // A frame that does not shrink is stored as it is.
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
        // Only the records' own bytes count, so empty ones never begin a new chunk; the original would write a
        // size that wrapped around after a billion of them.
        let worst = self.worst(size);
        let full =
            self.open.bytes + size > self.chunk_bytes || HEADER + self.open.worst + worst > u32::MAX.into();
        // One stream of gzip cannot be compressed in parts.
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
        // The last record of the open chunk is always pending.
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

/// The payload of a part of a chunk, without what begins a stream.
fn pack(group: Group, codec: Codec, level: u32, spare: &Spare) -> Result<Vec<u8>> {
    let mut out = match codec {
        Codec::None => return Ok(group.bytes),
        Codec::Gzip => gzip::compress(Wrapper::Gzip, &group.bytes, level)?,
        Codec::Snappy => spare.take(),
    };
    if codec == Codec::Snappy {
        // The original writes a length and then a record, and each write becomes frames of its own.
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
