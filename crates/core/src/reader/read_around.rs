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
//! - little was asked for: each record that was asked for allows only some bytes to be read around it;
//! - the reads are elsewhere: hardly any is in the part that was read around, though by chance many should be.
//!
//! Worker processes share the work, though they do not know of each other: each begins at another place, and skips what is
//! in the page cache.

use super::{Plan, Reader};
use crate::available;
use std::ops::Range;
use std::time::{Duration, Instant};

/// How many bytes may be read around a byte that was asked for. Half as many each time the files were read whole and are
/// cold again: something else needs the memory.
const SHARE: u64 = 32;
/// How many may be read around a record at least. In the time of one random read, most disks read about a third of that in
/// order.
const LEAST: u64 = 512 << 10;
/// The same for each record of a batch. They are requested together, which takes less time for each.
const LEAST_TOGETHER: u64 = 128 << 10;
/// The first records allow less, by the third power of their number: the hundredth one a part in a thousand, the five
/// hundredth one an eighth. So who reads a few pays nothing, and the first batch hardly waits.
const RAMP: u64 = 1024;
/// So many bytes are read at a time.
const PIECE: u64 = 1 << 20;
/// A call that asks for [`SMALL`] bytes reads no more than this around its records, and not for longer. A call that asks
/// for more may do more: it waits longer anyway.
const PER_READ: u64 = 32 << 20;
const LONGEST: Duration = Duration::from_millis(20);
const SMALL: u64 = 4 << 20;
const MOST_TIMES: u64 = 32;
/// The files have to fit in this part of the memory that is available.
const FITTING: (u64, u64) = (3, 4);
/// After so many bytes, the memory that is available is looked up again.
const LOOK_AGAIN: u64 = 256 << 20;
/// So many reads should have been in the part that was read around before it is decided that they are elsewhere, and
/// they are if not even a quarter was.
const EXPECTED: f64 = 16.0;

/// A record that was asked for.
#[derive(Clone, Copy)]
struct Asked {
    /// Its file, and where it begins in it.
    place: (usize, u64),
    bytes: u64,
    is_cold: bool,
    /// Whether other records are requested together with it.
    is_together: bool,
}

/// How far the files of a reader were read around.
#[derive(Default)]
pub(super) struct Progress {
    /// The first byte that was read: a file, and a place in it. From the end of the last file it goes on at the beginning
    /// of the first one.
    start: (usize, u64),
    /// The next byte.
    next: (usize, u64),
    /// Whether the end of the last file was reached.
    is_second_part: bool,
    /// The bytes that were read.
    done: u64,
    /// How many records were asked for that are cold, or would be.
    records: u64,
    /// How many bytes may be read for them.
    earned: u64,
    /// The bytes of all files, and how many of them were done when the memory was looked up last. None: not yet.
    total: Option<(u64, u64)>,
    /// How many reads were in the part that was read, and how many of them would be by chance.
    inside: f64,
    expected: f64,
    /// How often all files were read.
    rounds: u32,
    /// Whether the files do not fit, or the reads are elsewhere.
    is_over: bool,
}

impl Progress {
    /// Whether some of the files were read, and the rest may be.
    fn is_going_on(&self) -> bool {
        self.done > 0 && !self.is_over
    }

    /// Whether a place was read.
    fn has(&self, place: (usize, u64)) -> bool {
        if self.is_second_part {
            place >= self.start || place < self.next
        } else {
            place >= self.start && place < self.next
        }
    }

    fn note(&mut self, asked: Asked) {
        let is_inside = self.has(asked.place);
        if is_inside {
            self.inside += 1.0;
        }
        if is_inside || asked.is_cold {
            self.records += 1;
            let least = if asked.is_together { LEAST_TOGETHER } else { LEAST };
            let number = self.records.min(RAMP);
            let earned = asked.bytes.saturating_mul(SHARE).max(least).saturating_mul(number.pow(3));
            let earned = earned / RAMP.pow(3);
            self.earned = self.earned.saturating_add(earned.checked_shr(self.rounds).unwrap_or(0));
        }
        if let Some((total, _)) = self.total.filter(|(total, _)| *total > 0) {
            self.expected += self.done as f64 / total as f64;
        }
        self.is_over |= self.expected >= EXPECTED && self.inside < self.expected / 4.0;
    }

    /// How many more bytes may be read now.
    fn allowed(&self) -> u64 {
        if self.is_over { 0 } else { self.earned.saturating_sub(self.done) }
    }

    /// The next range to read around: a file, and a part of it. `sizes` are those of all files. None: nothing yet.
    fn take(&mut self, sizes: &dyn Fn(usize) -> Option<u64>) -> Option<(usize, Range<u64>)> {
        loop {
            let (file, at) = self.next;
            let size = sizes(file);
            if self.is_second_part && (self.next >= self.start || size.is_none()) {
                // All files were read. If reads miss the page cache again, it begins anew.
                *self = Progress { rounds: self.rounds + 1, ..Progress::default() };
                return None;
            }
            let Some(size) = size else {
                (self.next, self.is_second_part) = ((0, 0), true);
                continue;
            };
            if at >= size {
                self.next = (file + 1, 0);
                continue;
            }
            let last = if self.is_second_part && file == self.start.0 { self.start.1 } else { size };
            let end = size.min(last).min(at.saturating_add(PIECE));
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
            if self.total.is_none() {
                self.start = place_at(share_of(std::process::id(), total), sizes);
                self.next = self.start;
            }
            self.total = Some((total, self.done));
            self.is_over |= total.saturating_sub(self.done) / FITTING.0 > available / FITTING.1;
        }
        !self.is_over
    }
}

/// Where a process begins to read files of `total` bytes. Those of processes that were started one after the other are far
/// apart.
fn share_of(process: u32, total: u64) -> u64 {
    // Multiples of the golden ratio are spread evenly, however many there are.
    let share = process.wrapping_mul(0x9E37_79B9);
    ((u128::from(total) * u128::from(share)) >> 32) as u64 / PIECE * PIECE
}

/// The file, and the place in it, of a byte of all files.
fn place_at(mut byte: u64, sizes: &dyn Fn(usize) -> Option<u64>) -> (usize, u64) {
    let mut file = 0;
    while let Some(size) = sizes(file).filter(|size| *size <= byte) {
        byte -= size;
        file += 1;
    }
    (file, byte)
}

impl Reader {
    /// Whether files are being read around what is asked for.
    pub(super) fn is_reading_around(&self) -> bool {
        self.around.with(|progress| progress.is_going_on())
    }

    /// Notes that records are asked for while the files are cold, and reads what is around them.
    /// `is_cold`: these records are not in the page cache, or not all of them.
    #[cold]
    #[inline(never)]
    pub(super) fn read_around(
        &self,
        wanted: impl ExactSizeIterator<Item = (usize, Range<u64>)>,
        is_cold: bool,
    ) {
        if self.is_remote {
            return;
        }
        let is_together = wanted.len() > 1;
        let (most, longest) = self.around.with(|progress| {
            let mut asked = 0u64;
            wanted.for_each(|(file, range)| {
                let bytes = range.end.saturating_sub(range.start);
                progress.note(Asked { place: (file, range.start), bytes, is_cold, is_together });
                asked = asked.saturating_add(bytes);
            });
            let times = (asked / SMALL).clamp(1, MOST_TIMES);
            (progress.done.clamp(PIECE, PER_READ * times), LONGEST * times as u32)
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
        while bytes < most && start.elapsed() < longest {
            let next = self.around.with(|progress| {
                let may_go_on = progress.allowed() > 0 && progress.fits(self.shards.len(), &sizes);
                may_go_on.then(|| progress.take(&sizes)).flatten()
            });
            let Some((file, range)) = next else { return };
            let length = range.end - range.start;
            let Some(mapped) = mapped(file) else { continue };
            if mapped.is_cached(range.start, length as usize) {
                // Probably another process has read it.
                self.around.with(|progress| progress.earned = progress.earned.saturating_add(length));
                continue;
            }
            bytes += length;
            mapped.fill_page_cache(range);
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

    fn note(progress: &mut Progress, place: (usize, u64), bytes: u64) {
        progress.note(Asked { place, bytes, is_cold: true, is_together: false });
    }

    /// After many records were asked for: the next one counts in full.
    fn after_many() -> Progress {
        Progress { records: RAMP, ..Progress::default() }
    }

    #[test]
    fn as_much_is_read_around_as_was_asked_for() {
        let mut progress = after_many();
        assert_eq!(take_all(&mut progress, &[100 * MB]), []);
        note(&mut progress, (0, 90 * MB), PIECE / SHARE - SHARE);
        assert_eq!(take_all(&mut progress, &[100 * MB]), []);
        note(&mut progress, (0, 80 * MB), 1);
        assert_eq!(take_all(&mut progress, &[100 * MB]), [(0, 0..PIECE)]);
        note(&mut progress, (0, 70 * MB), 2 * PIECE / SHARE);
        assert_eq!(take_all(&mut progress, &[100 * MB]), [(0, PIECE..2 * PIECE), (0, 2 * PIECE..3 * PIECE)]);
    }

    #[test]
    fn a_small_record_counts_as_much_as_a_random_read_takes() {
        for (is_together, least) in [(false, LEAST), (true, LEAST_TOGETHER)] {
            let mut progress = after_many();
            progress.note(Asked { place: (0, 0), bytes: 1, is_cold: true, is_together });
            assert_eq!(progress.allowed(), least);
            progress.note(Asked { place: (0, 0), bytes: 1, is_cold: false, is_together });
            assert_eq!(progress.allowed(), least, "a record that happens to be in the page cache");
        }
    }

    #[test]
    fn who_reads_a_few_records_pays_nothing() {
        for bytes in [100, 4_000, 100_000] {
            let mut progress = Progress::default();
            for record in 0..20 {
                note(&mut progress, (0, record * 3 * MB), bytes);
            }
            assert_eq!(take_all(&mut progress, &[100 * MB]), [], "{bytes}");
        }
    }

    #[test]
    fn the_first_batch_hardly_waits_and_after_the_first_thousand_records_all_is_allowed() {
        let mut progress = Progress::default();
        (0..256).for_each(|record| note(&mut progress, (0, record * MB), 100_000));
        assert!(progress.allowed() < 256 * 100_000 / 4, "{} bytes", progress.allowed());
        (256..RAMP).for_each(|record| note(&mut progress, (0, record * MB), 100_000));
        let before = progress.allowed();
        note(&mut progress, (0, 0), 100_000);
        assert_eq!(progress.allowed() - before, 100_000 * SHARE);
    }

    #[test]
    fn records_in_the_part_that_was_read_allow_the_rest() {
        let mut progress = after_many();
        note(&mut progress, (0, 90 * MB), PIECE / SHARE);
        assert_eq!(take_all(&mut progress, &[100 * MB]), [(0, 0..PIECE)]);
        progress.note(Asked {
            place: (0, PIECE / 2),
            bytes: PIECE / SHARE,
            is_cold: false,
            is_together: true,
        });
        assert_eq!(take_all(&mut progress, &[100 * MB]), [(0, PIECE..2 * PIECE)]);
    }

    #[test]
    fn all_files_are_read_once_and_then_less_readily() {
        let mut progress = after_many();
        let files = [PIECE, 0, PIECE + 5, 10];
        note(&mut progress, (3, 0), PIECE);
        let all = [(0, 0..PIECE), (2, 0..PIECE), (2, PIECE..PIECE + 5), (3, 0..10)];
        assert_eq!(take_all(&mut progress, &files), all);
        assert_eq!((progress.rounds, progress.is_going_on()), (1, false));
        progress.records = RAMP;
        note(&mut progress, (3, 0), PIECE / SHARE);
        assert_eq!(take_all(&mut progress, &files), []);
        note(&mut progress, (3, 0), PIECE / SHARE);
        assert_eq!(take_all(&mut progress, &files), [(0, 0..PIECE)]);
        let mut progress = Progress { rounds: 99, earned: 0, ..after_many() };
        note(&mut progress, (3, 0), u64::MAX);
        assert_eq!(take_all(&mut progress, &files), []);
    }

    #[test]
    fn all_files_are_read_once_wherever_it_begins() {
        let files = [0, PIECE + 5, 0, 2 * PIECE, 10, 0];
        let total: u64 = files.iter().sum();
        for byte in [0, 1, PIECE, PIECE + 4, PIECE + 5, 3 * PIECE, 3 * PIECE + 5, total - 1] {
            let start = place_at(byte, &sizes(&files));
            let mut progress = Progress { start, next: start, earned: u64::MAX, ..after_many() };
            let mut pieces = Vec::new();
            while progress.rounds == 0 {
                let Some((file, range)) = progress.take(&sizes(&files)) else { break };
                assert!((1..=PIECE).contains(&(range.end - range.start)), "{byte}");
                assert!(progress.has((file, range.start)) && progress.has((file, range.end - 1)), "{byte}");
                pieces.push((file, range));
            }
            assert_eq!(pieces[0].1.start, start.1, "{byte}");
            pieces.sort_by_key(|(file, range)| (*file, range.start));
            for (file, size) in files.into_iter().enumerate() {
                let of_file = pieces.iter().filter(|(of, _)| *of == file);
                let end =
                    of_file.fold(0, |end, (_, range)| if range.start == end { range.end } else { u64::MAX });
                assert_eq!(end, size, "{byte}: {file}");
            }
        }
    }

    #[test]
    fn processes_begin_far_from_each_other() {
        for first in [1, 4_000, u32::MAX - 2] {
            let mut starts: Vec<u64> =
                (0..4).map(|i| share_of(first.wrapping_add(i), 1000 * PIECE)).collect();
            starts.sort_unstable();
            assert!(starts.iter().all(|start| start.is_multiple_of(PIECE) && *start < 1000 * PIECE));
            assert!(starts.windows(2).all(|two| two[1] - two[0] > 100 * PIECE), "{starts:?}");
        }
        assert_eq!((share_of(7, 0), place_at(0, &sizes(&[0, 0]))), (0, (2, 0)));
    }

    #[test]
    fn reads_that_are_elsewhere_end_it() {
        let mut progress = Progress { total: Some((100 * MB, 0)), ..after_many() };
        note(&mut progress, (0, 90 * MB), 2 * MB);
        assert_eq!(take_all(&mut progress, &[100 * MB]).len() as u64, 64 * MB / PIECE);
        for _ in 0..20 {
            note(&mut progress, (0, 90 * MB), 1000);
        }
        assert!(!progress.is_over);
        for _ in 0..20 {
            note(&mut progress, (0, 90 * MB), 1000);
        }
        assert!(progress.is_over && !progress.is_going_on());
        assert_eq!(progress.allowed(), 0);
    }

    #[test]
    fn reads_everywhere_go_on() {
        let mut progress = Progress { total: Some((100 * MB, 0)), ..after_many() };
        note(&mut progress, (0, 90 * MB), 2 * MB);
        assert_eq!(take_all(&mut progress, &[100 * MB]).len() as u64, 64 * MB / PIECE);
        for read in 0..1000 {
            note(&mut progress, (0, read * 7919 % 100 * MB), 1000);
        }
        assert!(!progress.is_over);
    }

    #[test]
    fn files_that_do_not_fit_are_not_read_around() {
        let mut progress = Progress { earned: 7, ..Progress::default() };
        assert!(!progress.fits(1, &sizes(&[u64::MAX / 2])));
        assert_eq!(progress.allowed(), 0);
        assert_eq!(Progress::default().fits(1, &sizes(&[1])), available::bytes().is_some());
    }
}
