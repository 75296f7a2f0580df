//! What threads share: atomics, locks and pointers that can be replaced.
//!
//! Code that takes them from here can also be compiled with those of a model checker, which tries every order in which
//! threads can run (`crates/models`).

pub use arc_swap::{ArcSwap, ArcSwapOption, Guard};
pub use once_cell::race::OnceBox;
pub use std::sync::{Arc, Condvar, Mutex, MutexGuard, atomic};
