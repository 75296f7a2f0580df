//! Threads that wait until another one releases a lock.

use anyrecord::sync::atomic::{AtomicUsize, Ordering::SeqCst, fence};
use anyrecord::sync::{Condvar, Mutex};
use std::sync::PoisonError;
use std::time::Duration;

/// The threads that wait for one lock.
#[derive(Default)]
pub struct Waiters {
    count: AtomicUsize,
    /// Waiting threads wait for `released` under this mutex.
    turn: Mutex<()>,
    released: Condvar,
}

impl Waiters {
    /// Waits until the lock may be free, and not longer than `most`.
    pub fn wait(&self, most: Duration, is_free: impl FnOnce() -> bool) {
        self.count.fetch_add(1, SeqCst);
        // Count first, then look at the lock. A thread that releases it does it in the opposite order, so at least one
        // of the two sees the other.
        fence(SeqCst);
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // A thread that releases the lock needs `turn` to wake the waiting threads, so no wake-up is missed.
        if !is_free() {
            drop(self.released.wait_timeout(turn, most));
        }
        self.count.fetch_sub(1, SeqCst);
    }

    /// Whether a thread waits. Call it after the lock was released.
    #[inline]
    pub fn are_there(&self) -> bool {
        // The model checker takes this load for one that may come before the release. Processors do not: they order it
        // after the release, at no cost.
        #[cfg(loom)]
        fence(SeqCst);
        self.count.load(SeqCst) > 0
    }

    /// Wakes a thread that waits.
    #[cold]
    #[inline(never)]
    pub fn wake_one(&self) {
        drop(self.turn.lock().unwrap_or_else(PoisonError::into_inner));
        self.released.notify_one();
    }
}
