//! A heap for counting instructions: a block always costs the same, no matter what was allocated before it.
//!
//! The cost of a block from the system's `malloc` depends on which blocks are free, and that depends on the length of a
//! path or on a read that was slow. It can change the cost of a read by a tenth, while the code stays the same.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

const CLASSES: usize = usize::BITS as usize;
/// A cache line, so that a copy does not depend on where a small block lies.
const SMALLEST: usize = 64;
const PAGE: usize = 4096;

/// Blocks of powers of two. Each power has a list of free blocks. No memory is returned to the system.
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
        // SAFETY: only the thread that has set the flag is here, until it clears the flag.
        let result = act(unsafe { &mut *self.free.get() });
        self.is_locked.store(false, Ordering::Release);
        result
    }
}

/// The size of the block for a layout. None if it would overflow.
fn block_size(layout: Layout) -> Option<usize> {
    layout.size().max(layout.align()).max(SMALLEST).checked_next_power_of_two()
}

// SAFETY: a block is at least as large and as aligned as its layout requires, and is in a list only while it is free.
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
            // SAFETY: the block is not in use any more, and an address fits into the smallest block.
            unsafe { block.cast::<*mut u8>().write(*first) };
            *first = block;
        });
    }
}
