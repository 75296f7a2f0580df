//! Writes samples. The table comes before the samples, so its size must be known before the first sample is written.
//!
//! If the number of samples is given and the output can be patched, samples are written directly to their final place.
//! The table is patched in at the end. Otherwise the samples go to a spool (a temporary file). At the end, the table is
//! written, and the samples are copied from the spool.

use super::{ENTRY, HEADER};
use crate::error::{Error, Result};
use crate::format::encode::{EncodeJob, Encoder, Group, GroupEncoder};
use crate::format::options::WriteOptions;
use crate::format::spare::Spare;
use crate::storage::output::Output;
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use tempfile::SpooledTempFile;

/// A group is full when it has this many bytes, or this many samples.
const GROUP_BYTES: usize = 1 << 20;
const GROUP_SAMPLES: usize = 1 << 14;
/// A spool that is larger than this moves from memory to disk.
const SPOOL_IN_MEMORY: usize = 8 << 20;
/// The table is written in pieces of this size, so that memory does not hold it twice.
const PIECE: usize = 1 << 20;

pub(super) struct SampleEncoder {
    num_records: Option<u64>,
    pending: Group,
    spare: Spare,
    checksums: Vec<u32>,
    sizes_end: Vec<u64>,
    spool: Option<SpooledTempFile>,
}

/// Samples with their checksums, ready to be written.
pub(super) struct EncodedSamples {
    checksums: Vec<u32>,
    bytes: Vec<u8>,
    /// Where each sample ends in `bytes`.
    ends: Vec<usize>,
}

impl SampleEncoder {
    pub(super) fn new(options: &WriteOptions) -> Result<Self> {
        options.only("ffrecord", &["num_records"])?;
        let num_records = options.int("num_records", 0..=i64::MAX as u64 / ENTRY)?;
        Ok(SampleEncoder {
            num_records,
            pending: Group::default(),
            spare: Spare::default(),
            checksums: Vec::new(),
            sizes_end: Vec::new(),
            spool: None,
        })
    }

    /// The stored form of the tables, piece by piece.
    fn tables(&self) -> impl Iterator<Item = Vec<u8>> {
        let begin = HEADER + ENTRY * self.checksums.len() as u64;
        let checksums = self.checksums.chunks(PIECE / 4);
        let checksums = checksums.map(|piece| piece.iter().flat_map(|c| c.to_le_bytes()).collect());
        // Each sample begins where the one before it ends.
        let count = self.sizes_end.len();
        let offsets = (0..count).step_by(PIECE / 8).map(move |first| {
            let piece = first..count.min(first + PIECE / 8);
            let offset = move |i: usize| begin + if i == 0 { 0 } else { self.sizes_end[i - 1] };
            piece.flat_map(|i| offset(i).to_le_bytes()).collect()
        });
        checksums.chain(offsets)
    }

    fn header(&self) -> [u8; HEADER as usize] {
        let count = (self.checksums.len() as u64).to_le_bytes();
        let mut hash = crc32fast::Hasher::new();
        hash.update(&count);
        self.tables().for_each(|piece| hash.update(&piece));
        let mut header = [0; HEADER as usize];
        header[..4].copy_from_slice(&hash.finalize().to_le_bytes());
        header[4..].copy_from_slice(&count);
        header
    }
}

impl Encoder for SampleEncoder {
    fn start(&mut self, out: &mut dyn Output) -> Result<()> {
        match self.num_records {
            Some(n) if out.can_patch() => out.skip(HEADER + ENTRY * n)?,
            _ => {
                self.spool = Some(match out.spool_folder() {
                    Some(folder) => tempfile::spooled_tempfile_in(SPOOL_IN_MEMORY, folder),
                    None => tempfile::spooled_tempfile(SPOOL_IN_MEMORY),
                });
            }
        }
        Ok(())
    }

    fn push(&mut self, record: &[u8]) -> Result<Option<Group>> {
        self.pending.push(record)?;
        let full = self.pending.bytes.len() >= GROUP_BYTES || self.pending.ends.len() >= GROUP_SAMPLES;
        Ok(if full { self.flush() } else { None })
    }

    fn flush(&mut self) -> Option<Group> {
        (!self.pending.ends.is_empty())
            .then(|| std::mem::replace(&mut self.pending, Group::in_spare(&self.spare)))
    }

    fn compresses(&self) -> bool {
        false
    }

    fn finish(&mut self, out: &mut dyn Output) -> Result<()> {
        let header = self.header();
        let Some(mut spool) = self.spool.take() else {
            out.write_at(0, &header)?;
            let mut at = HEADER;
            for piece in self.tables() {
                out.write_at(at, &piece)?;
                at += piece.len() as u64;
            }
            return Ok(());
        };
        out.write_all(&header)?;
        self.tables().try_for_each(|piece| out.write_all(&piece))?;
        spool.seek(SeekFrom::Start(0)).map_err(spool_failed)?;
        let mut buffer = vec![0; PIECE];
        loop {
            match spool.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(n) => out.write_all(&buffer[..n])?,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(spool_failed(e)),
            }
        }
    }
}

impl GroupEncoder for SampleEncoder {
    type Encoded = EncodedSamples;

    fn job(&self) -> EncodeJob<EncodedSamples> {
        Arc::new(|group: Group| {
            let checksums = group.iter().map(crc32fast::hash).collect();
            Ok(EncodedSamples { checksums, bytes: group.bytes, ends: group.ends })
        })
    }

    fn place(&mut self, encoded: EncodedSamples, out: &mut dyn Output) -> Result<()> {
        let begin = self.sizes_end.last().copied().unwrap_or(0);
        self.checksums.extend(encoded.checksums);
        self.sizes_end.extend(encoded.ends.iter().map(|&end| begin + end as u64));
        match &mut self.spool {
            Some(spool) => spool.write_all(&encoded.bytes).map_err(spool_failed)?,
            None => out.write_all(&encoded.bytes)?,
        }
        self.spare.put(encoded.bytes);
        Ok(())
    }
}

fn spool_failed(error: std::io::Error) -> Error {
    Error::io("spooling samples to a temporary file failed", error)
        .hint("pass num_records= to write without a temporary file, if the output can seek")
}
