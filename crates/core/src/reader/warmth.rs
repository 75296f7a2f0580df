//! Learns from the time that reads take whether the page cache has what is being read.
//!
//! A hot read is over before the interpreter's lock could be given away and taken back; a cold one waits for the disk,
//! and other threads should run meanwhile. Nothing tells beforehand which it will be without a system call, so the
//! last reads are taken as the guess for the next one: after a warm streak at most one cold read holds the lock.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// So many reads are made without the lock after a cold one.
const SUSPECT: u32 = 64;
/// A copy out of the page cache takes less than this, and less than a nanosecond for each byte more.
const HOT: Duration = Duration::from_micros(20);

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
    pub fn is_warm(&self) -> bool {
        self.suspects.load(Relaxed) == 0
    }

    /// Does a read of `bytes` bytes and learns from the time it takes.
    pub fn learn<T>(&self, bytes: usize, read: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = read();
        let suspects = self.suspects.load(Relaxed);
        if start.elapsed() > HOT + Duration::from_nanos(bytes as u64) {
            self.suspects.store(SUSPECT, Relaxed);
        } else if suspects > 0 {
            // Lost updates of other threads only make the doubt last a little longer.
            self.suspects.store(suspects - 1, Relaxed);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_read_makes_the_next_ones_suspect_until_they_prove_hot() {
        let warmth = Warmth::default();
        assert!(!warmth.is_warm());
        (0..4).for_each(|_| warmth.learn(100, || ()));
        assert!(warmth.is_warm());
        let slow = Instant::now();
        warmth.learn(0, || while slow.elapsed() < 2 * HOT {});
        assert!(!warmth.is_warm());
        (0..10 * SUSPECT).for_each(|_| warmth.learn(1 << 30, || ()));
        assert!(warmth.is_warm());
    }
}
