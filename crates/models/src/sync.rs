//! The types of `crates/core/src/sync.rs` for the model checker.
//!
//! Atomics, locks and fences are loom's. Pointers that can be replaced (`arc-swap`) and cells that are set once
//! (`once_cell`) are modelled by what their documentation promises: each operation happens at one moment. Their
//! insides are not checked here.

use std::ops::Deref;

pub use loom::sync::{Condvar, Mutex, MutexGuard, atomic};
pub use std::sync::Arc;

/// What [`ArcSwap::load`] returns.
pub struct Guard<T>(T);

impl<T> Deref for Guard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// A pointer that can be replaced.
struct Replaceable<T>(Mutex<T>);

impl<T: Clone> Replaceable<T> {
    fn new(value: T) -> Self {
        Replaceable(Mutex::new(value))
    }

    fn load(&self) -> T {
        self.0.lock().unwrap().clone()
    }

    fn swap(&self, value: T) -> T {
        // The guard is dropped before the old value, which may use other locks when it is dropped.
        std::mem::replace(&mut *self.0.lock().unwrap(), value)
    }
}

/// `arc_swap::ArcSwap`
pub struct ArcSwap<T>(Replaceable<Arc<T>>);

impl<T> ArcSwap<T> {
    /// A pointer to `value`.
    pub fn new(value: Arc<T>) -> Self {
        ArcSwap(Replaceable::new(value))
    }

    /// The value.
    pub fn load(&self) -> Guard<Arc<T>> {
        Guard(self.0.load())
    }

    /// Replaces the value.
    pub fn store(&self, value: Arc<T>) {
        drop(self.0.swap(value));
    }
}

/// `arc_swap::ArcSwapOption`
pub struct ArcSwapOption<T>(Replaceable<Option<Arc<T>>>);

impl<T> ArcSwapOption<T> {
    /// No value.
    pub fn empty() -> Self {
        ArcSwapOption(Replaceable::new(None))
    }

    /// The value.
    pub fn load(&self) -> Guard<Option<Arc<T>>> {
        Guard(self.0.load())
    }

    /// Replaces the value.
    pub fn store(&self, value: Option<Arc<T>>) {
        drop(self.0.swap(value));
    }

    /// Replaces the value, and returns the old one.
    pub fn swap(&self, value: Option<Arc<T>>) -> Option<Arc<T>> {
        self.0.swap(value)
    }
}

impl<T> Default for ArcSwapOption<T> {
    fn default() -> Self {
        Self::empty()
    }
}

/// `once_cell::race::OnceBox`
pub struct OnceBox<T>(std::sync::OnceLock<Box<T>>);

impl<T> Default for OnceBox<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> OnceBox<T> {
    /// An empty cell.
    pub fn new() -> Self {
        OnceBox(std::sync::OnceLock::new())
    }

    /// The value, if there is one.
    pub fn get(&self) -> Option<&T> {
        self.0.get().map(|value| &**value)
    }

    /// The value. Sets it if there is none.
    pub fn get_or_init(&self, make: impl FnOnce() -> Box<T>) -> &T {
        self.0.get_or_init(make)
    }
}
