//! One ranged request. It is sent again if it fails or stalls, for the bytes that are still missing.

use super::client::{Answer, with_answer};
use super::failure::{Again, Doing, Failed, changed, of_request};
use super::options::Policy;
use super::sending::Sending;
use super::stores::Store;
use super::url::RemoteUrl;
use crate::error::{Error, Result};
use crate::storage::stats::Stats;
use bytes::Bytes;
use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult, ObjectMeta};
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::Instant;

/// A server that has never answered is given up after this time: its name is probably wrong.
const UNREACHABLE: Duration = Duration::from_secs(10);
/// After so many bytes, a request that was broken off was good for something.
const PROGRESS: u64 = 1 << 20;

/// What identifies the content of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its size in bytes.
    pub size: u64,
    tag: Option<String>,
    version: Option<String>,
    /// Seconds. Some servers have nothing else.
    modified: i64,
}

impl Identity {
    /// The identity of an object from the headers of an answer.
    pub fn of(meta: &ObjectMeta) -> Self {
        let modified = meta.last_modified.timestamp();
        Identity { size: meta.size, tag: meta.e_tag.clone(), version: meta.version.clone(), modified }
    }

    /// The ETag, if there is one.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// A text that is another one if the content is.
    pub fn text(&self) -> String {
        match self.tag.as_ref().or(self.version.as_ref()) {
            Some(tag) => format!("{} {tag}", self.size),
            None => format!("{} {}", self.size, self.modified),
        }
    }

    /// The condition that a request makes. A weak tag cannot be one.
    fn condition(&self) -> Option<String> {
        self.tag.clone().filter(|tag| !tag.starts_with("W/"))
    }

    /// What distinguishes this version from all others, also later. None if another version could look the same. `now`
    /// is the time in seconds.
    pub fn lasting(&self, now: i64) -> Option<String> {
        /// An object that changed so recently may change once more within the same second. Clocks differ, too.
        const SETTLED: i64 = 60;
        match (&self.tag, &self.version) {
            (Some(tag), version) if !tag.starts_with("W/") => Some(format!("{tag} {version:?}")),
            (_, Some(version)) => Some(format!("version {version}")),
            (tag, None) => {
                let is_known = self.modified > 0 && self.modified <= now - SETTLED;
                is_known.then(|| format!("{tag:?} modified {}", self.modified))
            }
        }
    }

    /// An identity of those parts.
    #[cfg(test)]
    pub fn for_tests(size: u64, tag: Option<&str>, modified: i64) -> Self {
        Identity { size, tag: tag.map(str::to_owned), version: None, modified }
    }

    /// Whether an answer is about the same content.
    pub fn is_of(&self, other: &Self) -> bool {
        let same_version = match (&self.version, &other.version) {
            (Some(before), Some(now)) => before == now,
            _ => true,
        };
        let same_tag = match (&self.tag, &other.tag) {
            (Some(before), Some(now)) => before == now,
            _ => self.modified == other.modified,
        };
        self.size == other.size && same_tag && same_version
    }
}

/// An object of a store.
#[derive(Clone)]
pub struct Object {
    /// The store.
    pub store: &'static Store,
    /// The name in the store.
    pub path: Path,
    /// What the URL adds to each request.
    query: Option<Arc<str>>,
    /// Counters of the data set.
    pub stats: Arc<Stats>,
}

/// The result of a request that stores something.
pub struct Stored<T> {
    /// The result of the last try.
    pub result: Result<T>,
    /// Whether a try that failed may have succeeded on the server: its answer was lost.
    pub is_doubtful: bool,
    /// The tag of an object that was stored with other bytes than were sent.
    pub other_bytes: Option<String>,
}

/// The retries of one request.
struct Tries<'a> {
    policy: &'a Policy,
    /// What the tries took so far, and the waits between them. Waiting for other requests to end does not count.
    spent: Duration,
    done: u32,
}

impl Tries<'_> {
    /// Waits before the next try. The error, if there shall be none.
    async fn next(&mut self, failed: Failed, object: &Object, wait: Option<Duration>) -> Result<()> {
        let spent = self.spent;
        let is_known = object.store.has_answered.load(Relaxed);
        let budget = match failed.again {
            Again::Never => return Err(failed.error),
            Again::Unreachable if !is_known => self.policy.retry_timeout.min(UNREACHABLE),
            _ => self.policy.retry_timeout,
        };
        let most =
            self.policy.init_backoff.saturating_mul(1 << self.done.min(20)).min(self.policy.max_backoff);
        // A random part of it, so that many clients do not come back at the same moment.
        let wait = wait.unwrap_or_default().max(most.mul_f64(0.5 + 0.5 * fraction()));
        if self.done >= self.policy.max_retries || spent.saturating_add(wait) > budget {
            let tried = self.done + 1;
            let times = if tried == 1 { "once".to_owned() } else { format!("{tried} times") };
            return Err(failed.error.noting(format_args!("tried {times} in {:.1} s", spent.as_secs_f64())));
        }
        self.done += 1;
        Stats::add(&object.stats.retries, 1);
        self.spent += wait;
        tokio::time::sleep(wait).await;
        Ok(())
    }
}

/// A number from 0 to 1, other in each process and call.
fn fraction() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0) as f64 / u64::MAX as f64
}

impl Object {
    /// The object of a URL, in its store.
    pub fn new(url: &RemoteUrl, store: &'static Store, stats: &Arc<Stats>) -> Self {
        Object { store, path: url.path.clone(), query: url.query.clone(), stats: stats.clone() }
    }

    fn tries(&self) -> Tries<'_> {
        Tries { policy: &self.store.policy, spent: Duration::ZERO, done: 0 }
    }

    /// Sends one request. Retries are up to the caller.
    async fn try_once<T>(
        &self,
        request: impl Future<Output = object_store::Result<T>>,
        timeout: Duration,
    ) -> std::result::Result<T, (Failed, Option<Duration>)> {
        Stats::add(&self.stats.requests, 1);
        let (result, answer) =
            with_answer(self.query.clone(), None, tokio::time::timeout(timeout, request)).await;
        self.judged(result.ok(), &answer, Doing::Reading)
    }

    /// What the result of a request means. None: nothing was heard of it.
    fn judged<T>(
        &self,
        result: Option<object_store::Result<T>>,
        answer: &Answer,
        doing: Doing,
    ) -> std::result::Result<T, (Failed, Option<Duration>)> {
        if answer.status.is_some() {
            self.store.has_answered.store(true, Relaxed);
        }
        if let Some(origin) = answer.origin.as_ref().filter(|_| self.store.origin.load().is_none()) {
            self.store.origin.store(Some(origin.clone()));
        }
        match result {
            None => Err((stalled(doing), None)),
            Some(Ok(value)) => {
                self.store.gate.succeeded();
                Ok(value)
            }
            Some(Err(error)) => {
                let failed = of_request(&error, answer, self.store.kind, doing);
                if matches!(error, object_store::Error::NotSupported { .. }) && answer.status.is_none() {
                    // The store refused it without asking the server.
                    self.stats.requests.fetch_sub(1, Relaxed);
                }
                if failed.again == Again::Overloaded {
                    self.store.gate.overloaded();
                }
                Err((failed, answer.retry_after))
            }
        }
    }

    /// Sends a request until it succeeds, or until its time is over.
    pub async fn request<T, F>(&self, request: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let mut tries = self.tries();
        loop {
            let permit = self.store.gate.enter().await;
            let begun = Instant::now();
            let tried = self.try_once(request(), self.store.policy.read_timeout).await;
            drop(permit);
            tries.spent += begun.elapsed();
            match tried {
                Ok(value) => return Ok(value),
                Err((failed, wait)) => tries.next(failed, self, wait).await?,
            }
        }
    }

    /// Sends a request that stores something, until it succeeds, or until its time is over. A request whose bytes make
    /// no progress for `patience`, and one that gets no answer in that time after its last byte, is sent again.
    pub async fn send<T, F>(
        &self,
        sending: &Arc<Sending>,
        patience: Duration,
        request: impl Fn() -> F,
    ) -> Stored<T>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let (mut tries, mut is_doubtful) = (self.tries(), false);
        loop {
            let permit = self.store.gate.enter().await;
            let begun = Instant::now();
            Stats::add(&self.stats.requests, 1);
            let watched = sending.progress(patience, request());
            let (result, answer) = with_answer(self.query.clone(), Some(sending.clone()), watched).await;
            drop(permit);
            tries.spent += begun.elapsed();
            let (failed, wait) = match self.judged(result, &answer, Doing::Writing) {
                Ok(value) => return Stored { result: Ok(value), is_doubtful, other_bytes: None },
                Err(failed) => failed,
            };
            if sending.has_stored_other_bytes(&answer) {
                let other_bytes = Some(answer.tag.unwrap_or_default());
                return Stored { result: Err(failed.error), is_doubtful: false, other_bytes };
            }
            let was_refused = answer.status.is_some_and(|status| (400..500).contains(&status));
            is_doubtful |= !was_refused && failed.again != Again::Unreachable;
            if let Err(error) = tries.next(failed, self, wait).await {
                return Stored { result: Err(error), is_doubtful, other_bytes: None };
            }
        }
    }

    /// Reads a range. Calls `take` with its pieces in order.
    ///
    /// `identity`: the content that is expected. Another one is an error, so pieces of two versions are never mixed.
    pub async fn read(
        &self,
        range: Range<u64>,
        identity: &Identity,
        mut take: impl FnMut(Bytes) -> Result<()>,
    ) -> Result<()> {
        let (mut at, mut tries, timeout) = (range.start, self.tries(), self.store.policy.read_timeout);
        while at < range.end {
            let options = GetOptions {
                range: Some(GetRange::Bounded(at..range.end)),
                if_match: identity.condition(),
                ..GetOptions::default()
            };
            let (before, permit) = (at, self.store.gate.enter().await);
            let begun = Instant::now();
            let got = match self.try_once(self.store.objects.get_opts(&self.path, options), timeout).await {
                Ok(got) if !identity.is_of(&Identity::of(&got.meta)) => return Err(changed()),
                Ok(got) => {
                    self.body(got, &mut at, range.end, &mut take).await.map_err(|failed| (failed, None))
                }
                Err(failed) => Err(failed),
            };
            drop(permit);
            tries.spent += begun.elapsed();
            if let Err((failed, wait)) = got {
                if at - before >= PROGRESS {
                    // The next request has all its tries and all its time.
                    tries = self.tries();
                }
                tries.next(failed, self, wait).await?;
            }
        }
        Ok(())
    }

    /// Takes the body of an answer. `at` moves to where it ends.
    async fn body(
        &self,
        got: GetResult,
        at: &mut u64,
        end: u64,
        take: &mut impl FnMut(Bytes) -> Result<()>,
    ) -> std::result::Result<(), Failed> {
        let mut stream = got.into_stream();
        loop {
            let piece = match tokio::time::timeout(self.store.policy.read_timeout, stream.next()).await {
                Err(_) => return Err(stalled(Doing::Reading)),
                Ok(None) if *at == end => return Ok(()),
                Ok(None) => return Err(Failed::for_now(ErrorKind::UnexpectedEof, "the answer is too short")),
                Ok(Some(Err(error))) => {
                    let failed = of_request(&error, &Default::default(), self.store.kind, Doing::Reading);
                    // Whatever went wrong, the rest can be asked for again.
                    return Err(Failed { again: Again::Later, ..failed });
                }
                Ok(Some(Ok(piece))) => piece,
            };
            if piece.len() as u64 > end - *at {
                return Err(Failed::for_now(ErrorKind::InvalidData, "the answer is too long"));
            }
            *at += piece.len() as u64;
            Stats::add(&self.stats.bytes, piece.len() as u64);
            take(piece).map_err(Failed::finally)?;
        }
    }

    /// The identity of the object, and a part of it if the store can send it with the same request.
    pub async fn open(&self, part: &GetRange) -> Result<(Identity, u64, Vec<u8>)> {
        let (mut tries, timeout) = (self.tries(), self.store.policy.read_timeout);
        loop {
            let permit = self.store.gate.enter().await;
            let begun = Instant::now();
            let options = GetOptions { range: Some(part.clone()), ..GetOptions::default() };
            let failed = match self.try_once(self.store.objects.get_opts(&self.path, options), timeout).await
            {
                Ok(got) => {
                    let (identity, range) = (Identity::of(&got.meta), got.range.clone());
                    let (mut at, mut bytes) = (range.start, Vec::new());
                    let mut take = |piece: Bytes| {
                        bytes.extend_from_slice(&piece);
                        Ok(())
                    };
                    match self.body(got, &mut at, range.end, &mut take).await {
                        Ok(()) => return Ok((identity, range.start, bytes)),
                        Err(failed) => (failed, None),
                    }
                }
                Err((failed, _)) if failed.is_range => {
                    drop(permit);
                    return Ok((self.head().await?, 0, Vec::new()));
                }
                Err(failed) => failed,
            };
            drop(permit);
            tries.spent += begun.elapsed();
            tries.next(failed.0, self, failed.1).await?;
        }
    }

    /// The identity of the object.
    pub async fn head(&self) -> Result<Identity> {
        let options = || GetOptions { head: true, ..GetOptions::default() };
        let got = self.request(|| self.store.objects.get_opts(&self.path, options())).await?;
        Ok(Identity::of(&got.meta))
    }
}

fn stalled(doing: Doing) -> Failed {
    let what = match doing {
        Doing::Reading => "the server sends nothing",
        Doing::Writing => "the server takes nothing, or does not answer",
    };
    let error = Error::io(doing.failed(), std::io::Error::new(ErrorKind::TimedOut, what));
    Failed::later(
        error.hint("it is too slow, or gone: see the storage options read_timeout and retry_timeout"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::remote::options::StorageOptions;
    use crate::storage::remote::stores;
    use object_store::client::{HttpError, HttpErrorKind};
    use std::sync::atomic::AtomicUsize;

    /// Time stands still here, unless all tasks wait.
    #[test]
    fn waiting_for_other_requests_costs_no_time_of_the_budget() {
        let options = [("max_requests", "1"), ("retry_timeout", "60s")];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let options = StorageOptions::new(options).unwrap();
        let url = RemoteUrl::parse("memory://budget").unwrap();
        let object = Object::new(&url, stores::of(&url, &options).unwrap(), &Arc::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let tried = AtomicUsize::new(0);
        let fails_once = || async {
            if tried.fetch_add(1, Relaxed) > 0 {
                return Ok(());
            }
            let broken = HttpError::new(HttpErrorKind::Request, std::io::Error::other("broken"));
            Err(object_store::Error::Generic { store: "test", source: Box::new(broken) })
        };
        let result = runtime.unwrap().block_on(async {
            let permit = object.store.gate.enter().await;
            let other = async {
                tokio::time::sleep(Duration::from_secs(3600)).await;
                drop(permit);
            };
            tokio::join!(object.request(fails_once), other).0
        });
        assert!(result.is_ok() && tried.into_inner() == 2);
    }
}
