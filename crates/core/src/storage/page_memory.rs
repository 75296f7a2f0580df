//! Memory that begins at a page, as reads past the page cache need it.

use crate::process;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::cell::Cell;
use std::ptr::NonNull;

/// Memory that begins at a page, kept by its thread for the next read.
pub struct Memory {
    begin: NonNull<u8>,
    length: usize,
    generation: u64,
}

thread_local! {
    /// Taken out while it is used.
    static MEMORY_KEPT: Cell<Option<Memory>> = const { Cell::new(None) };
}

impl Memory {
    /// At least so many bytes.
    pub fn take(length: usize) -> Option<Memory> {
        let kept = MEMORY_KEPT.try_with(Cell::take).ok().flatten();
        let fits = |memory: &Memory| memory.generation == process::generation() && memory.length >= length;
        match kept {
            Some(memory) if fits(&memory) => Some(memory),
            _ => Memory::new(length),
        }
    }

    /// For the next read of this thread.
    pub fn give_back(self) {
        let _ = MEMORY_KEPT.try_with(|place| place.set(Some(self)));
    }

    fn new(length: usize) -> Option<Memory> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the system's choice touches no memory that is in use.
        let begin =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, protection, flags) }.ok()?;
        let begin = NonNull::new(begin.cast::<u8>())?;
        let memory = Memory { begin, length, generation: process::generation() };
        // A fork while a disk writes here must not make the pages shared: on older systems the bytes would then end
        // up in the wrong copy. The child has no use for them.
        // SAFETY: advice about our own mapping, which no child looks at (`take`, `drop`).
        unsafe { rustix::mm::madvise(begin.as_ptr().cast(), length, Advice::LinuxDontFork) }.ok()?;
        Some(memory)
    }

    /// All of it.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping covers `length` bytes, is ours alone and stays until `drop`; the system made it of
        // zeros.
        unsafe { std::slice::from_raw_parts_mut(self.begin.as_ptr(), self.length) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // A forked child does not have it, and may have something else there.
        if self.generation == process::generation() {
            // SAFETY: nobody borrows from it any more, or it could not be dropped.
            let _ = unsafe { rustix::mm::munmap(self.begin.as_ptr().cast(), self.length) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_another_process_is_neither_used_nor_freed() {
        let mut memory = Memory::take(4096).unwrap();
        let begin = memory.begin;
        memory.generation = u64::MAX;
        memory.give_back();
        let own = Memory::take(4096).unwrap();
        assert_ne!(own.begin, begin);
        // SAFETY: it is there still, because it was leaked on purpose.
        assert_eq!(unsafe { begin.as_ptr().read() }, 0);
    }
}
