//! Counters of what was read, and how.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Counters of one data set.
#[derive(Debug, Default)]
pub struct Stats {
    /// Requests that were sent, with those that were sent again.
    pub requests: AtomicU64,
    /// Bytes that arrived.
    pub bytes: AtomicU64,
    /// Requests that were sent again.
    pub retries: AtomicU64,
    /// Microseconds that calls waited for servers.
    pub waited: AtomicU64,
    /// Bytes that a read found in memory, because they were fetched ahead.
    pub ahead_hits: AtomicU64,
    /// Bytes that were fetched ahead.
    pub ahead_bytes: AtomicU64,
}

impl Stats {
    /// Adds to a counter.
    pub fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Relaxed);
    }

    /// Adds the time that a call waited.
    pub fn waited(&self, time: Duration) {
        Self::add(&self.waited, time.as_micros() as u64);
    }

    /// All counters, with their names.
    pub fn counts(&self) -> [(&'static str, u64); 6] {
        [
            ("requests", &self.requests),
            ("bytes", &self.bytes),
            ("retries", &self.retries),
            ("waited_us", &self.waited),
            ("readahead_hits", &self.ahead_hits),
            ("readahead_bytes", &self.ahead_bytes),
        ]
        .map(|(name, counter)| (name, counter.load(Relaxed)))
    }
}
