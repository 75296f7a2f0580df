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

/// The calling thread encodes so much by itself before others are started: a short file is done by then.
const PATIENCE: usize = 1 << 20;
/// Groups that are being encoded, or wait to be placed, have at most this many bytes together.
const MOST_IN_FLIGHT: usize = 64 << 20;
/// More than these one thread cannot feed.
const MOST_THREADS: usize = 32;
/// How often the calling thread listens while it waits.
const LISTEN: Duration = Duration::from_millis(50);
/// What a record counts besides its bytes.
const RECORD_COST: usize = 64;

/// Asked by the calling thread now and then while it waits for other threads. An error ends the wait, as Ctrl-C does.
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

/// Threads that are there from the beginning, or are started once there is enough to do.
pub struct Pool {
    /// Set once it is known whether there are threads; none: the calling thread does the work.
    ///
    /// Not a lock that runs an initialiser: a fork in the middle of one would hang the child. Two threads may both
    /// start threads; those of one of the two end at once.
    threads: OnceBox<Option<Threads>>,
    /// What was encoded before there were threads.
    before: AtomicUsize,
    /// What is in flight, of all shards.
    in_flight: Arc<AtomicUsize>,
    most_in_flight: usize,
}

struct Threads {
    /// Dropped only in the process that made it, see `Drop`.
    pool: ManuallyDrop<rayon::ThreadPool>,
    count: usize,
    generation: u64,
}

impl Threads {
    /// So many threads, or fewer if the system gives no more. None: it gives none.
    fn start(count: usize) -> Option<Self> {
        let pool = pool::start(count, "anyrecord-encode")?;
        let count = pool.current_num_threads();
        Some(Threads { pool: ManuallyDrop::new(pool), count, generation: process::generation() })
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // A forked child has no such threads, and they may have held the locks that ending them takes.
        if self.generation == process::generation() {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.pool) };
        }
    }
}

impl Pool {
    /// Starts `count` threads, or as many as the system gives.
    pub fn of(count: usize) -> Arc<Self> {
        Arc::new(Pool {
            threads: OnceBox::with_value(Box::new(Threads::start(count))),
            before: AtomicUsize::new(0),
            in_flight: Arc::default(),
            most_in_flight: usize::MAX,
        })
    }

    /// A thread for each core, once there is enough to do for them. None in a worker process, one of many that
    /// share the cores.
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

    /// Whether threads are started by themselves.
    pub fn is_automatic(&self) -> bool {
        self.most_in_flight != usize::MAX
    }

    /// The threads, if there is enough to do for them with that group.
    fn threads(&self, weight: usize) -> Option<&Threads> {
        if let Some(threads) = self.threads.get() {
            return threads.as_ref();
        }
        if self.before.fetch_add(weight, Relaxed).saturating_add(weight) <= PATIENCE {
            return None;
        }
        let start = || {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            Box::new(if cores > 1 { Threads::start(cores.min(MOST_THREADS)) } else { None })
        };
        self.threads.get_or_init(start).as_ref()
    }

    /// How many groups a file may have in flight, if other threads are to encode that group: one for each thread,
    /// and one more so that none of them waits.
    pub fn most_groups(&self, group: &Group) -> Option<usize> {
        self.threads(weight(group)).map(|threads| threads.count + 1)
    }

    /// Whether the group can be taken without holding too much.
    pub fn has_room(&self, group: &Group) -> bool {
        self.in_flight.load(Relaxed).saturating_add(weight(group)) <= self.most_in_flight
    }

    /// Lets a thread encode the group; gives it back where there are no threads.
    pub fn start(&self, job: EncodeJob<AnyEncoded>, group: Group) -> std::result::Result<Flying, Group> {
        let Some(Some(threads)) = self.threads.get() else { return Err(group) };
        let weight = weight(&group);
        self.in_flight.fetch_add(weight, Relaxed);
        let (done, result) = sync_channel(1);
        threads.pool.spawn(move || {
            // The writer may be gone by now; then nobody wants the result.
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
    /// The result, once it is there. An error of `listen` ends the wait.
    pub fn wait(self, listen: &Listen) -> Result<AnyEncoded> {
        loop {
            match self.result.recv_timeout(LISTEN) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) => (listen.0)()?,
                Err(RecvTimeoutError::Disconnected) => return Err(died()),
            }
        }
    }

    /// The result, if it is there.
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
        let piece = group(PATIENCE / 4);
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
        assert!(pool.has_room(&group(MOST_IN_FLIGHT + 1)), "who asks for threads decides");
        let pool = Pool { most_in_flight: 1000, ..Arc::into_inner(pool).unwrap() };
        let job: EncodeJob<AnyEncoded> = Arc::new(|_| Ok(Box::new(())));
        let flying = pool.start(job, group(800)).ok().unwrap();
        assert!(!pool.has_room(&group(800)) && pool.has_room(&group(10)));
        flying.wait(&Listen::default()).unwrap();
        assert!(pool.has_room(&group(800)));
    }
}
