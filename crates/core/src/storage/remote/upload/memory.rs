//! How many bytes the uploads of a writer hold in memory: their buffers, and what is being sent.

use crate::error::Result;
use crate::storage::remote::runtime::CHECK;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Bounds the memory of all uploads of a writer.
#[derive(Debug)]
pub struct Memory {
    /// Bytes that are in use.
    used: Mutex<u64>,
    /// Something was freed, or has failed.
    changed: Condvar,
    most: u64,
    part: u64,
    /// Uploads that could not be aborted: sentences for the user.
    left: Mutex<Vec<String>>,
}

/// Bytes that an upload may hold. They are free again when this is dropped.
#[derive(Debug)]
pub struct Room {
    memory: Arc<Memory>,
    bytes: u64,
}

impl Memory {
    /// Room for so many bytes, and for at least two parts: one that is written, and one that is sent.
    pub fn new(most: u64, part: u64) -> Self {
        let most = most.max(part.saturating_mul(2));
        Memory { used: Mutex::new(0), changed: Condvar::new(), most, part, left: Mutex::default() }
    }

    /// The size of a part that may be in memory.
    pub fn part(&self) -> u64 {
        self.part
    }

    fn used(&self) -> MutexGuard<'_, u64> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for the buffer of an upload, if half of the memory stays free for what is being sent.
    pub fn reserve(self: &Arc<Self>) -> Option<Room> {
        self.try_take(self.part, self.most / 2)
    }

    fn try_take(self: &Arc<Self>, bytes: u64, most: u64) -> Option<Room> {
        let mut used = self.used();
        let sum = used.checked_add(bytes).filter(|&sum| sum <= most)?;
        *used = sum;
        Some(Room { memory: self.clone(), bytes })
    }

    /// Waits for the room of one part. `check` is called now and then. An error of it ends the wait.
    pub fn take(self: &Arc<Self>, mut check: impl FnMut() -> Result<()>) -> Result<Room> {
        loop {
            check()?;
            if let Some(room) = self.try_take(self.part, self.most) {
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
        *self.memory.used() -= self.bytes;
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
        assert_eq!(*memory.used(), 0);
    }

    #[test]
    fn there_is_always_room_for_a_part_that_is_written_and_one_that_is_sent() {
        let memory = Arc::new(Memory::new(1, 20));
        let _written = memory.reserve().unwrap();
        let _sent = memory.take(|| Ok(())).unwrap();
    }
}
