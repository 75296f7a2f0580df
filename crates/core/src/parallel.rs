//! The same work on many things, by several threads, of which the calling one listens for interrupts.

use crate::error::{Error, Result};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

/// How often the calling thread listens while only the others have work.
const LISTEN: Duration = Duration::from_millis(20);

/// Something to call often; an error from it stops the work.
pub type Step<'a> = &'a mut dyn FnMut() -> Result<()>;

/// Calls `act` with each item. The first error is returned, and stops all threads at their next step.
///
/// `step` is called from the calling thread alone.
pub fn each_in_parallel<T: Sync>(
    items: &[T],
    threads: usize,
    step: Step<'_>,
    act: impl Fn(&T, Step<'_>) -> Result<()> + Sync,
) -> Result<()> {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = |step: Step<'_>| {
        while !stop.load(Relaxed) {
            let Some(item) = items.get(next.fetch_add(1, Relaxed)) else { break };
            if let Err(error) = act(item, step) {
                // Whoever comes second was only stopped by the first.
                return if stop.swap(true, Relaxed) { Ok(()) } else { Err(error) };
            }
        }
        Ok(())
    };
    let stopped = || if stop.load(Relaxed) { Err(Error::closed("stopped")) } else { Ok(()) };
    std::thread::scope(|scope| {
        let others =
            start_helpers(scope, threads.min(items.len()).saturating_sub(1), || work(&mut || stopped()));
        let mut result = work(step);
        while others.iter().any(|other| !other.is_finished()) {
            std::thread::park_timeout(LISTEN);
            if result.is_ok()
                && let Err(error) = step()
                && !stop.swap(true, Relaxed)
            {
                result = Err(error);
            }
        }
        for other in others {
            match other.join() {
                Ok(found) => result = result.and(found),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        result
    })
}

/// Starts threads that help the calling one: up to `count`, and fewer if the system gives no more.
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
    /// As where the system gives no more threads.
    static REFUSED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Calls `act` in a thread that gets no helpers.
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

    #[test]
    fn every_item_is_seen_once_by_any_number_of_threads() {
        for threads in [0, 1, 3, 50] {
            let seen: Vec<_> = (0..20).map(|_| AtomicUsize::new(0)).collect();
            let act = |item: &AtomicUsize, step: Step<'_>| {
                item.fetch_add(1, Relaxed);
                step()
            };
            each_in_parallel(&seen, threads, &mut || Ok(()), act).unwrap();
            without_helpers(|| each_in_parallel(&seen, threads, &mut || Ok(()), act).unwrap());
            assert!(seen.iter().all(|n| n.load(Relaxed) == 2));
        }
    }

    #[test]
    fn the_first_error_stops_the_others_and_is_the_one_returned() {
        let items: Vec<u64> = (0..4).collect();
        let act = |item: &u64, step: Step<'_>| match item {
            3 => Err(Error::format("third")),
            // Only being stopped ends it, where another thread can do that.
            _ => loop {
                if std::thread::current().name().is_some() {
                    return Ok(());
                }
                step()?;
                std::thread::yield_now();
            },
        };
        let error = each_in_parallel(&items, 4, &mut || Ok(()), act).unwrap_err();
        assert_eq!(error.what(), "third");
    }

    #[test]
    fn an_interrupt_is_heard_while_only_the_others_work() {
        let items = [0, 1];
        let act = |_: &i32, step: Step<'_>| {
            // The calling thread returns at its first error; the other one goes on until it is stopped.
            loop {
                step()?;
                std::thread::yield_now();
            }
        };
        let error = each_in_parallel(&items, 2, &mut || Err(Error::closed("interrupt")), act).unwrap_err();
        assert_eq!(error.what(), "interrupt");
    }
}
