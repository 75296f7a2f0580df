//! Learns from the time that reads take whether the page cache has what is being read.
//!
//! A hot read is over before the interpreter's lock could be given away and taken back; a cold one waits for the disk,
//! and other threads should run meanwhile. Nothing tells beforehand which it will be without a system call, so the
//! last reads are taken as the guess for the next one: after a warm streak at most one cold read holds the lock.

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
        if ticks().wrapping_sub(start) > most {
            self.is_cold();
        } else if suspects > 0 {
            // Lost updates of other threads only make the doubt last a little longer.
            self.suspects.store(suspects - 1, Relaxed);
        }
        result
    }
}

/// A clock that costs less than the read it measures: three of its ticks are about a nanosecond.
#[inline]
fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this kind has the instruction.
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    {
        use std::time::Instant;
        static BEGIN: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        BEGIN.elapsed().as_nanos() as u64 * 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_read_makes_the_next_ones_suspect_until_they_prove_hot() {
        let warmth = Warmth::default();
        assert!(!warmth.is_warm());
        (0..4).for_each(|_| warmth.learn(1, 100, || ()));
        assert!(warmth.is_warm());
        let slow = ticks();
        warmth.learn(1, 0, || while ticks() - slow < 4 * HOT {});
        assert!(!warmth.is_warm());
        (0..10 * SUSPECT).for_each(|_| warmth.learn(1, 1 << 30, || ()));
        assert!(warmth.is_warm());
    }
}
