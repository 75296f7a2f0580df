//! Writes records, uncompressed or as one compressed stream.
//!
//! A stream is compressed in independent parts, so that any thread can compress a part. The parts still make one stream,
//! because each part ends at a byte boundary and their checksums can be combined. A part is about 1 MiB before
//! compression. That does not depend on the number of threads, so the written bytes do not depend on it either.

use super::frame::{self, AROUND};
use crate::bytes;
use crate::codec::gzip::{self, Wrapper};
use crate::error::{Error, Result};
use crate::format::encode::{EncodeJob, Encoder, Group, GroupEncoder};
use crate::format::options::WriteOptions;
use crate::format::spare::Spare;
use crate::storage::output::Output;
use std::sync::Arc;

/// A group is full when it has this many bytes, or this many records.
const GROUP_BYTES: usize = 1 << 20;
const GROUP_RECORDS: usize = 1 << 14;
const LEVEL: u32 = 6;

pub(super) struct RecordEncoder {
    wrapper: Option<Wrapper>,
    level: u32,
    pending: Group,
    spare: Spare,
    /// Bytes of the stream before compression.
    length: u64,
    /// Checksum of these bytes.
    checksum: u32,
}

/// Records with their lengths and checksums, compressed or not, ready to be written.
pub(super) struct EncodedRecords {
    bytes: Vec<u8>,
    /// Size before compression.
    length: u64,
    /// For a compressed stream: checksum of the bytes before compression.
    checksum: u32,
}

impl RecordEncoder {
    pub(super) fn new(options: &WriteOptions) -> Result<Self> {
        options.only("tfrecord", &["codec", "level", "num_records"])?;
        let wrapper = match options.word("codec", &["none", "gzip", "zlib"])? {
            Some("gzip") => Some(Wrapper::Gzip),
            Some("zlib") => Some(Wrapper::Zlib),
            _ => None,
        };
        let level = options.int("level", 0..=9)?;
        if level.is_some() && wrapper.is_none() {
            return Err(Error::argument(
                "level= is for codec='gzip' and codec='zlib'; codec='none' has no levels",
            ));
        }
        Ok(RecordEncoder {
            wrapper,
            level: level.unwrap_or(LEVEL),
            pending: Group::default(),
            spare: Spare::default(),
            length: 0,
            checksum: wrapper.map_or(0, Wrapper::checksum_of_none),
        })
    }
}

impl Encoder for RecordEncoder {
    fn start(&mut self, out: &mut dyn Output) -> Result<()> {
        self.wrapper.map_or(Ok(()), |wrapper| out.write_all(wrapper.header(self.level)))
    }

    fn push(&mut self, record: &[u8]) -> Result<Option<Group>> {
        self.pending.push(record)?;
        let full = self.pending.bytes.len() >= GROUP_BYTES || self.pending.ends.len() >= GROUP_RECORDS;
        Ok(if full { self.flush() } else { None })
    }

    fn flush(&mut self) -> Option<Group> {
        (!self.pending.ends.is_empty())
            .then(|| std::mem::replace(&mut self.pending, Group::in_spare(&self.spare)))
    }

    fn compresses(&self) -> bool {
        self.wrapper.is_some()
    }

    fn finish(&mut self, out: &mut dyn Output) -> Result<()> {
        let Some(wrapper) = self.wrapper else { return Ok(()) };
        out.write_all(&gzip::LAST_BLOCK)?;
        out.write_all(&wrapper.trailer(self.checksum, self.length))
    }
}

impl GroupEncoder for RecordEncoder {
    type Encoded = EncodedRecords;

    fn job(&self) -> EncodeJob<EncodedRecords> {
        let (wrapper, level, spare) = (self.wrapper, self.level, self.spare.clone());
        Arc::new(move |group: Group| {
            let mut body = spare.take();
            let length = group.bytes.len() as u64 + AROUND * group.ends.len() as u64;
            bytes::reserve_bytes("records to be written", &mut body, length)?;
            group.iter().for_each(|record| frame::put(&mut body, record));
            let mut checksum = 0;
            if let Some(wrapper) = wrapper {
                checksum = wrapper.checksum(&body);
                let deflated = gzip::deflate_part(&body, level)?;
                spare.put(std::mem::replace(&mut body, deflated));
            }
            spare.put(group.bytes);
            Ok(EncodedRecords { bytes: body, length, checksum })
        })
    }

    fn place(&mut self, encoded: EncodedRecords, out: &mut dyn Output) -> Result<()> {
        if let Some(wrapper) = self.wrapper {
            self.checksum = wrapper.combine(self.checksum, encoded.checksum, encoded.length);
            self.length += encoded.length;
        }
        out.write_all(&encoded.bytes)?;
        self.spare.put(encoded.bytes);
        Ok(())
    }
}
