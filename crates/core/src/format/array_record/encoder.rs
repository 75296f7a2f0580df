//! Writes a file: signature, data chunks, footer, postscript.

use super::proto::{FooterEntry, MAGIC, Metadata, Postscript, VERSION};
use super::settings::Settings;
use crate::bytes::{self, Cursor, put_varint};
use crate::codec::{Codec, Compression, snappy};
use crate::error::{Error, Result};
use crate::format::encode::{CarriedChunk, EncodeJob, Encoder, Group, GroupEncoder};
use crate::format::riegeli::encode::{self, EncodedChunks, Encoding};
use crate::format::riegeli::{chunk, writer};
use crate::format::spare::Spare;
use crate::storage::output::Output;
use std::sync::Arc;

/// Readers of transposed chunks use lengths of 32 bits.
const MAX_TRANSPOSED: u64 = u32::MAX as u64;
/// Chunks are encoded together until they have this many bytes of records, or this many records. Handling a chunk alone
/// costs as much as encoding a small chunk.
const BATCH_BYTES: usize = 128 << 10;
const BATCH_RECORDS: usize = 1 << 12;
const COPIES_OF_POSTSCRIPT: usize = 3;

/// Writes one file.
pub struct ArrayRecordEncoder {
    settings: Settings,
    /// The records of full chunks, and those of the open chunk, which is not full yet.
    pending: Group,
    /// How many records the open chunk has.
    in_chunk: u64,
    /// Where the records of the open chunk begin in the pending bytes.
    chunk_begin: usize,
    spare: Spare,
    /// The chunks written so far. All of them but the last hold `group_size` records.
    chunks: Entries,
    records: u64,
}

/// Offset and decoded size of each chunk, in a few bytes for each chunk. There may be as many chunks as records.
#[derive(Default)]
struct Entries {
    /// For each chunk, two varints: how much its offset is larger than that of the chunk before it, and its decoded
    /// size.
    bytes: Vec<u8>,
    count: u64,
    last: u64,
}

impl Entries {
    // With one record a chunk, a call for each chunk adds 3 % to writing small records.
    #[inline(always)]
    fn push(&mut self, offset: u64, decoded: u64) {
        put_varint(&mut self.bytes, offset.wrapping_sub(self.last));
        put_varint(&mut self.bytes, decoded);
        self.last = offset;
        self.count += 1;
    }

    fn iter(&self) -> impl Iterator<Item = Result<(u64, u64)>> {
        let (mut cursor, mut offset) = (Cursor::new("list of chunks", &self.bytes, 0), 0u64);
        (0..self.count).map(move |_| {
            offset = offset.wrapping_add(cursor.varint64()?);
            Ok((offset, cursor.varint64()?))
        })
    }
}

impl ArrayRecordEncoder {
    /// An encoder for a new file.
    pub fn new(settings: Settings) -> Self {
        ArrayRecordEncoder {
            settings,
            pending: Group::default(),
            in_chunk: 0,
            chunk_begin: 0,
            spare: Spare::default(),
            chunks: Entries::default(),
            records: 0,
        }
    }

    fn encoding(&self) -> Encoding {
        let Settings { compression, group_size, transpose, .. } = self.settings;
        Encoding { group_size, compression, transpose }
    }

    fn take(&mut self) -> Group {
        (self.in_chunk, self.chunk_begin) = (0, 0);
        std::mem::replace(&mut self.pending, Group::in_spare(&self.spare))
    }

    /// Writes a chunk. `head` begins with the chunk header.
    #[inline(always)]
    fn write_chunk(&mut self, head: &[u8], body: &[u8], out: &mut dyn Output) -> Result<()> {
        let begin = writer::write_encoded(out, head, body)?;
        self.chunks.push(begin, bytes::u64_le(head, chunk::DECODED));
        if self.settings.pad { writer::pad_to_block(out) } else { Ok(()) }
    }

    /// Encodes all entries of the footer as a simple chunk. Empties the list of chunks.
    fn footer(&mut self) -> Result<EncodedChunks> {
        let chunks = std::mem::take(&mut self.chunks);
        let metadata = Metadata {
            version: VERSION,
            chunks: chunks.count,
            records: self.records,
            options: Some(self.settings.to_text()),
        };
        let mut values = metadata.to_bytes();
        let mut sizes = Vec::new();
        put_varint(&mut sizes, values.len() as u64);
        let count = chunks.count + 1;
        let mut left = self.records;
        for chunk in chunks.iter() {
            let (offset, decoded) = chunk?;
            let records = left.min(self.settings.group_size);
            left -= records;
            let begin = values.len();
            FooterEntry { offset: Some(offset), decoded: Some(decoded), records: Some(records) }
                .put(&mut values);
            put_varint(&mut sizes, (values.len() - begin) as u64);
        }
        drop(chunks);
        encode::encode_parts(&sizes, values, count, &self.settings.compression)
    }
}

impl Encoder for ArrayRecordEncoder {
    fn start(&mut self, out: &mut dyn Output) -> Result<()> {
        if out.position() != 0 {
            return Err(Error::argument("array_record cannot be appended to").at(out.position()));
        }
        writer::write_signature(out)
    }

    fn push(&mut self, record: &[u8]) -> Result<Option<Group>> {
        let bytes = (self.pending.bytes.len() - self.chunk_begin) as u64 + record.len() as u64;
        if self.settings.compression.codec == Codec::Snappy && !snappy::fits(bytes) {
            let what =
                format!("snappy cannot hold {bytes} bytes in one chunk; use a smaller group_size or zstd");
            return Err(Error::argument(what));
        }
        if self.settings.transpose.is_some() && record.len() as u64 > MAX_TRANSPOSED {
            return Err(Error::argument(
                "transposed chunks cannot hold a record of 4 GiB; write without transpose",
            ));
        }
        self.pending.push(record)?;
        self.in_chunk += 1;
        if self.in_chunk < self.settings.group_size {
            return Ok(None);
        }
        (self.in_chunk, self.chunk_begin) = (0, self.pending.bytes.len());
        let enough = self.chunk_begin >= BATCH_BYTES || self.pending.ends.len() >= BATCH_RECORDS;
        Ok(enough.then(|| self.take()))
    }

    fn flush(&mut self) -> Option<Group> {
        (!self.pending.ends.is_empty()).then(|| self.take())
    }

    fn takes_chunk(&self, records: u64) -> bool {
        self.in_chunk == 0 && records == self.settings.group_size
    }

    fn place_chunk(&mut self, chunk: CarriedChunk, out: &mut dyn Output) -> Result<()> {
        self.records += chunk.records;
        self.write_chunk(&chunk.head, &chunk.body, out)
    }

    fn compresses(&self) -> bool {
        self.settings.compression.codec != Codec::None || self.settings.transpose.is_some()
    }

    fn finish(&mut self, out: &mut dyn Output) -> Result<()> {
        let footer = self.footer()?;
        let footer_offset = writer::write_encoded(out, &footer.head, &footer.body)?;
        drop(footer);
        writer::pad_to_block(out)?;
        let mut copies = Group::default();
        for _ in 0..COPIES_OF_POSTSCRIPT {
            copies.push(&Postscript { footer_offset, magic: MAGIC }.to_bytes())?;
        }
        let stored = Compression { codec: Codec::None, level: 0, window_log: 0 };
        let one = Encoding { group_size: u64::MAX, compression: stored, transpose: None };
        let copies = one.encode(copies, &self.spare)?;
        writer::write_encoded(out, &copies.head, &copies.body)?;
        writer::pad_to_block(out)
    }
}

impl GroupEncoder for ArrayRecordEncoder {
    type Encoded = EncodedChunks;

    fn job(&self) -> EncodeJob<EncodedChunks> {
        let (encoding, spare) = (self.encoding(), self.spare.clone());
        Arc::new(move |group| encoding.encode(group, &spare))
    }

    fn place(&mut self, encoded: EncodedChunks, out: &mut dyn Output) -> Result<()> {
        for (head, body) in encoded.iter() {
            self.write_chunk(head, body, out)?;
        }
        self.records += encoded.records;
        self.spare.put(encoded.body);
        Ok(())
    }
}
