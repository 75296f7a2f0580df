//! Runs a function on many items in several threads. The calling thread works too, and checks for interrupts.

use crate::budget::Budget;
use crate::cx::{Cx, Stop};
use crate::error::{Error, Result};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

/// How often the calling thread checks for interrupts while only other threads have work.
const LISTEN: Duration = Duration::from_millis(20);

/// Stops the threads that work for a call, once the call has failed or was interrupted.
#[derive(Default)]
pub struct Cancelled(AtomicBool);

impl Cancelled {
    /// Every other thread stops at its next check.
    pub fn cancel(&self) {
        self.0.store(true, Relaxed);
    }

    /// Whether the threads should stop.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Relaxed)
    }
}

impl Stop for Cancelled {
    fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::cancellation()) } else { Ok(()) }
    }
}

/// Counts the threads that still work for a call. The calling thread waits for them.
pub struct Helpers {
    running: AtomicUsize,
    caller: std::thread::Thread,
}

impl Helpers {
    /// `count` threads will work for the calling thread.
    pub fn new(count: usize) -> Self {
        Helpers { running: AtomicUsize::new(count), caller: std::thread::current() }
    }

    /// One of the threads is done, or could not be started.
    pub fn done(&self) {
        if self.running.fetch_sub(1, SeqCst) == 1 {
            self.caller.unpark();
        }
    }

    /// Waits until all threads are done. If the call is interrupted meanwhile, this cancels the threads and still waits
    /// for them, because they work on data of the caller.
    pub fn wait(&self, cancelled: &Cancelled, cx: &Cx<'_>) -> Result<()> {
        let mut result = Ok(());
        while self.running.load(SeqCst) > 0 {
            std::thread::park_timeout(LISTEN);
            if result.is_ok() {
                result = cx.check();
            }
            if result.is_err() {
                cancelled.cancel();
            }
        }
        result
    }
}

/// Calls `act` with each item, in at most `threads` threads, and returns the results in the order of the items.
///
/// An error stops all threads at their next check. If several items fail, the error of the first one is returned. If
/// the system refuses to start threads, the threads that are running do all the work.
pub fn for_each<'i, T: Sync, R: Send>(
    items: &'i [T],
    threads: usize,
    cx: &Cx<'_>,
    act: impl Fn(&'i T, &Cx<'_>) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let (next, cancelled) = (AtomicUsize::new(0), Cancelled::default());
    let work = |cx: &Cx<'_>| {
        let mut found = Vec::new();
        while !cancelled.is_cancelled() {
            let index = next.fetch_add(1, Relaxed);
            let Some(item) = items.get(index) else { break };
            let result = cx.check().and_then(|()| act(item, cx));
            if result.is_err() {
                cancelled.cancel();
            }
            found.push((index, result));
        }
        found
    };
    let budget: &Budget<'_> = cx.budget;
    let others = threads.min(items.len()).saturating_sub(1);
    let helpers = Helpers::new(others);
    let (mut found, waited) = std::thread::scope(|scope| {
        let (work, cancelled, helpers) = (&work, &cancelled, &helpers);
        let help = move || {
            let found = work(&Cx { budget, stop: cancelled });
            helpers.done();
            found
        };
        let started = start_helpers(scope, others, help);
        // A thread that could not be started does not count.
        (started.len()..others).for_each(|_| helpers.done());
        // The calling thread also stops when another one has failed.
        let own = || cancelled.check().and_then(|()| cx.check());
        let mut found = work(&Cx { budget, stop: &own });
        let waited = helpers.wait(cancelled, cx);
        for helper in started {
            match helper.join() {
                Ok(others) => found.extend(others),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        (found, waited)
    });
    found.sort_unstable_by_key(|(index, _)| *index);
    let mut results = Vec::with_capacity(items.len());
    let mut stopped = None;
    for (_, result) in found {
        match result {
            Ok(result) => results.push(result),
            // A cancelled thread only reports that another thread has failed.
            Err(error) if error.is_cancellation() => stopped = Some(error),
            Err(error) => return Err(error),
        }
    }
    waited?;
    match stopped {
        Some(error) => Err(error),
        None if results.len() == items.len() => Ok(results),
        None => Err(Error::closed("stopped before all work was done")),
    }
}

/// Starts up to `count` threads that help the calling thread. Starts fewer if the system refuses more.
pub fn start_helpers<'scope, 'env, T: Send + 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    count: usize,
    work: impl Fn() -> T + Copy + Send + 'scope,
) -> Vec<ScopedJoinHandle<'scope, T>> {
    (0..count).map_while(|_| start_helper(scope, work).ok()).collect()
}

fn start_helper<'scope, 'env, T: Send + 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> std::io::Result<ScopedJoinHandle<'scope, T>> {
    #[cfg(test)]
    if REFUSED.get() {
        return Err(std::io::ErrorKind::WouldBlock.into());
    }
    std::thread::Builder::new().spawn_scoped(scope, work)
}

#[cfg(test)]
thread_local! {
    /// Simulates a system that refuses to start threads.
    static REFUSED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Calls `act` while this thread cannot start helpers.
#[cfg(test)]
pub fn without_helpers<T>(act: impl FnOnce() -> T) -> T {
    REFUSED.set(true);
    let result = act();
    REFUSED.set(false);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::storage::file_set::FileSet;
    use std::cell::Cell;

    fn with_budget<T>(act: impl FnOnce(&Budget<'_>) -> T) -> T {
        let limits = Limits::default();
        act(&Budget::new(&limits, &FileSet::new(&limits)))
    }

    #[test]
    fn every_item_is_seen_once_and_results_are_in_order() {
        with_budget(|budget| {
            for threads in [0, 1, 3, 50] {
                let items: Vec<usize> = (0..20).collect();
                let double = || for_each(&items, threads, &Cx::new(budget), |item, _| Ok(item * 2)).unwrap();
                let expected: Vec<_> = (0..20).map(|item| item * 2).collect();
                assert_eq!(double(), expected);
                assert_eq!(without_helpers(double), expected, "the system gives no threads");
            }
        });
    }

    #[test]
    fn an_error_stops_the_others_and_is_the_one_returned() {
        with_budget(|budget| {
            let items: Vec<u64> = (0..4).collect();
            // The other items end only when they are stopped.
            let act = |item: &u64, cx: &Cx<'_>| match item {
                3 => Err::<(), _>(Error::format("third")),
                _ => loop {
                    cx.check()?;
                    std::thread::yield_now();
                },
            };
            let error = for_each(&items, 4, &Cx::new(budget), act).unwrap_err();
            assert_eq!(error.what(), "third");
        });
    }

    #[test]
    fn of_several_errors_the_first_in_order_is_returned() {
        with_budget(|budget| {
            let items: Vec<u64> = (0..100).collect();
            let barrier = std::sync::Barrier::new(4);
            let act = |item: &u64, _: &Cx<'_>| {
                barrier.wait();
                Err::<(), _>(Error::format(item.to_string()))
            };
            assert_eq!(for_each(&items, 4, &Cx::new(budget), act).unwrap_err().what(), "0");
        });
    }

    #[test]
    fn an_interrupt_is_heard_while_only_the_others_work() {
        with_budget(|budget| {
            let caller = std::thread::current().id();
            let asked = Cell::new(0);
            let stop = || {
                asked.set(asked.get() + 1);
                if asked.get() > 5 { Err(Error::closed("interrupt")) } else { Ok(()) }
            };
            let act = |_: &i32, cx: &Cx<'_>| {
                // The calling thread has nothing to do. The other thread runs until it is stopped.
                while std::thread::current().id() != caller {
                    cx.check()?;
                    std::thread::yield_now();
                }
                Ok(())
            };
            let items = [0; 50];
            let error = for_each(&items, 2, &Cx { budget, stop: &stop }, act).unwrap_err();
            assert_eq!(error.what(), "interrupt");
        });
    }
}
