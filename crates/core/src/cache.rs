//! Decoded chunks, kept for their neighbours. Bounded by bytes; the ones not used lately go first.

use crate::format::Decoded;
use crate::process;
use arc_swap::ArcSwap;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

/// What a chunk is known by: the file's place in the data set, and the chunk's in the file.
pub type Key = (usize, u64);

struct Entry {
    chunk: Arc<Decoded>,
    used: bool,
}

#[derive(Default)]
struct Chunks {
    entries: HashMap<Key, Entry>,
    queue: VecDeque<Key>,
    bytes: usize,
}

/// The lock and what it guards, for one process.
struct Guarded {
    generation: u64,
    chunks: Mutex<Chunks>,
}

impl Guarded {
    fn new() -> Arc<Self> {
        Arc::new(Guarded { generation: process::generation(), chunks: Mutex::default() })
    }
}

/// A bounded cache of decoded chunks.
pub struct Cache {
    limit: usize,
    guarded: ArcSwap<Guarded>,
}

impl Cache {
    /// Holds at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Cache { limit, guarded: ArcSwap::new(Guarded::new()) }
    }

    /// How many bytes it may hold.
    pub fn limit(&self) -> usize {
        self.limit
    }

    fn with<T>(&self, act: impl FnOnce(MutexGuard<'_, Chunks>) -> T) -> T {
        // A thread of the parent may have held the lock at the fork; nobody would ever open it here.
        if self.guarded.load().generation != process::generation() {
            self.guarded.store(Guarded::new());
        }
        let guarded = self.guarded.load();
        // A panic elsewhere cannot leave the map half changed in a way that matters: at worst, bytes are miscounted.
        act(guarded.chunks.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// The chunk, if it is here.
    pub fn get(&self, key: Key) -> Option<Arc<Decoded>> {
        self.with(|mut chunks| {
            let entry = chunks.entries.get_mut(&key)?;
            entry.used = true;
            Some(entry.chunk.clone())
        })
    }

    /// Keeps a chunk, unless it alone is larger than the cache.
    pub fn put(&self, key: Key, chunk: Arc<Decoded>) {
        let memory = chunk.memory();
        if memory > self.limit {
            return;
        }
        self.with(|mut chunks| {
            let chunks = &mut *chunks;
            if chunks.entries.contains_key(&key) {
                return;
            }
            while chunks.bytes + memory > self.limit {
                let Some(oldest) = chunks.queue.pop_front() else { break };
                match chunks.entries.get_mut(&oldest) {
                    Some(entry) if entry.used => {
                        entry.used = false;
                        chunks.queue.push_back(oldest);
                    }
                    _ => {
                        let gone = chunks.entries.remove(&oldest);
                        chunks.bytes -= gone.map_or(0, |entry| entry.chunk.memory());
                    }
                }
            }
            chunks.bytes += memory;
            chunks.queue.push_back(key);
            chunks.entries.insert(key, Entry { chunk, used: false });
        });
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.with(|mut chunks| *chunks = Chunks::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(bytes: usize) -> Arc<Decoded> {
        Arc::new(Decoded::new(vec![0; bytes], vec![bytes]).unwrap())
    }

    #[test]
    fn it_stays_below_its_limit_and_keeps_what_is_used() {
        let cache = Cache::new(10_000);
        cache.put((0, 0), chunk(1000));
        for i in 1..100 {
            assert!(cache.get((0, 0)).is_some(), "the used chunk is gone at {i}");
            cache.put((0, i), chunk(1000));
            assert!(cache.with(|c| c.bytes) <= 10_000);
        }
        assert!(cache.get((0, 1)).is_none());
        assert!(cache.with(|c| c.entries.len() == c.queue.len()));
    }

    #[test]
    fn a_chunk_larger_than_the_cache_is_not_kept() {
        let cache = Cache::new(100);
        cache.put((0, 0), chunk(1000));
        assert!(cache.get((0, 0)).is_none());
    }

    #[test]
    fn a_lock_held_over_a_fork_does_not_stop_the_child() {
        let cache = Cache::new(10_000);
        let guarded = cache.guarded.load_full();
        let _held = guarded.chunks.lock().unwrap();
        process::forked();
        cache.put((0, 0), chunk(10));
        assert!(cache.get((0, 0)).is_some());
    }
}
