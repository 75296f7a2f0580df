//! A cache of values that are expensive to make: bounded by bytes, with CLOCK eviction.

use crate::process;
use crate::sync::{Arc, ArcSwap, Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// The memory that a value takes.
pub trait Weight {
    /// Bytes in memory, including the heap. Must not change while the value is in the cache.
    fn weight(&self) -> usize;
}

struct Entry<V> {
    value: Arc<V>,
    weight: usize,
    used: bool,
}

struct Kept<K, V> {
    entries: HashMap<K, Entry<V>>,
    queue: VecDeque<K>,
    bytes: usize,
    /// The last value that is larger than the whole cache. Without it, reading in order would create the same value
    /// again for every few records.
    oversized: Option<(K, Arc<V>)>,
}

impl<K, V> Default for Kept<K, V> {
    fn default() -> Self {
        Kept { entries: HashMap::new(), queue: VecDeque::new(), bytes: 0, oversized: None }
    }
}

impl<K: Copy + Eq + Hash, V> Kept<K, V> {
    /// Removes values until they take at most so many bytes: first the oldest of those that were not used lately.
    fn make_room(&mut self, most: usize) {
        while self.bytes > most {
            let Some(oldest) = self.queue.pop_front() else { break };
            match self.entries.get_mut(&oldest) {
                Some(entry) if entry.used => {
                    entry.used = false;
                    self.queue.push_back(oldest);
                }
                _ => {
                    let gone = self.entries.remove(&oldest);
                    self.bytes -= gone.map_or(0, |entry| entry.weight);
                }
            }
        }
    }
}

/// The lock and the values it guards, for one fork generation.
struct Guarded<K, V> {
    generation: u64,
    kept: Mutex<Kept<K, V>>,
}

impl<K, V> Guarded<K, V> {
    fn new() -> Arc<Self> {
        Arc::new(Guarded { generation: process::generation(), kept: Mutex::default() })
    }
}

/// A bounded cache.
pub struct Cache<K, V> {
    limit: usize,
    guarded: ArcSwap<Guarded<K, V>>,
}

impl<K: Copy + Eq + Hash, V: Weight> Cache<K, V> {
    /// Holds at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Cache { limit, guarded: ArcSwap::new(Guarded::new()) }
    }

    /// How many bytes it may hold.
    pub fn limit(&self) -> usize {
        self.limit
    }

    fn with<T>(&self, act: impl FnOnce(MutexGuard<'_, Kept<K, V>>) -> T) -> T {
        // A thread of the parent process may have held the lock at the fork. In the child it would stay locked forever.
        if self.guarded.load().generation != process::generation() {
            self.guarded.store(Guarded::new());
        }
        let guarded = self.guarded.load();
        // A panic of another thread that held the lock does no harm: at worst, bytes are miscounted.
        act(guarded.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// The value, if it is in the cache.
    pub fn get(&self, key: K) -> Option<Arc<V>> {
        self.with(|mut kept| {
            if let Some(entry) = kept.entries.get_mut(&key) {
                entry.used = true;
                return Some(entry.value.clone());
            }
            match &kept.oversized {
                Some((own, value)) if *own == key => Some(value.clone()),
                _ => None,
            }
        })
    }

    /// Stores a value. Of the values that are larger than the whole cache, only the last is kept. A cache of 0 bytes
    /// keeps none.
    pub fn put(&self, key: K, value: Arc<V>) {
        let weight = value.weight();
        if self.limit == 0 {
            return;
        }
        if weight > self.limit {
            // Drop the previous value after the lock is released, because it may be large.
            let _before = self.with(|mut kept| kept.oversized.replace((key, value)));
            return;
        }
        self.with(|mut kept| {
            let kept = &mut *kept;
            if kept.entries.contains_key(&key) {
                return;
            }
            kept.make_room(self.limit - weight);
            kept.bytes += weight;
            kept.queue.push_back(key);
            kept.entries.insert(key, Entry { value, weight, used: false });
        });
    }

    /// Makes room for values that are stored soon, so that none of them takes the place of another one.
    pub fn make_room(&self, bytes: usize) {
        self.with(|mut kept| kept.make_room(self.limit.saturating_sub(bytes)));
    }

    /// Removes all values.
    pub fn clear(&self) {
        self.with(|mut kept| *kept = Kept::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Decoded;

    type Chunks = Cache<(usize, u64), Decoded>;

    fn chunk(bytes: usize) -> Arc<Decoded> {
        Arc::new(Decoded::new(vec![0; bytes], vec![bytes]).unwrap())
    }

    #[test]
    fn values_for_which_there_is_room_do_not_push_each_other_out() {
        let cache = Chunks::new(3500);
        cache.put((0, 0), chunk(1000));
        cache.put((0, 1), chunk(1000));
        assert!(cache.get((0, 0)).is_some() && cache.get((0, 1)).is_some());
        cache.make_room(2 * chunk(1000).weight());
        cache.put((0, 2), chunk(1000));
        cache.put((0, 3), chunk(1000));
        let kept: Vec<u64> = (0..4).filter(|&i| cache.get((0, i)).is_some()).collect();
        assert_eq!(kept, [1, 2, 3]);
        cache.make_room(usize::MAX);
        assert!(cache.get((0, 1)).is_none() && cache.with(|c| c.bytes) == 0);
    }

    #[test]
    fn it_stays_below_its_limit_and_keeps_what_is_used() {
        let cache = Chunks::new(10_000);
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
    fn of_chunks_larger_than_the_cache_the_last_is_kept() {
        let cache = Chunks::new(100);
        cache.put((0, 0), chunk(1000));
        assert!(cache.get((0, 0)).is_some());
        cache.put((0, 1), chunk(1000));
        assert!(cache.get((0, 0)).is_none() && cache.get((0, 1)).is_some());
        cache.clear();
        assert!(cache.get((0, 1)).is_none());
        let none = Chunks::new(0);
        none.put((0, 0), chunk(1000));
        assert!(none.get((0, 0)).is_none());
    }

    #[test]
    fn a_lock_held_over_a_fork_does_not_stop_the_child() {
        process::tests::alone("cache::tests::a_lock_held_over_a_fork_does_not_stop_the_child", || {
            let cache = Chunks::new(10_000);
            let guarded = cache.guarded.load_full();
            let _held = guarded.kept.lock().unwrap();
            process::forked();
            cache.put((0, 0), chunk(10));
            assert!(cache.get((0, 0)).is_some());
        });
    }
}
