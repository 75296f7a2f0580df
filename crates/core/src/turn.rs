//! Threads that come back for a lock at the same time watch for it a moment before they sleep.
//!
//! A call that reads a batch for Python needs the interpreter's lock (GIL) for some microseconds before and after the
//! reading. A thread that finds it taken sleeps in the kernel, and on a machine with many cores, waking it again takes
//! longer than the lock was held. So with 16 callers, the lock was free most of the time while all of them slept. If a few
//! of them watch instead of sleeping, it changes hands within a microsecond. `python -m benches callers` measures it.
//!
//! Python does not say whether its lock is free. So the functions that take it and release it say so here. Other code
//! takes it, too, so what is noted here may be wrong: then a thread watches in vain, or goes on at once and sleeps at the
//! lock. Nothing but speed depends on it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The longest that a thread watches, in nanoseconds. Waking a sleeping thread takes about as long.
const LONGEST: u64 = 50_000;
/// The shortest. It costs next to nothing if the lock is never released in time.
const SHORTEST: u64 = 1_000;

/// What is known of a lock.
#[derive(Debug)]
pub struct Turn {
    /// Whether a thread that said so took the lock, and none has released it since.
    is_taken: AtomicBool,
    /// How many threads watch.
    watchers: AtomicUsize,
    /// How long a thread watches now. It shrinks while watching is in vain, such as when other code has the lock.
    limit: AtomicU64,
}

impl Turn {
    /// A lock that is free.
    #[expect(clippy::new_without_default, reason = "for statics")]
    pub const fn new() -> Self {
        Turn {
            is_taken: AtomicBool::new(false),
            watchers: AtomicUsize::new(0),
            limit: AtomicU64::new(LONGEST),
        }
    }

    /// Call it after the lock was released.
    #[inline]
    pub fn released(&self) {
        self.is_taken.store(false, Relaxed);
    }

    /// Call it before taking the lock. Returns when it seems to be free, or when it is better to sleep. At most
    /// `most_watchers()` threads watch at a time.
    #[inline]
    pub fn wait(&self, most_watchers: impl FnOnce() -> usize) {
        if !self.take() {
            self.watch(most_watchers());
        }
    }

    fn take(&self) -> bool {
        !self.is_taken.load(Relaxed) && self.is_taken.compare_exchange(false, true, Relaxed, Relaxed).is_ok()
    }

    #[cold]
    fn watch(&self, most: usize) {
        if self.watchers.fetch_add(1, Relaxed) < most {
            let limit = self.limit.load(Relaxed);
            let (start, duration) = (Instant::now(), Duration::from_nanos(limit));
            let limit = loop {
                for _ in 0..8 {
                    std::hint::spin_loop();
                }
                if self.take() {
                    break LONGEST;
                }
                if start.elapsed() > duration {
                    break SHORTEST.max(limit - limit / 8);
                }
            };
            self.limit.store(limit, Relaxed);
        }
        self.watchers.fetch_sub(1, Relaxed);
    }

    /// Call it in a forked child, where the other threads do not exist.
    pub fn forked(&self) {
        self.watchers.store(0, Relaxed);
        self.released();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(turn: &Turn) -> u64 {
        turn.limit.load(Relaxed)
    }

    #[test]
    fn a_free_lock_is_taken_at_once() {
        let turn = Turn::new();
        turn.wait(|| unreachable!());
        assert!(turn.is_taken.load(Relaxed));
        turn.released();
        turn.wait(|| unreachable!());
    }

    #[test]
    fn watching_in_vain_gets_shorter_and_ends() {
        let turn = Turn::new();
        turn.wait(|| 1);
        turn.wait(|| 1);
        assert_eq!(limit(&turn), LONGEST - LONGEST / 8);
        (0..100).for_each(|_| turn.wait(|| 1));
        assert_eq!((limit(&turn), turn.watchers.load(Relaxed)), (SHORTEST, 0));
    }

    #[test]
    fn a_watcher_that_gets_the_lock_makes_watching_longer() {
        let turn = Turn::new();
        turn.wait(|| 1);
        turn.limit.store(u64::MAX, Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| turn.wait(|| 1));
            while turn.watchers.load(Relaxed) == 0 {
                std::thread::yield_now();
            }
            turn.released();
        });
        assert_eq!(limit(&turn), LONGEST);
        assert!(turn.is_taken.load(Relaxed));
    }

    #[test]
    fn no_more_threads_watch_than_allowed() {
        let turn = Turn::new();
        turn.wait(|| 0);
        turn.wait(|| 0);
        turn.watchers.store(3, Relaxed);
        turn.wait(|| 3);
        assert_eq!((limit(&turn), turn.watchers.load(Relaxed)), (LONGEST, 3), "nobody watched");
    }

    #[test]
    fn in_a_forked_child_the_lock_is_free() {
        let turn = Turn::new();
        turn.wait(|| 1);
        turn.watchers.store(2, Relaxed);
        turn.forked();
        turn.wait(|| unreachable!());
        assert_eq!(turn.watchers.load(Relaxed), 0);
    }
}
