//! A lock for the state behind a Python object, which Python code can reach in more ways than Rust code can.
//!
//! A plain mutex would hang in two cases. In a forked child, a thread of the parent that held it is gone and never gives
//! it back. And a file object of the caller's may use the very object that is using it, from the same thread. Both are
//! errors here.

use crate::gil::{self, this_thread};
use crate::interrupts::Interrupts;
use anyrecord::Stop;
use anyrecord::error::{Error, Result};
use anyrecord::process;
use pyo3::prelude::*;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// How often a thread that waits listens for interrupts.
const LISTEN: Duration = Duration::from_millis(50);

/// A lock that knows the process and the thread that hold it.
pub struct Owned<T> {
    state: Mutex<T>,
    generation: u64,
    /// The thread that holds it; 0: none.
    holder: AtomicU64,
    /// How many threads wait for it, and where they wait.
    waiting: AtomicUsize,
    turn: Mutex<()>,
    given_back: Condvar,
}

/// The state, held.
pub struct Held<'a, T> {
    guard: ManuallyDrop<MutexGuard<'a, T>>,
    owned: &'a Owned<T>,
}

impl<T> Owned<T> {
    pub fn new(state: T) -> Self {
        Owned {
            state: Mutex::new(state),
            generation: process::generation(),
            holder: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            turn: Mutex::new(()),
            given_back: Condvar::new(),
        }
    }

    /// Whether it was made by this process, and not inherited by a fork.
    pub fn is_of_this_process(&self) -> bool {
        self.generation == process::generation()
    }

    /// For threads that have the GIL.
    pub fn lock(&self, py: Python<'_>) -> Result<Held<'_, T>>
    where
        T: Send,
    {
        loop {
            if let Some(held) = self.try_lock()? {
                return Ok(held);
            }
            // Waited for without the GIL, and not kept while waiting for the GIL: a thread that is stopped there when
            // the interpreter exits would keep it for ever.
            gil::detach(py, || self.wait(&Interrupts::default()))?;
        }
    }

    /// For threads that do not have it.
    pub fn lock_detached(&self, stop: &dyn Stop) -> Result<Held<'_, T>> {
        loop {
            if let Some(held) = self.try_lock()? {
                return Ok(held);
            }
            self.wait(stop)?;
        }
    }

    /// Waits until it may be free. An error if the caller wants to stop, as after Ctrl-C.
    fn wait(&self, stop: &dyn Stop) -> Result<()> {
        self.waiting.fetch_add(1, SeqCst);
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever gives it back tells those who wait, and needs `turn` for that: it cannot be missed.
        let is_free = !matches!(self.state.try_lock(), Err(TryLockError::WouldBlock));
        if !is_free {
            drop(self.given_back.wait_timeout(turn, LISTEN));
        }
        self.waiting.fetch_sub(1, SeqCst);
        stop.check()
    }

    /// None: another thread has it, and will give it back.
    fn try_lock(&self) -> Result<Option<Held<'_, T>>> {
        match self.state.try_lock() {
            Ok(guard) => return Ok(Some(self.held(guard))),
            // A panic leaves the state as it was before or after, never in between.
            Err(TryLockError::Poisoned(poisoned)) => return Ok(Some(self.held(poisoned.into_inner()))),
            Err(TryLockError::WouldBlock) => {}
        }
        if self.holder.load(Relaxed) == this_thread() {
            return Err(Error::closed("it is already in use by the call that invoked your file object")
                .hint("a file object must not use what is using it"));
        }
        if !self.is_of_this_process() {
            return Err(Error::closed("another thread was using it when the process forked")
                .hint("make a new one in each process"));
        }
        if gil::is_exiting() {
            return Err(Error::closed("another thread was using it when the interpreter exited"));
        }
        Ok(None)
    }

    fn held<'a>(&'a self, guard: MutexGuard<'a, T>) -> Held<'a, T> {
        self.holder.store(this_thread(), Relaxed);
        Held { guard: ManuallyDrop::new(guard), owned: self }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.owned.holder.store(0, Relaxed);
        // SAFETY: dropped once, here, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.guard) };
        // In a forked child nobody waits, and a thread of the parent may have held `turn` at the fork.
        if self.owned.waiting.load(SeqCst) > 0 && self.owned.is_of_this_process() {
            drop(self.owned.turn.lock().unwrap_or_else(PoisonError::into_inner));
            self.owned.given_back.notify_one();
        }
    }
}
