//! Threads that decode. Made when there is first enough work for them, kept for the life of the process.
//!
//! A forked child has no threads of its parent, so it makes its own, if it is told to have any: by default a process
//! that was started to work for another one decodes alone, because other worker processes already use the remaining cores.

use crate::process;
use arc_swap::ArcSwapOption;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Threads that are used unless somebody says how many. More do not help: they wait for memory.
const MOST_BY_DEFAULT: usize = 16;

#[derive(Clone, Copy)]
struct Known {
    generation: u64,
    threads: usize,
    /// Never freed: a child must not even look at the threads of its parent, and a process ends with its own.
    pool: &'static ThreadPool,
}

static POOLS: ArcSwapOption<Vec<Known>> = ArcSwapOption::const_empty();

/// How many threads may decode if nobody says otherwise: all cores, but none besides the caller in a worker process.
pub fn default_threads() -> usize {
    if process::is_worker() {
        return 1;
    }
    // Asking the system means reading files, which takes longer than many a batch.
    static CORES: AtomicUsize = AtomicUsize::new(0);
    match CORES.load(Relaxed) {
        0 => {
            let cores = std::thread::available_parallelism().map_or(1, |n| n.get().min(MOST_BY_DEFAULT));
            CORES.store(cores, Relaxed);
            cores
        }
        cores => cores,
    }
}

/// A pool of so many threads. None where the system gives us none: then the caller does the work.
pub fn of(threads: usize) -> Option<&'static ThreadPool> {
    let generation = process::generation();
    let find = |pools: &Option<Arc<Vec<Known>>>| {
        let is_it = |known: &&Known| known.generation == generation && known.threads == threads;
        pools.as_ref()?.iter().find(is_it).map(|known| known.pool)
    };
    if let Some(pool) = find(&POOLS.load()) {
        return Some(pool);
    }
    let pool: &'static ThreadPool = Box::leak(Box::new(start(threads, "anyrecord")?));
    let known = Known { generation, threads, pool };
    // Two callers may both make one; the second stays unused, which costs nothing but its sleep.
    POOLS.rcu(|pools| {
        let mut all = pools.as_ref().map_or_else(Vec::new, |pools| Vec::clone(pools));
        if find(pools).is_none() {
            all.push(known);
        }
        Some(Arc::new(all))
    });
    find(&POOLS.load())
}

/// A new pool of so many threads, or of fewer if the system gives no more. None: it gives none.
pub fn start(threads: usize, name: &'static str) -> Option<ThreadPool> {
    let start = |count: usize| {
        let builder = ThreadPoolBuilder::new().num_threads(count);
        builder.thread_name(move |i| format!("{name}-{i}")).build().ok()
    };
    let fewer = |count: &usize| Some(count / 2).filter(|&count| count > 0);
    // Zero would mean a thread for each core.
    std::iter::successors(Some(threads.max(1)), fewer).find_map(start)
}
