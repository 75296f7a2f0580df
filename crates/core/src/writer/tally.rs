//! Counts and hashes the written records, and compares them with the records in a file.

use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::format::{Format, ReadOptions, walk};
use crate::hash::highway::Hasher;
use crate::storage::file::Io;
use crate::storage::location::Location;
use crate::storage::remote::open::FirstPart;

/// Counts and hashes records.
#[derive(Default)]
pub struct Tally {
    records: u64,
    hasher: Hasher,
}

/// How many records there were, and a hash of their lengths and bytes in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Number of records.
    pub records: u64,
    /// The hash.
    pub hash: u64,
}

impl Tally {
    /// Counts the next record.
    pub fn add(&mut self, record: &[u8]) {
        self.records += 1;
        self.hasher.update(&(record.len() as u64).to_le_bytes());
        self.hasher.update(record);
    }

    /// The result.
    pub fn sum(self) -> Sum {
        Sum { records: self.records, hash: self.hasher.finish() }
    }
}

/// Reads a file and compares its records with what was written.
pub fn check(
    location: &Location,
    format: &Format,
    options: &ReadOptions,
    written: Sum,
    cx: &Cx<'_>,
) -> Result<()> {
    let opened = location.open(Io::Plain, FirstPart::Beginning, cx)?;
    let mut tally = Tally::default();
    let mut pace = cx.pace();
    walk::scan(format, &*opened.storage, options, cx, &mut |record| {
        tally.add(record);
        pace.step(record.len() as u64 + 64)
    })?;
    let found = tally.sum();
    if found == written {
        return Ok(());
    }
    Err(Error::checksum("the written file does not hold the records that were passed to the writer")
        .expected(format_args!("{} records with hash {:016x}", written.records, written.hash))
        .found(format_args!("{} with {:016x}", found.records, found.hash))
        .hint(if location.as_url().is_some() {
            "memory or the store may be faulty; what was published is deleted again"
        } else {
            "memory or disk may be faulty; nothing was published"
        }))
}
