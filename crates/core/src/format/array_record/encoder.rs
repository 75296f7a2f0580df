//! Writing: signature, data chunks, footer, postscript.

use super::proto::{FooterEntry, MAGIC, Metadata, Postscript, VERSION};
use super::settings::Settings;
use crate::bytes::{Cursor, put_varint};
use crate::codec::{Codec, Compression, snappy};
use crate::error::{Error, Result};
use crate::format::riegeli::chunk::{Header, kind};
use crate::format::riegeli::{simple, transpose_encode, writer};
use crate::format::{EncodeJob, Encoded, Encoder, Group};
use crate::storage::output::Output;
use std::sync::Arc;

/// The reader of a transposed chunk reads lengths of 32 bits.
const MAX_TRANSPOSED: u64 = u32::MAX as u64;
/// What the original puts in front of its compressor; input shorter than that has a known size.
const BUFFER: usize = 4096;
const COPIES_OF_POSTSCRIPT: usize = 3;

/// Writes one file.
pub struct ArrayRecordEncoder {
    settings: Settings,
    pending: Group,
    /// All groups are full but the last.
    chunks: Entries,
    records: u64,
}

/// Offset and decoded size of each chunk, a few bytes for both: there may be as many chunks as records.
#[derive(Default)]
struct Entries {
    /// For each chunk, how far it lies behind the one before it, and its decoded size, as varints.
    bytes: Vec<u8>,
    count: u64,
    last: u64,
}

impl Entries {
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
    /// Of a file without records.
    pub fn new(settings: Settings) -> Self {
        ArrayRecordEncoder { settings, pending: Group::default(), chunks: Entries::default(), records: 0 }
    }

    /// All entries of the footer, as the two parts of a simple chunk; forgets the chunks on the way.
    fn footer(&mut self) -> Result<Encoded> {
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
        let size_known = values.len() <= BUFFER;
        simple::encode_parts(sizes, values, count, size_known, &self.settings.compression)
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
        let bytes = self.pending.bytes.len() as u64 + record.len() as u64;
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
        self.pending.push(record);
        let full = self.pending.ends.len() as u64 == self.settings.group_size;
        Ok(full.then(|| std::mem::take(&mut self.pending)))
    }

    fn flush(&mut self) -> Option<Group> {
        (!self.pending.ends.is_empty()).then(|| std::mem::take(&mut self.pending))
    }

    fn job(&self) -> EncodeJob {
        let compression = self.settings.compression;
        match self.settings.transpose {
            None => Arc::new(move |group| simple::encode(group, &compression)),
            Some(bucket) => Arc::new(move |group| transpose_encode::encode(&group, &compression, bucket)),
        }
    }

    fn takes_chunk(&self, records: u64) -> bool {
        self.pending.ends.is_empty() && records == self.settings.group_size
    }

    fn place(&mut self, encoded: Encoded, out: &mut dyn Output) -> Result<()> {
        let kind = if self.settings.transpose.is_some() { kind::TRANSPOSED } else { kind::SIMPLE };
        let begin = put(out, kind, &encoded)?;
        self.chunks.push(begin, encoded.decoded_bytes);
        self.records += encoded.records;
        if self.settings.pad {
            writer::pad_to_block(out)?;
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Output) -> Result<()> {
        let footer = self.footer()?;
        let footer_offset = put(out, kind::SIMPLE, &footer)?;
        drop(footer);
        writer::pad_to_block(out)?;
        let mut copies = Group::default();
        for _ in 0..COPIES_OF_POSTSCRIPT {
            copies.push(&Postscript { footer_offset, magic: MAGIC }.to_bytes());
        }
        let stored = Compression { codec: Codec::None, level: 0, window_log: 0 };
        put(out, kind::SIMPLE, &simple::encode(copies, &stored)?)?;
        writer::pad_to_block(out)
    }
}

fn put(out: &mut dyn Output, kind: u8, encoded: &Encoded) -> Result<u64> {
    let header = Header {
        data_size: (encoded.head.len() + encoded.body.len()) as u64,
        data_hash: encoded.hash,
        kind,
        records: encoded.records,
        decoded: encoded.decoded_bytes,
    };
    writer::write_chunk(out, &header, &[&encoded.head, &encoded.body])
}
