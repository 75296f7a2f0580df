//! Every byte of a file accounted for.

use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::format::{Format, ReadOptions, Span, detect};
use crate::storage::Storage;
use std::ops::Range;

/// Problems kept in a report; further ones are only counted, so that a file of garbage cannot fill the memory.
const PROBLEMS_KEPT: usize = 1000;

/// What [`verify`] found.
#[derive(Debug, Default)]
pub struct Report {
    /// Name of the format.
    pub format: &'static str,
    /// Size of the file.
    pub file_bytes: u64,
    /// Records in undamaged chunks.
    pub records: u64,
    /// Their bytes, decoded.
    pub record_bytes: u64,
    /// Chunks of records.
    pub chunks: u64,
    /// Bytes of structure: headers, tables, padding.
    pub meta_bytes: u64,
    /// Stretches that no reader looks at and no hash covers. Allowed, but worth knowing.
    pub unused: Vec<Range<u64>>,
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

    fn problem(&mut self, error: Error, name: &str) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_KEPT {
            self.problems.push(error.in_file(name));
        }
    }
}

/// Reads and checks every byte of a file. `progress` is told how far it has come, and may stop it with an error.
///
/// Damage is in the report; an error is returned only where reading itself failed, or no format fits.
pub fn verify(
    storage: &dyn Storage,
    format: Option<&str>,
    options: &ReadOptions,
    cx: &Cx<'_>,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Report> {
    let chosen = detect::named_or_detected(format, storage, options, cx);
    let format: &dyn Format = chosen.map_err(|e| e.in_file(storage.name()))?;
    let mut report = Report { format: format.name(), file_bytes: storage.len(), ..Report::default() };
    let mut reached = 0;
    let walked = format.walk(storage, options, cx, &mut |span| {
        let range = span.range().clone();
        if range.start != reached || range.end < range.start {
            let error = Error::format("bytes that no part of the file accounts for").at(reached);
            report.problem(error.expected(format_args!("byte {reached}")).found(range.start), storage.name());
        }
        reached = range.end;
        match span {
            Span::Meta(_) => report.meta_bytes += range.end - range.start,
            Span::Records { records, bytes, .. } => {
                report.chunks += 1;
                report.records += records;
                report.record_bytes += bytes;
            }
            Span::Unused(_) if report.unused.len() < PROBLEMS_KEPT => report.unused.push(range),
            Span::Unused(_) => {}
            Span::Damage(_, error) => report.problem(error, storage.name()),
        }
        progress(reached)
    });
    walked.map_err(|e| e.in_file(storage.name()))?;
    if reached != storage.len() {
        let error = Error::format("bytes that no part of the file accounts for").at(reached);
        report.problem(error.expected(format_args!("an end at byte {}", storage.len())), storage.name());
    }
    Ok(report)
}
