//! Ctrl-C: checks for signals while the core works.

use crate::errors::external;
use crate::gil;
use anyrecord::reader::Reader;
use anyrecord::{Cx, Stop};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// How often to check for signals. Acquiring the GIL more often would slow other threads down.
pub const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Stops a call of the core when a Python signal handler raises, as Ctrl-C does.
#[derive(Default)]
pub struct Interrupts {
    /// When signals were checked last. None before the first call of `check`.
    last: Cell<Option<Instant>>,
}

impl Stop for Interrupts {
    fn check(&self) -> anyrecord::Result<()> {
        let now = Instant::now();
        match self.last.get() {
            Some(last) if now.duration_since(last) >= SIGNAL_INTERVAL => {
                self.last.set(Some(now));
                gil::attach(|py| py.check_signals()).map_err(external)
            }
            Some(_) => Ok(()),
            None => {
                self.last.set(Some(now));
                Ok(())
            }
        }
    }
}

/// Calls `act` in the context of one call of a reader.
#[inline]
pub fn with_cx<T>(reader: &Reader, act: impl FnOnce(&Cx<'_>) -> T) -> T {
    let (budget, stop) = (reader.budget(), Interrupts::default());
    act(&Cx { budget: &budget, stop: &stop })
}
