//! What a forked child must not inherit: locks that another thread held, and pools of threads that are gone.
//!
//! The binding calls [`forked`] in every child. Whoever keeps a lock or a pool remembers the [`generation`] it
//! was made in, and makes a new one when that has passed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static GENERATION: AtomicU64 = AtomicU64::new(0);
static WORKER: AtomicBool = AtomicBool::new(false);

/// A number that changes with every fork.
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// To be called once, before threads are started: initialises what libraries of ours would initialise under a lock in the
/// first thread that needs it. A fork at that moment would leave the lock closed in the child, for ever.
pub fn prepare() {
    // What the thread pools reclaim memory with.
    crossbeam_epoch::default_collector();
}

/// To be called in a forked child before anything else.
pub fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    #[cfg(target_os = "linux")]
    crate::storage::sigbus::forked();
}

/// Tells that this process was started to work for another one.
pub fn set_worker() {
    WORKER.store(true, Ordering::Relaxed);
}

/// Whether this is a worker process, probably one of several.
pub fn is_worker() -> bool {
    generation() > 0 || WORKER.load(Ordering::Relaxed)
}
