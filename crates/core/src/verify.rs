//! Every byte of a file accounted for.

use crate::error::{Error, Result};
use crate::format::{Format, ReadOptions, Span, detect};
use crate::shard::RecordRange;
use crate::storage::Storage;
use std::ops::Range;

/// Problems kept in a report; further ones are only counted, so that a file of garbage cannot fill the memory.
const PROBLEMS_KEPT: usize = 1000;

/// What [`verify`] found. `record_bytes`, `meta_bytes`, `unused_bytes` and `damaged_bytes` add up to `file_bytes`.
#[derive(Debug, Default)]
pub struct Report {
    /// Name of the format.
    pub format: &'static str,
    /// Size of the file.
    pub file_bytes: u64,
    /// Records in undamaged chunks, for each range that was asked for.
    pub records: Vec<u64>,
    /// Undamaged chunks that hold them, for each range that was asked for.
    pub chunks: Vec<u64>,
    /// Bytes of the file that hold undamaged records.
    pub record_bytes: u64,
    /// The bytes of those records, decoded.
    pub decoded_bytes: u64,
    /// Bytes of structure: headers, tables, padding.
    pub meta_bytes: u64,
    /// Stretches that no reader looks at and no hash covers, at most the first thousand. Allowed, but worth knowing.
    pub unused: Vec<Range<u64>>,
    /// The bytes of all such stretches.
    pub unused_bytes: u64,
    /// Stretches that are not as they should be, at most the first thousand.
    pub damaged: Vec<Range<u64>>,
    /// The bytes of all such stretches.
    pub damaged_bytes: u64,
    /// What is wrong, in the order of the file; at most the first thousand.
    pub problems: Vec<Error>,
    /// How many problems there are in all.
    pub problem_count: u64,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_ok(&self) -> bool {
        self.problem_count == 0
    }

    /// Something is wrong with a stretch of the file, before which there are `records` records.
    fn problem(&mut self, range: Range<u64>, error: Error, records: u64, name: &str) {
        self.problem_count += 1;
        self.damaged_bytes += range.end - range.start;
        if self.problems.len() < PROBLEMS_KEPT {
            // What nobody knows better is about the record that would come next; a table in front is about none.
            let is_behind = error.record().is_none() && records > 0;
            let error = if is_behind { error.for_record(records) } else { error };
            self.problems.push(error.in_file(name));
            self.damaged.push(range);
        }
    }

    /// Counts the records of a span in each of the ranges.
    fn count(&mut self, parts: &[RecordRange], found: Range<u64>, chunks: u64) {
        for (i, part) in parts.iter().enumerate() {
            let end = part.stop.unwrap_or(u64::MAX).min(found.end);
            let records = end.saturating_sub(part.start.max(found.start));
            self.records[i] += records;
            // One chunk holds all of them, or each has one of its own.
            self.chunks[i] += if chunks == 1 { records.min(1) } else { records };
        }
    }
}

/// Reads and checks every byte of a file. `progress` is told how far it has come, and may stop it with an error.
///
/// `parts` are ranges of records; those are what is counted. Damage anywhere in the file is in the report. An error is
/// returned only where reading itself failed, no format fits, or an undamaged file does not have all records of a range.
pub fn verify(
    storage: &dyn Storage,
    format: Option<&str>,
    parts: &[RecordRange],
    options: &ReadOptions,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Report> {
    let chosen = match format {
        Some(name) => detect::by_name(name),
        None => detect::detect(storage),
    };
    let format: &dyn Format = chosen.map_err(|e| e.in_file(storage.name()))?;
    let mut report = Report { format: format.name(), file_bytes: storage.len(), ..Report::default() };
    report.records.resize(parts.len(), 0);
    report.chunks.resize(parts.len(), 0);
    let (mut reached, mut total) = (0, 0);
    let walked = format.walk(storage, options, &mut |span| {
        let range = span.range().clone();
        if range.start != reached || range.end < range.start {
            let error = Error::format("bytes that no part of the file accounts for").at(reached);
            let error = error.expected(format_args!("byte {reached}")).found(range.start);
            report.problem(reached..range.start.max(reached), error, total, storage.name());
        }
        let length = range.end.saturating_sub(range.start);
        reached = range.end;
        match span {
            Span::Meta(_) => report.meta_bytes += length,
            Span::Records { meta, chunks, first, records, bytes, .. } => {
                let meta = meta.min(length);
                report.meta_bytes += meta;
                report.record_bytes += length - meta;
                report.decoded_bytes += bytes;
                report.count(parts, first..first.saturating_add(records), chunks);
                total = first.saturating_add(records);
            }
            Span::Unused(_) => {
                report.unused_bytes += length;
                if report.unused.len() < PROBLEMS_KEPT {
                    report.unused.push(range);
                }
            }
            Span::Damage(_, error) => report.problem(range, error, total, storage.name()),
        }
        progress(reached)
    });
    walked.map_err(|e| e.in_file(storage.name()))?;
    if reached != storage.len() {
        let error = Error::format("bytes that no part of the file accounts for").at(reached);
        let error = error.expected(format_args!("an end at byte {}", storage.len()));
        report.problem(reached..storage.len().max(reached), error, total, storage.name());
    }
    if report.is_ok() {
        let within = |part: &RecordRange| part.within(total).map_err(|e| e.in_file(storage.name()));
        parts.iter().try_for_each(|part| within(part).map(drop))?;
    }
    Ok(report)
}
