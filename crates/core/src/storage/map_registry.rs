//! The address ranges of all memory maps, for the SIGBUS handler ([`sigbus`](super::sigbus)).
//!
//! A signal handler may run in the middle of anything, so it must neither lock nor allocate. It only loads: slots lie
//! in blocks that are never moved and never freed. Taking and returning a slot is lock-free too, so that a fork at any
//! moment leaves nothing locked in the child.
//!
//! Free slots form a stack (a Treiber stack). Taking a slot pops one or uses the next fresh one, so it costs the same
//! with one map as with a hundred thousand.

use crate::sync::atomic::{
    AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    fence,
};

/// Whether the bytes of a memory map can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapState {
    /// No page of it was ever unreadable.
    Intact,
    /// A page could not be read, and was replaced by zeros. From now on the file is read by positional reads.
    Faulted,
    /// The map was closed.
    Retired,
}

// The marks of a slot. They are independent: a fault is remembered although the map is closed, because closing may be
// undone.
const INTACT: u8 = 0;
const FAULTED: u8 = 1;
const RETIRED: u8 = 2;

/// One registered range. Never freed, so that the signal handler can read it at any time.
#[derive(Default)]
pub struct Slot {
    /// Addresses; 0 while the slot is free.
    begin: AtomicUsize,
    end: AtomicUsize,
    /// The marks: [`FAULTED`], [`RETIRED`].
    state: AtomicU8,
    /// While the slot is free: the index of the slot below it on the stack, plus 1. 0: none.
    below: AtomicU32,
    /// Its own index. Set before the slot is first taken.
    index: AtomicU32,
}

impl Slot {
    /// Whether the bytes that were read from the range so far can be trusted.
    #[inline]
    pub fn state(&self) -> MapState {
        match self.state.load(Acquire) {
            INTACT => MapState::Intact,
            FAULTED => MapState::Faulted,
            _ => MapState::Retired,
        }
    }

    /// The state after a read. If it is intact, all bytes that were read from the range before this call are those of the
    /// file.
    #[inline]
    pub fn state_after_reading(&self) -> MapState {
        // A processor may execute the loads of a copy after a later load. The fence keeps them before the load of the
        // mark. Without it, a copy could contain zeros although no mark was seen.
        fence(Acquire);
        self.state()
    }

    /// The state as a number that is 0 while the range is intact, for callers that check it so often that a call costs
    /// too much.
    pub fn flag(&'static self) -> &'static AtomicU8 {
        &self.state
    }

    /// Marks a fault. A range that was closed stays closed.
    pub fn mark_faulted(&self) {
        self.state.fetch_or(FAULTED, SeqCst);
    }

    /// Marks the range as closed. Returns whether it was open.
    pub fn mark_retired(&self) -> bool {
        self.state.fetch_or(RETIRED, SeqCst) & RETIRED == 0
    }

    /// Undoes [`mark_retired`](Self::mark_retired).
    pub fn mark_open_again(&self) {
        self.state.fetch_and(!RETIRED, SeqCst);
    }

    /// The addresses, if the slot is in use.
    pub fn range(&self) -> Option<(usize, usize)> {
        // The slot may be returned and taken again between the loads. If both loads of `begin` are equal, `end` belongs
        // to it: `take` writes `begin` last, `give_back` clears it first.
        let begin = self.begin.load(Acquire);
        let end = self.end.load(Acquire);
        (begin != 0 && begin == self.begin.load(Acquire)).then_some((begin, end))
    }

    fn holds(&self, address: usize) -> bool {
        self.range().is_some_and(|(begin, end)| begin <= address && address < end)
    }

    /// Whether the end of the range has become unreadable, and no read has found out yet. Costs a system call.
    pub fn is_unreadable(&self, page_size: usize) -> bool {
        self.state() == MapState::Intact
            && self.range().is_some_and(|(_, end)| !is_readable((end - 1) / page_size * page_size))
    }
}

/// Slots of the first block. Each further block has twice as many.
const FIRST: usize = if cfg!(loom) { 2 } else { 64 };
/// Room for 64 million slots.
const BLOCKS: usize = 20;
/// Linux allows 65,530 maps in one process by default, and the memory allocator, thread stacks and libraries need some
/// of them. Files that are opened beyond this number are read by positional reads.
const MOST_MAPS: usize = 32_000;

/// All registered ranges.
pub struct Registry {
    blocks: [AtomicPtr<Slot>; BLOCKS],
    /// How many slots were ever taken. Their indices are below this number.
    published: AtomicUsize,
    /// How many are in use.
    in_use: AtomicUsize,
    most: usize,
    /// The top of the stack of free slots. Low half: its index plus 1, or 0. High half: a count of changes, so that a
    /// thread that was interrupted between reading the top and replacing it notices that the stack changed meanwhile
    /// even if the same slot is on top again (the ABA problem).
    free: AtomicU64,
    /// Slots visited while taking and returning.
    #[cfg(test)]
    visited: AtomicUsize,
}

/// The ranges of this process.
#[cfg(not(loom))]
pub static REGISTRY: Registry = Registry::new(MOST_MAPS);

impl Registry {
    #[cfg(not(loom))]
    const fn new(most: usize) -> Self {
        Registry {
            blocks: [const { AtomicPtr::new(std::ptr::null_mut()) }; BLOCKS],
            published: AtomicUsize::new(0),
            in_use: AtomicUsize::new(0),
            most,
            free: AtomicU64::new(0),
            #[cfg(test)]
            visited: AtomicUsize::new(0),
        }
    }

    /// The atomics of the model checker cannot be made in a constant.
    #[cfg(loom)]
    pub fn new(most: usize) -> Self {
        Registry {
            blocks: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
            published: AtomicUsize::new(0),
            in_use: AtomicUsize::new(0),
            most,
            free: AtomicU64::new(0),
        }
    }

    /// Registers a range. None: there are too many already, or there is no memory for one more.
    pub fn take(&self, begin: usize, len: usize) -> Option<&Slot> {
        if self.in_use.fetch_add(1, Relaxed) >= self.most {
            self.in_use.fetch_sub(1, Relaxed);
            return None;
        }
        let Some(slot) = self.pop().or_else(|| self.publish()) else {
            self.in_use.fetch_sub(1, Relaxed);
            return None;
        };
        slot.state.store(INTACT, Release);
        slot.end.store(begin + len, Release);
        slot.begin.store(begin, Release);
        Some(slot)
    }

    /// Returns a slot. Its addresses are not registered any more.
    pub fn give_back(&self, slot: &Slot) {
        slot.begin.store(0, Release);
        slot.end.store(0, Release);
        self.push(slot);
        self.in_use.fetch_sub(1, Relaxed);
    }

    /// The slot that holds an address. Safe in a signal handler: it only loads.
    pub fn find(&self, address: usize) -> Option<&Slot> {
        self.slots().find(|slot| slot.holds(address))
    }

    /// All slots that were ever taken. Safe in a signal handler: it only loads.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        (0..self.published.load(Acquire)).map_while(|index| self.slot(index))
    }

    fn slot(&self, index: usize) -> Option<&Slot> {
        let (block, place) = place_of(index);
        let first = self.blocks.get(block)?.load(Acquire);
        // SAFETY: a block that exists has `FIRST << block` slots and is never freed. `place` is below that number.
        (!first.is_null()).then(|| unsafe { &*first.add(place) })
    }

    fn pop(&self) -> Option<&Slot> {
        let mut top = self.free.load(Acquire);
        loop {
            let slot = self.slot((top as u32 as usize).checked_sub(1)?)?;
            self.visit();
            // If another thread takes this slot first, `below` may be anything, but then the exchange fails.
            let next = changed(top, slot.below.load(Acquire));
            match self.free.compare_exchange_weak(top, next, AcqRel, Acquire) {
                Ok(_) => return Some(slot),
                Err(now) => top = now,
            }
        }
    }

    fn push(&self, slot: &Slot) {
        let mut top = self.free.load(Acquire);
        loop {
            self.visit();
            slot.below.store(top as u32, Release);
            let next = changed(top, slot.index.load(Relaxed) + 1);
            match self.free.compare_exchange_weak(top, next, AcqRel, Acquire) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// A slot that was never used.
    fn publish(&self) -> Option<&Slot> {
        loop {
            let index = self.published.load(Acquire);
            self.make_block(place_of(index).0)?;
            self.visit();
            if self.published.compare_exchange(index, index + 1, AcqRel, Acquire).is_ok() {
                let slot = self.slot(index)?;
                slot.index.store(index as u32, Relaxed);
                return Some(slot);
            }
        }
    }

    /// Allocates a block if it does not exist yet. This uses no lock around an initialiser, because a fork in the
    /// middle of one would hang the child. Two threads may both allocate the block. One of the two is freed.
    fn make_block(&self, block: usize) -> Option<()> {
        let place = self.blocks.get(block)?;
        if !place.load(Acquire).is_null() {
            return Some(());
        }
        let mut slots = Vec::new();
        slots.try_reserve_exact(FIRST << block).ok()?;
        slots.extend((0..FIRST << block).map(|_| Slot::default()));
        let made: *mut [Slot] = Box::into_raw(slots.into_boxed_slice());
        if place.compare_exchange(std::ptr::null_mut(), made.cast(), AcqRel, Acquire).is_err() {
            // SAFETY: allocated above, and nothing else refers to it.
            drop(unsafe { Box::from_raw(made) });
        }
        Some(())
    }

    fn visit(&self) {
        #[cfg(test)]
        self.visited.fetch_add(1, Relaxed);
    }
}

/// Whether 8 bytes can be read. Safe in a signal handler, and never raises a signal itself.
fn is_readable(address: usize) -> bool {
    /// An invalid request. The kernel reads the new mask before it checks the request, so it reports an unreadable
    /// address, and otherwise changes nothing.
    const NO_SUCH_REQUEST: libc::c_int = -1;
    const MASK_SIZE: usize = 8;
    // SAFETY: the kernel reads from the address, which it checks, and changes nothing.
    unsafe {
        let (request, nowhere) = (libc::SYS_rt_sigprocmask, std::ptr::null_mut::<libc::c_void>());
        let asked =
            libc::syscall(request, NO_SUCH_REQUEST, address as *const libc::c_void, nowhere, MASK_SIZE);
        asked == 0 || *libc::__errno_location() != libc::EFAULT
    }
}

/// The block of a slot, and its index in that block.
fn place_of(index: usize) -> (usize, usize) {
    let block = (index / FIRST + 1).ilog2() as usize;
    (block, index + FIRST - (FIRST << block))
}

/// The next top of the stack of free slots.
fn changed(top: u64, index_plus_1: u32) -> u64 {
    let count = ((top >> 32) as u32).wrapping_add(1);
    u64::from(count) << 32 | u64::from(index_plus_1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks are never freed, so the registry of a test is leaked as well.
    fn registry(most: usize) -> &'static Registry {
        Box::leak(Box::new(Registry::new(most)))
    }

    #[test]
    fn every_index_has_a_place_of_its_own() {
        let mut expected = (0, 0);
        for index in 0..100_000 {
            assert_eq!(place_of(index), expected, "{index}");
            expected.1 += 1;
            if expected.1 == FIRST << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
    }

    #[test]
    fn taking_and_returning_costs_the_same_with_a_hundred_thousand_ranges() {
        const COUNT: usize = 100_000;
        let registry = registry(usize::MAX);
        let mut slots: Vec<_> = (1..=COUNT).map(|i| registry.take(i * 4096, 4096).unwrap()).collect();
        for (i, slot) in slots.iter().enumerate().step_by(997) {
            assert!(std::ptr::eq(registry.find((i + 1) * 4096 + 7).unwrap(), *slot));
        }
        // Return every other slot and take it again.
        for _ in 0..2 {
            slots.iter().step_by(2).for_each(|slot| registry.give_back(slot));
            assert!(registry.find(4096).is_none() && registry.find(2 * 4096).is_some());
            for i in (0..COUNT).step_by(2) {
                slots[i] = registry.take((i + 1) * 4096, 4096).unwrap();
            }
        }
        slots.iter().for_each(|slot| registry.give_back(slot));
        let visited = registry.visited.load(Relaxed);
        assert!(visited <= 5 * COUNT, "{visited} slots were looked at in {} calls", 4 * COUNT);
        assert_eq!(registry.published.load(Relaxed), COUNT, "returned slots are used again");
        assert_eq!(registry.in_use.load(Relaxed), 0);
    }

    #[test]
    fn no_slot_is_held_by_two_threads() {
        let registry = registry(usize::MAX);
        std::thread::scope(|scope| {
            for thread in 1..=8 {
                scope.spawn(move || {
                    for round in 0..20_000 {
                        let own = thread << 32 | round << 12;
                        let slots = [1, 2, 3].map(|i| registry.take(own + i, 1).unwrap());
                        for (slot, i) in slots.iter().zip(1..) {
                            assert_eq!(slot.range(), Some((own + i, own + i + 1)));
                        }
                        slots.iter().for_each(|slot| registry.give_back(slot));
                    }
                });
            }
        });
        assert!(registry.published.load(Relaxed) <= 24);
        assert_eq!(registry.slots().filter(|slot| slot.range().is_some()).count(), 0);
    }

    #[test]
    fn a_slot_is_used_again_and_starts_intact() {
        let registry = registry(usize::MAX);
        let slot = registry.take(4096, 4096).unwrap();
        slot.mark_faulted();
        assert_eq!(slot.state(), MapState::Faulted);
        registry.give_back(slot);
        let again = registry.take(8192, 4096).unwrap();
        assert!(std::ptr::eq(slot, again));
        assert_eq!(again.state(), MapState::Intact);
    }

    #[test]
    fn a_closed_range_stays_closed_whatever_faults() {
        let slot = Slot::default();
        assert!(slot.mark_retired());
        slot.mark_faulted();
        assert_eq!(slot.state(), MapState::Retired);
        assert!(!slot.mark_retired());
        slot.mark_open_again();
        assert_eq!(slot.state(), MapState::Faulted, "the fault was not forgotten");
    }

    #[test]
    fn more_than_the_bound_are_refused_until_one_is_returned() {
        let registry = registry(3);
        let slots: Vec<_> = (1..=3).map(|i| registry.take(i * 4096, 1).unwrap()).collect();
        assert!(registry.take(4 * 4096, 1).is_none());
        registry.give_back(slots[1]);
        assert!(registry.take(4 * 4096, 1).is_some());
        assert!(registry.take(5 * 4096, 1).is_none());
    }
}
