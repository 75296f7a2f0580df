//! How many bytes the uploads of a writer hold: their buffers in memory, and what is being sent from memory and from
//! temporary files.

use crate::error::Result;
use crate::storage::remote::runtime::CHECK;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Bounds the memory of all uploads of a writer.
#[derive(Debug)]
pub struct Memory {
    used: Mutex<Used>,
    /// Something was freed, or has failed.
    changed: Condvar,
    most: u64,
    part: u64,
    /// Uploads that could not be aborted: sentences for the user.
    left: Mutex<Vec<String>>,
}

/// Bytes that are in use.
#[derive(Debug, Default)]
struct Used {
    in_memory: u64,
    /// Bytes of temporary files that are being sent. They are bounded, too: a disk is not endless.
    in_files: u64,
}

/// Bytes that an upload may hold. They are free again when this is dropped.
#[derive(Debug)]
pub struct Room {
    memory: Arc<Memory>,
    bytes: u64,
    is_in_file: bool,
}

impl Memory {
    /// Room for so many bytes, and for at least two parts: one that is written, and one that is sent.
    pub fn new(most: u64, part: u64) -> Self {
        let most = most.max(part.saturating_mul(2));
        Memory { used: Mutex::default(), changed: Condvar::new(), most, part, left: Mutex::default() }
    }

    /// The size of a part that may be in memory.
    pub fn part(&self) -> u64 {
        self.part
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for the buffer of an upload, if half of the memory stays free for what is being sent.
    pub fn reserve(self: &Arc<Self>) -> Option<Room> {
        self.try_take(self.part, self.most / 2)
    }

    fn try_take(self: &Arc<Self>, bytes: u64, most: u64) -> Option<Room> {
        let mut used = self.used();
        used.in_memory = used.in_memory.checked_add(bytes).filter(|&sum| sum <= most)?;
        Some(Room { memory: self.clone(), bytes, is_in_file: false })
    }

    fn try_take_file(self: &Arc<Self>, bytes: u64) -> Option<Room> {
        let mut used = self.used();
        // One part is always possible, however large it is.
        let is_free = used.in_files == 0 || used.in_files.saturating_add(bytes) <= self.most;
        is_free.then(|| {
            used.in_files = used.in_files.saturating_add(bytes);
            Room { memory: self.clone(), bytes, is_in_file: true }
        })
    }

    /// Waits for the room of one part in memory. `check` is called now and then. An error of it ends the wait.
    pub fn take(self: &Arc<Self>, check: impl FnMut() -> Result<()>) -> Result<Room> {
        self.wait_for(check, || self.try_take(self.part, self.most))
    }

    /// Waits until so many bytes of a temporary file may be sent.
    pub fn take_file(self: &Arc<Self>, bytes: u64, check: impl FnMut() -> Result<()>) -> Result<Room> {
        self.wait_for(check, || self.try_take_file(bytes))
    }

    fn wait_for(
        &self,
        mut check: impl FnMut() -> Result<()>,
        take: impl Fn() -> Option<Room>,
    ) -> Result<Room> {
        loop {
            check()?;
            if let Some(room) = take() {
                return Ok(room);
            }
            self.wait();
        }
    }

    /// Waits a moment, until something has changed.
    pub fn wait(&self) {
        // Whoever waits looks again after a short time, so nothing is missed.
        let _ = self.changed.wait_timeout(self.used(), CHECK);
    }

    /// Wakes whoever waits.
    pub fn notify(&self) {
        self.changed.notify_all();
    }

    /// Remembers a sentence about an upload that could not be aborted.
    pub fn note(&self, left: String) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).push(left);
    }

    /// The sentences about uploads that could not be aborted. Each is returned once.
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.left.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Room {
    /// How many bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut used = self.memory.used();
        match self.is_in_file {
            true => used.in_files -= self.bytes,
            false => used.in_memory -= self.bytes,
        }
        drop(used);
        self.memory.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn half_of_the_memory_is_for_buffers_and_all_of_it_is_bounded() {
        let memory = Arc::new(Memory::new(100, 20));
        let buffers: Vec<_> = std::iter::from_fn(|| memory.reserve()).collect();
        assert_eq!(buffers.len(), 2);
        let sent: Vec<_> = (0..3).map(|_| memory.take(|| Ok(())).unwrap()).collect();
        let mut asked = 0;
        let stopped = memory.take(|| {
            asked += 1;
            if asked > 2 { Err(Error::closed("enough")) } else { Ok(()) }
        });
        assert!(stopped.is_err());
        drop(sent);
        assert!(memory.take(|| Ok(())).is_ok());
        drop(buffers);
        assert_eq!(memory.used().in_memory, 0);
    }

    #[test]
    fn what_is_sent_from_files_is_bounded_but_one_part_is_always_possible() {
        let memory = Arc::new(Memory::new(100, 20));
        drop(memory.take_file(1000, || Ok(())).unwrap());
        let sent: Vec<_> = (0..5).map(|_| memory.take_file(20, || Ok(())).unwrap()).collect();
        assert!(memory.try_take_file(20).is_none() && memory.try_take(100, 100).is_some());
        drop(sent);
        assert!(memory.try_take_file(20).is_some());
    }

    #[test]
    fn there_is_always_room_for_a_part_that_is_written_and_one_that_is_sent() {
        let memory = Arc::new(Memory::new(1, 20));
        let _written = memory.reserve().unwrap();
        let _sent = memory.take(|| Ok(())).unwrap();
    }
}
