//! What every call carries with it: the memory it may take, and the way to stop it.

use crate::budget::Budget;
use crate::error::Result;

/// Asked now and then whether to go on. Only the thread that made the call asks it.
pub trait Stop {
    /// An error if the call should end. Cheap enough to be asked every few hundred microseconds.
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
    /// What the call may hold at once.
    pub budget: &'a Budget<'a>,
    /// Whether to go on.
    pub stop: &'a dyn Stop,
}

impl<'a> Cx<'a> {
    /// A context that is never stopped.
    pub fn new(budget: &'a Budget<'a>) -> Self {
        Cx { budget, stop: &Never }
    }

    /// An error if the call should end.
    pub fn check(&self) -> Result<()> {
        self.stop.check()
    }

    /// Counts work, to ask [`Stop`] once in a while. See [`Pace`].
    pub fn pace(&self) -> Pace<'a> {
        Pace { stop: self.stop, left: WORK }
    }
}

/// A context for tests, which is never given back.
#[cfg(test)]
pub fn for_tests(limits: crate::Limits) -> Cx<'static> {
    let limits = Box::leak(Box::new(crate::Limits { open_files: 4, ..limits }));
    let files = Box::leak(Box::new(crate::storage::file_set::FileSet::new(limits)));
    Cx::new(Box::leak(Box::new(Budget::new(limits, files))))
}

/// Work between two checks, about as many bytes as are copied, hashed or decompressed in a few hundred microseconds.
const WORK: u64 = 256 << 10;

/// Counts work in a loop whose length a file or a caller decides, and asks [`Stop`] once in a while.
pub struct Pace<'a> {
    stop: &'a dyn Stop,
    left: u64,
}

impl Pace<'_> {
    /// Counts work of about so many bytes. A step of a loop that handles no bytes counts as some tens of them.
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
