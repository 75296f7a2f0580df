//! Verifies a file: accounts for every byte of it.

use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::format::walk::{Depth, Span, Walk};
use crate::format::{Format, ReadOptions, detect};
use crate::shard::RecordRange;
use crate::storage::Storage;
use std::ops::Range;

/// The most problems kept in a report. Further ones are only counted, so that a file of garbage cannot fill the memory.
const PROBLEMS_KEPT: usize = 1000;

/// What [`verify`] found. `record_bytes`, `meta_bytes`, `unused_bytes` and `damaged_bytes` add up to `file_bytes`.
#[derive(Debug, Default)]
pub struct Report {
    /// Name of the format.
    pub format: &'static str,
    /// Size of the file.
    pub file_bytes: u64,
    /// Records in undamaged chunks, for each requested range.
    pub records: Vec<u64>,
    /// Undamaged chunks that hold these records, for each requested range.
    pub chunks: Vec<u64>,
    /// Stored bytes of undamaged records in the file.
    pub record_bytes: u64,
    /// The bytes of those records, decoded.
    pub decoded_bytes: u64,
    /// Bytes of structure: headers, tables, padding.
    pub meta_bytes: u64,
    /// Byte ranges that no reader uses and no hash covers, at most the first thousand. They are allowed, but worth
    /// knowing.
    pub unused: Vec<Range<u64>>,
    /// The number of bytes in all such ranges.
    pub unused_bytes: u64,
    /// Damaged byte ranges, at most the first thousand. There is one for each of `problems`.
    pub damaged: Vec<Range<u64>>,
    /// The number of bytes in all such ranges.
    pub damaged_bytes: u64,
    /// The problems in the order of the file, at most the first thousand. Each names the first record that is lost, as
    /// [`Span::Damage`] does.
    pub problems: Vec<Error>,
    /// How many problems there are in all.
    pub problem_count: u64,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_ok(&self) -> bool {
        self.problem_count == 0
    }
}

/// Reads and checks every byte of a file. `progress` is called with the number of bytes checked so far. An error from
/// `progress` stops the call.
///
/// `parts` are the ranges of records to count. The report contains damage anywhere in the file. An error is returned
/// only if a read failed, no format fits, or an undamaged file does not have all records of a range.
pub fn verify(
    storage: &dyn Storage,
    format: Option<&str>,
    parts: &[RecordRange],
    options: &ReadOptions,
    cx: &Cx<'_>,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Report> {
    let mut verify = || {
        let format: &Format = detect::named_or_detected(format, storage, options, cx)?;
        let mut account = Account::new(format, storage, parts);
        let mut pace = cx.pace();
        (format.walk)(&Walk::resuming(storage, options, Depth::Checked, cx), &mut |span| {
            account.add(span);
            pace.step(64)?;
            progress(account.reached)
        })?;
        account.finish()
    };
    verify().map_err(|e: Error| e.in_file(storage.name()))
}

/// A report that is being built.
struct Account<'a> {
    storage: &'a dyn Storage,
    parts: &'a [RecordRange],
    report: Report,
    /// Where the last span ended.
    reached: u64,
    /// The number after that of the last record found.
    records: u64,
}

impl<'a> Account<'a> {
    fn new(format: &Format, storage: &'a dyn Storage, parts: &'a [RecordRange]) -> Self {
        let report = Report {
            format: format.name,
            file_bytes: storage.len(),
            records: vec![0; parts.len()],
            chunks: vec![0; parts.len()],
            ..Report::default()
        };
        Account { storage, parts, report, reached: 0, records: 0 }
    }

    fn add(&mut self, span: Span<'_>) {
        let range = span.range().clone();
        if range.start != self.reached || range.end < range.start {
            self.gap(range.start);
        }
        let bytes = range.end.saturating_sub(range.start);
        self.reached = range.end;
        match span {
            Span::Meta(_) => self.report.meta_bytes += bytes,
            Span::Filler(_) => self.report.record_bytes += bytes,
            Span::Records(chunk) => {
                let record_bytes = chunk.record_bytes.min(bytes);
                self.report.record_bytes += record_bytes;
                self.report.meta_bytes += bytes - record_bytes;
                self.report.decoded_bytes += chunk.decoded_bytes.unwrap_or(0);
                let end = chunk.first_record.saturating_add(chunk.records);
                self.count(chunk.first_record..end);
                self.records = end;
            }
            Span::Unused(_) => {
                self.report.unused_bytes += bytes;
                if self.report.unused.len() < PROBLEMS_KEPT {
                    self.report.unused.push(range);
                }
            }
            Span::Damage(_, error) => self.problem(range, error),
        }
    }

    /// Counts the records of a chunk in each of the requested ranges.
    fn count(&mut self, found: Range<u64>) {
        let counts = self.report.records.iter_mut().zip(&mut self.report.chunks);
        for (part, (records, chunks)) in self.parts.iter().zip(counts) {
            let end = part.stop.unwrap_or(u64::MAX).min(found.end);
            let here = end.saturating_sub(part.start.max(found.start));
            *records += here;
            *chunks += here.min(1);
        }
    }

    fn problem(&mut self, range: Range<u64>, error: Error) {
        self.report.problem_count += 1;
        self.report.damaged_bytes += range.end.saturating_sub(range.start);
        if self.report.problems.len() < PROBLEMS_KEPT {
            self.report.problems.push(error.in_file(self.storage.name()));
            self.report.damaged.push(range);
        }
    }

    /// Reports bytes up to `end` that no span has covered. This is a bug of the walk.
    fn gap(&mut self, end: u64) {
        let at = self.reached;
        let error = Error::format("bytes that belong to no part of the file").at(at);
        self.problem(at..end.max(at), error.expected(format_args!("byte {at}")).found(end));
    }

    fn finish(mut self) -> Result<Report> {
        if self.reached != self.storage.len() {
            self.gap(self.storage.len());
        }
        if self.report.is_ok() {
            self.parts.iter().try_for_each(|part| part.within(self.records).map(drop))?;
        }
        Ok(self.report)
    }
}
