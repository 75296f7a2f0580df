//! A disk that fails to read some of its blocks. The bytes of those blocks read as zeros, which no checksum of a record
//! accepts, so that only the records in those blocks are lost.

use crate::cx::Cx;
use crate::error::{Error, Kind, Result};
use crate::storage::{Distance, Storage};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// The part of a file that is read again after a failed read. Disks fail in blocks of this size.
const BLOCK: u64 = 4096;
/// The number of the system's I/O error, EIO.
const IO_ERROR: i32 = 5;
/// The most unreadable blocks that are kept, to read none of them twice.
const BLOCKS_KEPT: usize = 1 << 16;

/// A storage whose unreadable blocks are zeros.
pub struct Readable<'a> {
    storage: &'a dyn Storage,
    /// The offsets of the blocks that could not be read.
    unreadable: Mutex<BTreeSet<u64>>,
}

impl<'a> Readable<'a> {
    /// Nothing is read yet.
    pub fn new(storage: &'a dyn Storage) -> Self {
        Readable { storage, unreadable: Mutex::default() }
    }

    /// How many bytes could not be read. Counts at most the first 65,536 blocks.
    pub fn unreadable_bytes(&self) -> u64 {
        let blocks = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.iter().map(|&at| BLOCK.min(self.len() - at)).sum()
    }

    fn read_block(&self, block: u64, at: u64, out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
        let is_known = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner).contains(&block);
        let read = if is_known { None } else { Some(self.storage.read_at(at, out, cx)) };
        match read {
            Some(Ok(())) => return Ok(()),
            Some(Err(error)) if !is_disk_error(&error) => return Err(error),
            _ => out.fill(0),
        }
        let mut unreadable = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        if unreadable.len() < BLOCKS_KEPT {
            unreadable.insert(block);
        }
        Ok(())
    }
}

fn is_disk_error(error: &Error) -> bool {
    matches!(error.kind(), Kind::Io(error) if error.raw_os_error() == Some(IO_ERROR))
}

impl Storage for Readable<'_> {
    fn name(&self) -> &str {
        self.storage.name()
    }

    fn len(&self) -> u64 {
        self.storage.len()
    }

    fn read_at(&self, at: u64, mut out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
        match self.storage.read_at(at, out, cx) {
            Err(error) if is_disk_error(&error) => {}
            read => return read,
        }
        let mut at = at;
        while !out.is_empty() {
            cx.check()?;
            let in_block = (BLOCK - at % BLOCK).min(out.len() as u64);
            let (now, later) = out.split_at_mut(in_block as usize);
            self.read_block(at - at % BLOCK, at, now, cx)?;
            (out, at) = (later, at + in_block);
        }
        Ok(())
    }

    fn distance(&self) -> Distance {
        self.storage.distance()
    }

    fn will_need(&self, ranges: &mut dyn Iterator<Item = Range<u64>>) {
        self.storage.will_need(ranges);
    }

    fn unchanged(&self) -> Result<()> {
        self.storage.unchanged()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::cx::for_tests;

    /// Every byte is 7, except that no read may touch one of the bad blocks.
    struct BadDisk {
        bad: Vec<u64>,
        error: i32,
    }

    impl Storage for BadDisk {
        fn name(&self) -> &str {
            "disk"
        }

        fn len(&self) -> u64 {
            10 * BLOCK + 100
        }

        fn read_at(&self, at: u64, out: &mut [u8], _cx: &Cx<'_>) -> Result<()> {
            let blocks = at / BLOCK..=(at + out.len() as u64 - 1) / BLOCK;
            if self.bad.iter().any(|block| blocks.contains(block)) {
                return Err(Error::io("read failed", std::io::Error::from_raw_os_error(self.error)));
            }
            out.fill(7);
            Ok(())
        }
    }

    #[test]
    fn only_the_bytes_of_unreadable_blocks_are_zero() {
        let disk = BadDisk { bad: vec![2, 3, 10], error: IO_ERROR };
        let (readable, cx) = (Readable::new(&disk), for_tests(Limits::default()));
        for (at, length) in [(0, disk.len()), (5, 100), (BLOCK + 17, 3 * BLOCK), (10 * BLOCK, 100)] {
            let mut out = vec![1; length as usize];
            readable.read_at(at, &mut out, &cx).unwrap();
            let is_right =
                |(at, &byte): (u64, &u8)| byte == if disk.bad.contains(&(at / BLOCK)) { 0 } else { 7 };
            assert!((at..).zip(&out).all(is_right), "{at}, {length}");
        }
        assert_eq!(readable.unreadable_bytes(), 2 * BLOCK + 100);
    }

    #[test]
    fn other_errors_end_the_read() {
        let disk = BadDisk { bad: vec![2], error: 13 };
        let (readable, cx) = (Readable::new(&disk), for_tests(Limits::default()));
        assert!(readable.read_at(0, &mut [0; 3 * BLOCK as usize], &cx).is_err());
    }
}
