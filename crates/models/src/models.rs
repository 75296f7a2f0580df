//! The models. Each is run in every order, and panics if a rule is broken.

use crate::cache::{Cache, Weight};
use crate::process;
use crate::storage::handles::{Handle, Handles};
use crate::storage::identity::OpenFile;
use crate::storage::map_exports::Exports;
use crate::storage::map_registry::{MapState, Registry, Slot};
use crate::sync::atomic::{
    AtomicU8,
    Ordering::{Relaxed, Release},
};
use crate::sync::{Condvar, Mutex};
use crate::waiters::Waiters;
use loom::thread;
use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

/// Each model and its name.
pub const ALL: [(&str, fn()); 11] = [
    ("registry: no slot is held twice", no_slot_is_held_twice),
    ("registry: a slot that comes back on top is noticed", a_slot_that_comes_back_is_noticed),
    ("registry: the handler sees a whole range or none", the_handler_sees_a_whole_range_or_none),
    ("marks: zeros are never taken for data", zeros_are_never_taken_for_data),
    ("marks: a view keeps its map", a_view_keeps_its_map),
    ("marks: a fault while a map is being closed is not forgotten", a_fault_during_a_close_is_not_forgotten),
    ("cache: it stays within its limit and returns what was put", the_cache_is_exact),
    ("cache: a lock that was held at a fork stops nobody", a_fork_stops_nobody),
    ("handles: the limit on descriptors holds, and none is lost", the_limit_on_descriptors_holds),
    ("handles: a descriptor that is given away is not used", a_descriptor_that_is_given_away_is_not_used),
    ("waiting: no thread sleeps while the lock is free", no_thread_sleeps_while_the_lock_is_free),
];

fn registry(most: usize) -> &'static Registry {
    // Blocks of slots are never freed, so a registry never is.
    Box::leak(Box::new(Registry::new(most)))
}

fn no_slot_is_held_twice() {
    let registry = registry(3);
    let take = move |own: usize, rounds: usize| {
        for round in 1..=rounds {
            let slot = registry.take(own + round, 1).expect("there is room for three");
            assert_eq!(slot.range(), Some((own + round, own + round + 1)));
            assert_eq!(slot.state(), MapState::Intact);
            slot.mark_faulted();
            registry.give_back(slot);
        }
    };
    let other = thread::spawn(move || take(0x1000, 1));
    take(0x2000, 2);
    other.join().unwrap();
    assert!(registry.slots().all(|slot| slot.range().is_none()));
    assert!(registry.slots().count() <= 2);
}

fn a_slot_that_comes_back_is_noticed() {
    let registry = registry(8);
    let (a, b) = (registry.take(1, 1).unwrap(), registry.take(2, 1).unwrap());
    registry.give_back(b);
    registry.give_back(a);
    let other = thread::spawn(move || registry.take(0x1000, 1).unwrap());
    // While the other thread is between its look at the top and its exchange, the same slot comes back on top.
    let (first, second) = (registry.take(3, 1).unwrap(), registry.take(4, 1).unwrap());
    registry.give_back(first);
    let (taken, next) = (other.join().unwrap(), registry.take(5, 1).unwrap());
    assert_eq!(second.range(), Some((4, 5)), "a slot that is in use was on the stack");
    assert_eq!((taken.range(), next.range()), (Some((0x1000, 0x1001)), Some((5, 6))));
}

fn the_handler_sees_a_whole_range_or_none() {
    let registry = registry(2);
    let first = registry.take(0x1000, 0x1000).unwrap();
    let handler = thread::spawn(move || {
        let found = first.range();
        assert!(matches!(found, None | Some((0x1000, 0x2000) | (0x5000, 0x5100))), "{found:x?}");
    });
    registry.give_back(first);
    let second = registry.take(0x5000, 0x100).unwrap();
    assert!(std::ptr::eq(first, second));
    handler.join().unwrap();
    assert!(registry.find(0x5010).is_some() && registry.find(0x1010).is_none());
}

/// A page of a map: `DATA`, or 0 after it was replaced by a page of zeros.
struct Page(AtomicU8);

const DATA: u8 = 7;

impl Page {
    fn new() -> Arc<Self> {
        Arc::new(Page(AtomicU8::new(DATA)))
    }

    /// What a copy does: it may be executed late.
    fn copy(&self) -> u8 {
        self.0.load(Relaxed)
    }

    /// What `mmap` does: a system call, after everything before it.
    fn replace_by_zeros(&self) {
        self.0.store(0, Release);
    }
}

fn slot() -> &'static Slot {
    registry(1).take(0x1000, 0x1000).unwrap()
}

fn zeros_are_never_taken_for_data() {
    let (slot, page) = (slot(), Page::new());
    let handler = thread::spawn({
        let page = page.clone();
        move || {
            slot.mark_faulted();
            page.replace_by_zeros();
        }
    });
    let copy = page.copy();
    if slot.state_after_reading() == MapState::Intact {
        assert_eq!(copy, DATA);
    }
    handler.join().unwrap();
    assert_eq!(slot.state_after_reading(), MapState::Faulted);
}

fn a_view_keeps_its_map() {
    let (slot, page, exports) = (slot(), Page::new(), Arc::new(Exports::default()));
    let closer = thread::spawn({
        let (page, exports) = (page.clone(), exports.clone());
        move || {
            if exports.retire(slot) {
                page.replace_by_zeros();
            }
        }
    });
    if exports.begin(slot, || {}) {
        assert_eq!(page.copy(), DATA, "the map was taken away under a view");
        exports.end();
    }
    closer.join().unwrap();
}

fn a_fault_during_a_close_is_not_forgotten() {
    let (slot, page, exports) = (slot(), Page::new(), Arc::new(Exports::default()));
    assert!(exports.begin(slot, || {}), "a view that keeps the map in place");
    let closer = thread::spawn({
        let exports = exports.clone();
        move || assert!(!exports.retire(slot))
    });
    // A reader faults, and its signal handler marks the map.
    slot.mark_faulted();
    page.replace_by_zeros();
    let copy = page.copy();
    if slot.state_after_reading() == MapState::Intact {
        assert_eq!(copy, DATA);
    }
    closer.join().unwrap();
    assert_eq!(slot.state(), MapState::Faulted);
}

struct Value(u64);

impl Weight for Value {
    fn weight(&self) -> usize {
        10
    }
}

fn the_cache_is_exact() {
    // Room for one value.
    let cache = Arc::new(Cache::<u64, Value>::new(15));
    let act = |cache: &Cache<u64, Value>, own: u64| {
        cache.put(own, Arc::new(Value(own)));
        for key in [1, 2] {
            if let Some(value) = cache.get(key) {
                assert_eq!(value.0, key);
            }
        }
    };
    let other = thread::spawn({
        let cache = cache.clone();
        move || act(&cache, 1)
    });
    act(&cache, 2);
    other.join().unwrap();
    let kept = [1, 2].iter().filter(|key| cache.get(**key).is_some()).count();
    assert_eq!(kept, 1);
}

fn a_fork_stops_nobody() {
    let cache = Arc::new(Cache::<Key, Value>::new(15));
    let held = Arc::new(Held::default());
    // A thread of the parent. It is in the middle of `put` at the fork, and does not exist in the child.
    let parent = thread::spawn({
        let (cache, held) = (cache.clone(), held.clone());
        move || {
            UNDER_THE_LOCK.with(|under| *under.borrow_mut() = Some(held));
            cache.put(Key(1), Arc::new(Value(1)));
        }
    });
    held.wait_for(INSIDE);
    process::forked();
    // The threads of the child.
    let read = |cache: &Cache<Key, Value>| {
        cache.put(Key(2), Arc::new(Value(2)));
        assert!(cache.get(Key(1)).is_none());
        assert!(cache.get(Key(2)).is_none_or(|value| value.0 == 2));
    };
    let other = thread::spawn({
        let cache = cache.clone();
        move || read(&cache)
    });
    read(&cache);
    other.join().unwrap();
    cache.put(Key(2), Arc::new(Value(2)));
    assert!(cache.get(Key(2)).is_some());
    held.reach(OVER);
    parent.join().unwrap();
}

/// Where the thread is that holds the lock of the cache at the fork.
#[derive(Default)]
struct Held {
    reached: Mutex<u8>,
    changed: Condvar,
}

const INSIDE: u8 = 1;
const OVER: u8 = 2;

impl Held {
    fn reach(&self, place: u8) {
        *self.reached.lock().unwrap() = place;
        self.changed.notify_all();
    }

    fn wait_for(&self, place: u8) {
        let mut reached = self.reached.lock().unwrap();
        while *reached < place {
            reached = self.changed.wait(reached).unwrap();
        }
    }
}

loom::thread_local! {
    static UNDER_THE_LOCK: RefCell<Option<Arc<Held>>> = RefCell::new(None);
}

/// A key whose hash, which the cache computes under its lock, takes until everything is over.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key(u64);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if let Some(held) = UNDER_THE_LOCK.with(|under| under.borrow_mut().take()) {
            held.reach(INSIDE);
            held.wait_for(OVER);
        }
        self.0.hash(state);
    }
}

fn the_limit_on_descriptors_holds() {
    let open = Arc::new(AtomicUsize::new(0));
    let handles = Handles::new(2);
    let files: [Arc<Handle>; 2] = Default::default();
    handles.admit(&Arc::new(Handle::default()), OpenFile::new(&open));
    let other = thread::spawn({
        let (handles, file, open) = (handles.clone(), files[0].clone(), open.clone());
        move || {
            handles.admit(&file, OpenFile::new(&open));
            let used = file.get().is_some();
            drop(file);
            used
        }
    });
    // A temporary file needs a descriptor too.
    handles.occupy();
    handles.admit(&files[1], OpenFile::new(&open));
    other.join().unwrap();
    let now = open.load(std::sync::atomic::Ordering::Relaxed);
    assert!(now <= handles.limit(), "{now} descriptors are open, {} are allowed", handles.limit());
    handles.vacate();
    drop((handles, files));
    assert_eq!(open.load(std::sync::atomic::Ordering::Relaxed), 0, "a descriptor is never closed");
}

fn a_descriptor_that_is_given_away_is_not_used() {
    let open = Arc::new(AtomicUsize::new(0));
    let handles = Handles::new(1);
    let files: [Arc<Handle>; 2] = Default::default();
    let admit = |handles: &Arc<Handles>, file: &Arc<Handle>, open: &Arc<AtomicUsize>| {
        handles.admit(file, OpenFile::new(open));
        // What `get` returns stays open while it is used, whoever takes the descriptor away.
        if let Some(file) = &*file.get() {
            assert!(Arc::strong_count(file) >= 1);
            assert!(open.load(std::sync::atomic::Ordering::Relaxed) >= 1);
        }
    };
    let other = thread::spawn({
        let (handles, file, open) = (handles.clone(), files[0].clone(), open.clone());
        move || admit(&handles, &file, &open)
    });
    admit(&handles, &files[1], &open);
    other.join().unwrap();
    assert!(open.load(std::sync::atomic::Ordering::Relaxed) <= 1);
    assert!(files.iter().filter(|file| file.get().is_some()).count() <= 1);
}

fn no_thread_sleeps_while_the_lock_is_free() {
    struct Lock {
        state: Mutex<()>,
        /// Changed under the lock, where the other thread may run.
        done: AtomicU8,
        waiters: Waiters,
    }
    // The steps of `Owned` in the binding. loom's condition variables know no timeout: a lost wake-up is a deadlock.
    let lock = Arc::new(Lock { state: Mutex::new(()), done: AtomicU8::new(0), waiters: Waiters::default() });
    let act = |lock: &Lock| loop {
        if let Ok(state) = lock.state.try_lock() {
            let done = lock.done.load(Relaxed);
            lock.done.store(done + 1, Relaxed);
            drop(state);
            if lock.waiters.are_there() {
                lock.waiters.wake_one();
            }
            return;
        }
        lock.waiters.wait(Duration::ZERO, || lock.state.try_lock().is_ok());
    };
    let other = thread::spawn({
        let lock = lock.clone();
        move || act(&lock)
    });
    act(&lock);
    other.join().unwrap();
    assert_eq!(lock.done.load(Relaxed), 2);
}
