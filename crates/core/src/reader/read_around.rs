//! Random reads of cold files that fit in memory: the files are read from front to back beside them.
//!
//! A disk reads a file in order many times as fast as its records in random order. So while reads miss the page cache,
//! each of them also reads the next piece of the files in order. After a small part of an epoch, all other records are in
//! the page cache. The first reads hardly wait for it: the pieces begin small. There is no thread, because a thread would
//! compete with the reads for the disk, and outlive them.
//!
//! It does not happen if
//!
//! - the files do not fit in the memory that is available: their pages would be evicted before they are needed;
//! - little was asked for: at most [`SHARE`] bytes are read around each cold byte that was asked for;
//! - the reads are elsewhere: hardly any is in the part that was read around, though by chance many should be.

use super::{Plan, Reader};
use crate::available;
use std::ops::Range;
use std::time::{Duration, Instant};

/// How many bytes are read around a cold byte that was asked for, at most. Half as many each time the files were read
/// whole and are cold again: something else needs the memory.
const SHARE: u64 = 32;
/// So many bytes are read at a time.
const PIECE: u64 = 1 << 20;
/// A call reads no more than this around its records, and not for longer.
const PER_READ: u64 = 32 << 20;
const LONGEST: Duration = Duration::from_millis(20);
/// The files have to fit in this part of the memory that is available.
const FITTING: (u64, u64) = (3, 4);
/// After so many bytes, the memory that is available is looked up again.
const LOOK_AGAIN: u64 = 256 << 20;
/// So many reads should have been in the part that was read around before it is decided that they are elsewhere, and
/// they are if not even a quarter was.
const EXPECTED: f64 = 16.0;

/// How far the files of a reader were read around.
#[derive(Default)]
pub(super) struct Progress {
    /// The next byte: a file, and a place in it. Everything before was read.
    next: (usize, u64),
    /// The bytes before it.
    done: u64,
    /// The bytes of cold records that reads asked for behind it.
    asked: u64,
    /// The bytes of all files, and how many of them were done when the memory was looked up last. None: not yet.
    total: Option<(u64, u64)>,
    /// How many reads were before the next byte, and how many of them would be by chance.
    inside: f64,
    expected: f64,
    /// How often all files were read.
    rounds: u32,
    /// Whether the files do not fit, or the reads are elsewhere.
    is_over: bool,
}

impl Progress {
    /// Notes that a record at `place` was asked for. It has `bytes` cold bytes.
    fn note(&mut self, place: (usize, u64), bytes: u64) {
        if place < self.next {
            self.inside += 1.0;
        } else {
            self.asked = self.asked.saturating_add(bytes);
        }
        if let Some((total, _)) = self.total.filter(|(total, _)| *total > 0) {
            self.expected += self.done as f64 / total as f64;
        }
        self.is_over |= self.expected >= EXPECTED && self.inside < self.expected / 4.0;
    }

    /// How many more bytes may be read now.
    fn allowed(&self) -> u64 {
        let share = SHARE.checked_shr(self.rounds).unwrap_or(0);
        if self.is_over { 0 } else { self.asked.saturating_mul(share).saturating_sub(self.done) }
    }

    /// The next range to read around: a file, and a part of it. `sizes` are those of all files. None: nothing yet.
    fn take(&mut self, sizes: &dyn Fn(usize) -> Option<u64>) -> Option<(usize, Range<u64>)> {
        loop {
            let (file, at) = self.next;
            let Some(size) = sizes(file) else {
                // All files were read. If reads miss the page cache again, it begins anew.
                *self = Progress { rounds: self.rounds + 1, ..Progress::default() };
                return None;
            };
            if at >= size {
                self.next = (file + 1, 0);
                continue;
            }
            let end = size.min(at.saturating_add(PIECE));
            if self.allowed() < end - at {
                return None;
            }
            self.next = (file, end);
            self.done = self.done.saturating_add(end - at);
            return Some((file, at..end));
        }
    }

    /// Whether the rest of the files fits in memory, as far as is known.
    fn fits(&mut self, count: usize, sizes: &dyn Fn(usize) -> Option<u64>) -> bool {
        if self.total.is_none_or(|(_, looked)| self.done >= looked.saturating_add(LOOK_AGAIN)) {
            let total = (0..count).filter_map(sizes).fold(0, u64::saturating_add);
            let available = available::bytes().unwrap_or(0);
            self.total = Some((total, self.done));
            self.is_over |= total.saturating_sub(self.done) / FITTING.0 > available / FITTING.1;
        }
        !self.is_over
    }
}

impl Reader {
    /// Notes that records are asked for while the files are cold, and reads what is around them.
    /// `is_cold`: these records are not in the page cache, or not all of them.
    #[cold]
    #[inline(never)]
    pub(super) fn read_around(&self, wanted: impl Iterator<Item = (usize, Range<u64>)>, is_cold: bool) {
        if self.is_remote {
            return;
        }
        let most = self.around.with(|progress| {
            wanted.for_each(|(file, range)| {
                let cold = if is_cold { range.end.saturating_sub(range.start) } else { 0 };
                progress.note((file, range.start), cold);
            });
            progress.done.clamp(PIECE, PER_READ)
        });
        // A file that cannot be mapped has no bytes here. None: there are no more files.
        let mapped = |file: usize| self.shards[file].opened_source().and_then(|source| source.mapped());
        let sizes = |file: usize| {
            (file < self.shards.len()).then(|| match mapped(file) {
                Some(mapped) if !mapped.is_memory() => mapped.fillable(),
                _ => 0,
            })
        };
        let (start, mut bytes) = (Instant::now(), 0);
        while bytes < most && start.elapsed() < LONGEST {
            let next = self.around.with(|progress| {
                let may_go_on = progress.allowed() > 0 && progress.fits(self.shards.len(), &sizes);
                may_go_on.then(|| progress.take(&sizes)).flatten()
            });
            let Some((file, range)) = next else { return };
            bytes += range.end - range.start;
            if let Some(mapped) = mapped(file) {
                mapped.fill_page_cache(range);
            }
        }
    }

    /// The same for one record.
    #[cold]
    #[inline(never)]
    pub(super) fn read_around_one(&self, plan: &Plan<'_>, is_cold: bool) {
        if let Some(range) = plan.stored() {
            self.read_around(std::iter::once((plan.shard, range)), is_cold);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn sizes(all: &[u64]) -> impl Fn(usize) -> Option<u64> + '_ {
        |file| all.get(file).copied()
    }

    fn take_all(progress: &mut Progress, all: &[u64]) -> Vec<(usize, Range<u64>)> {
        std::iter::from_fn(|| progress.take(&sizes(all))).collect()
    }

    #[test]
    fn as_much_is_read_around_as_was_asked_for() {
        let mut progress = Progress::default();
        assert_eq!(take_all(&mut progress, &[100 * MB]), []);
        progress.note((0, 90 * MB), PIECE / SHARE - 1);
        assert_eq!(take_all(&mut progress, &[100 * MB]), []);
        progress.note((0, 80 * MB), 1);
        assert_eq!(take_all(&mut progress, &[100 * MB]), [(0, 0..PIECE)]);
        progress.note((0, 70 * MB), 2 * PIECE / SHARE);
        assert_eq!(take_all(&mut progress, &[100 * MB]), [(0, PIECE..2 * PIECE), (0, 2 * PIECE..3 * PIECE)]);
    }

    #[test]
    fn what_was_read_around_is_not_asked_for() {
        let mut progress = Progress::default();
        progress.note((0, 90 * MB), PIECE / SHARE);
        assert_eq!(take_all(&mut progress, &[100 * MB]).len(), 1);
        progress.note((0, PIECE / 2), MB);
        assert_eq!(take_all(&mut progress, &[100 * MB]), []);
    }

    #[test]
    fn all_files_are_read_once_and_then_less_readily() {
        let mut progress = Progress::default();
        let files = [PIECE, 0, PIECE + 5, 10];
        progress.note((3, 0), PIECE);
        let all = [(0, 0..PIECE), (2, 0..PIECE), (2, PIECE..PIECE + 5), (3, 0..10)];
        assert_eq!(take_all(&mut progress, &files), all);
        assert_eq!(progress.rounds, 1);
        progress.note((3, 0), PIECE / SHARE);
        assert_eq!(take_all(&mut progress, &files), []);
        progress.note((3, 0), PIECE / SHARE);
        assert_eq!(take_all(&mut progress, &files), [(0, 0..PIECE)]);
        let mut progress = Progress { rounds: 99, asked: u64::MAX, ..Progress::default() };
        assert_eq!(take_all(&mut progress, &files), []);
    }

    #[test]
    fn reads_that_are_elsewhere_end_it() {
        let mut progress = Progress { total: Some((100 * MB, 0)), ..Progress::default() };
        progress.note((0, 90 * MB), 2 * MB);
        assert_eq!(take_all(&mut progress, &[100 * MB]).len() as u64, 64 * MB / PIECE);
        for _ in 0..20 {
            progress.note((0, 90 * MB), 1000);
        }
        assert!(!progress.is_over);
        for _ in 0..20 {
            progress.note((0, 90 * MB), 1000);
        }
        assert!(progress.is_over);
        assert_eq!(progress.allowed(), 0);
    }

    #[test]
    fn reads_everywhere_go_on() {
        let mut progress = Progress { total: Some((100 * MB, 0)), ..Progress::default() };
        progress.note((0, 90 * MB), 2 * MB);
        assert_eq!(take_all(&mut progress, &[100 * MB]).len() as u64, 64 * MB / PIECE);
        for read in 0..1000 {
            progress.note((0, read * 7919 % 100 * MB), 1000);
        }
        assert!(!progress.is_over);
    }

    #[test]
    fn files_that_do_not_fit_are_not_read_around() {
        let mut progress = Progress::default();
        assert!(!progress.fits(1, &sizes(&[u64::MAX / 2])));
        assert_eq!(progress.allowed(), 0);
        assert_eq!(Progress::default().fits(1, &sizes(&[1])), available::bytes().is_some());
    }
}
