//! The context of a call: its memory budget and its interruption check.

use crate::budget::Budget;
use crate::error::Result;

/// The interruption check of a call. Only the thread that made the call runs the caller's check.
pub trait Stop {
    /// Returns an error if the call should stop. Cheap enough to run every few hundred microseconds.
    fn check(&self) -> Result<()>;
}

/// Never stops a call.
pub struct Never;

impl Stop for Never {
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

impl<F: Fn() -> Result<()>> Stop for F {
    fn check(&self) -> Result<()> {
        self()
    }
}

/// The context of one call.
#[derive(Clone, Copy)]
pub struct Cx<'a> {
    /// What the call may hold at once: its memory budget.
    pub budget: &'a Budget<'a>,
    /// The interruption check.
    pub stop: &'a dyn Stop,
}

impl<'a> Cx<'a> {
    /// A context that is never stopped.
    pub fn new(budget: &'a Budget<'a>) -> Self {
        Cx { budget, stop: &Never }
    }

    /// Returns an error if the call should stop.
    pub fn check(&self) -> Result<()> {
        self.stop.check()
    }

    /// A counter of work that runs the interruption check once in a while. See [`Pace`].
    pub fn pace(&self) -> Pace<'a> {
        Pace { stop: self.stop, left: WORK }
    }
}

/// Calls `act` in a context with the default limits that is never stopped.
pub fn with_default<T>(act: impl FnOnce(&Cx<'_>) -> T) -> T {
    let limits = crate::Limits::default();
    let files = crate::storage::file_set::FileSet::new(&limits);
    act(&Cx::new(&Budget::new(&limits, &files)))
}

/// A context for tests. Its memory is never freed.
#[cfg(test)]
pub fn for_tests(limits: crate::Limits) -> Cx<'static> {
    let limits = Box::leak(Box::new(crate::Limits { open_files: 4, ..limits }));
    let files = Box::leak(Box::new(crate::storage::file_set::FileSet::new(limits)));
    Cx::new(Box::leak(Box::new(Budget::new(limits, files))))
}

/// Work between two checks: about as many bytes as are copied, hashed or decompressed in a few hundred microseconds.
const WORK: u64 = 256 << 10;

/// Counts work in a loop whose length comes from a file or a caller, and runs the interruption check once in a while.
pub struct Pace<'a> {
    stop: &'a dyn Stop,
    left: u64,
}

impl Pace<'_> {
    /// Counts work on about `bytes` bytes. A step of a loop that handles no bytes counts as some tens of bytes.
    #[inline]
    pub fn step(&mut self, bytes: u64) -> Result<()> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => self.ask(),
        }
    }

    #[cold]
    fn ask(&mut self) -> Result<()> {
        self.left = WORK;
        self.stop.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::limits::Limits;
    use crate::storage::file_set::FileSet;
    use std::cell::Cell;

    #[test]
    fn a_pace_asks_once_in_a_while_and_passes_the_answer_on() {
        let asked = Cell::new(0);
        let stop = || {
            asked.set(asked.get() + 1);
            if asked.get() == 3 { Err(Error::closed("enough")) } else { Ok(()) }
        };
        let (limits, files) = (Limits::default(), FileSet::new(&Limits::default()));
        let budget = Budget::new(&limits, &files);
        let mut pace = Cx { budget: &budget, stop: &stop }.pace();
        let steps = (0..1_000_000).take_while(|_| pace.step(64).is_ok()).count() as u64;
        assert_eq!(asked.get(), 3);
        assert!((WORK / 64 * 2..WORK / 64 * 4).contains(&steps), "{steps}");
    }
}
