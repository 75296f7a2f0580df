//! Threads that encode, shared by the shards of one writer.

use crate::error::{Error, Result};
use crate::format::encode::{AnyEncoded, EncodeJob, Group};
use crate::{pool, process};
use once_cell::race::OnceBox;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::time::Duration;

/// The calling thread encodes this many bytes itself before other threads are started. A short file is finished by
/// then.
const BYTES_BEFORE_THREADS: usize = 1 << 20;
/// Groups that are being encoded, or wait to be placed, have at most this many bytes together.
const MOST_IN_FLIGHT: usize = 64 << 20;
/// One thread cannot feed more encoding threads than this.
const MOST_THREADS: usize = 32;
/// How often the calling thread calls [`Listen`] while it waits.
const LISTEN: Duration = Duration::from_millis(50);
/// What a record counts in addition to its bytes.
const RECORD_COST: usize = 64;

/// The interruption check that the calling thread runs while it waits for other threads. An error ends the wait, for
/// example after Ctrl-C.
#[derive(Clone)]
pub struct Listen(pub Arc<dyn Fn() -> Result<()> + Send + Sync>);

impl Default for Listen {
    fn default() -> Self {
        Listen(Arc::new(|| Ok(())))
    }
}

impl std::fmt::Debug for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Listen")
    }
}

/// Encoding threads. They are started at once, or when there is enough work.
pub struct Pool {
    /// Set once it is known whether there are threads. If it holds `None`, the calling thread does the work.
    ///
    /// This is not a lock that runs an initialiser: a fork during the initialiser would hang the child. Two callers may
    /// both start threads. The threads of one of them then end at once.
    threads: OnceBox<Option<Threads>>,
    /// What was encoded before threads were started, as `weight` counts it.
    before: AtomicUsize,
    /// What is in flight for all shards, as `weight` counts it.
    in_flight: Arc<AtomicUsize>,
    most_in_flight: usize,
}

struct Threads {
    /// Dropped only in the process that created it, see `Drop`.
    pool: ManuallyDrop<rayon::ThreadPool>,
    count: usize,
    generation: u64,
}

impl Threads {
    /// Starts `count` threads, or as many as the system allows. `None` if it allows none.
    fn start(count: usize) -> Option<Self> {
        let pool = pool::start(count, "anyrecord-encode")?;
        let count = pool.current_num_threads();
        Some(Threads { pool: ManuallyDrop::new(pool), count, generation: process::generation() })
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // A forked child does not have these threads. They may have held locks that are needed to end them.
        if self.generation == process::generation() {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.pool) };
        }
    }
}

impl Pool {
    /// Starts `count` threads, or as many as the system allows.
    pub fn of(count: usize) -> Arc<Self> {
        Arc::new(Pool {
            threads: OnceBox::with_value(Box::new(Threads::start(count))),
            before: AtomicUsize::new(0),
            in_flight: Arc::default(),
            most_in_flight: usize::MAX,
        })
    }

    /// One thread per core, started when there is enough work. `None` in a worker process, because other worker
    /// processes already use the remaining cores.
    pub fn automatic() -> Option<Arc<Self>> {
        (!process::is_worker()).then(|| Arc::new(Self::waiting()))
    }

    fn waiting() -> Self {
        Pool {
            threads: OnceBox::new(),
            before: AtomicUsize::new(0),
            in_flight: Arc::default(),
            most_in_flight: MOST_IN_FLIGHT,
        }
    }

    /// Whether threads are started automatically, when there is enough work.
    pub fn is_automatic(&self) -> bool {
        self.most_in_flight != usize::MAX
    }

    /// The threads. Starts them if there is enough work with a group of this weight. `None` if the calling thread does
    /// the work.
    fn threads(&self, weight: usize) -> Option<&Threads> {
        if let Some(threads) = self.threads.get() {
            return threads.as_ref();
        }
        if self.before.fetch_add(weight, Relaxed).saturating_add(weight) <= BYTES_BEFORE_THREADS {
            return None;
        }
        let start = || {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            Box::new(if cores > 1 { Threads::start(cores.min(MOST_THREADS)) } else { None })
        };
        self.threads.get_or_init(start).as_ref()
    }

    /// How many groups a file may have in flight: one for each thread, and one more so that no thread waits. `None` if
    /// the calling thread should encode `group`.
    pub fn most_groups(&self, group: &Group) -> Option<usize> {
        self.threads(weight(group)).map(|threads| threads.count + 1)
    }

    /// Whether the group fits into the limit of what may be in flight.
    pub fn has_room(&self, group: &Group) -> bool {
        self.in_flight.load(Relaxed).saturating_add(weight(group)) <= self.most_in_flight
    }

    /// Lets a thread encode the group. Returns the group if there are no threads.
    pub fn start(&self, job: EncodeJob<AnyEncoded>, group: Group) -> std::result::Result<Flying, Group> {
        let Some(Some(threads)) = self.threads.get() else { return Err(group) };
        let weight = weight(&group);
        self.in_flight.fetch_add(weight, Relaxed);
        let (done, result) = sync_channel(1);
        threads.pool.spawn(move || {
            // The writer may have been dropped. The result is then not needed.
            let _ = done.send(job(group));
        });
        Ok(Flying { result, weight, in_flight: self.in_flight.clone() })
    }
}

fn weight(group: &Group) -> usize {
    group.bytes.len() + RECORD_COST * group.ends.len()
}

/// A group that another thread encodes.
pub struct Flying {
    result: Receiver<Result<AnyEncoded>>,
    weight: usize,
    in_flight: Arc<AtomicUsize>,
}

impl Flying {
    /// Waits for the result. An error of `listen` ends the wait.
    pub fn wait(self, listen: &Listen) -> Result<AnyEncoded> {
        loop {
            match self.result.recv_timeout(LISTEN) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) => (listen.0)()?,
                Err(RecvTimeoutError::Disconnected) => return Err(died()),
            }
        }
    }

    /// The result, if it is ready.
    pub fn poll(&self) -> Option<Result<AnyEncoded>> {
        match self.result.try_recv() {
            Ok(result) => Some(result),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(died())),
        }
    }
}

fn died() -> Error {
    Error::closed("an encoding thread died")
}

impl Drop for Flying {
    fn drop(&mut self) {
        self.in_flight.fetch_sub(self.weight, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(bytes: usize) -> Group {
        let mut group = Group::default();
        group.push(&vec![0; bytes]).unwrap();
        group
    }

    #[test]
    fn threads_are_started_once_there_is_enough_to_do() {
        let pool = Pool::waiting();
        let piece = group(BYTES_BEFORE_THREADS / 4);
        for _ in 0..3 {
            assert_eq!(pool.most_groups(&piece), None);
        }
        assert!(pool.threads.get().is_none());
        assert_eq!(pool.most_groups(&piece), pool.most_groups(&piece));
        assert!(pool.threads.get().is_some());
    }

    #[test]
    fn what_is_in_flight_is_bounded_until_it_is_placed() {
        let pool = Pool::of(2);
        assert!(pool.has_room(&group(MOST_IN_FLIGHT + 1)), "an explicit number of threads has no limit");
        let pool = Pool { most_in_flight: 1000, ..Arc::into_inner(pool).unwrap() };
        let job: EncodeJob<AnyEncoded> = Arc::new(|_| Ok(Box::new(())));
        let flying = pool.start(job, group(800)).ok().unwrap();
        assert!(!pool.has_room(&group(800)) && pool.has_room(&group(10)));
        flying.wait(&Listen::default()).unwrap();
        assert!(pool.has_room(&group(800)));
    }
}
