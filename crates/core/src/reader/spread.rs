//! Distributes work over the threads of a pool, if there is enough of it.

use super::Reader;
use super::crew::with_crew;
use crate::cx::{Cx, Stop};
use crate::error::{Error, Kind, Result};
use crate::parallel::Cancelled;
use crate::pool::{self, Busy};
use rayon::ThreadPool;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The least work, in nanoseconds, for which the pool is woken. Until a thread that slept has its data, some 50 µs pass.
const WORTH_WAKING: u64 = 200_000;
/// The work for which one more thread is woken. Waking it costs the calling thread some microseconds.
const WORK_OF_ONE: u64 = 80_000;
/// The calling thread checks for interrupts after this much work, in nanoseconds, and after this many items, because
/// each item may wait for a disk.
const LISTEN_COST: u64 = 20_000_000;
const LISTEN_ITEMS: usize = 256;
/// Pieces of work for each thread, so that all threads are done at about the same time.
const PIECES: usize = 16;
/// The least work in a piece, in nanoseconds. Threads take pieces under a lock, and records are prefetched in a piece.
const PIECE: u64 = 8_000;

/// How many threads of a pool help a call that is one of `calls`. `decoders` is the number of threads that may decode
/// one batch, with the calling thread.
///
/// All calls together use about as many threads as one alone: more would only take turns on the cores. They may have half
/// as many again, because some of the calls are planning what to read, alone.
fn helpers_for(cost: u64, pieces: usize, decoders: usize, calls: usize) -> usize {
    let by_cost = usize::try_from(cost / WORK_OF_ONE).unwrap_or(usize::MAX);
    let share = decoders.min(decoders * 3 / 2 / calls.max(1));
    by_cost.min(pieces).min(share).saturating_sub(1)
}

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
        let pool = self.pool_for(cost, items.len());
        let busy = pool.map(|_| Busy::begin());
        let helpers =
            busy.as_ref().map_or(0, |busy| helpers_for(cost, items.len(), self.decoders(), busy.calls()));
        let Some(pool) = pool.filter(|_| helpers > 0) else {
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
        let least = (items.len() as u64 * PIECE / cost.max(1)) as usize;
        let size = items.len().div_ceil(PIECES * (helpers + 1)).max(least).clamp(1, LISTEN_ITEMS);
        // Some formats read two records faster than one after the other. A few items are better shared one by one.
        let size = if items.len() >= 4 * (helpers + 1) { size.next_multiple_of(2) } else { size };
        let pieces = Mutex::new(items.chunks_mut(size).enumerate());
        let (team, budget) = (Team::default(), cx.budget);
        let work_on = |cx: &Cx<'_>| {
            // The lock is held only while a piece is taken.
            while let Some((number, piece)) = { locked(&pieces).next() } {
                team.note(number, cx.check().and_then(|()| work(piece, cx)));
                if team.is_cancelled() {
                    break;
                }
            }
        };
        // Only this thread checks for interrupts. It also does so while it waits.
        let help = || work_on(&Cx { budget, stop: team.cancelled() });
        let interrupted = with_crew(&help, |crew| {
            crew.call(pool, helpers);
            let own = || team.cancelled().check().and_then(|()| cx.check());
            work_on(&Cx { budget, stop: &own });
            crew.wait(team.cancelled(), cx)
        });
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

    /// The result of all work. If there are several errors, the one at the first position is returned, no matter which
    /// thread was faster. But that the caller stopped the call is reported in any case: it is told only once.
    pub(super) fn result(self, interrupted: Result<()>) -> Result<()> {
        let is_stop = |error: &Error| matches!(error.kind(), Kind::External(_));
        let failures = self.failures.into_inner().unwrap_or_else(PoisonError::into_inner);
        let counts =
            |first: Error, later: Error| if is_stop(&later) && !is_stop(&first) { later } else { first };
        match failures.into_values().reduce(counts) {
            Some(error) => Err(error),
            None => interrupted,
        }
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
            let caller = std::thread::current().id();
            let result = reader.spread(&mut items, 1 << 40, &cx, |piece, cx| {
                // Helpers leave the rest to the caller. Else they could do it all before the caller has asked.
                while std::thread::current().id() != caller && cx.check().is_ok() {
                    std::thread::yield_now();
                }
                piece.fill(1);
                Ok(())
            });
            assert_eq!(result.unwrap_err().what(), "enough", "{threads} threads");
            assert!(items.contains(&0), "all of it was done, with {threads} threads");
        }
    }

    #[test]
    fn as_many_threads_help_as_the_work_is_worth_and_other_calls_leave() {
        let records = |count: u64| count * 600;
        assert_eq!(
            helpers_for(records(256), 256, 16, 1),
            0,
            "a small batch is done before a thread is awake"
        );
        assert_eq!(helpers_for(records(1000), 1000, 16, 1), 6);
        assert_eq!(helpers_for(1 << 40, 1 << 20, 16, 1), 15);
        assert_eq!(helpers_for(1 << 40, 1 << 20, 16, 4), 5);
        assert_eq!(helpers_for(1 << 40, 3, 16, 1), 2, "no more threads than pieces");
        for calls in [13, 16, 1000] {
            assert_eq!(helpers_for(1 << 40, 1 << 20, 16, calls), 0, "{calls} calls have all cores");
        }
        assert_eq!(helpers_for(u64::MAX, usize::MAX, 1, 1), 0);
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
