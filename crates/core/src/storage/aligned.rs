//! Page-aligned memory, as O_DIRECT reads need it.

use crate::process;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::cell::Cell;
use std::ptr::NonNull;

/// A page-aligned buffer. The thread that used it keeps it for its next read.
pub struct AlignedMemory {
    begin: NonNull<u8>,
    length: usize,
    /// The fork generation of the process that made it.
    generation: u64,
}

thread_local! {
    /// The buffer that this thread keeps. Empty while the buffer is in use.
    static MEMORY_KEPT: Cell<Option<AlignedMemory>> = const { Cell::new(None) };
}

impl AlignedMemory {
    /// A buffer of at least `length` bytes.
    pub fn take(length: usize) -> Option<AlignedMemory> {
        let kept = MEMORY_KEPT.try_with(Cell::take).ok().flatten();
        let fits =
            |memory: &AlignedMemory| memory.generation == process::generation() && memory.length >= length;
        match kept {
            Some(memory) if fits(&memory) => Some(memory),
            _ => AlignedMemory::new(length),
        }
    }

    /// Keeps the buffer for the next read of this thread.
    pub fn give_back(self) {
        let _ = MEMORY_KEPT.try_with(|place| place.set(Some(self)));
    }

    fn new(length: usize) -> Option<AlignedMemory> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the system's choice touches no memory that is in use.
        let begin =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, protection, flags) }.ok()?;
        let begin = NonNull::new(begin.cast::<u8>())?;
        let memory = AlignedMemory { begin, length, generation: process::generation() };
        // If the process forks while a disk writes to this memory, the pages must not become shared. On older
        // kernels, copy-on-write could then give the bytes from the disk to the child's copy of the page. The child does not use this memory.
        // SAFETY: advice about our own mapping, which no child accesses (`take`, `drop`).
        unsafe { rustix::mm::madvise(begin.as_ptr().cast(), length, Advice::LinuxDontFork) }.ok()?;
        Some(memory)
    }

    /// The bytes of the buffer.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping covers `length` bytes, is not shared, and stays until `drop`. The system filled it with
        // zeros.
        unsafe { std::slice::from_raw_parts_mut(self.begin.as_ptr(), self.length) }
    }
}

impl Drop for AlignedMemory {
    fn drop(&mut self) {
        // A forked child does not have this mapping, and may have another one at its address.
        if self.generation == process::generation() {
            // SAFETY: nothing borrows from the buffer, because it is being dropped.
            let _ = unsafe { rustix::mm::munmap(self.begin.as_ptr().cast(), self.length) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_another_process_is_neither_used_nor_freed() {
        let mut memory = AlignedMemory::take(4096).unwrap();
        let begin = memory.begin;
        memory.generation = u64::MAX;
        memory.give_back();
        let own = AlignedMemory::take(4096).unwrap();
        assert_ne!(own.begin, begin);
        // SAFETY: the mapping still exists, because it was leaked on purpose.
        assert_eq!(unsafe { begin.as_ptr().read() }, 0);
    }
}
