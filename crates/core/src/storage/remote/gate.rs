//! How many requests to one store are in flight. A server that says it is overloaded gets half as many. Each success
//! allows a little more again.

use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Bounds the requests in flight.
#[derive(Debug)]
pub struct Gate {
    state: Mutex<State>,
    freed: Notify,
    most: f64,
}

#[derive(Debug)]
struct State {
    /// How many may be in flight now. Grows by one when as many requests as it says have succeeded.
    limit: f64,
    in_flight: usize,
    /// Requests that were in flight when the limit was lowered. Their failures do not lower it again.
    before: usize,
}

/// A request in flight. It ends when this is dropped.
pub struct Permit<'a>(&'a Gate);

impl Gate {
    pub fn new(most: usize) -> Self {
        let most = most.max(1) as f64;
        let state = Mutex::new(State { limit: most, in_flight: 0, before: 0 });
        Gate { state, freed: Notify::new(), most }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until one more request may be in flight.
    pub async fn enter(&self) -> Permit<'_> {
        loop {
            if let Some(permit) = self.try_enter() {
                return permit;
            }
            let mut freed = pin!(self.freed.notified());
            // From now on it hears of a request that ends. One may have ended before.
            freed.as_mut().enable();
            if let Some(permit) = self.try_enter() {
                return permit;
            }
            freed.await;
        }
    }

    fn try_enter(&self) -> Option<Permit<'_>> {
        let mut state = self.state();
        let is_free = state.in_flight == 0 || (state.in_flight as f64) < state.limit.floor();
        is_free.then(|| {
            state.in_flight += 1;
            Permit(self)
        })
    }

    /// A request succeeded.
    pub fn succeeded(&self) {
        let mut state = self.state();
        let before = state.limit.floor();
        state.limit = (state.limit + 1.0 / state.limit).min(self.most);
        if state.limit.floor() > before {
            self.freed.notify_one();
        }
    }

    /// The server is overloaded.
    pub fn overloaded(&self) {
        let mut state = self.state();
        if state.before == 0 {
            state.limit = (state.limit / 2.0).max(1.0);
            state.before = state.in_flight;
        }
    }

    /// How many requests may be in flight now.
    #[cfg(test)]
    fn limit(&self) -> usize {
        self.state().limit as usize
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.in_flight -= 1;
        state.before = state.before.saturating_sub(1);
        drop(state);
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[test]
    fn no_waiting_request_is_forgotten() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
        let (gate, most) = (Arc::new(Gate::new(3)), Arc::new(AtomicUsize::new(0)));
        let now = Arc::new(AtomicUsize::new(0));
        let one = |number: usize| {
            let (gate, most, now) = (gate.clone(), most.clone(), now.clone());
            async move {
                let _permit = gate.enter().await;
                most.fetch_max(now.fetch_add(1, Relaxed) + 1, Relaxed);
                tokio::task::yield_now().await;
                if number.is_multiple_of(7) {
                    gate.overloaded()
                } else {
                    gate.succeeded()
                }
                now.fetch_sub(1, Relaxed);
            }
        };
        let tasks: Vec<_> = (0..5000).map(|number| runtime.spawn(one(number))).collect();
        // Some stop waiting.
        tasks.iter().step_by(50).for_each(tokio::task::JoinHandle::abort);
        runtime.block_on(async {
            for task in tasks {
                let _ = task.await;
            }
        });
        assert!((1..=3).contains(&most.load(Relaxed)));
    }

    #[test]
    fn an_overload_halves_the_requests_once_and_successes_raise_them_again() {
        let gate = Gate::new(16);
        let permits: Vec<_> = (0..16).map(|_| gate.try_enter().unwrap()).collect();
        assert!(gate.try_enter().is_none());
        // All that are in flight fail together.
        permits.into_iter().for_each(|permit| {
            gate.overloaded();
            drop(permit);
        });
        assert_eq!(gate.limit(), 8);
        (0..200).for_each(|_| gate.succeeded());
        assert_eq!(gate.limit(), 16);
    }

    #[test]
    fn one_request_is_always_possible() {
        let gate = Gate::new(4);
        for _ in 0..20 {
            let permit = gate.try_enter().unwrap();
            gate.overloaded();
            drop(permit);
        }
        assert_eq!(gate.limit(), 1);
        let _permit = gate.try_enter().unwrap();
        assert!(gate.try_enter().is_none());
    }
}
