//! Blocks of uninitialised memory for whole batches.

use crate::allocator;
use crate::bytes;
use crate::error::Result;
use std::alloc::Layout;
use std::ptr::NonNull;
#[cfg(any(target_os = "linux", test))]
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
#[cfg(any(target_os = "linux", test))]
use std::time::Duration;

/// The alignment that DLPack demands. Arrow recommends a smaller one.
const ALIGNMENT: usize = 256;
/// Blocks from this size on get huge pages. The kernel clears new memory when it is first used, page by page. With huge
/// pages, reading a batch of 40 MB takes a fifth of the time.
const HUGE: usize = 4 << 20;
/// Records that are larger together are always new to the process, because the allocator does not keep freed ones.
const NEW: usize = allocator::MOST;

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
        expect_written(start.as_ptr(), size);
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

/// Asks for huge pages for `size` new bytes at `start`, if they are many.
#[inline]
pub fn expect_written(start: *mut u8, size: usize) {
    if size >= HUGE
        && let Some(start) = NonNull::new(start)
    {
        use_huge_pages(start, size);
    }
}

/// Gets huge pages for records that are allocated one by one, if they are larger together than what the allocator keeps
/// when it is freed.
///
/// The kernel gives a huge page only where nothing was written yet, and an allocator writes in front of each record. So
/// the pages are requested before the records are allocated, for what the allocator is going to cut them from.
pub struct HugePages {
    /// How many bytes of the prepared memory are left. None: the records are too small together.
    prepared: Option<usize>,
}

impl HugePages {
    /// For records with `total` bytes together.
    pub fn for_records(total: usize) -> Self {
        HugePages { prepared: (total > NEW).then_some(0) }
    }

    /// Call it before each record of `size` bytes is allocated.
    #[inline]
    pub fn before(&mut self, size: usize) {
        if let Some(prepared) = self.prepared {
            self.prepared = Some(prepared.checked_sub(size).unwrap_or_else(|| next_piece(size)));
        }
    }
}

/// Requests huge pages for the end of the allocator's heap. Returns how many bytes of it are left after `size` bytes.
#[cold]
fn next_piece(size: usize) -> usize {
    /// Smaller than what the allocator keeps when it is freed, and what it gets from the kernel by itself.
    const PIECE: usize = NEW - (2 << 20);
    if let Some(piece) = Layout::from_size_align(PIECE, 1).ok()
        // SAFETY: the layout has a size above 0.
        && let Some(start) = NonNull::new(unsafe { std::alloc::alloc(piece) })
    {
        use_huge_pages(start, PIECE);
        // SAFETY: it was allocated with this layout.
        unsafe { std::alloc::dealloc(start.as_ptr(), piece) };
    }
    PIECE.saturating_sub(size)
}

/// Whether huge pages are worth asking for.
///
/// Most machines clear one in a tenth of a millisecond. In a virtual machine whose host takes unused memory back, the host
/// has to find the memory first, which takes several milliseconds: small pages are then ten times as fast, because the
/// kernel takes them from memory that was used lately.
#[cfg(any(target_os = "linux", test))]
struct Huge {
    /// How many more times huge pages are not asked for.
    refrain: AtomicU32,
}

#[cfg(any(target_os = "linux", test))]
impl Huge {
    /// Several times as long as a machine takes to clear a huge page.
    const SLOW: Duration = Duration::from_micros(500);
    /// How often huge pages are not asked for after one was slow. Memory that was used meanwhile is fast again.
    const REFRAIN: u32 = 8;

    /// No page took long so far.
    const fn new() -> Self {
        Huge { refrain: AtomicU32::new(0) }
    }

    fn are_wanted(&self) -> bool {
        let left = self.refrain.load(Relaxed);
        // If threads do this at the same time, they refrain a little longer.
        self.refrain.store(left.saturating_sub(1), Relaxed);
        left == 0
    }

    /// Notes how long the kernel took for a page. Returns whether the rest of the block should have small pages.
    fn note(&self, took: Duration) -> bool {
        let is_slow = took > Self::SLOW;
        if is_slow {
            self.refrain.store(Self::REFRAIN, Relaxed);
        }
        is_slow
    }
}

/// Asks the kernel for huge pages for the whole pages of a new block, whose bytes are zero or not initialised. It may
/// refuse.
fn use_huge_pages(start: NonNull<u8>, size: usize) {
    #[cfg(target_os = "linux")]
    {
        const PAGE: usize = 4096;
        const HUGE_PAGE: usize = 2 << 20;
        /// A page of so many bytes is tried.
        const TRIED: usize = 8 << 20;
        static HUGE_PAGES: Huge = Huge::new();
        let skipped = start.as_ptr().align_offset(PAGE);
        let length = size.saturating_sub(skipped) / PAGE * PAGE;
        let first = start.as_ptr().wrapping_add(skipped);
        let probed = first.align_offset(HUGE_PAGE);
        if probed.saturating_add(HUGE_PAGE) > length || !HUGE_PAGES.are_wanted() {
            return;
        }
        let advise = |advice| {
            // SAFETY: the advice does not change what the pages hold, whoever uses them.
            unsafe { libc::madvise(first.cast(), length, advice) };
        };
        advise(libc::MADV_HUGEPAGE);
        for at in (probed..length).step_by(TRIED) {
            let begin = std::time::Instant::now();
            // SAFETY: the byte lies in the block. It was zero or not initialised.
            unsafe { first.add(at).write_volatile(0) };
            if HUGE_PAGES.note(begin.elapsed()) {
                return advise(libc::MADV_NOHUGEPAGE);
            }
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

    #[test]
    fn after_a_slow_huge_page_small_ones_are_used_for_a_while() {
        let huge = Huge::new();
        assert!(huge.are_wanted() && !huge.note(Huge::SLOW) && huge.are_wanted());
        assert!(huge.note(2 * Huge::SLOW));
        let refused = (0..1000).filter(|_| !huge.are_wanted()).count();
        assert_eq!(refused, Huge::REFRAIN as usize);
    }

    #[test]
    fn huge_pages_are_requested_for_many_bytes_only_and_once_for_each_piece() {
        let mut small = HugePages::for_records(NEW);
        small.before(NEW);
        assert_eq!(small.prepared, None);

        const RECORD: usize = 1 << 20;
        let mut large = HugePages::for_records(100 * RECORD);
        let (mut left, mut pieces) = (Vec::new(), 0);
        for _ in 0..100 {
            large.before(RECORD);
            pieces += usize::from(left.last() <= large.prepared.as_ref());
            left.extend(large.prepared);
        }
        assert_eq!((left.len(), pieces), (100, 4), "{left:?}");
        large.before(2 * NEW);
        assert_eq!(large.prepared, Some(0), "a record that is larger than a piece");
    }
}
