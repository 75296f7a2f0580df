//! What a forked child must not inherit: locks that another thread held, and pools of threads that are gone.
//!
//! The binding calls [`forked`] in every child. Whoever keeps a lock or a pool remembers the [`generation`] it
//! was made in, and makes a new one when that has passed.

use std::sync::atomic::{AtomicU64, Ordering};

static GENERATION: AtomicU64 = AtomicU64::new(0);

/// A number that changes with every fork.
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// To be called in a forked child before anything else.
pub fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}
