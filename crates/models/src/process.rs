//! The fork generation. In reality it changes only while the child has one thread, so its order is not modelled.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The fork generation.
pub fn generation() -> u64 {
    GENERATION.load(Relaxed)
}

/// What the binding calls in a forked child.
pub fn forked() {
    GENERATION.fetch_add(1, Relaxed);
}
