//! Distributes work over the threads of a pool, if there is enough of it.

use super::Reader;
use crate::cx::{Cx, Stop};
use crate::error::{Error, Result};
use crate::parallel::{Cancelled, Helpers};
use crate::pool;
use rayon::ThreadPool;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The least work, in nanoseconds, for which the pool is woken. Waking it takes some 20 µs.
const WORTH_WAKING: u64 = 150_000;
/// The calling thread checks for interrupts after this much work, in nanoseconds, and after this many items, because
/// each item may wait for a disk.
const LISTEN_COST: u64 = 20_000_000;
const LISTEN_ITEMS: usize = 256;
/// Pieces of work for each thread, so that all threads are done at about the same time.
const PIECES: usize = 16;

impl Reader {
    /// The pool, if there is enough work, in at least two pieces, to be worth waking it.
    pub(super) fn pool_for(&self, cost: u64, pieces: usize) -> Option<&'static ThreadPool> {
        if cost < WORTH_WAKING || pieces < 2 {
            return None;
        }
        // The calling thread is one of the decoders.
        let helpers = self.decoders().saturating_sub(1);
        if helpers > 0 { pool::of(helpers) } else { None }
    }

    /// Does the work on all items: in the calling thread alone, or also in the pool if there is enough work to wake it.
    pub(super) fn spread<T: Send>(
        &self,
        items: &mut [T],
        cost: u64,
        cx: &Cx<'_>,
        work: impl Fn(&mut [T], &Cx<'_>) -> Result<()> + Sync + Send,
    ) -> Result<()> {
        let Some(pool) = self.pool_for(cost, items.len()) else {
            let most =
                (items.len() as u64 * LISTEN_COST / cost.max(1)).clamp(1, LISTEN_ITEMS as u64) as usize;
            return items.chunks_mut(most).enumerate().try_for_each(|(number, piece)| {
                // No check before the first piece: a small batch ends before anyone could want to stop it.
                if number > 0 {
                    cx.check()?;
                }
                work(piece, cx)
            });
        };
        let count = pool.current_num_threads();
        let size = items.len().div_ceil(PIECES * (count + 1)).min(LISTEN_ITEMS);
        let pieces = Mutex::new(items.chunks_mut(size).enumerate());
        let team = Team::default();
        let work_on = |cx: &Cx<'_>| {
            // The lock is held only while a piece is taken.
            while let Some((number, piece)) = { locked(&pieces).next() } {
                team.note(number, cx.check().and_then(|()| work(piece, cx)));
                if team.is_cancelled() {
                    break;
                }
            }
        };
        let interrupted = team.run(pool, count, cx, work_on);
        team.result(interrupted)
    }
}

/// The threads that work for one call. They stop together, and the first error counts.
#[derive(Default)]
pub(super) struct Team {
    cancelled: Cancelled,
    /// Errors, by the position of the failed work.
    failures: Mutex<BTreeMap<usize, Error>>,
}

impl Team {
    /// Whether a part of the work has failed, or the call was stopped.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    /// The flag that stops the threads of the team.
    pub(super) fn cancelled(&self) -> &Cancelled {
        &self.cancelled
    }

    /// Records the result of the work at a position.
    pub(super) fn note(&self, place: usize, result: Result<()>) {
        if let Err(error) = result {
            // A cancelled thread only reports that another thread has failed.
            if !error.is_cancellation() {
                locked(&self.failures).insert(place, error);
            }
            self.cancelled.cancel();
        }
    }

    /// Runs `work` in `count` threads of the pool and in this one, and waits for them. Only this thread checks for
    /// interrupts. It also does so while it waits.
    fn run(
        &self,
        pool: &ThreadPool,
        count: usize,
        cx: &Cx<'_>,
        work: impl Fn(&Cx<'_>) + Sync + Send,
    ) -> Result<()> {
        let (budget, helpers) = (cx.budget, Helpers::new(count));
        pool.in_place_scope(|scope| {
            for _ in 0..count {
                scope.spawn(|_| {
                    // This also runs if the work panics. The scope passes the panic on.
                    let _done = OnDrop(|| helpers.done());
                    work(&Cx { budget, stop: &self.cancelled });
                });
            }
            let own = || self.cancelled.check().and_then(|()| cx.check());
            work(&Cx { budget, stop: &own });
            helpers.wait(&self.cancelled, cx)
        })
    }

    /// The result of all work. If there are several errors, the one at the first position is returned, no matter which
    /// thread was faster.
    pub(super) fn result(self, interrupted: Result<()>) -> Result<()> {
        let failures = self.failures.into_inner().unwrap_or_else(PoisonError::into_inner);
        match failures.into_values().next() {
            Some(error) => Err(error),
            None => interrupted,
        }
    }
}

/// Calls a function when it is dropped, also by a panic.
pub(super) struct OnDrop<F: Fn()>(pub(super) F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Locks a mutex. Poisoning is ignored, because a thread that panicked with the lock has left nothing half done.
pub(super) fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cx::for_tests;
    use crate::limits::Limits;
    use std::cell::Cell;

    #[test]
    fn the_caller_is_heard_between_pieces_however_many_threads_work() {
        for threads in [1, 3] {
            let reader = Reader::new(Vec::new(), 0, Some(threads)).unwrap();
            let asked = Cell::new(0);
            let stop = || {
                asked.set(asked.get() + 1);
                if asked.get() > 3 { Err(Error::closed("enough")) } else { Ok(()) }
            };
            let cx = Cx { stop: &stop, ..for_tests(Limits::default()) };
            let mut items = vec![0u8; 1_000_000];
            let result = reader.spread(&mut items, 1 << 40, &cx, |piece, _| {
                piece.fill(1);
                Ok(())
            });
            assert_eq!(result.unwrap_err().what(), "enough", "{threads} threads");
            assert!(items.contains(&0), "all of it was done, with {threads} threads");
        }
    }

    #[test]
    fn all_items_are_worked_on_once_and_the_first_error_counts() {
        for threads in [1, 3] {
            let reader = Reader::new(Vec::new(), 0, Some(threads)).unwrap();
            let cx = for_tests(Limits::default());
            for cost in [0, 1_000_000, 1 << 40] {
                let mut items = vec![0u8; 10_000];
                let add = |piece: &mut [u8], _: &Cx<'_>| {
                    piece.iter_mut().for_each(|item| *item += 1);
                    Ok(())
                };
                reader.spread(&mut items, cost, &cx, add).unwrap();
                assert!(items.iter().all(|&item| item == 1));
            }
            let mut items: Vec<u32> = (0..10_000).collect();
            let fail = |piece: &mut [u32], _: &Cx<'_>| Err(Error::closed(piece[0].to_string()));
            assert_eq!(reader.spread(&mut items, 0, &cx, fail).unwrap_err().what(), "0");
        }
    }
}
