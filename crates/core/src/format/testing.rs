//! Helpers for the tests of several formats. They work on whole files in memory.

use super::options::WriteOptions;
use super::{Format, ReadOptions, walk};
use crate::cx::for_tests;
use crate::error::Result;
use crate::limits::Limits;
use crate::shard::RecordRange;
use crate::storage::memory::Memory;
use crate::storage::output::ForwardOutput;
use crate::verify::verify;

/// A file with these records.
pub fn write(format: &Format, options: &WriteOptions, records: &[Vec<u8>]) -> Vec<u8> {
    write_in_groups(format, options, records, usize::MAX)
}

/// A file with these records, encoded in groups of at most `most` records. So a small file can also have several groups.
pub fn write_in_groups(format: &Format, options: &WriteOptions, records: &[Vec<u8>], most: usize) -> Vec<u8> {
    let mut encoder = (format.encoder)(options).unwrap();
    let (mut out, job) = (ForwardOutput::new("memory", Vec::new()), encoder.any_job());
    encoder.start(&mut out).unwrap();
    for records in records.chunks(most) {
        for record in records {
            if let Some(group) = encoder.push(record).unwrap() {
                encoder.place_any(job(group).unwrap(), &mut out).unwrap();
            }
        }
        if let Some(group) = encoder.flush() {
            encoder.place_any(job(group).unwrap(), &mut out).unwrap();
        }
    }
    encoder.finish(&mut out).unwrap();
    out.into_inner()
}

/// All records in order.
pub fn scan(format: &Format, file: &[u8]) -> Result<Vec<Vec<u8>>> {
    let (memory, cx) = (Memory::new("test", file), for_tests(Limits::default()));
    let mut records = Vec::new();
    walk::scan(format, &memory, &ReadOptions::default(), &cx, &mut |record| {
        records.push(record.to_vec());
        Ok(())
    })?;
    Ok(records)
}

/// How many sound records `verify` finds, and how many problems.
pub fn verified(format: &Format, file: &[u8]) -> (u64, u64) {
    let (memory, options, cx) =
        (Memory::new("test", file), ReadOptions::default(), for_tests(Limits::default()));
    let all = [RecordRange::default()];
    let report = verify(&memory, Some(format.name), &all, &options, &cx, &mut |_| Ok(())).unwrap();
    (report.records[0], report.problem_count)
}
