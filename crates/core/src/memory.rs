//! Blocks of uninitialised memory for whole batches.

use crate::allocator;
use crate::bytes;
use crate::error::Result;
use std::alloc::Layout;
use std::ptr::NonNull;

/// The alignment that DLPack demands. Arrow recommends a smaller one.
const ALIGNMENT: usize = 256;
/// Larger blocks are always new to the process, because the allocator does not keep freed ones. The kernel clears new
/// memory when it is first used, page by page. With huge pages, reading a batch of 40 MB takes a fifth of the time.
const HUGE: usize = allocator::MOST;

/// A block of memory. Its bytes are uninitialised until they are written.
pub struct Block {
    /// The address that the allocator returned. It is at most [`ALIGNMENT`] bytes before the first byte of the block.
    allocated: NonNull<u8>,
    start: NonNull<u8>,
    capacity: usize,
}

// SAFETY: a block owns its memory. A shared reference gives access to the address only.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// A block with room for `size` bytes. `what` is its name in the error if there is not enough memory.
    pub fn new(what: &'static str, size: usize) -> Result<Self> {
        allocator::expect(size);
        if size == 0 {
            return Ok(Block { allocated: dangling(), start: dangling(), capacity: 0 });
        }
        let no_memory = || bytes::no_memory(what, size as u64);
        let layout = layout_of(size).ok_or_else(no_memory)?;
        // SAFETY: the layout has a size above 0.
        let allocated = NonNull::new(unsafe { std::alloc::alloc(layout) }).ok_or_else(no_memory)?;
        // SAFETY: the layout has room for the bytes before the first aligned one.
        let start = unsafe { allocated.add(allocated.align_offset(ALIGNMENT)) };
        if size > HUGE {
            use_huge_pages(start, size);
        }
        Ok(Block { allocated, start, capacity: size })
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

    /// Moves the first `length` bytes to a block with room for `size` bytes.
    pub fn grow(&mut self, what: &'static str, length: usize, size: usize) -> Result<()> {
        let mut larger = Block::new(what, size)?;
        larger.bytes_mut()[..length].copy_from_slice(&self.bytes_mut()[..length]);
        *self = larger;
        Ok(())
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.capacity > 0
            && let Some(layout) = layout_of(self.capacity)
        {
            // SAFETY: `new` has allocated it with this layout.
            unsafe { std::alloc::dealloc(self.allocated.as_ptr(), layout) };
        }
    }
}

/// The layout of a block of `size` bytes, with room to align it.
///
/// The allocator is not asked for the alignment. glibc before version 2.38 seldom uses freed aligned blocks again: it looks
/// for larger ones, and its heap grows with each batch.
fn layout_of(size: usize) -> Option<Layout> {
    Layout::from_size_align(size.checked_add(ALIGNMENT)?, 1).ok()
}

/// Asks the kernel for huge pages for the whole pages of a block. It may refuse.
fn use_huge_pages(start: NonNull<u8>, size: usize) {
    #[cfg(target_os = "linux")]
    {
        const PAGE: usize = 4096;
        let skipped = start.as_ptr().align_offset(PAGE);
        let length = size.saturating_sub(skipped) / PAGE * PAGE;
        // SAFETY: the pages are inside the block, which nobody uses yet. The advice does not change their content.
        unsafe {
            let first = start.as_ptr().wrapping_add(skipped);
            libc::madvise(first.cast(), length, libc::MADV_HUGEPAGE);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, size);
}

fn dangling() -> NonNull<u8> {
    #[repr(align(256))]
    struct Aligned;
    NonNull::<Aligned>::dangling().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_hold_what_is_written_whatever_their_size() {
        for bytes in [0, 1, 4096, (32 << 10) + 1, (3 << 20) + 5, HUGE - 1, HUGE + 1] {
            let mut block = Block::new("a block", bytes).unwrap();
            assert_eq!(block.capacity(), bytes);
            assert_eq!(block.start().addr() % ALIGNMENT, 0);
            block.bytes_mut().fill(7);
            block.grow("a block", bytes, bytes * 2 + 1).unwrap();
            assert!(block.bytes_mut()[..bytes].iter().all(|&byte| byte == 7));
        }
        assert!(Block::new("a block", usize::MAX).is_err());
    }
}
