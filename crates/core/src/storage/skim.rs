//! Reading headers and skipping what lies between them, for formats that keep no table of their own.

use super::Storage;
use crate::bytes;
use crate::error::Result;

/// Headers no further apart than this are read together with what lies between them.
const NEAR: u64 = 16 << 10;
/// How much is read at once where headers are near each other.
const WINDOW: u64 = 256 << 10;
/// How much is read first, before it is known how far apart they are: many a file is smaller.
const FIRST: u64 = 64 << 10;

/// Looks at small pieces of a storage, in order.
pub struct Skim<'a> {
    storage: &'a dyn Storage,
    buffer: Vec<u8>,
    begin: u64,
    /// Where the piece before this one began.
    last: u64,
}

impl<'a> Skim<'a> {
    /// Nothing is read yet.
    pub fn new(storage: &'a dyn Storage) -> Self {
        Skim { storage, buffer: Vec::new(), begin: 0, last: 0 }
    }

    /// `length` bytes at `at`.
    pub fn get(&mut self, what: &'static str, at: u64, length: u64) -> Result<&[u8]> {
        let size = self.storage.len();
        let range = bytes::range(what, at, length, size)?;
        let held = self.begin..self.begin + self.buffer.len() as u64;
        if range.start < held.start || range.end > held.end {
            let near = at.abs_diff(self.last) <= NEAR;
            let wanted = match () {
                () if self.buffer.is_empty() => FIRST,
                () if near => WINDOW,
                () => length,
            };
            let wanted = wanted.max(length).min(size - at);
            self.buffer.resize(bytes::in_memory(what, wanted)?, 0);
            self.begin = at;
            if let Err(error) = self.storage.read_at(at, &mut self.buffer) {
                self.buffer.clear();
                return Err(error);
            }
        }
        self.last = at;
        let from = (range.start - self.begin) as usize;
        Ok(&self.buffer[from..from + length as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// Counts what is read of it; every byte is its offset modulo 251.
    #[derive(Default)]
    struct Counting {
        size: u64,
        reads: AtomicU64,
        bytes: AtomicU64,
    }

    impl Storage for Counting {
        fn name(&self) -> &str {
            "counting"
        }
        fn len(&self) -> u64 {
            self.size
        }
        fn read_at(&self, at: u64, out: &mut [u8]) -> Result<()> {
            self.reads.fetch_add(1, Relaxed);
            self.bytes.fetch_add(out.len() as u64, Relaxed);
            (at..).zip(out).for_each(|(at, byte)| *byte = (at % 251) as u8);
            Ok(())
        }
    }

    fn skim(size: u64, step: u64) -> (u64, u64) {
        let storage = Counting { size, ..Counting::default() };
        let mut skim = Skim::new(&storage);
        for at in (0..size - 20).step_by(step as usize) {
            let piece = skim.get("header", at, 20).unwrap();
            assert!((at..).zip(piece).all(|(at, &byte)| byte == (at % 251) as u8), "{at}");
        }
        (storage.reads.into_inner(), storage.bytes.into_inner())
    }

    #[test]
    fn near_headers_come_in_large_reads_and_far_ones_in_small_reads() {
        let (reads, bytes) = skim(64 << 20, 100);
        assert!(reads < 300 && bytes < 65 << 20, "{reads} reads of {bytes} bytes");
        let (reads, bytes) = skim(64 << 30, 32 << 20);
        assert!(reads == 2048 && bytes < 256 << 10, "{reads} reads of {bytes} bytes");
    }
}
