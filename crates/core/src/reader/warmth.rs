//! Learns from the time that reads take whether the page cache has what is being read.
//!
//! A hot read is over before the interpreter's lock could be given away and taken back; a cold one waits for the disk,
//! and other threads should run meanwhile. Nothing tells beforehand which it will be without a system call, so the
//! last reads are taken as the guess for the next one: after a warm streak at most one cold read holds the lock.
//!
//! Time alone would take a read for cold that was only slow, because others had the processor. So a slow one is cold
//! only if the system says that somebody waited for a disk meanwhile, which is asked of slow reads alone.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// So many reads are made without the lock after a cold one.
const SUSPECT: u32 = 64;
/// A copy out of the page cache takes less than this many ticks of the processor's clock (10 to 30 µs), and so many
/// more for each record and for each byte, which may have to be decompressed.
const HOT: u64 = 50_000;
const HOT_RECORD: u64 = 6_000;
const HOT_BYTE: u64 = 4;

/// Whether reads have been hot lately.
pub struct Warmth {
    suspects: AtomicU32,
}

impl Default for Warmth {
    fn default() -> Self {
        // The first reads of a file are cold more often than not.
        Warmth { suspects: AtomicU32::new(4) }
    }
}

impl Warmth {
    /// Whether the next read is likely to be hot.
    #[inline]
    pub fn is_warm(&self) -> bool {
        self.suspects.load(Relaxed) == 0
    }

    /// A look at the page cache has shown that it lacks what is wanted.
    pub fn is_cold(&self) {
        self.suspects.store(SUSPECT, Relaxed);
    }

    /// Does a read of records of `bytes` bytes together and learns from the time it takes.
    #[inline]
    pub fn learn<T>(&self, records: usize, bytes: usize, read: impl FnOnce() -> T) -> T {
        let start = ticks();
        let result = read();
        let most = HOT + HOT_RECORD * records as u64 + HOT_BYTE * bytes as u64;
        let suspects = self.suspects.load(Relaxed);
        if ticks().wrapping_sub(start) > most && waits::happened(records == 1, suspects > 0) {
            self.is_cold();
        } else if suspects > 0 {
            // Lost updates of other threads only make the doubt last a little longer.
            self.suspects.store(suspects - 1, Relaxed);
        }
        result
    }
}

/// Whether anybody waited for a disk.
#[cfg(target_os = "linux")]
mod waits {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// Since it was asked last. One record is read by the calling thread, a batch perhaps by several.
    ///
    /// A mapped page that is not in memory counts as a fault. What is suspected to be cold is read by system calls,
    /// which do not: there the calling thread gives up the processor.
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
    /// Nobody can tell, so it is believed.
    pub fn happened(_is_one: bool, _by_calls: bool) -> bool {
        true
    }
}

/// A clock that costs less than the read it measures: three of its ticks are about a nanosecond.
#[inline]
fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this kind has the instruction.
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    return ticks_of_the_clock();
}

/// Where the processor has no such counter that we can read. Ticks of different threads cannot be compared.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn ticks_of_the_clock() -> u64 {
    use std::time::Instant;
    thread_local! {
        /// Of each thread, so that no lock guards its initialisation: a fork in the middle of that would hang the child.
        static BEGIN: Instant = Instant::now();
    }
    BEGIN.with(|begin| begin.elapsed().as_nanos() as u64 * 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cold_look_makes_the_next_reads_suspect_until_they_prove_hot() {
        let warmth = Warmth::default();
        assert!(!warmth.is_warm());
        (0..4).for_each(|_| warmth.learn(1, 1 << 30, || ()));
        assert!(warmth.is_warm());
        warmth.is_cold();
        assert!(!warmth.is_warm());
        (0..SUSPECT).for_each(|_| warmth.learn(1, 1 << 30, || ()));
        assert!(warmth.is_warm());
    }

    #[test]
    fn the_clock_ticks_three_times_a_nanosecond() {
        let (ticks, start) = (ticks_of_the_clock(), std::time::Instant::now());
        while start.elapsed().as_micros() < 100 {}
        assert!(ticks_of_the_clock() - ticks >= 300_000);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_slow_read_is_cold_only_if_somebody_waited() {
        let busy = || {
            let start = ticks();
            while ticks() - start < 4 * HOT {}
        };
        let warmth = Warmth { suspects: AtomicU32::new(1) };
        warmth.learn(1, 0, busy); // whatever was before
        warmth.suspects.store(1, Relaxed);
        warmth.learn(1, 0, || {
            let (sender, receiver) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                busy();
                sender.send(0)
            });
            receiver.recv().unwrap();
            busy();
        });
        assert!(!warmth.is_warm(), "it gave up the processor until the other thread was done");
        warmth.suspects.store(0, Relaxed);
        waits::happened(true, false);
        warmth.learn(1, 0, busy);
        assert!(warmth.is_warm(), "no page was missing");
    }
}
