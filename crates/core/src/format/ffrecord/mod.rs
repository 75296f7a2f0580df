//! FFRecord: a table with the CRC-32 and the offset of each sample, and then the bytes of all samples.
//!
//! | at byte | size | field |
//! |---|---|---|
//! | 0 | 4 | CRC-32 of everything up to the first sample; 0 in old files |
//! | 4 | 8 | `n`, the number of samples |
//! | 12 | 4 n | CRC-32 of each sample |
//! | 12 + 4 n | 8 n | offset of each sample from the beginning of the file |
//! | 12 + 12 n | | the samples |
//!
//! All numbers are little-endian. There is no magic number. The end of the last sample is not stored: it ends where the
//! file ends.

mod encoder;
mod proofs;
mod salvage;
mod spool;
mod table;
mod walk;

use super::{Format, Probe, ReadOptions, Salvage, SalvageTable};
use crate::bytes;
use crate::cx::Cx;
use crate::error::Result;
use crate::storage::Storage;

/// Bytes before the tables.
const HEADER: u64 = 12;
/// Bytes of the tables for each sample.
const ENTRY: u64 = 12;
/// The header checksum of a file without samples.
const CHECKSUM_OF_NONE: u32 = 0x6522_df69;

/// The FFRecord format.
pub const FFRECORD: Format = Format {
    name: "ffrecord",
    suffixes: &[".ffr"],
    probe,
    has_table_at_end: false,
    open: |storage, options, cx| Ok(Box::new(table::Samples::open(storage, options, cx)?)),
    open_indexed: None,
    walk: walk::walk,
    salvage: Salvage { walk: salvage::walk, table: SalvageTable::Unused },
    encoder: |options| Ok(Box::new(encoder::SampleEncoder::new(options)?)),
};

fn probe(storage: &dyn Storage, _options: &ReadOptions, cx: &Cx<'_>) -> Result<Probe> {
    let size = storage.len();
    if size < HEADER {
        return Ok(Probe::No);
    }
    let mut head = [0; HEADER as usize];
    storage.read_at(0, &mut head, cx)?;
    let (checksum, n) = (bytes::u32_le(&head, 0), bytes::u64_le(&head, 4));
    if n > (size - HEADER) / ENTRY {
        return Ok(Probe::No);
    }
    if n == 0 {
        return Ok(match checksum {
            CHECKSUM_OF_NONE if size == HEADER => Probe::Yes,
            0 => Probe::Plausible,
            _ => Probe::No,
        });
    }
    let mut first = [0; 8];
    storage.read_at(HEADER + 4 * n, &mut first, cx)?;
    let first = bytes::u64_le(&first, 0);
    Ok(if (HEADER + ENTRY * n..=size).contains(&first) { Probe::Plausible } else { Probe::No })
}
