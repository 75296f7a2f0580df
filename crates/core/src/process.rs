//! What a forked child must not inherit: locks that another thread held, and pools whose threads do not exist in the
//! child.
//!
//! The binding calls [`forked`] in every child, which begins a new fork generation. Code that keeps a lock or a pool
//! stores the [`generation`] it was created in, and creates a new one when the generation has changed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static GENERATION: AtomicU64 = AtomicU64::new(0);
static WORKER: AtomicBool = AtomicBool::new(false);

/// The fork generation: a number that changes with every fork.
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Call this once, before threads are started. It initialises what our dependencies would otherwise initialise under a
/// lock, in the first thread that needs it. A fork at that moment would leave the lock held in the child forever.
pub fn prepare() {
    // The thread pools reclaim memory with this collector.
    crossbeam_epoch::default_collector();
}

/// Call this in a forked child before anything else.
pub fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    #[cfg(target_os = "linux")]
    crate::storage::sigbus::forked();
}

/// Marks this process as a worker process: one that another process started to work for it.
pub fn set_worker() {
    WORKER.store(true, Ordering::Relaxed);
}

/// Whether this is a worker process, probably one of several. A forked child is one.
pub fn is_worker() -> bool {
    generation() > 0 || WORKER.load(Ordering::Relaxed)
}
