//! Reading a storage from front to back: everything, or headers with gaps between them.
//!
//! A window adapts to the requests. As long as they follow each other, it reads large pieces. When they skip, it reads
//! no more than what is requested.

use super::{Distance, Storage, read_to_end_of};
use crate::bytes;
use crate::cx::Cx;
use crate::error::Result;
use std::ops::Range;

/// The size of pieces: small enough for the processor's cache.
const PIECE: u64 = 1 << 20;

/// A part of a storage in memory, moving forward.
pub struct Window<'a> {
    storage: &'a dyn Storage,
    cx: &'a Cx<'a>,
    buffer: Vec<u8>,
    /// Where the buffer begins in the storage.
    begin: u64,
    /// Where the last request ended.
    last: u64,
    /// How much to read at once.
    ahead: u64,
    /// How far apart reads of the storage should be.
    distance: Distance,
    /// What the storage was told to fetch for the next read.
    announced: Range<u64>,
}

impl<'a> Window<'a> {
    /// Nothing is read yet.
    pub fn new(storage: &'a dyn Storage, cx: &'a Cx<'a>) -> Self {
        Window {
            storage,
            cx,
            buffer: Vec::new(),
            begin: 0,
            last: 0,
            ahead: storage.distance().first,
            distance: storage.distance(),
            announced: 0..0,
        }
    }

    /// How many bytes the storage has.
    pub fn size(&self) -> u64 {
        self.storage.len()
    }

    /// The context of the call that reads.
    pub fn cx(&self) -> &'a Cx<'a> {
        self.cx
    }

    /// `length` bytes at `at`. Holds about the larger of one window and `length` bytes.
    #[inline]
    pub fn get(&mut self, what: &'static str, at: u64, length: u64) -> Result<&[u8]> {
        let range = bytes::range(what, at, length, self.storage.len())?;
        let held = self.begin..self.begin + self.buffer.len() as u64;
        if range.start < held.start || range.end > held.end {
            self.fill(what, at, length)?;
        }
        self.last = range.end;
        let from = (range.start - self.begin) as usize;
        Ok(&self.buffer[from..from + length as usize])
    }

    /// `length` bytes at `at`, or as many as the storage has from there on.
    pub fn get_up_to(&mut self, what: &'static str, at: u64, length: u64) -> Result<&[u8]> {
        self.get(what, at, length.min(self.storage.len().saturating_sub(at)))
    }

    fn fill(&mut self, what: &'static str, at: u64, length: u64) -> Result<()> {
        self.cx.check()?;
        let follows = at.abs_diff(self.last) <= self.distance.near;
        let held = self.begin + self.buffer.len() as u64;
        let (at, length) = match at.checked_sub(held) {
            // What was announced is read, even if a little of it is not needed: the storage keeps it until then.
            Some(gap) if gap <= self.distance.near && self.announced.contains(&held) => (held, length + gap),
            _ => (at, length),
        };
        let wanted = if follows { self.ahead.max(length) } else { length };
        if follows {
            self.ahead = (2 * self.ahead).min(self.distance.largest);
        }
        let wanted = wanted.min(self.storage.len() - at);
        // What the end of the buffer already holds is not read again.
        let kept = at.checked_sub(self.begin).filter(|&skip| skip < self.buffer.len() as u64);
        match kept {
            Some(skip) => drop(self.buffer.drain(..skip as usize)),
            None => self.buffer.clear(),
        }
        if self.buffer.capacity() as u64 > 4 * self.distance.largest.max(wanted) {
            // One long record must not hold its memory for the rest of the file.
            self.buffer.shrink_to(wanted as usize);
        }
        self.begin = at;
        bytes::reserve_bytes(what, &mut self.buffer, wanted)?;
        if follows && self.distance.is_far() {
            // The next window is on its way while this one is used.
            let (begin, end, size) = (at + self.buffer.len() as u64, at + wanted, self.storage.len());
            self.announced = end..size.min(end.saturating_add(self.ahead));
            self.storage.will_need(&mut [begin..end, self.announced.clone()].into_iter());
        }
        read_to_end_of(self.storage, &mut self.buffer, at, wanted, self.cx)
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
            let piece = length.min(PIECE);
            each(self.get(what, at, piece)?);
            at += piece;
            length -= piece;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::limits::Limits;
    use crate::storage::LOCAL;
    use crate::storage::file_set::FileSet;
    use std::collections::BTreeSet;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// Counts the reads and the bytes read. Every byte is its offset modulo 251.
    #[derive(Default)]
    struct Counting {
        size: u64,
        reads: AtomicU64,
        bytes: AtomicU64,
        /// Whether it is far away. Then it notes which bytes were announced and not read since then.
        is_far: bool,
        announced: Mutex<BTreeSet<u64>>,
    }

    impl Storage for Counting {
        fn name(&self) -> &str {
            "counting"
        }
        fn len(&self) -> u64 {
            self.size
        }
        fn read_at(&self, at: u64, out: &mut [u8], _cx: &Cx<'_>) -> Result<()> {
            self.reads.fetch_add(1, Relaxed);
            self.bytes.fetch_add(out.len() as u64, Relaxed);
            self.announced.lock().unwrap().retain(|byte| !(at..at + out.len() as u64).contains(byte));
            (at..).zip(out).for_each(|(at, byte)| *byte = (at % 251) as u8);
            Ok(())
        }
        fn distance(&self) -> Distance {
            let far = Distance { first: 1000, near: 300, largest: 4000, ahead: 1, ..LOCAL };
            if self.is_far { far } else { LOCAL }
        }
        fn will_need(&self, ranges: &mut dyn Iterator<Item = Range<u64>>) {
            self.announced.lock().unwrap().extend(ranges.flatten());
        }
    }

    fn is_right(at: u64, piece: &[u8]) -> bool {
        (at..).zip(piece).all(|(at, &byte)| byte == (at % 251) as u8)
    }

    /// Reads pieces of `length` bytes, `step` apart. Returns how many reads of how many bytes that took.
    fn read(size: u64, step: u64, length: u64) -> (u64, u64) {
        let storage = Counting { size, ..Counting::default() };
        let limits = Limits::default();
        let files = FileSet::new(&limits);
        let budget = Budget::new(&limits, &files);
        let cx = Cx::new(&budget);
        let mut window = Window::new(&storage, &cx);
        for at in (0..size - length).step_by(step as usize) {
            assert!(is_right(at, window.get("piece", at, length).unwrap()), "{at}");
        }
        (storage.reads.into_inner(), storage.bytes.into_inner())
    }

    #[test]
    fn near_headers_come_in_large_reads_and_far_ones_in_small_reads() {
        let (reads, bytes) = read(64 << 20, 100, 20);
        assert!(reads < 100 && bytes < 66 << 20, "{reads} reads of {bytes} bytes");
        let (reads, bytes) = read(64 << 30, 32 << 20, 20);
        assert!(reads == 2048 && bytes < 256 << 10, "{reads} reads of {bytes} bytes");
    }

    #[test]
    fn everything_is_read_about_once_whatever_the_pieces_are() {
        for length in [1000, 100_000, 1_000_000, 3_000_000] {
            let (_, bytes) = read(64 << 20, length, length);
            assert!(bytes < 66 << 20, "{bytes} bytes in pieces of {length}");
        }
    }

    #[test]
    fn what_was_announced_is_read() {
        let limits = Limits::default();
        let files = FileSet::new(&limits);
        let budget = Budget::new(&limits, &files);
        let cx = Cx::new(&budget);
        for (step, length) in [(7, 7), (100, 12), (250, 12), (310, 12), (290, 290), (5000, 5000)] {
            let storage = Counting { size: 30_000, is_far: true, ..Counting::default() };
            let mut window = Window::new(&storage, &cx);
            for at in (0..storage.size - length + 1).step_by(step as usize) {
                assert!(is_right(at, window.get("piece", at, length).unwrap()), "{at}");
            }
            let left = storage.announced.lock().unwrap();
            // What lies behind the last request may be left.
            let last = storage.size - storage.size % step;
            assert!(left.iter().all(|&byte| byte >= last), "{step}, {length}: {:?}", left.first());
        }
    }

    #[test]
    fn a_header_and_then_its_chunk_are_read_once() {
        let storage = Counting { size: 64 << 20, ..Counting::default() };
        let limits = Limits::default();
        let files = FileSet::new(&limits);
        let budget = Budget::new(&limits, &files);
        let cx = Cx::new(&budget);
        let mut window = Window::new(&storage, &cx);
        for at in (0..60 << 20).step_by(2_500_000) {
            assert!(is_right(at, window.get("header", at, 20).unwrap()));
            assert!(is_right(at, window.get("chunk", at, 2_500_000).unwrap()));
        }
        assert!(storage.bytes.into_inner() < 70 << 20);
    }
}
