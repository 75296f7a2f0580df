//! Reuses the buffers of written groups for later groups. New memory costs a page fault every 4 KiB.

use std::sync::{Arc, Mutex, PoisonError};

/// The kept buffers have at most this many bytes together.
const MOST_BYTES: usize = 128 << 20;

/// Unused buffers, shared by an encoder and its encoding threads. Never keeps more buffers than were in use at once.
#[derive(Clone, Debug, Default)]
pub struct Spare(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
    /// How many buffers are taken and not yet returned.
    taken: usize,
}

impl Spare {
    /// An empty buffer: a kept one, or a new one if none is kept.
    pub fn take(&self) -> Vec<u8> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.taken += 1;
        let buffer = kept.buffers.pop().unwrap_or_default();
        kept.bytes -= buffer.capacity();
        buffer
    }

    /// Keeps the memory of a buffer that is no longer needed, in place of one that was taken. If none was taken, drops
    /// the buffer.
    pub fn put(&self, mut buffer: Vec<u8>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.taken == 0 {
            return;
        }
        kept.taken -= 1;
        if kept.bytes + buffer.capacity() <= MOST_BYTES {
            buffer.clear();
            kept.bytes += buffer.capacity();
            kept.buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_empty_and_no_more_of_them_than_were_taken() {
        let spare = Spare::default();
        spare.put(vec![1; 100]);
        assert_eq!(spare.take().capacity(), 0, "that one was not taken");
        assert_eq!(spare.take().capacity(), 0);
        spare.put(vec![1; 100]);
        spare.put(Vec::with_capacity(MOST_BYTES));
        let again = spare.take();
        assert!(again.is_empty() && again.capacity() == 100);
        spare.put(again);
        spare.put(vec![1; 10]);
        assert_eq!(spare.0.lock().unwrap().buffers.len(), 1);
    }
}
