//! A storage of which only some ranges can be read, because they are in memory. A read of another range fails, and the
//! range is noted as missing.
//!
//! Opening a file reads a few ranges, and each range says where the next one is. This storage lets many files be opened
//! together: every opening runs until a range is missing, and then the missing ranges of all files are fetched together.

use super::{Distance, ReadOp, Storage};
use crate::bytes;
use crate::cx::Cx;
use crate::error::{Error, Result};
use std::ops::Range;
use std::sync::Mutex;

/// Ranges are fetched in whole blocks of this size, so that small reads close to each other need one fetch.
const BLOCK: u64 = 4096;

/// Bytes of a storage that were fetched.
pub struct FetchedRange {
    /// Offset of the first byte.
    pub at: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl FetchedRange {
    /// A buffer for a range, to be filled. An error if there is not enough memory.
    pub fn empty(range: Range<u64>) -> Result<Self> {
        let bytes = bytes::zeroed("part of a file", range.end - range.start)?;
        Ok(FetchedRange { at: range.start, bytes })
    }

    /// Where it ends.
    pub fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }

    /// Some of the bytes. None if it does not hold all of them.
    pub fn get(&self, at: u64, length: usize) -> Option<&[u8]> {
        let begin = usize::try_from(at.checked_sub(self.at)?).ok()?;
        self.bytes.get(begin..begin.checked_add(length)?)
    }
}

/// The pieces of a storage that are in memory.
pub struct Partial<'a> {
    storage: &'a dyn Storage,
    pieces: &'a [FetchedRange],
    /// The ranges that reads needed and no piece holds.
    missing: Mutex<Vec<Range<u64>>>,
}

impl<'a> Partial<'a> {
    /// Only the pieces can be read. Other reads fail, and their ranges are noted as missing.
    pub fn new(storage: &'a dyn Storage, pieces: &'a [FetchedRange]) -> Self {
        Partial { storage, pieces, missing: Mutex::default() }
    }

    /// Whether a read needed a range that no piece holds.
    pub fn is_missing_something(&self) -> bool {
        self.missing.lock().is_ok_and(|missing| !missing.is_empty())
    }

    /// The ranges that reads needed and no piece holds, in whole blocks.
    pub fn into_missing(self) -> Vec<Range<u64>> {
        let mut missing = self.missing.into_inner().unwrap_or_default();
        missing.sort_unstable_by_key(|range| range.start);
        missing.dedup();
        missing
    }

    /// The range of the read, extended to whole blocks. If the storage is far away, it is extended to the next piece: a
    /// table before the end of a file is read in many small pieces, and each would be a request.
    fn blocks(&self, op: &ReadOp<'_>) -> Range<u64> {
        let (begin, end) = (op.at / BLOCK * BLOCK, op.at.saturating_add(op.out.len() as u64));
        let next = self.pieces.iter().map(|piece| piece.at).filter(|&at| at >= end).min();
        let end = match next.filter(|_| self.storage.distance().is_far()) {
            Some(next) => next,
            None => end.checked_next_multiple_of(BLOCK).unwrap_or(end).min(self.storage.len()),
        };
        begin..end.max(begin)
    }
}

impl Storage for Partial<'_> {
    fn name(&self) -> &str {
        self.storage.name()
    }

    fn len(&self) -> u64 {
        self.storage.len()
    }

    fn read_at(&self, at: u64, out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
        self.read_many(&mut [ReadOp { at, out }], cx)
    }

    fn read_many(&self, ops: &mut [ReadOp<'_>], _cx: &Cx<'_>) -> Result<()> {
        let mut is_whole = true;
        for op in ops {
            if let Some(found) = self.pieces.iter().find_map(|piece| piece.get(op.at, op.out.len())) {
                op.out.copy_from_slice(found);
                continue;
            }
            is_whole = false;
            if let Ok(mut missing) = self.missing.lock() {
                missing.push(self.blocks(op));
            }
        }
        if is_whole { Ok(()) } else { Err(Error::cancellation()) }
    }

    fn distance(&self) -> Distance {
        self.storage.distance()
    }

    fn unchanged(&self) -> Result<()> {
        self.storage.unchanged()
    }

    fn change_mark(&self) -> u64 {
        self.storage.change_mark()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cx::for_tests;
    use crate::limits::Limits;
    use crate::storage::memory::Memory;

    #[test]
    fn a_read_is_served_from_a_piece_or_noted_in_whole_blocks() {
        let bytes: Vec<u8> = (0..10_000).map(|i| (i % 251) as u8).collect();
        let whole = Memory::new("data", bytes.clone());
        let cx = for_tests(Limits::default());
        let pieces = [4096..8192, 8192..10_000]
            .map(|range: Range<usize>| FetchedRange { at: range.start as u64, bytes: bytes[range].to_vec() });
        let partial = Partial::new(&whole, &pieces);
        let mut out = [0; 100];
        partial.read_at(5000, &mut out, &cx).unwrap();
        assert_eq!(out, bytes[5000..5100]);
        partial.read_at(9900, &mut out, &cx).unwrap();
        assert_eq!(out, bytes[9900..]);
        let (mut first, mut second, mut third) = ([0; 10], [0; 10], [0; 10]);
        let mut ops = [(4090, &mut first), (6000, &mut second), (9995, &mut third)]
            .map(|(at, out)| ReadOp { at, out: &mut out[..] });
        assert!(partial.read_many(&mut ops, &cx).unwrap_err().is_cancellation());
        assert_eq!(second, bytes[6000..6010]);
        assert!(partial.read_at(u64::MAX, &mut out, &cx).is_err());
        let last = u64::MAX / BLOCK * BLOCK;
        assert_eq!(partial.into_missing(), [0..8192, 8192..10_000, last..last]);
    }
}
