//! The memory of packed batches: uninitialised, aligned for vector instructions.

use anyrecord::bytes;
use anyrecord::error::Result;
use std::alloc::Layout;
use std::ptr::NonNull;

/// The alignment that the Arrow format recommends. It also suits vector instructions.
const ALIGNMENT: usize = 64;

/// A block of memory. Its bytes are uninitialised until they are written.
pub struct Block {
    start: NonNull<u8>,
    capacity: usize,
}

// SAFETY: a block owns its memory. Access through a shared reference is limited to the address.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// A block with room for at least `size` bytes.
    pub fn new(size: usize) -> Result<Self> {
        if size == 0 {
            return Ok(Block { start: dangling(), capacity: 0 });
        }
        let no_memory = || bytes::no_memory(super::fill::BATCH, size as u64);
        let layout = layout_of(size).ok_or_else(no_memory)?;
        // SAFETY: the layout has a size above 0.
        let start = NonNull::new(unsafe { std::alloc::alloc(layout) }).ok_or_else(no_memory)?;
        Ok(Block { start, capacity: size })
    }

    /// The address of the first byte.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// How many bytes it has room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The bytes. They are only to be written before they were written once.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the block owns `capacity` bytes at `start`. Any bit pattern is a valid byte, and the callers write
        // each byte before they read it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.capacity) }
    }

    /// Moves the first `length` bytes to a block with room for at least `size` bytes.
    pub fn grow(&mut self, length: usize, size: usize) -> Result<()> {
        let mut larger = Block::new(size)?;
        larger.bytes_mut()[..length].copy_from_slice(&self.bytes_mut()[..length]);
        *self = larger;
        Ok(())
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(layout) = layout_of(self.capacity)
            && self.capacity > 0
        {
            // SAFETY: allocated in `new` with this layout, and not used afterwards.
            unsafe { std::alloc::dealloc(self.start.as_ptr(), layout) };
        }
    }
}

fn layout_of(size: usize) -> Option<Layout> {
    Layout::from_size_align(size, ALIGNMENT).ok()
}

fn dangling() -> NonNull<u8> {
    #[repr(align(64))]
    struct Aligned;
    NonNull::<Aligned>::dangling().cast()
}
