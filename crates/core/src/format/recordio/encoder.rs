//! Writing chunks, cut where the original cuts them.

use super::header::{Codec, HEADER, Header, PREFIX};
use crate::codec::gzip::{self, Wrapper};
use crate::codec::snappy_frames::{Compressor, FRAME_BYTES, OVERHEAD};
use crate::error::{Error, Result};
use crate::format::options::WriteOptions;
use crate::format::{EncodeJob, Encoded, Encoder, Group};
use crate::storage::output::Output;
use std::sync::Arc;

/// What the original takes when nothing is said.
const CHUNK_BYTES: u64 = 32 << 20;
/// So that one record and everything around it always fit in the 32 bits that a header has for their size.
const MOST_CHUNK_BYTES: u64 = 2 << 30;
const LEVEL: u32 = 6;

pub(super) struct ChunkEncoder {
    codec: Codec,
    level: u32,
    chunk_bytes: u64,
    pending: Group,
    /// The most that the pending chunk can take when it is stored.
    worst: u64,
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
        Ok(ChunkEncoder { codec, level, chunk_bytes, pending: Group::default(), worst: 0 })
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
        let full = self.pending.bytes.len() as u64 + size > self.chunk_bytes
            || HEADER + self.worst + worst > u32::MAX.into();
        let group = if full { self.flush() } else { None };
        self.pending.push(record);
        self.worst += worst;
        Ok(group)
    }

    fn flush(&mut self) -> Option<Group> {
        self.worst = 0;
        (!self.pending.ends.is_empty()).then(|| std::mem::take(&mut self.pending))
    }

    fn job(&self) -> EncodeJob {
        let (codec, level) = (self.codec, self.level);
        Arc::new(move |group: Group| {
            let body = pack(&group, codec, level)?;
            let too_large = |_| Error::argument("chunk does not fit in 4 GiB").hint("lower chunk_bytes");
            let header = Header {
                checksum: crc32fast::hash(&body),
                codec,
                payload: body.len().try_into().map_err(too_large)?,
                records: group.ends.len().try_into().map_err(too_large)?,
            };
            Ok(Encoded {
                head: header.to_bytes().to_vec(),
                body,
                records: group.ends.len() as u64,
                decoded_bytes: group.bytes.len() as u64,
                ..Encoded::default()
            })
        })
    }

    fn takes_chunk(&self, _records: u64) -> bool {
        true
    }

    fn place(&mut self, encoded: Encoded, out: &mut dyn Output) -> Result<()> {
        out.write_all(&encoded.head)?;
        out.write_all(&encoded.body)
    }

    fn finish(&mut self, _out: &mut dyn Output) -> Result<()> {
        Ok(())
    }
}

/// The payload of a chunk.
fn pack(group: &Group, codec: Codec, level: u32) -> Result<Vec<u8>> {
    let plain = group.bytes.len() + PREFIX * group.ends.len();
    let mut out = Vec::with_capacity(plain);
    if codec == Codec::Snappy {
        // The original writes a length and then a record, and each write becomes frames of its own.
        let mut frames = Compressor::default();
        for record in group.iter() {
            frames.write(&(record.len() as u32).to_le_bytes(), &mut out)?;
            frames.write(record, &mut out)?;
        }
        return Ok(out);
    }
    for record in group.iter() {
        out.extend_from_slice(&(record.len() as u32).to_le_bytes());
        out.extend_from_slice(record);
    }
    Ok(if codec == Codec::Gzip { gzip::compress(Wrapper::Gzip, &out, level) } else { out })
}
