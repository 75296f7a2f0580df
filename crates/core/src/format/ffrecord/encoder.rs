//! Writes samples. The table comes before the samples, so its size must be known before the first sample is written.
//!
//! If the number of samples is given and the output can be patched, samples are written directly to their final place.
//! After each group its entries are written to the table, so an unfinished file has the entries of the samples that it
//! holds. The checksum of the table is written at the end. Otherwise the samples go to a [spool](super::spool). At the
//! end, the table is written, and the samples are copied from the spool.

use super::spool::SampleSpool;
use super::{ENTRY, HEADER};
use crate::error::{Error, Result};
use crate::format::encode::{EncodeJob, Encoder, Group, GroupEncoder};
use crate::format::options::WriteOptions;
use crate::format::spare::Spare;
use crate::storage::output::Output;
use std::ops::Range;
use std::sync::Arc;

/// A group is full when it has this many bytes, or this many samples.
const GROUP_BYTES: usize = 1 << 20;
const GROUP_SAMPLES: usize = 1 << 14;
/// The table is written in pieces of this size, so that memory does not hold it twice.
const PIECE: usize = 1 << 20;

/// Size of the checksum in the header, after which the number of samples is stored.
const CHECKSUM: u64 = 4;

pub(super) struct SampleEncoder {
    num_records: Option<u64>,
    pending: Group,
    spare: Spare,
    checksums: Vec<u32>,
    sizes_end: Vec<u64>,
    /// None if samples are written directly to their final place.
    spool: Option<SampleSpool>,
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
        let count = self.checksums.len();
        let checksums = (0..count).step_by(PIECE / 4).map(move |first| {
            let piece = first..count.min(first + PIECE / 4);
            self.stored_checksums(piece)
        });
        let offsets = (0..count).step_by(PIECE / 8).map(move |first| {
            let piece = first..count.min(first + PIECE / 8);
            self.stored_offsets(piece, count as u64)
        });
        checksums.chain(offsets)
    }

    fn stored_checksums(&self, samples: Range<usize>) -> Vec<u8> {
        self.checksums[samples].iter().flat_map(|c| c.to_le_bytes()).collect()
    }

    /// The stored offsets of samples in a file of `count` samples.
    fn stored_offsets(&self, samples: Range<usize>, count: u64) -> Vec<u8> {
        let begin = HEADER + ENTRY * count;
        // Each sample begins where the one before it ends.
        let offset = |i: usize| begin + if i == 0 { 0 } else { self.sizes_end[i - 1] };
        samples.flat_map(|i| offset(i).to_le_bytes()).collect()
    }

    /// Writes the entries of the samples from number `first` on to their place in the table.
    fn place_entries(&self, first: usize, out: &mut dyn Output) -> Result<()> {
        let announced = self.refuse_other_count(|count, announced| count > announced)?;
        let samples = first..self.checksums.len();
        let (checksums, offsets) = (HEADER, HEADER + 4 * announced);
        out.write_at(checksums + 4 * first as u64, &self.stored_checksums(samples.clone()))?;
        out.write_at(offsets + 8 * first as u64, &self.stored_offsets(samples, announced))
    }

    /// Refuses a number of samples that differs from the one that was announced, which is returned.
    fn refuse_other_count(&self, differs: impl Fn(u64, u64) -> bool) -> Result<u64> {
        let (count, announced) = (self.checksums.len() as u64, self.num_records.unwrap_or(0));
        if differs(count, announced) {
            return Err(Error::argument(format!("{count} samples, but num_records announced {announced}")));
        }
        Ok(announced)
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
            Some(n) if out.can_patch() => {
                out.skip(HEADER + ENTRY * n)?;
                // Together with the entries, it tells what an unfinished file holds.
                out.write_at(CHECKSUM, &n.to_le_bytes())
            }
            _ => {
                self.spool = Some(SampleSpool::default());
                Ok(())
            }
        }
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
        match self.spool.take() {
            None => {
                self.refuse_other_count(|count, announced| count != announced)?;
                out.write_at(0, &header)
            }
            Some(spool) => {
                out.write_all(&header)?;
                self.tables().try_for_each(|piece| out.write_all(&piece))?;
                spool.copy_to(&self.sizes_end, out)
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
        let (first, begin) = (self.checksums.len(), self.sizes_end.last().copied().unwrap_or(0));
        match &mut self.spool {
            Some(spool) => spool.add(&encoded.bytes, &encoded.ends, &self.sizes_end, out)?,
            None => out.write_all(&encoded.bytes)?,
        }
        self.checksums.extend(encoded.checksums);
        self.sizes_end.extend(encoded.ends.iter().map(|&end| begin + end as u64));
        if self.spool.is_none() {
            self.place_entries(first, out)?;
        }
        self.spare.put(encoded.bytes);
        Ok(())
    }
}
