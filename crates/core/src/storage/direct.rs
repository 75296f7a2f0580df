//! Reads that bypass the page cache (O_DIRECT), for data sets that are larger than memory and would only push
//! everything else out of the page cache.
//!
//! With O_DIRECT, the system reads whole blocks into block-aligned memory. So ranges are extended to block boundaries,
//! blocks that several ranges touch are read once, and the bytes are copied once, from the block to their destination.
//! Many blocks of many files are in flight at once: in an io_uring ring ([`uring`]), or in a few threads
//! where the system forbids io_uring.

use super::ReadOp;
use super::aligned::AlignedMemory;
use super::uring::{self, DEPTH, Read, Reads};
use crate::parallel::start_helpers;
use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

/// The largest single read. A disk reaches its full speed with reads of this size, and a few of them fill its queue.
const PIECE: usize = 256 << 10;
/// Memory for all pieces in flight: what a disk of 40 GB/s delivers within its latency of 0.1 ms.
const MEMORY: usize = 4 << 20;
/// The block size if the file system does not report one. No file system with O_DIRECT has a larger one by default.
const USUAL_BLOCK: u64 = 4096;

/// Threads that read if there is no ring. They live for one batch and only wait for the disk. With batches of 256
/// records of 4 KB on a virtio disk under other load, they read 38,000/s to 54,000/s. One read at a time gave 12,000/s
/// to 20,000/s.
const THREADS: usize = 16;
/// The number of ranges that a thread takes at a time. Starting a thread takes as long as half a read.
const SHARE: usize = 4;

/// How a file is read with O_DIRECT.
#[derive(Clone, Copy, Debug)]
pub struct Direct {
    /// The block size. It is a power of two, and offsets and lengths are multiples of it.
    block: u64,
}

/// Why a range was not read.
#[derive(Debug)]
pub enum Failure {
    /// The file has no byte at this offset.
    Ends(u64),
    /// The system returned an error at this offset.
    Refused(u64, Errno),
}

/// A file, and a range of it to read.
pub struct Wanted<'f, 'o> {
    /// The caller's number for the file. All ranges of one file have the same number.
    pub owner: usize,
    /// The file.
    pub file: &'f File,
    /// How it is read.
    pub direct: Direct,
    /// The range.
    pub op: ReadOp<'o>,
}

/// A range that could not be read, and the file that it belongs to.
pub type Failed = (usize, Failure);

impl Direct {
    /// Switches an open file to O_DIRECT. None: the file system does not support it, and nothing was changed.
    pub fn switch(file: &File) -> Option<Direct> {
        if is_in_memory(file) {
            return None;
        }
        let block = block_of(file)?;
        let flags = rustix::fs::fcntl_getfl(file).ok()?;
        rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT).ok()?;
        let direct = Direct { block };
        // Some file systems accept the flag and then fail the reads.
        if direct.try_out(file) {
            return Some(direct);
        }
        rustix::fs::fcntl_setfl(file, flags).ok()?;
        None
    }

    fn try_out(self, file: &File) -> bool {
        let Some(mut memory) = AlignedMemory::take(self.block as usize) else { return false };
        let is_read = rustix::io::pread(file, &mut memory.bytes()[..self.block as usize], 0).is_ok();
        memory.give_back();
        is_read
    }
}

/// Reads all ranges, of any number of files. When it returns, no read is in flight.
pub fn read_many(wanted: &mut [Wanted<'_, '_>]) -> Result<(), Failed> {
    if !wanted.is_sorted_by_key(|wanted| (wanted.owner, wanted.op.at)) {
        wanted.sort_unstable_by_key(|wanted| (wanted.owner, wanted.op.at));
    }
    match read_queued(wanted, true) {
        Some(result) => result,
        None => read_in_threads(wanted),
    }
}

/// Reads all ranges, which are sorted, in this thread. None: a ring is wanted and would help, but there is none.
fn read_queued(wanted: &mut [Wanted<'_, '_>], is_ring_wanted: bool) -> Option<Result<(), Failed>> {
    let pieces = pieces(wanted);
    let Some(largest) = pieces.iter().map(|piece| piece.length).max() else { return Some(Ok(())) };
    // Each piece has its own pages.
    let slot = largest.next_multiple_of(rustix::param::page_size());
    let slots = (MEMORY / slot).clamp(1, DEPTH).min(pieces.len());
    let Some(mut memory) = AlignedMemory::take(slots * slot) else {
        return Some(Err((wanted[pieces[0].first].owner, Failure::Refused(pieces[0].at, Errno::NOMEM))));
    };
    let free = memory.bytes().chunks_exact_mut(slot).take(slots).collect();
    let mut work = Work { wanted, pieces: &pieces, begun: 0, free };
    // A ring is worth its cost from two reads on.
    let result = match is_ring_wanted && pieces.len() > 1 {
        true => uring::read(&mut work),
        false => Some(work.one_by_one()),
    };
    memory.give_back();
    result
}

/// The fallback without a ring: threads take the ranges a few at a time, in the order of the file.
fn read_in_threads(wanted: &mut [Wanted<'_, '_>]) -> Result<(), Failed> {
    let threads = wanted.len().div_ceil(SHARE).min(THREADS);
    let shares = Mutex::new(wanted.chunks_mut(SHARE));
    let take = || shares.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some(share) = take() {
            // There is always a result if no ring is wanted.
            if let Some(Err(failed)) = read_queued(share, false) {
                // Take the remaining shares, so that no thread begins another one.
                while take().is_some() {}
                return Err(failed);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let others = start_helpers(scope, threads.saturating_sub(1), work);
        let own = work();
        others.into_iter().fold(own, |result, other| match other.join() {
            Ok(others) => result.and(others),
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

/// The blocks that the sorted ranges touch, each block once, in pieces.
fn pieces(wanted: &[Wanted<'_, '_>]) -> Vec<Piece> {
    let mut pieces = Vec::with_capacity(wanted.len());
    let mut next = 0;
    while next < wanted.len() {
        // Contiguous blocks of one file, and the ranges in them.
        let mut first = next;
        let (owner, (mut at, mut end)) = (wanted[next].owner, wanted[next].blocks());
        while let Some(other) = wanted.get(next).filter(|other| other.owner == owner) {
            let blocks = other.blocks();
            if blocks.0 > end {
                break;
            }
            end = end.max(blocks.1);
            next += 1;
        }
        while at < end {
            let length = (end - at).min(PIECE as u64);
            while wanted[first].end() <= at {
                first += 1;
            }
            pieces.push(Piece { at, length: length as usize, first });
            at += length;
        }
    }
    pieces
}

impl Wanted<'_, '_> {
    fn end(&self) -> u64 {
        self.op.at.saturating_add(self.op.out.len() as u64)
    }

    /// The blocks of the range; none for an empty one.
    fn blocks(&self) -> (u64, u64) {
        let begin = self.op.at / self.direct.block * self.direct.block;
        if self.op.out.is_empty() {
            return (begin, begin);
        }
        (begin, self.end().checked_next_multiple_of(self.direct.block).unwrap_or(u64::MAX))
    }
}

/// Whether a file exists only in the page cache. Linux accepts O_DIRECT there since 6.6 and ignores it.
fn is_in_memory(file: &File) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58F6;
    rustix::fs::fstatfs(file).is_ok_and(|found| [TMPFS, RAMFS].contains(&(found.f_type as u64 & 0xFFFF_FFFF)))
}

/// The block size for offsets and lengths. None: O_DIRECT reads are not possible.
fn block_of(file: &File) -> Option<u64> {
    let reported = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
    let (block, memory) = match reported {
        Some(reported) if reported.stx_mask & StatxFlags::DIOALIGN.bits() != 0 => {
            (u64::from(reported.stx_dio_offset_align), reported.stx_dio_mem_align as usize)
        }
        _ => (USUAL_BLOCK, 0),
    };
    let is_possible =
        block.is_power_of_two() && block <= PIECE as u64 && memory <= rustix::param::page_size();
    is_possible.then_some(block)
}

/// Adjacent blocks of one file.
#[derive(Debug, PartialEq, Eq)]
struct Piece {
    at: u64,
    length: usize,
    /// The first of the sorted ranges that may overlap this piece.
    first: usize,
}

/// Reads pieces into aligned memory, and copies them from there to their destinations.
struct Work<'w, 'f, 'o, 'm> {
    wanted: &'w mut [Wanted<'f, 'o>],
    pieces: &'w [Piece],
    /// How many pieces were begun.
    begun: usize,
    free: Vec<&'m mut [u8]>,
}

impl Work<'_, '_, '_, '_> {
    fn one_by_one(&mut self) -> Result<(), Failed> {
        while let Some(read) = self.next() {
            self.done(read, Ok(0))?;
        }
        Ok(())
    }

    /// Completes a short read. Returns how many bytes there are, which is fewer than requested if the file ends.
    fn finish(&self, piece: &Piece, out: &mut [u8], mut done: usize) -> Result<usize, Failed> {
        let Wanted { owner, file, direct, .. } = &self.wanted[piece.first];
        // A read ends inside a block only at the end of the file.
        while done < out.len() && (done as u64).is_multiple_of(direct.block) {
            let position = piece.at + done as u64;
            match rustix::io::pread(file, &mut out[done..], position) {
                Ok(0) => break,
                Ok(length) => done += length,
                Err(Errno::INTR) => {}
                Err(error) => return Err((*owner, Failure::Refused(position, error))),
            }
        }
        Ok(done)
    }

    fn hand_out(&mut self, piece: &Piece, bytes: &[u8]) -> Result<(), Failed> {
        let (begin, end) = (piece.at, piece.at + piece.length as u64);
        let there = begin + bytes.len() as u64;
        let owner = self.wanted[piece.first].owner;
        for wanted in &mut self.wanted[piece.first..] {
            if wanted.owner != owner || wanted.op.at >= end {
                break;
            }
            let (from, to) = (wanted.op.at.max(begin), wanted.end().min(end));
            if from < to {
                if to > there {
                    return Err((owner, Failure::Ends(from.max(there))));
                }
                let at = wanted.op.at;
                let out = &mut wanted.op.out[(from - at) as usize..(to - at) as usize];
                out.copy_from_slice(&bytes[(from - begin) as usize..(to - begin) as usize]);
            }
        }
        Ok(())
    }
}

impl<'f, 'm> Reads<'f, 'm> for Work<'_, 'f, '_, 'm> {
    type Error = Failed;

    fn next(&mut self) -> Option<Read<'f, 'm>> {
        let piece = self.pieces.get(self.begun)?;
        let slot = self.free.pop()?;
        self.begun += 1;
        let file = self.wanted[piece.first].file.as_fd();
        // Pass the whole slot and the length, so that the slot keeps its full size for the next pieces.
        Some(Read { key: self.begun - 1, file, at: piece.at, out: slot, length: piece.length })
    }

    fn done(&mut self, read: Read<'f, 'm>, outcome: Result<usize, Errno>) -> Result<(), Failed> {
        let piece = &self.pieces[read.key];
        // A read that failed in the ring is tried once more on its own.
        let done = self.finish(piece, &mut read.out[..read.length], outcome.unwrap_or(0))?;
        self.hand_out(piece, &read.out[..done])?;
        self.free.push(read.out);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustix::mm::{MapFlags, ProtFlags};

    fn content(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at * 31 % 251) as u8).collect()
    }

    /// A file on a file system that supports O_DIRECT, if there is one here.
    fn file_of(length: usize) -> Option<(File, Direct)> {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &content(length)).unwrap();
        let direct = Direct::switch(&file)?;
        Some((file, direct))
    }

    fn read(file: &File, direct: Direct, ranges: &[(u64, usize)]) -> Result<Vec<Vec<u8>>, Failure> {
        let mut places: Vec<_> = ranges.iter().map(|&(_, length)| vec![0; length]).collect();
        let wanted = ranges.iter().zip(&mut places);
        let wanted = wanted.map(|(&(at, _), out)| Wanted { owner: 0, file, direct, op: ReadOp { at, out } });
        read_many(&mut wanted.collect::<Vec<_>>()).map_err(|(_, failure)| failure)?;
        Ok(places)
    }

    /// How many pages of the first `length` bytes of a file are in the page cache.
    fn cached_pages(file: &File, length: usize) -> usize {
        let (protection, flags) = (ProtFlags::READ, MapFlags::SHARED);
        let mut found = vec![0u8; length.div_ceil(rustix::param::page_size())];
        // SAFETY: a new mapping, which is only queried and then removed. `found` has a byte for each page.
        unsafe {
            let begin = rustix::mm::mmap(std::ptr::null_mut(), length, protection, flags, file, 0).unwrap();
            assert_eq!(libc::mincore(begin, length, found.as_mut_ptr()), 0);
            rustix::mm::munmap(begin, length).unwrap();
        }
        found.iter().filter(|&&page| page & 1 != 0).count()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_ranges_in_any_order_are_the_files_bytes(
            length in 1usize..600_000,
            ranges in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0usize..9), 0..40),
            queued in any::<bool>(),
        ) {
            let Some((file, direct)) = file_of(length) else { return Ok(()) };
            let expected = content(length);
            let ranges: Vec<(u64, usize)> = ranges
                .into_iter()
                .map(|(from, size, shrink)| {
                    let from = from.index(length + 1);
                    (from as u64, size.index(length - from + 1) >> (2 * shrink))
                })
                .collect();
            let found = match queued {
                true => read(&file, direct, &ranges).unwrap(),
                false => uring::without(|| read(&file, direct, &ranges)).unwrap(),
            };
            for ((at, size), found) in ranges.into_iter().zip(found) {
                prop_assert!(found == expected[at as usize..at as usize + size], "{size} bytes at {at}");
            }
        }
    }

    #[test]
    fn blocks_are_read_once_and_in_bounded_pieces() {
        let file = tempfile::tempfile().unwrap();
        fn wanted<'f, 'o>(file: &'f File, ops: [ReadOp<'o>; 2]) -> [Wanted<'f, 'o>; 2] {
            ops.map(|op| Wanted { owner: 0, file, direct: Direct { block: 512 }, op })
        }
        let mut memory = vec![0; 3 * PIECE];
        let (large, small) = memory.split_at_mut(2 * PIECE);
        let (one, two) = small.split_at_mut(100);
        let ops = [ReadOp { at: 1000, out: one }, ReadOp { at: 1100, out: &mut two[..5] }];
        assert_eq!(pieces(&wanted(&file, ops)), [Piece { at: 512, length: 1024, first: 0 }]);
        let ops = [ReadOp { at: 1, out: large }, ReadOp { at: 2 * PIECE as u64 + 5000, out: &mut two[..5] }];
        let found = pieces(&wanted(&file, ops));
        let end = 2 * PIECE as u64;
        let expected = [(0, PIECE, 0), (PIECE as u64, PIECE, 0), (end, 512, 0), (end + 4608, 512, 1)];
        assert_eq!(found, expected.map(|(at, length, first)| Piece { at, length, first }));
    }

    #[test]
    fn the_page_cache_is_left_as_it_is() {
        const LENGTH: usize = 4 << 20;
        let Some((file, direct)) = file_of(LENGTH) else { return };
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let before = cached_pages(&file, LENGTH);
        let ranges: Vec<_> = (0..1000).map(|i| (i * 4001, 4000)).collect();
        read(&file, direct, &ranges).unwrap();
        read(&file, direct, &[(0, LENGTH)]).unwrap();
        assert_eq!(cached_pages(&file, LENGTH), before);
        assert!(before < LENGTH / 4096);
    }

    #[test]
    fn the_end_of_the_file_is_reported_to_the_byte() {
        let Some((file, direct)) = file_of(10_000) else { return };
        for (ranges, end) in [
            (&[(9_999, 2)][..], 10_000),
            (&[(10_000, 1)], 10_000),
            (&[(50_000, 1)], 50_000),
            (&[(0, 10_000), (5_000, 5_001)], 10_000),
            (&[(0, 100), (600_000, 5), (9_000, 1000)], 600_000),
        ] {
            for is_queued in [true, false] {
                let found = match is_queued {
                    true => read(&file, direct, ranges),
                    false => uring::without(|| read(&file, direct, ranges)),
                };
                assert!(matches!(found, Err(Failure::Ends(at)) if at == end), "{ranges:?}: {found:?}");
            }
        }
        file.set_len(8192).unwrap();
        assert!(matches!(read(&file, direct, &[(100, 9_000)]), Err(Failure::Ends(8192))));
        assert_eq!(read(&file, direct, &[(0, 8192)]).unwrap(), [&content(8192)[..]]);
        assert_eq!(read(&file, direct, &[(8192, 0), (1 << 40, 0)]).unwrap(), [b"", b""]);
    }

    #[test]
    fn without_a_queue_many_ranges_are_shared_out() {
        let Some((file, direct)) = file_of(1_000_000) else { return };
        let expected = content(1_000_000);
        let ranges: Vec<_> = (0..500).map(|i| (i * 7919 % 995_000, (i % 5000) as usize)).collect();
        let found = uring::without(|| read(&file, direct, &ranges)).unwrap();
        assert!(
            ranges.iter().zip(&found).all(|(&(at, size), found)| *found == expected[at as usize..][..size])
        );
        file.set_len(500_000).unwrap();
        let found = uring::without(|| read(&file, direct, &ranges));
        assert!(matches!(found, Err(Failure::Ends(500_000..)),), "{found:?}");
    }

    #[test]
    fn a_refusal_of_the_system_says_where() {
        let Some((file, direct)) = file_of(10_000) else { return };
        let unreadable = std::fs::OpenOptions::new().write(true).open("/dev/null").unwrap();
        for ranges in [&[(600, 10)][..], &[(600, 10), (9_000, 10)]] {
            let found = read(&unreadable, Direct { block: 512 }, ranges);
            assert!(matches!(found, Err(Failure::Refused(512 | 8704, Errno::BADF))), "{found:?}");
        }
        assert_eq!(read(&file, direct, &[(600, 10)]).unwrap(), [&content(610)[600..]]);
    }

    #[test]
    fn a_file_system_without_such_reads_is_left_as_it_was() {
        let Ok(mut file) = tempfile::tempfile_in("/dev/shm") else { return };
        assert!(Direct::switch(&file).is_none());
        std::io::Write::write_all(&mut file, b"twelve bytes").unwrap();
        let mut out = [0; 5];
        assert_eq!(rustix::io::pread(&file, &mut out, 7).unwrap(), 5);
        assert_eq!(&out, b"bytes");
    }

    #[test]
    fn ranges_of_many_files_are_read_together_and_an_error_names_its_file() {
        let lengths = [10_000, 300_000, 1, 50_000];
        let Some(files) = lengths.into_iter().map(file_of).collect::<Option<Vec<_>>>() else { return };
        let ranges: Vec<(usize, u64, usize)> = (0..200)
            .map(|i| {
                let (owner, at) = (i % 4, i * 7919 % lengths[i % 4]);
                (owner, at as u64, (lengths[owner] - at).min(i * 37))
            })
            .collect();
        let read = |ranges: &[(usize, u64, usize)]| {
            let mut places: Vec<_> = ranges.iter().map(|&(_, _, length)| vec![0; length]).collect();
            let wanted = ranges.iter().zip(&mut places).map(|(&(owner, at, _), out)| {
                let (file, direct) = &files[owner];
                Wanted { owner, file, direct: *direct, op: ReadOp { at, out } }
            });
            let result = read_many(&mut wanted.collect::<Vec<_>>());
            (result, places)
        };
        for is_queued in [true, false] {
            let (result, found) = if is_queued { read(&ranges) } else { uring::without(|| read(&ranges)) };
            result.unwrap();
            for (&(owner, at, size), found) in ranges.iter().zip(&found) {
                assert!(
                    *found == content(lengths[owner])[at as usize..][..size],
                    "file {owner}: {size} at {at}"
                );
            }
            let bad = [&ranges[..50], &[(2, 0, 2)]].concat();
            let (result, _) = if is_queued { read(&bad) } else { uring::without(|| read(&bad)) };
            assert!(matches!(result, Err((2, Failure::Ends(1)))), "{result:?}");
        }
    }
}
