//! Predicts whether the next read hits the page cache, and how large the next decoded chunk is.
//!
//! A hot read ends before the interpreter's lock could be released and acquired again. A cold one waits for the disk,
//! and other threads should run meanwhile. We cannot know in advance whether a read hits the page cache without a
//! system call, so the last reads predict the next one. After a series of hot reads, at most one cold read holds the
//! lock.
//!
//! By time alone, a read that waited for the processor would look cold. So a slow read counts as cold only if the
//! system reports that a thread waited for a disk meanwhile. Only slow reads query the system.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// After a cold read, this many reads release the interpreter's lock.
const SUSPECT: u32 = 64;
/// A read out of the page cache takes less than `HOT` ticks of the processor's clock (10 to 30 µs), plus `HOT_RECORD`
/// for each record and `HOT_BYTE` for each byte, which may have to be decompressed.
const HOT: u64 = 50_000;
const HOT_RECORD: u64 = 6_000;
const HOT_BYTE: u64 = 4;

/// Whether recent reads hit the page cache.
pub struct PageCacheHint {
    /// How many more hot reads it takes until the next one is expected to be hot.
    suspects: AtomicU32,
}

impl Default for PageCacheHint {
    fn default() -> Self {
        // The first reads of a file are usually cold.
        PageCacheHint { suspects: AtomicU32::new(4) }
    }
}

impl PageCacheHint {
    /// Whether the next read is likely to hit the page cache.
    #[inline]
    pub fn is_warm(&self) -> bool {
        self.suspects.load(Relaxed) == 0
    }

    /// Whether the last read missed the page cache.
    pub fn has_just_missed(&self) -> bool {
        self.suspects.load(Relaxed) == SUSPECT
    }

    /// Records that the page cache lacks what is needed.
    pub fn note_miss(&self) {
        self.suspects.store(SUSPECT, Relaxed);
    }

    /// Reads `records` records of `bytes` bytes in total, and learns from the time it takes.
    #[inline]
    pub fn learn<T>(&self, records: usize, bytes: usize, read: impl FnOnce() -> T) -> T {
        let start = clock::now();
        let result = read();
        let most = HOT + HOT_RECORD * records as u64 + HOT_BYTE * bytes as u64;
        let suspects = self.suspects.load(Relaxed);
        if clock::ticks_since(start) > most && waits::happened(records == 1, suspects > 0) {
            self.note_miss();
        } else if suspects > 0 {
            self.note_hit(suspects);
        }
        result
    }

    fn note_hit(&self, suspects: u32) {
        // If updates of other threads are lost, reads are only expected to be cold for a little longer.
        self.suspects.store(suspects - 1, Relaxed);
    }
}

/// The size of recently decoded chunks.
#[derive(Default)]
pub struct ExpectedChunk {
    /// A moving average in bytes; 0: nothing is known.
    bytes: AtomicU64,
}

impl ExpectedChunk {
    /// Records that a decoded chunk takes `bytes` bytes.
    pub fn note(&self, bytes: usize) {
        let (before, now) = (self.bytes.load(Relaxed), bytes as u64);
        // Larger chunks count at once, because the limit on memory must hold for them.
        let after = if now >= before { now } else { before - (before - now) / 8 };
        self.bytes.store(after, Relaxed);
    }

    /// How many chunks take about `bytes` bytes together: at least 1, and exactly 1 before the first chunk was seen.
    pub fn chunks_in(&self, bytes: usize) -> usize {
        match self.bytes.load(Relaxed) {
            0 => 1,
            each => usize::try_from(bytes as u64 / each).unwrap_or(1).max(1),
        }
    }

    /// About how many bytes so many chunks take together.
    pub fn bytes_of(&self, chunks: usize) -> usize {
        usize::try_from(self.bytes.load(Relaxed)).unwrap_or(usize::MAX).saturating_mul(chunks)
    }
}

/// Whether a thread waited for a disk.
#[cfg(target_os = "linux")]
mod waits {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// Whether a thread has waited since the last call. `is_one`: only the calling thread counts, because it reads a
    /// single record alone. Otherwise all threads count, because several may read a batch.
    ///
    /// A mapped page that is not in memory causes a major fault. Reads that are expected to be cold are system calls
    /// (`by_calls`), which cause no fault. There, a thread that waits gives up the processor, which is counted as a
    /// voluntary context switch.
    #[cold]
    pub fn happened(is_one: bool, by_calls: bool) -> bool {
        thread_local! {
            static BEFORE: Cell<[u64; 2]> = const { Cell::new([0; 2]) };
        }
        static BEFORE_OF_ALL: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
        // SAFETY: an all-zero value of the C struct is valid, and the call fills it.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            let who = if is_one { libc::RUSAGE_THREAD } else { libc::RUSAGE_SELF };
            libc::getrusage(who, &mut usage);
            usage
        };
        let now = [usage.ru_majflt as u64, usage.ru_nvcsw as u64];
        let before = if is_one {
            BEFORE.replace(now)
        } else {
            [0, 1].map(|which| BEFORE_OF_ALL[which].swap(now[which], Relaxed))
        };
        now[0] != before[0] || by_calls && now[1] != before[1]
    }
}

#[cfg(not(target_os = "linux"))]
mod waits {
    /// There is no such counter here. Every slow read counts as cold.
    pub fn happened(_is_one: bool, _by_calls: bool) -> bool {
        true
    }
}

/// A clock that costs less than the read it measures. Three of its ticks are about a nanosecond.
#[cfg(target_arch = "x86_64")]
mod clock {
    #[inline]
    pub fn now() -> u64 {
        // SAFETY: every processor of this kind has the instruction.
        unsafe { std::arch::x86_64::_rdtsc() }
    }

    #[inline]
    pub fn ticks_since(start: u64) -> u64 {
        now().wrapping_sub(start)
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod clock {
    use std::time::Instant;

    pub fn now() -> Instant {
        Instant::now()
    }

    pub fn ticks_since(start: Instant) -> u64 {
        start.elapsed().as_nanos() as u64 * 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_makes_the_next_reads_suspect_until_they_prove_hot() {
        let hint = PageCacheHint::default();
        assert!(!hint.is_warm());
        (0..4).for_each(|_| hint.learn(1, 1 << 40, || ()));
        assert!(hint.is_warm());
        hint.note_miss();
        assert!(!hint.is_warm() && hint.has_just_missed());
        hint.learn(1, 1 << 40, || ());
        assert!(!hint.is_warm() && !hint.has_just_missed());
        (0..SUSPECT).for_each(|_| hint.learn(1, 1 << 40, || ()));
        assert!(hint.is_warm());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_that_gives_up_the_processor_has_waited() {
        waits::happened(true, true);
        // SAFETY: sleeps, for no longer than a moment, and touches no memory but its argument.
        unsafe { libc::nanosleep(&libc::timespec { tv_sec: 0, tv_nsec: 1 }, std::ptr::null_mut()) };
        assert!(waits::happened(true, true), "a sleep gives it up, however short it is");
    }

    #[test]
    fn chunks_are_expected_to_be_as_large_as_the_large_ones_were() {
        let expected = ExpectedChunk::default();
        assert_eq!(expected.chunks_in(1 << 20), 1);
        expected.note(1 << 10);
        assert_eq!(expected.chunks_in(1 << 20), 1024);
        expected.note(1 << 19);
        assert_eq!(expected.chunks_in(1 << 20), 2);
        (0..200).for_each(|_| expected.note(1 << 10));
        assert!(expected.chunks_in(1 << 20) > 900);
        expected.note(usize::MAX);
        assert_eq!(expected.chunks_in(1 << 20), 1);
    }
}
