//! What was saved from a file, and what was skipped and why.

use crate::error::Error;
use crate::format::Format;
use crate::storage::Storage;
use std::ops::Range;

/// The most ranges of each kind that are kept. Further ones are only counted, so that a file of garbage cannot fill the
/// memory.
const KEPT: usize = 1000;

/// What was saved from one file.
#[derive(Debug, Default)]
pub struct Report {
    /// Name of the format.
    pub format: &'static str,
    /// Size of the file.
    pub file_bytes: u64,
    /// How many records were saved.
    pub records: u64,
    /// How many of them were found by search.
    pub found_by_search: u64,
    /// The numbers of those among all records that were saved, at most the first thousand ranges.
    pub found: Vec<Range<u64>>,
    /// The bytes that were skipped, at most the first thousand ranges.
    pub skipped: Vec<Range<u64>>,
    /// Why, one for each of `skipped`. Each names the first record that was lost, if that is known.
    pub problems: Vec<Error>,
    /// How many ranges were skipped in all.
    pub skipped_count: u64,
    /// How many bytes they have.
    pub lost_bytes: u64,
    /// How many bytes the disk could not read.
    pub unreadable_bytes: u64,
}

/// A report that is being built.
pub struct Account<'a> {
    storage: &'a dyn Storage,
    strict: bool,
    report: Report,
    /// Chunks that are left out because they were found by search, and the number of the first record.
    left_out: Option<(Range<u64>, u64)>,
    /// The number that the next record has in the file, as far as it is known.
    next: u64,
}

impl<'a> Account<'a> {
    /// Nothing is saved yet.
    pub fn new(format: &Format, storage: &'a dyn Storage, strict: bool) -> Self {
        let report = Report { format: format.name, file_bytes: storage.len(), ..Report::default() };
        Account { storage, strict, report, left_out: None, next: 0 }
    }

    /// Counts a sound chunk. Returns whether its records are saved. `saved`: how many records were saved before it.
    pub fn sound(&mut self, range: Range<u64>, records: u64, saved: u64, found_by_search: bool) -> bool {
        let first = self.next;
        self.next = first.saturating_add(records);
        if found_by_search && self.strict {
            match &mut self.left_out {
                Some((before, _)) if before.end == range.start => before.end = range.end,
                _ => {
                    self.report_left_out();
                    self.left_out = Some((range, first));
                }
            }
            return false;
        }
        self.report.records += records;
        if found_by_search {
            self.report.found_by_search += records;
            let end = saved + records;
            let (found, mut range) = (&mut self.report.found, saved..end);
            if let Some(before) = found.pop_if(|last| last.end == saved) {
                range.start = before.start;
            }
            if found.len() < KEPT {
                found.push(range);
            }
        }
        true
    }

    /// Counts skipped bytes.
    pub fn skip(&mut self, range: Range<u64>, error: Error) {
        self.report_left_out();
        if let Some(record) = error.record() {
            self.next = self.next.max(record);
        }
        self.report.skipped_count += 1;
        self.report.lost_bytes += range.end.saturating_sub(range.start);
        if self.report.problems.len() < KEPT {
            self.report.problems.push(error.in_file(self.storage.name()));
            self.report.skipped.push(range);
        }
    }

    fn report_left_out(&mut self) {
        let Some((range, first)) = self.left_out.take() else { return };
        let error = Error::format("records found by search after damage are left out")
            .at(range.start)
            .for_record(first)
            .hint("pass strict=False to save them");
        self.skip(range, error);
    }

    /// The finished report.
    pub fn finish(mut self) -> Report {
        self.report_left_out();
        self.report
    }
}
