//! Blocks of uninitialised memory for whole batches. Freed ones are kept for the next batches.
//!
//! The system hands out large blocks as new pages and clears each page when it is first used. For a block that is used
//! once, this costs more than reading records into it. So some freed blocks are kept: at most [`KEPT_BYTES`] together,
//! in slots by size. A slot is one atomic pointer. There is no lock, so threads do not wait for each other, and no
//! thread can hold one while the process forks.

use crate::bytes;
use crate::error::Result;
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// The alignment that DLPack demands. Arrow recommends a smaller one.
const ALIGNMENT: usize = 256;
/// The most bytes of freed blocks that are kept.
pub const KEPT_BYTES: usize = 64 << 20;
/// Blocks with more bytes are not kept. Some batches of pictures have this size.
pub const LARGEST_KEPT: usize = 1 << LARGEST_POWER;
const LARGEST_POWER: usize = 25;
/// Blocks with at most half of these bytes are not kept: the allocator reuses them itself.
const SMALLEST_POWER: usize = 16;
/// Blocks of different sizes between two powers of two.
const STEPS: usize = 4;
const SIZES: usize = (LARGEST_POWER - SMALLEST_POWER + 1) * STEPS;
/// Blocks of one size that are kept at most. As many threads may each need one.
const SLOTS: usize = 32;

static SPARES: Spares = Spares::new();

/// A block of memory. Its bytes are uninitialised until they are written.
pub struct Block {
    start: NonNull<u8>,
    capacity: usize,
}

// SAFETY: a block owns its memory. A shared reference gives access to the address only.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// A block with room for at least `size` bytes. `what` is its name in the error if there is not enough memory.
    pub fn new(what: &'static str, size: usize) -> Result<Self> {
        let capacity = match Size::of(size) {
            Some(size) => match SPARES.take(size) {
                Some(start) => return Ok(Block { start, capacity: size.bytes }),
                None => size.bytes,
            },
            None => size,
        };
        if capacity == 0 {
            return Ok(Block { start: dangling(), capacity });
        }
        let no_memory = || bytes::no_memory(what, size as u64);
        let layout = Layout::from_size_align(capacity, ALIGNMENT).map_err(|_| no_memory())?;
        // SAFETY: the layout has a size above 0.
        let start = NonNull::new(unsafe { std::alloc::alloc(layout) }).ok_or_else(no_memory)?;
        Ok(Block { start, capacity })
    }

    /// The address of the first byte.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// How many bytes it has room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The bytes. Each of them has to be written before it is read.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the block owns `capacity` bytes at `start`. Any bit pattern is a valid byte, and the callers write
        // each byte before they read it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.capacity) }
    }

    /// Moves the first `length` bytes to a block with room for at least `size` bytes.
    pub fn grow(&mut self, what: &'static str, length: usize, size: usize) -> Result<()> {
        let mut larger = Block::new(what, size)?;
        larger.bytes_mut()[..length].copy_from_slice(&self.bytes_mut()[..length]);
        *self = larger;
        Ok(())
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        match Size::of(self.capacity) {
            Some(size) => SPARES.give(size, self.start),
            None if self.capacity > 0 => free(self.start, self.capacity),
            None => {}
        }
    }
}

/// Call it in a forked child: another thread of the parent may just have taken or given a block.
pub fn forked() {
    SPARES.count_anew();
}

fn free(start: NonNull<u8>, capacity: usize) {
    if let Ok(layout) = Layout::from_size_align(capacity, ALIGNMENT) {
        // SAFETY: `Block::new` has allocated it with this layout. The caller does not use it afterwards.
        unsafe { std::alloc::dealloc(start.as_ptr(), layout) };
    }
}

fn dangling() -> NonNull<u8> {
    #[repr(align(256))]
    struct Aligned;
    NonNull::<Aligned>::dangling().cast()
}

/// A size of blocks that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    /// Its number among all sizes.
    index: usize,
    bytes: usize,
}

impl Size {
    /// The smallest size that has room for `bytes`. None: such blocks are not kept.
    fn of(bytes: usize) -> Option<Self> {
        if bytes <= 1 << (SMALLEST_POWER - 1) || bytes > LARGEST_KEPT {
            return None;
        }
        let power = bytes.next_power_of_two();
        // Between half the power of two and the power of two there are `STEPS` steps.
        let step = power / (2 * STEPS);
        let steps = bytes.div_ceil(step);
        let index = (power.trailing_zeros() as usize - SMALLEST_POWER) * STEPS + steps - STEPS - 1;
        Some(Size { index, bytes: steps * step })
    }

    fn all() -> impl Iterator<Item = Self> {
        (0..SIZES).map(|index| {
            let step = (1 << (SMALLEST_POWER + index / STEPS)) / (2 * STEPS);
            Size { index, bytes: (index % STEPS + STEPS + 1) * step }
        })
    }
}

/// Freed blocks.
struct Spares {
    /// By size. Null: the slot is empty.
    slots: [[AtomicPtr<u8>; SLOTS]; SIZES],
    /// Bytes of all blocks in the slots. A block is counted before it is put there, so the limit holds at any time.
    bytes: AtomicUsize,
}

impl Spares {
    const fn new() -> Self {
        let slots = [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; SLOTS] }; SIZES];
        Spares { slots, bytes: AtomicUsize::new(0) }
    }

    fn take(&self, size: Size) -> Option<NonNull<u8>> {
        let full = self.slots[size.index].iter().filter(|slot| !slot.load(Relaxed).is_null());
        // Another thread may take the block between the two accesses.
        let start = full.filter_map(|slot| NonNull::new(slot.swap(std::ptr::null_mut(), Acquire))).next()?;
        self.bytes.fetch_sub(size.bytes, Relaxed);
        Some(start)
    }

    fn give(&self, size: Size, start: NonNull<u8>) {
        while self.bytes.fetch_add(size.bytes, Relaxed) + size.bytes > KEPT_BYTES {
            self.bytes.fetch_sub(size.bytes, Relaxed);
            // The sizes that were needed last are kept.
            if !self.free_one_of_another_size(size) {
                return free(start, size.bytes);
            }
        }
        let is_put = self.slots[size.index].iter().any(|slot| {
            slot.load(Relaxed).is_null()
                && slot.compare_exchange(std::ptr::null_mut(), start.as_ptr(), Release, Relaxed).is_ok()
        });
        if !is_put {
            self.bytes.fetch_sub(size.bytes, Relaxed);
            free(start, size.bytes);
        }
    }

    #[cold]
    fn free_one_of_another_size(&self, size: Size) -> bool {
        let others = Size::all().filter(|other| *other != size);
        let found = others.filter_map(|other| Some((self.take(other)?, other.bytes))).next();
        found.map(|(start, bytes)| free(start, bytes)).is_some()
    }

    fn count_anew(&self) {
        let count = |size: Size| {
            self.slots[size.index].iter().filter(|slot| !slot.load(Relaxed).is_null()).count() * size.bytes
        };
        self.bytes.store(Size::all().map(count).sum(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(bytes: usize) -> Size {
        Size::of(bytes).unwrap()
    }

    /// As a block of that size, which is freed when it is dropped.
    fn allocated(bytes: usize) -> NonNull<u8> {
        let layout = Layout::from_size_align(bytes, ALIGNMENT).unwrap();
        // SAFETY: the layout has a size above 0.
        NonNull::new(unsafe { std::alloc::alloc(layout) }).unwrap()
    }

    fn kept(spares: &Spares) -> usize {
        let before = spares.bytes.load(Relaxed);
        spares.count_anew();
        assert_eq!(before, spares.bytes.load(Relaxed), "the count is right");
        before
    }

    fn free_all(spares: &Spares) {
        for size in Size::all() {
            while let Some(start) = spares.take(size) {
                free(start, size.bytes);
            }
        }
        assert_eq!(kept(spares), 0);
    }

    #[test]
    fn every_size_has_room_for_what_it_is_chosen_for_and_wastes_at_most_a_quarter() {
        let all: Vec<_> = Size::all().collect();
        assert!(all.is_sorted_by_key(|size| size.bytes));
        assert_eq!((all.len(), all[SIZES - 1].bytes), (SIZES, LARGEST_KEPT));
        for of in &all {
            for bytes in [of.bytes - 1, of.bytes, of.bytes + 1] {
                let Some(chosen) = Size::of(bytes) else {
                    assert!(bytes > LARGEST_KEPT);
                    continue;
                };
                assert_eq!(all[chosen.index], chosen);
                assert!(
                    chosen.bytes >= bytes && chosen.bytes <= bytes + bytes / 4 + 1,
                    "{bytes}: {chosen:?}"
                );
            }
        }
        assert_eq!(Size::of(0), None);
        assert_eq!(Size::of(usize::MAX), None);
    }

    #[test]
    fn blocks_are_aligned_and_hold_what_is_written_whatever_their_size() {
        for bytes in [0, 1, 4096, 32 << 10, (32 << 10) + 1, 1 << 20, (3 << 20) + 5, LARGEST_KEPT + 1] {
            for round in 0..2 {
                let mut block = Block::new("a block", bytes).unwrap();
                assert!(block.capacity() >= bytes);
                assert_eq!(block.start().addr() % ALIGNMENT, 0);
                block.bytes_mut().fill(round);
                block.grow("a block", bytes, bytes * 2 + 1).unwrap();
                assert!(block.bytes_mut()[..bytes].iter().all(|&byte| byte == round));
            }
        }
        assert!(Block::new("a block", usize::MAX).is_err());
    }

    #[test]
    fn a_kept_block_is_used_again_and_no_more_than_the_limit_are_kept() {
        let spares = Spares::new();
        let of = size(1 << 20);
        assert_eq!(spares.take(of), None);
        let first = allocated(of.bytes);
        spares.give(of, first);
        assert_eq!(kept(&spares), of.bytes);
        assert_eq!(spares.take(size(of.bytes + 1)), None);
        assert_eq!(spares.take(of), Some(first));
        spares.give(of, first);
        for of in [size(100_000), of, size(20 << 20), size(LARGEST_KEPT)] {
            for _ in 0..2 * SLOTS {
                spares.give(of, allocated(of.bytes));
                assert!(kept(&spares) <= KEPT_BYTES);
            }
            // Blocks of sizes that are no longer needed make room.
            let found = spares.take(of).unwrap();
            spares.give(of, found);
        }
        free_all(&spares);
    }

    #[test]
    fn no_block_is_given_to_two_threads() {
        let spares = Spares::new();
        let sizes = [size(40_000), size(1 << 20), size(16 << 20), size(24 << 20)];
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let spares = &spares;
                scope.spawn(move || {
                    for i in 0..2000 {
                        let of = sizes[(i + thread as usize) % sizes.len()];
                        let start = spares.take(of).unwrap_or_else(|| allocated(of.bytes));
                        // SAFETY: the block belongs to this thread, and has more than one byte.
                        unsafe {
                            start.write_volatile(thread);
                            std::thread::yield_now();
                            assert_eq!(start.read_volatile(), thread);
                        }
                        assert!(spares.bytes.load(Relaxed) <= KEPT_BYTES + 4 * LARGEST_KEPT);
                        spares.give(of, start);
                    }
                });
            }
        });
        assert!(kept(&spares) <= KEPT_BYTES);
        free_all(&spares);
    }
}
