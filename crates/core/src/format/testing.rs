//! Helpers for the tests of several formats. They work on whole files in memory.

use super::{Format, ReadOptions, walk};
use crate::cx::for_tests;
use crate::error::Result;
use crate::limits::Limits;
use crate::shard::RecordRange;
use crate::storage::memory::Memory;
use crate::verify::verify;

/// All records in order.
pub fn scan(format: &dyn Format, file: &[u8]) -> Result<Vec<Vec<u8>>> {
    let (memory, cx) = (Memory::new("test", file), for_tests(Limits::default()));
    let mut records = Vec::new();
    walk::scan(format, &memory, &ReadOptions::default(), &cx, &mut |record| {
        records.push(record.to_vec());
        Ok(())
    })?;
    Ok(records)
}

/// How many sound records `verify` finds, and how many problems.
pub fn verified(format: &dyn Format, file: &[u8]) -> (u64, u64) {
    let (memory, options, cx) =
        (Memory::new("test", file), ReadOptions::default(), for_tests(Limits::default()));
    let all = [RecordRange::default()];
    let report = verify(&memory, Some(format.name()), &all, &options, &cx, &mut |_| Ok(())).unwrap();
    (report.records[0], report.problem_count)
}
