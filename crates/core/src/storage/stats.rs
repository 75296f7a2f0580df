//! Counters of what was read, and how.

use super::ReadOp;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How many counters there are.
pub const COUNTS: usize = 12;

/// Counters of one data set.
#[derive(Debug, Default)]
pub struct Stats {
    /// Requests that were sent to servers, with those that were sent again, and reads of local files.
    pub requests: AtomicU64,
    /// Bytes that they brought.
    pub bytes: AtomicU64,
    /// Requests that were sent again.
    pub retries: AtomicU64,
    /// Microseconds that calls waited for servers.
    pub waited: AtomicU64,
    /// Bytes that a read found in memory, because they were fetched ahead.
    pub ahead_hits: AtomicU64,
    /// Bytes that were fetched ahead.
    pub ahead_bytes: AtomicU64,
    /// Remote files without a table and without a side index. They were searched for records.
    pub searched_files: AtomicU64,
    /// The bytes of these files.
    pub searched_bytes: AtomicU64,
    /// Reads that a cache did not serve.
    pub cache_misses: AtomicU64,
    /// Blocks of a cache that were not sound.
    pub cache_damaged: AtomicU64,
    /// Whether memory maps are those of a cache.
    pub has_cache: AtomicBool,
    /// Reads and bytes of memory maps.
    mapped: [AtomicU64; 2],
    /// The same, as [`Stats::read_by_one`] counts them.
    by_one: [AtomicU64; 2],
}

impl Stats {
    /// Adds to a counter.
    pub fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Relaxed);
    }

    /// Counts reads of a local file, or of bytes in memory.
    pub fn read(&self, reads: u64, bytes: u64) {
        Self::add(&self.requests, reads);
        Self::add(&self.bytes, bytes);
    }

    /// Counts reads of memory maps.
    pub fn read_mapped(&self, reads: u64, bytes: u64) {
        Self::add(&self.mapped[0], reads);
        Self::add(&self.mapped[1], bytes);
    }

    /// Counts a read that a cache served.
    pub fn read_cached(&self, bytes: u64) {
        self.read_mapped(1, bytes);
    }

    /// Counts reads of a local file.
    pub fn read_all(&self, ops: &[ReadOp<'_>]) {
        self.read(ops.len() as u64, ops.iter().map(|op| op.out.len() as u64).sum());
    }

    /// Counts a read of a memory map. The caller makes sure that no other thread calls this at the same time: that saves the price of
    /// an atomic addition, which a small record would feel.
    #[inline]
    pub fn read_by_one(&self, bytes: u64) {
        for (counter, amount) in self.by_one.iter().zip([1, bytes]) {
            counter.store(counter.load(Relaxed).wrapping_add(amount), Relaxed);
        }
    }

    /// Adds the time that a call waited.
    pub fn waited(&self, time: Duration) {
        Self::add(&self.waited, time.as_micros() as u64);
    }

    /// All counters, with their names.
    pub fn counts(&self) -> [(&'static str, u64); COUNTS] {
        let value = |counter: &AtomicU64| counter.load(Relaxed);
        let [reads, bytes] = [0, 1].map(|which| value(&self.mapped[which]) + value(&self.by_one[which]));
        // The reader does not tell the two apart, because that would cost it time at every record.
        let (mapped, cached) = match self.has_cache.load(Relaxed) {
            true => ([0, 0], [reads, bytes]),
            false => ([reads, bytes], [0, 0]),
        };
        [
            ("requests", value(&self.requests) + mapped[0]),
            ("bytes", value(&self.bytes) + mapped[1]),
            ("retries", value(&self.retries)),
            ("waited_us", value(&self.waited)),
            ("readahead_hits", value(&self.ahead_hits)),
            ("readahead_bytes", value(&self.ahead_bytes)),
            ("searched_files", value(&self.searched_files)),
            ("searched_bytes", value(&self.searched_bytes)),
            ("cache_hits", cached[0]),
            ("cache_misses", value(&self.cache_misses)),
            ("cache_bytes", cached[1]),
            ("cache_damaged", value(&self.cache_damaged)),
        ]
    }
}
