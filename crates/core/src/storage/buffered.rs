//! A storage that is far away, with parts of it in memory: the part that came with opening, and what small reads have
//! brought since then.
//!
//! Formats read headers and tables in small pieces. Each of them would be a request. So a small read takes more than was
//! asked for, the more the longer such reads follow each other, and later reads find it in memory. A large read asks the
//! storage for what is not in memory. A small storage is read as a whole, and once.

use super::location::Opened;
use super::partial::FetchedRange;
use super::{Distance, ReadOp, Storage};
use crate::cx::Cx;
use crate::error::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// A read of fewer bytes is a small one, and takes at least so many.
const SMALL: u64 = 128 << 10;
/// The most bytes that small reads take at once. A smaller storage is read as a whole.
const LARGEST: u64 = 4 << 20;
/// The bytes of small reads that are kept. The tables of a format may be read several times.
const KEPT: u64 = 16 << 20;

/// A storage with parts of it in memory. A storage that is not far away is read as it is.
pub struct Buffered<'a> {
    storage: &'a dyn Storage,
    pieces: &'a [FetchedRange],
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// The last one was read last.
    blocks: Vec<FetchedRange>,
    /// How many bytes the next small read takes, if it goes on where the last one ended.
    next: u64,
}

impl<'a> Buffered<'a> {
    /// Some pieces of the storage are in memory.
    pub fn new(storage: &'a dyn Storage, pieces: &'a [FetchedRange]) -> Self {
        Buffered { storage, pieces, kept: Mutex::default() }
    }

    /// The part of a storage that came with opening it is in memory.
    pub fn of(opened: &'a Opened) -> Self {
        Buffered::new(&*opened.storage, opened.part.as_deref().map_or(&[], std::slice::from_ref))
    }

    /// Whether reads go to the storage as they are.
    fn is_near(&self) -> bool {
        self.pieces.is_empty() && !self.storage.distance().is_far()
    }

    /// Fills the beginning and the end of a range, as far as they are in memory. Returns the rest.
    fn fill<'o>(&self, op: ReadOp<'o>, kept: &Kept) -> ReadOp<'o> {
        let ReadOp { mut at, mut out } = op;
        loop {
            let end = at + out.len() as u64;
            let in_memory = || self.pieces.iter().chain(&kept.blocks).filter(|piece| !piece.bytes.is_empty());
            if out.is_empty() {
                return ReadOp { at, out };
            } else if let Some(piece) = in_memory().find(|piece| piece.at <= at && at < piece.end()) {
                let from = (at - piece.at) as usize;
                let count = out.len().min(piece.bytes.len() - from);
                let (front, rest) = out.split_at_mut(count);
                front.copy_from_slice(&piece.bytes[from..from + count]);
                (at, out) = (at + count as u64, rest);
            } else if let Some(piece) = in_memory().find(|piece| piece.at < end && end <= piece.end()) {
                // It begins inside the range: otherwise it would have held the beginning.
                let (rest, back) = out.split_at_mut((piece.at - at) as usize);
                back.copy_from_slice(&piece.bytes[..back.len()]);
                out = rest;
            } else {
                return ReadOp { at, out };
            }
        }
    }

    /// Announces the ranges without what is in memory at their beginnings and ends.
    fn announce(&self, ranges: &mut dyn Iterator<Item = Range<u64>>, kept: &Kept) {
        let trim = |mut range: Range<u64>| {
            for piece in self.pieces.iter().chain(&kept.blocks).filter(|piece| !piece.bytes.is_empty()) {
                if piece.at <= range.start && range.start < piece.end() {
                    range.start = piece.end().min(range.end);
                } else if piece.at < range.end && range.end <= piece.end() {
                    range.end = piece.at.max(range.start);
                }
            }
            range
        };
        self.storage.will_need(&mut ranges.map(trim).filter(|range| !range.is_empty()));
    }

    /// Reads a small range and what follows it.
    fn read_block(&self, op: ReadOp<'_>, kept: &mut Kept, cx: &Cx<'_>) -> Result<()> {
        let (size, distance, length) = (self.storage.len(), self.storage.distance(), op.out.len() as u64);
        let last = kept.blocks.last().map(FetchedRange::end);
        let follows = last.is_some_and(|end| (end..=end.saturating_add(distance.near)).contains(&op.at));
        let most = LARGEST.min(distance.first).max(SMALL);
        kept.next = match size {
            ..=LARGEST => size,
            _ if follows => (2 * kept.next).clamp(SMALL, most),
            _ => SMALL,
        };
        let mut end = size.min(op.at.saturating_add(kept.next)).max(op.at + length);
        // What is in memory is not read again.
        for piece in self.pieces.iter().filter(|piece| !piece.bytes.is_empty() && piece.at >= op.at + length)
        {
            end = end.min(piece.at);
        }
        let mut block = FetchedRange::empty(op.at..end)?;
        if follows {
            // The next block is on its way while this one is used.
            let next = end..size.min(end.saturating_add((2 * kept.next).min(most)));
            self.announce(&mut [op.at..end, next].into_iter(), kept);
        }
        self.storage.read_at(op.at, &mut block.bytes, cx)?;
        op.out.copy_from_slice(&block.bytes[..op.out.len()]);
        kept.blocks.push(block);
        let mut bytes: u64 = kept.blocks.iter().map(|block| block.bytes.len() as u64).sum();
        while bytes > KEPT && kept.blocks.len() > 1 {
            bytes -= kept.blocks.remove(0).bytes.len() as u64;
        }
        Ok(())
    }
}

impl Storage for Buffered<'_> {
    fn name(&self) -> &str {
        self.storage.name()
    }

    fn len(&self) -> u64 {
        self.storage.len()
    }

    fn read_at(&self, at: u64, out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
        if self.is_near() {
            return self.storage.read_at(at, out, cx);
        }
        crate::bytes::range("bytes", at, out.len() as u64, self.len())
            .map_err(|error| error.in_file(self.name()))?;
        let mut kept = self.kept.lock().map_err(|_| Error::cancellation())?;
        let rest = self.fill(ReadOp { at, out }, &kept);
        match rest.out.len() as u64 {
            0 => Ok(()),
            length if length < SMALL || self.len() <= LARGEST => self.read_block(rest, &mut kept, cx),
            _ => self.storage.read_at(rest.at, rest.out, cx),
        }
    }

    fn distance(&self) -> Distance {
        self.storage.distance()
    }

    fn will_need(&self, ranges: &mut dyn Iterator<Item = Range<u64>>) {
        if self.is_near() {
            self.storage.will_need(ranges);
        } else if let Ok(kept) = self.kept.lock() {
            self.announce(ranges, &kept);
        }
    }

    fn unchanged(&self) -> Result<()> {
        self.storage.unchanged()
    }

    fn change_mark(&self) -> u64 {
        self.storage.change_mark()
    }

    fn beside(&self, name: &dyn Fn(&OsStr) -> OsString) -> Option<Arc<dyn Storage>> {
        self.storage.beside(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cx::for_tests;
    use crate::limits::Limits;
    use crate::storage::LOCAL;
    use proptest::prelude::*;

    const SIZE: u64 = 20 << 20;

    /// Counts the reads and the bytes read. Every byte is its offset modulo 251.
    #[derive(Default)]
    struct Far {
        reads: Mutex<Vec<Range<u64>>>,
    }

    impl Storage for Far {
        fn name(&self) -> &str {
            "far"
        }
        fn len(&self) -> u64 {
            SIZE
        }
        fn read_at(&self, at: u64, out: &mut [u8], _cx: &Cx<'_>) -> Result<()> {
            self.reads.lock().unwrap().push(at..at + out.len() as u64);
            (at..).zip(out).for_each(|(at, byte)| *byte = (at % 251) as u8);
            Ok(())
        }
        fn distance(&self) -> Distance {
            Distance { first: 8 << 20, near: 1 << 20, largest: 32 << 20, ahead: 1, ..LOCAL }
        }
    }

    fn piece(range: Range<u64>) -> FetchedRange {
        FetchedRange { at: range.start, bytes: range.map(|at| (at % 251) as u8).collect() }
    }

    fn check(buffered: &Buffered<'_>, at: u64, length: usize) {
        let mut out = vec![0; length];
        buffered.read_at(at, &mut out, &for_tests(Limits::default())).unwrap();
        assert!((at..).zip(&out).all(|(at, &byte)| byte == (at % 251) as u8), "{length} bytes at {at}");
    }

    #[test]
    fn headers_one_after_the_other_take_few_reads() {
        let far = Far::default();
        let buffered = Buffered::new(&far, &[]);
        (0..SIZE - 100).step_by(1000).for_each(|at| check(&buffered, at, 20));
        let reads = far.reads.into_inner().unwrap();
        let bytes: u64 = reads.iter().map(|read| read.end - read.start).sum();
        assert!(reads.len() <= 12 && bytes <= SIZE, "{reads:?}");
    }

    #[test]
    fn a_table_that_is_read_again_is_in_memory() {
        let far = Far::default();
        let pieces = [piece(SIZE - 50_000..SIZE)];
        let buffered = Buffered::new(&far, &pieces);
        for _ in 0..3 {
            (SIZE - (3 << 20)..SIZE - 100).step_by(1000).for_each(|at| check(&buffered, at, 100));
        }
        let reads = far.reads.into_inner().unwrap();
        assert!(reads.len() <= 6 && reads.iter().all(|read| read.end <= SIZE - 50_000), "{reads:?}");
    }

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "this is a list of ranges")]
    fn a_large_read_takes_only_what_is_not_in_memory() {
        let far = Far::default();
        let pieces = [piece(0..1000), piece(SIZE - 1000..SIZE)];
        let buffered = Buffered::new(&far, &pieces);
        check(&buffered, 0, SIZE as usize);
        assert_eq!(*far.reads.lock().unwrap(), [1000..SIZE - 1000]);
        assert!(buffered.read_at(SIZE - 1, &mut [0; 2], &for_tests(Limits::default())).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn reads_of_any_order_are_right(
            reads in prop::collection::vec((0..SIZE, 0..200_000u64), 1..30),
            pieces in prop::collection::vec((0..SIZE, 0..200_000u64), 0..3),
        ) {
            let far = Far::default();
            let pieces: Vec<_> =
                pieces.into_iter().map(|(at, length)| piece(at..SIZE.min(at + length))).collect();
            let buffered = Buffered::new(&far, &pieces);
            for (at, length) in reads {
                check(&buffered, at, length.min(SIZE - at) as usize);
            }
        }
    }
}
