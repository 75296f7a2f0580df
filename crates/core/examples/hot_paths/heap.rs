//! A heap for counting instructions: a block costs the same, whatever was allocated before it.
//!
//! What the system's `malloc` needs for a block depends on which blocks are free, and that on the length of a path or on
//! a read that was slow. A tenth of a read can come and go that way, while the code stays the same.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

const CLASSES: usize = usize::BITS as usize;
/// A cache line, so that a copy does not depend on where a small block lies.
const SMALLEST: usize = 64;
const PAGE: usize = 4096;

/// Blocks of powers of two, each power with a list of those that are free. Nothing goes back to the system.
pub struct Heap {
    is_locked: AtomicBool,
    free: UnsafeCell<[*mut u8; CLASSES]>,
}

// SAFETY: the lists are used by one thread at a time, see `locked`.
unsafe impl Sync for Heap {}

impl Heap {
    pub const fn new() -> Self {
        Heap { is_locked: AtomicBool::new(false), free: UnsafeCell::new([null_mut(); CLASSES]) }
    }

    fn locked<T>(&self, act: impl FnOnce(&mut [*mut u8; CLASSES]) -> T) -> T {
        while self.is_locked.swap(true, Ordering::Acquire) {
            std::hint::spin_loop();
        }
        // SAFETY: whoever has set the flag is alone here until it is cleared.
        let result = act(unsafe { &mut *self.free.get() });
        self.is_locked.store(false, Ordering::Release);
        result
    }
}

/// The size of the block for a layout; none for what no memory is large enough for.
fn block_size(layout: Layout) -> Option<usize> {
    layout.size().max(layout.align()).max(SMALLEST).checked_next_power_of_two()
}

// SAFETY: a block is at least as large and as aligned as its layout asks, and is in a list only while nobody has it.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(size) = block_size(layout) else { return null_mut() };
        let block = self.locked(|free| {
            let first = &mut free[size.trailing_zeros() as usize];
            let block = *first;
            if !block.is_null() {
                // SAFETY: a free block holds the address of the next one.
                *first = unsafe { block.cast::<*mut u8>().read() };
            }
            block
        });
        if !block.is_null() {
            return block;
        }
        match Layout::from_size_align(size, size.min(PAGE).max(layout.align())) {
            // SAFETY: the size is not zero.
            Ok(layout) => unsafe { System.alloc(layout) },
            Err(_) => null_mut(),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(size) = block_size(layout) else { return };
        self.locked(|free| {
            let first = &mut free[size.trailing_zeros() as usize];
            // SAFETY: nobody has the block any more, and an address fits into the smallest one.
            unsafe { block.cast::<*mut u8>().write(*first) };
            *first = block;
        });
    }
}
