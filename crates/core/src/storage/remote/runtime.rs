//! The threads that wait for servers. They start with the first request of a process.
//!
//! A forked child has none of its parent's threads, and must not touch what they held. So it starts its own.

use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::process;
use arc_swap::ArcSwapOption;
use futures_util::FutureExt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;

/// How often a waiting call asks whether it shall stop.
pub const CHECK: Duration = Duration::from_millis(20);
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
pub struct Tasks {
    running: Vec<AbortHandle>,
    /// With so many in the list, those that have ended are removed.
    most: usize,
}

impl Tasks {
    /// Starts a task.
    pub fn start(&mut self, task: impl Future<Output = ()> + Send + 'static) -> Result<()> {
        if self.running.len() >= self.most {
            self.running.retain(|task| !task.is_finished());
            self.most = 2 * self.running.len() + 64;
        }
        self.running.push(runtime()?.spawn(task).abort_handle());
        Ok(())
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.running.iter().for_each(AbortHandle::abort);
    }
}

/// The result of a future. An error if it panics: whoever waits for it must not wait forever.
pub async fn or_panicked<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let panicked =
        |_| Err(Error::io("cannot read", std::io::Error::other("a fault in anyrecord: please report it")));
    AssertUnwindSafe(future).catch_unwind().await.unwrap_or_else(panicked)
}

/// Messages of tasks, for the thread that waits for them.
pub struct Messages<T> {
    receiver: Receiver<T>,
    /// When the caller was last asked whether the call shall stop.
    asked: Instant,
}

/// A channel for messages of tasks.
pub fn messages<T>() -> (Sender<T>, Messages<T>) {
    let (sender, receiver) = channel();
    (sender, Messages { receiver, asked: Instant::now() })
}

impl<T> Messages<T> {
    /// Waits for a message. Asks now and then whether the call shall stop, also if there is always a message.
    pub fn wait(&mut self, cx: &Cx<'_>) -> Result<T> {
        loop {
            if self.asked.elapsed() >= CHECK {
                cx.check()?;
                self.asked = Instant::now();
            }
            match self.receiver.recv_timeout(CHECK) {
                Ok(message) => return Ok(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Error::cancellation()),
            }
        }
    }
}

/// Runs futures together, and returns their results in the same order. At most `most` run at once.
pub fn run_all<T, F>(futures: impl IntoIterator<Item = F>, most: usize, cx: &Cx<'_>) -> Result<Vec<Result<T>>>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let (sender, mut messages) = messages::<(usize, Result<T>)>();
    let (mut tasks, mut waiting) = (Tasks::default(), futures.into_iter().enumerate());
    let (mut results, mut running) = (Vec::new(), 0);
    loop {
        for (number, future) in waiting.by_ref().take(most.max(1) - running) {
            results.push(None);
            running += 1;
            let sender = sender.clone();
            tasks.start(async move {
                // The receiver is gone if the call has ended.
                let _ = sender.send((number, or_panicked(future).await));
            })?;
        }
        if running == 0 {
            return results.into_iter().collect::<Option<_>>().ok_or_else(Error::cancellation);
        }
        let (number, result) = messages.wait(cx)?;
        results[number] = Some(result);
        running -= 1;
    }
}

/// Runs a future.
pub fn run<T, F>(future: F, cx: &Cx<'_>) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    run_all([future], 1, cx)?.pop().unwrap_or_else(|| Err(Error::cancellation()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cx::for_tests;
    use crate::limits::Limits;

    #[test]
    fn a_future_that_panics_is_an_error_and_the_others_go_on() {
        let work = |number: u64| async move {
            tokio::task::yield_now().await;
            assert_ne!(number, 3, "on purpose");
            Ok(number)
        };
        let results = run_all((0..9).map(work), 4, &for_tests(Limits::default())).unwrap();
        for (number, result) in results.into_iter().enumerate() {
            assert_eq!(result.ok(), Some(number as u64).filter(|&number| number != 3));
        }
    }

    #[test]
    fn a_stop_is_heard_while_there_is_always_a_message() {
        let (sender, mut messages) = messages();
        let cx = for_tests(Limits::default());
        let stop = || Err(Error::closed("enough"));
        let cx = Cx { stop: &stop, ..cx };
        loop {
            sender.send(()).unwrap();
            if let Err(error) = messages.wait(&cx) {
                return assert_eq!(error.what(), "enough");
            }
        }
    }
}
