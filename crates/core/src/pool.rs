//! The thread pools that decode. A pool is started when there is first enough work for it, and is kept for the life of
//! the process.
//!
//! A forked child has none of its parent's threads. It starts its own, if it is configured to have any. By default a
//! worker process decodes in the calling thread alone, because other worker processes already use the remaining cores.

use crate::process;
use arc_swap::ArcSwapOption;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The most threads that are used by default. More threads do not help, because they wait for memory.
const MOST_BY_DEFAULT: usize = 16;

#[derive(Clone, Copy)]
struct Known {
    generation: u64,
    threads: usize,
    /// Never freed. A forked child must not even access the threads of its parent, and a process needs its own threads
    /// until it ends.
    pool: &'static ThreadPool,
}

static POOLS: ArcSwapOption<Vec<Known>> = ArcSwapOption::const_empty();

/// The default number of decoding threads: one for each core, at most 16. In a worker process, the calling thread
/// decodes alone.
pub fn default_threads() -> usize {
    if process::is_worker() {
        return 1;
    }
    // The number is cached, because `available_parallelism` reads files, which takes longer than many batches.
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

/// The pool of `threads` threads. None if the system refuses to start any: then the caller does the work.
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
    // Two callers may both start a pool. The second one stays unused. Its threads only sleep.
    POOLS.rcu(|pools| {
        let mut all = pools.as_ref().map_or_else(Vec::new, |pools| Vec::clone(pools));
        if find(pools).is_none() {
            all.push(known);
        }
        Some(Arc::new(all))
    });
    find(&POOLS.load())
}

/// Calls of this process that have work for a pool.
static BUSY: AtomicUsize = AtomicUsize::new(0);

/// A call that has work for a pool. It counts as long as this lives.
pub struct Busy {
    generation: u64,
    calls: usize,
}

impl Busy {
    /// Counts a call.
    pub fn begin() -> Self {
        Busy { generation: process::generation(), calls: BUSY.fetch_add(1, Relaxed) + 1 }
    }

    /// How many calls had work when this one began, with this one.
    pub fn calls(&self) -> usize {
        self.calls
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // In a child that was forked meanwhile, the count began anew.
        if self.generation == process::generation() {
            BUSY.fetch_sub(1, Relaxed);
        }
    }
}

/// Call it in a forked child, which has none of the calls of its parent.
pub fn forked() {
    BUSY.store(0, Relaxed);
}

/// A new pool of `threads` threads, or of fewer if the system refuses more. None if the system starts none.
pub fn start(threads: usize, name: &'static str) -> Option<ThreadPool> {
    let start = |count: usize| {
        let builder = ThreadPoolBuilder::new().num_threads(count);
        builder.thread_name(move |i| format!("{name}-{i}")).build().ok()
    };
    let fewer = |count: &usize| Some(count / 2).filter(|&count| count > 0);
    // Zero would mean one thread for each core.
    std::iter::successors(Some(threads.max(1)), fewer).find_map(start)
}
