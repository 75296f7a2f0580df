//! A lock for the state of a Python object.
//!
//! A plain mutex would deadlock in two cases. In a forked child, a thread of the parent that held the mutex does not
//! exist and never releases it. And a user's file object may call the object that is calling it, in the same thread.
//! Both return an error here.

use crate::gil::{self, this_thread};
use crate::interrupts::{Interrupts, SIGNAL_INTERVAL};
use crate::waiters::Waiters;
use anyrecord::Stop;
use anyrecord::error::{Error, Result};
use anyrecord::process;
use pyo3::prelude::*;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// A lock that knows the process and the thread that hold it.
pub struct Owned<T> {
    state: Mutex<T>,
    generation: u64,
    /// The thread that holds it, or 0.
    holder: AtomicU64,
    waiters: Waiters,
}

/// The guard of a held lock.
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
            waiters: Waiters::default(),
        }
    }

    /// Whether this process created it, and did not inherit it by a fork.
    pub fn is_of_this_process(&self) -> bool {
        self.generation == process::generation()
    }

    /// Locks, for threads that have the GIL.
    #[inline]
    pub fn lock(&self, py: Python<'_>) -> Result<Held<'_, T>>
    where
        T: Send,
    {
        match self.state.try_lock() {
            Ok(guard) => Ok(self.held(guard)),
            Err(_) => self.lock_later(py),
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_later(&self, py: Python<'_>) -> Result<Held<'_, T>>
    where
        T: Send,
    {
        loop {
            if let Some(held) = self.try_lock()? {
                return Ok(held);
            }
            // Wait without the GIL. Do not hold the lock while waiting for the GIL: a thread that is stopped at that
            // point when the interpreter exits would hold the lock forever.
            gil::detach(py, || self.wait(&Interrupts::default()))?;
        }
    }

    /// Locks, for threads that do not have the GIL.
    pub fn lock_detached(&self, stop: &dyn Stop) -> Result<Held<'_, T>> {
        loop {
            if let Some(held) = self.try_lock()? {
                return Ok(held);
            }
            self.wait(stop)?;
        }
    }

    /// Waits until the lock may be free. Returns an error if the call should stop, for example after Ctrl-C.
    fn wait(&self, stop: &dyn Stop) -> Result<()> {
        let is_free = || !matches!(self.state.try_lock(), Err(TryLockError::WouldBlock));
        self.waiters.wait(SIGNAL_INTERVAL, is_free);
        stop.check()
    }

    /// None if another thread holds the lock and will release it.
    fn try_lock(&self) -> Result<Option<Held<'_, T>>> {
        match self.state.try_lock() {
            Ok(guard) => return Ok(Some(self.held(guard))),
            // A panic leaves the state as it was before or after a change, never in between.
            Err(TryLockError::Poisoned(poisoned)) => return Ok(Some(self.held(poisoned.into_inner()))),
            Err(TryLockError::WouldBlock) => {}
        }
        if self.holder.load(Relaxed) == this_thread() {
            return Err(Error::closed("it is already in use by the call that invoked your file object")
                .hint("a file object must not use the reader or writer that calls it"));
        }
        if !self.is_of_this_process() {
            return Err(Error::closed("another thread was using it when the process forked")
                .hint("open or create a new one in each process"));
        }
        if gil::is_exiting() {
            return Err(Error::closed("another thread was using it when the interpreter exited"));
        }
        Ok(None)
    }

    #[inline]
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
    #[inline]
    fn drop(&mut self) {
        self.owned.holder.store(0, Relaxed);
        // SAFETY: dropped once, here, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.guard) };
        // In a forked child no thread waits, and a thread of the parent may have been about to wait at the fork.
        if self.owned.waiters.are_there() && self.owned.is_of_this_process() {
            self.owned.waiters.wake_one();
        }
    }
}
