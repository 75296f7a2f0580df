//! How many requests to one store are in flight. A server that says it is overloaded gets half as many. Each success
//! allows a little more again.

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
            let freed = self.freed.notified();
            {
                let mut state = self.state();
                if state.in_flight == 0 || (state.in_flight as f64) < state.limit.floor() {
                    state.in_flight += 1;
                    return Permit(self);
                }
            }
            freed.await;
        }
    }

    /// A request succeeded.
    pub fn succeeded(&self) {
        let mut state = self.state();
        state.limit = (state.limit + 1.0 / state.limit).min(self.most);
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
        self.0.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn try_enter(gate: &Gate) -> Option<Permit<'_>> {
        match pin!(gate.enter()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => Some(permit),
            Poll::Pending => None,
        }
    }

    #[test]
    fn an_overload_halves_the_requests_once_and_successes_raise_them_again() {
        let gate = Gate::new(16);
        let permits: Vec<_> = (0..16).map(|_| try_enter(&gate).unwrap()).collect();
        assert!(try_enter(&gate).is_none());
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
            let permit = try_enter(&gate).unwrap();
            gate.overloaded();
            drop(permit);
        }
        assert_eq!(gate.limit(), 1);
        let _permit = try_enter(&gate).unwrap();
        assert!(try_enter(&gate).is_none());
    }
}
