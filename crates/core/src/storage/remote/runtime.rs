//! The threads that wait for servers. They start with the first request of a process.
//!
//! A forked child has none of its parent's threads, and must not touch what they held. So it starts its own.

use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::process;
use arc_swap::ArcSwapOption;
use std::future::Future;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;

/// How often a waiting call asks whether it shall stop.
const CHECK: Duration = Duration::from_millis(20);
/// The most threads. One is enough for some gigabits a second; encryption needs more.
const MOST_THREADS: usize = 4;

struct Known {
    generation: u64,
    /// Never freed. See [`crate::pool`].
    runtime: &'static Runtime,
}

static RUNTIME: ArcSwapOption<Known> = ArcSwapOption::const_empty();

/// The runtime of this process.
pub fn runtime() -> Result<&'static Runtime> {
    let generation = process::generation();
    let find = |known: &Option<Arc<Known>>| {
        known.as_ref().filter(|known| known.generation == generation).map(|known| known.runtime)
    };
    if let Some(runtime) = find(&RUNTIME.load()) {
        return Ok(runtime);
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("anyrecord-remote")
        .enable_all()
        .build()
        .map_err(|error| Error::io("cannot start threads", error))?;
    let known = Arc::new(Known { generation, runtime: Box::leak(Box::new(runtime)) });
    // Two callers may both start one. The second one stays unused. Its threads only sleep.
    RUNTIME.rcu(|before| if find(before).is_some() { before.clone() } else { Some(known.clone()) });
    find(&RUNTIME.load()).ok_or_else(Error::cancellation)
}

/// Tasks of one call. They end with it.
#[derive(Default)]
pub struct Tasks(Vec<AbortHandle>);

impl Tasks {
    /// Starts a task.
    pub fn start(&mut self, task: impl Future<Output = ()> + Send + 'static) -> Result<()> {
        self.0.retain(|task| !task.is_finished());
        self.0.push(runtime()?.spawn(task).abort_handle());
        Ok(())
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

/// Waits for a message. Asks meanwhile whether the call shall stop.
pub fn wait<T>(messages: &Receiver<T>, cx: &Cx<'_>) -> Result<T> {
    loop {
        match messages.recv_timeout(CHECK) {
            Ok(message) => return Ok(message),
            Err(RecvTimeoutError::Timeout) => cx.check()?,
            Err(RecvTimeoutError::Disconnected) => return Err(Error::cancellation()),
        }
    }
}

/// Runs futures together, and returns their results in the same order. At most `most` run at once.
pub fn run_all<T, F>(futures: impl IntoIterator<Item = F>, most: usize, cx: &Cx<'_>) -> Result<Vec<T>>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let (sender, messages): (Sender<(usize, T)>, _) = channel();
    let (mut tasks, mut waiting) = (Tasks::default(), futures.into_iter().enumerate());
    let (mut results, mut running) = (Vec::new(), 0);
    loop {
        for (number, future) in waiting.by_ref().take(most.max(1) - running) {
            results.push(None);
            running += 1;
            let sender = sender.clone();
            tasks.start(async move {
                // The receiver is gone if the call has ended.
                let _ = sender.send((number, future.await));
            })?;
        }
        if running == 0 {
            return results.into_iter().collect::<Option<_>>().ok_or_else(Error::cancellation);
        }
        let (number, result) = wait(&messages, cx)?;
        results[number] = Some(result);
        running -= 1;
    }
}

/// Runs a future.
pub fn run<T, F>(future: F, cx: &Cx<'_>) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    run_all([future], 1, cx)?.pop().ok_or_else(Error::cancellation)
}
