//! What a forked child must not inherit: locks that another thread held, and pools whose threads do not exist in the
//! child.
//!
//! The binding calls [`forked`] in every child, which begins a new fork generation. Code that keeps a lock or a pool
//! stores the [`generation`] it was created in, and creates a new one when the generation has changed.

use arc_swap::ArcSwap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

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
    crate::storage::remote::stores::prepare();
    #[cfg(unix)]
    crate::storage::cache::store::prepare();
}

/// Call this in a forked child before anything else.
pub fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    crate::pool::forked();
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

/// A value under a lock. In a forked child it begins anew: another thread may have held the lock at the fork, and then
/// it would stay locked forever.
pub struct PerProcess<T> {
    guarded: ArcSwap<Guarded<T>>,
}

struct Guarded<T> {
    generation: u64,
    value: Mutex<T>,
}

impl<T: Default> Default for PerProcess<T> {
    fn default() -> Self {
        PerProcess { guarded: ArcSwap::new(Guarded::new()) }
    }
}

impl<T: Default> Guarded<T> {
    fn new() -> Arc<Self> {
        Arc::new(Guarded { generation: generation(), value: Mutex::default() })
    }
}

impl<T: Default> PerProcess<T> {
    /// Calls `act` with the value of this process.
    pub fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        if self.guarded.load().generation != generation() {
            // Only one of several threads replaces it, so that nothing another one has stored is lost.
            self.guarded.rcu(|guarded| {
                if guarded.generation == generation() { guarded.clone() } else { Guarded::new() }
            });
        }
        let guarded = self.guarded.load();
        // A panic of another thread that held the lock does no harm: at worst, a number is missing.
        act(&mut guarded.value.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::process::Command;

    /// Runs a test that calls [`forked`] in a process of its own: the tests beside it would lose what they cache.
    pub(crate) fn alone(name: &str, test: impl FnOnce()) {
        const VARIABLE: &str = "ANYRECORD_TEST_ALONE";
        if std::env::var_os(VARIABLE).is_some() {
            return test();
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        let out = command.args(["--exact", name]).env(VARIABLE, "1").output().unwrap();
        let shown = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && shown.contains("1 passed"), "{shown}");
    }

    #[test]
    fn a_value_begins_anew_in_a_child_even_if_its_lock_was_held() {
        alone("process::tests::a_value_begins_anew_in_a_child_even_if_its_lock_was_held", || {
            let value = PerProcess::<u64>::default();
            value.with(|value| *value = 7);
            assert_eq!(value.with(|value| *value), 7);
            let guarded = value.guarded.load_full();
            let _held = guarded.value.lock().unwrap();
            forked();
            assert_eq!(value.with(|value| *value), 0);
        });
    }
}
