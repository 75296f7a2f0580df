//! Reading a storage from front to back in large pieces, for walks that look at every byte.

use super::Storage;
use crate::bytes;
use crate::error::Result;

/// How much is read at once: large enough for a disk to stream, small enough to stay in cache.
const WINDOW: u64 = 1 << 20;

/// A window that moves over a storage.
pub struct Window<'a> {
    storage: &'a dyn Storage,
    buffer: Vec<u8>,
    begin: u64,
}

impl<'a> Window<'a> {
    /// A window over `storage`, with nothing read yet.
    pub fn new(storage: &'a dyn Storage) -> Self {
        Window { storage, buffer: Vec::new(), begin: 0 }
    }

    /// `length` bytes at `at`. Holds no more than the larger of one window and `length` bytes.
    pub fn get(&mut self, what: &'static str, at: u64, length: u64) -> Result<&[u8]> {
        let range = bytes::range(what, at, length, self.storage.len())?;
        let held = self.begin..self.begin + self.buffer.len() as u64;
        if range.start < held.start || range.end > held.end {
            let wanted = length.max(WINDOW).min(self.storage.len() - at);
            self.buffer.resize(bytes::in_memory(what, wanted)?, 0);
            self.begin = at;
            if let Err(error) = self.storage.read_at(at, &mut self.buffer) {
                self.buffer.clear();
                return Err(error);
            }
        }
        let from = (range.start - self.begin) as usize;
        Ok(&self.buffer[from..from + length as usize])
    }

    /// Calls `each` with consecutive pieces of `at..at + length`, none larger than a window.
    pub fn pieces(
        &mut self,
        what: &'static str,
        mut at: u64,
        mut length: u64,
        mut each: impl FnMut(&[u8]),
    ) -> Result<()> {
        while length > 0 {
            let piece = length.min(WINDOW);
            each(self.get(what, at, piece)?);
            at += piece;
            length -= piece;
        }
        Ok(())
    }
}
