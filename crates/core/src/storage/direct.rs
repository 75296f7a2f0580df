//! Reading past the page cache, for data sets that are larger than memory and would only push out everything else.
//!
//! The system then reads whole blocks into memory that begins at a block's edge. So ranges are rounded out to blocks,
//! blocks that several ranges touch are read once, and the bytes are copied once, from the block to their place.
//! Many blocks are on their way at once: in a queue ([`uring`](super::uring)), or where the system forbids that, in the
//! hands of a few threads.

use super::ReadOp;
use super::page_memory::Memory;
use super::uring::{self, DEPTH, Read, Reads};
use crate::parallel::start_helpers;
use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::io::Errno;
use std::fs::File;
use std::sync::{Mutex, PoisonError};

/// The most that is read at once: a disk streams with pieces of this size, and a few of them fill its queue.
const PIECE: usize = 256 << 10;
/// Memory for all pieces in flight. It is what a disk of 40 GB/s delivers in its answering time of 0.1 ms.
const MEMORY: usize = 4 << 20;
/// The block where a file system does not tell: none that reads past the page cache has a larger one by default.
const USUAL_BLOCK: u64 = 4096;

/// Threads that read where there is no queue. They live for one batch, and all they do is wait. In batches of
/// 256 records of 4 KB on a virtio disk, with others at work: 38,000/s to 54,000/s, where one at a time came at
/// 12,000/s to 20,000/s.
const THREADS: usize = 16;
/// So many ranges at a time: a thread is started in the time of half a read.
const SHARE: usize = 4;

/// How a file is read past the page cache.
#[derive(Clone, Copy, Debug)]
pub struct Direct {
    /// Offsets and lengths are multiples of this, which is a power of two.
    block: u64,
}

/// Why a range was not read.
#[derive(Debug)]
pub enum Failure {
    /// The file has no byte there.
    Ends(u64),
    /// The system said no, there.
    Refused(u64, Errno),
}

/// What became of reads that were meant for a queue.
enum Queued {
    Done,
    /// There is no queue here, and nothing was read.
    NoQueue,
}

impl Direct {
    /// Switches an open file over. None: its file system has no such reads, and nothing was changed.
    pub fn switch(file: &File) -> Option<Direct> {
        if is_in_memory(file) {
            return None;
        }
        let block = block_of(file)?;
        let flags = rustix::fs::fcntl_getfl(file).ok()?;
        rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT).ok()?;
        let direct = Direct { block };
        // Some file systems take the switch and refuse the reads.
        if direct.try_out(file) {
            return Some(direct);
        }
        rustix::fs::fcntl_setfl(file, flags).ok()?;
        None
    }

    fn try_out(self, file: &File) -> bool {
        let Some(mut memory) = Memory::take(self.block as usize) else { return false };
        let is_read = rustix::io::pread(file, &mut memory.bytes()[..self.block as usize], 0).is_ok();
        memory.give_back();
        is_read
    }

    /// Fills all ranges. Returns with nothing in flight.
    pub fn read_many(self, file: &File, ops: &mut [ReadOp<'_>]) -> Result<(), Failure> {
        // A queue pays from two reads on.
        let through_queue = |work: &mut Work<'_, '_, '_>| match work.pieces.len() {
            1 => work.one_by_one().map(|()| Queued::Done),
            _ => uring::read(file, work).map_or(Ok(Queued::NoQueue), |done| done.map(|()| Queued::Done)),
        };
        match self.read(file, ops, Queued::Done, through_queue)? {
            Queued::Done => Ok(()),
            Queued::NoQueue => self.read_in_threads(file, ops),
        }
    }

    /// Lets `by` read all pieces of the ranges; `nothing`: what to say if there are none.
    fn read<T>(
        self,
        file: &File,
        ops: &mut [ReadOp<'_>],
        nothing: T,
        by: impl FnOnce(&mut Work<'_, '_, '_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut order: Vec<usize> = (0..ops.len()).filter(|&i| !ops[i].out.is_empty()).collect();
        if !order.is_sorted_by_key(|&i| ops[i].at) {
            order.sort_unstable_by_key(|&i| ops[i].at);
        }
        let pieces = self.pieces(ops, &order);
        let Some(largest) = pieces.iter().map(|piece| piece.length).max() else { return Ok(nothing) };
        // Pages of their own for each piece.
        let slot = largest.next_multiple_of(rustix::param::page_size());
        let slots = (MEMORY / slot).clamp(1, DEPTH).min(pieces.len());
        let Some(mut memory) = Memory::take(slots * slot) else {
            return Err(Failure::Refused(pieces[0].at, Errno::NOMEM));
        };
        let free = memory.bytes().chunks_exact_mut(slot).take(slots).collect();
        let mut work = Work { block: self.block, file, ops, order: &order, pieces: &pieces, begun: 0, free };
        let result = by(&mut work);
        memory.give_back();
        result
    }

    /// What a queue is for, without it: threads take the ranges a few at a time, in the order in which they lie.
    fn read_in_threads(self, file: &File, ops: &mut [ReadOp<'_>]) -> Result<(), Failure> {
        let mut sorted: Vec<_> = ops.iter_mut().map(|op| ReadOp { at: op.at, out: &mut *op.out }).collect();
        sorted.sort_unstable_by_key(|op| op.at);
        let threads = sorted.len().div_ceil(SHARE).min(THREADS);
        let shares = Mutex::new(sorted.chunks_mut(SHARE));
        let take = || shares.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || {
            while let Some(share) = take() {
                let result = self.read(file, share, (), |work| work.one_by_one());
                if result.is_err() {
                    // Nobody begins another one.
                    while take().is_some() {}
                    return result;
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

    /// The blocks that the ranges touch, each once, in pieces.
    fn pieces(self, ops: &[ReadOp<'_>], order: &[usize]) -> Vec<Piece> {
        let mut pieces = Vec::with_capacity(order.len());
        let mut next = 0;
        while next < order.len() {
            // A stretch of blocks without a gap, and the ranges in it.
            let mut first = next;
            let (mut at, mut end) = self.blocks(&ops[order[next]]);
            while let Some(&other) = order.get(next) {
                let blocks = self.blocks(&ops[other]);
                if blocks.0 > end {
                    break;
                }
                end = end.max(blocks.1);
                next += 1;
            }
            while at < end {
                let length = (end - at).min(PIECE as u64);
                while end_of(&ops[order[first]]) <= at {
                    first += 1;
                }
                pieces.push(Piece { at, length: length as usize, first });
                at += length;
            }
        }
        pieces
    }

    fn blocks(self, op: &ReadOp<'_>) -> (u64, u64) {
        let end = end_of(op).checked_next_multiple_of(self.block).unwrap_or(u64::MAX);
        (op.at / self.block * self.block, end)
    }
}

fn end_of(op: &ReadOp<'_>) -> u64 {
    op.at.saturating_add(op.out.len() as u64)
}

/// Whether the page cache is all there is of a file. Linux takes the switch there since 6.6, and means nothing by it.
fn is_in_memory(file: &File) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58F6;
    rustix::fs::fstatfs(file).is_ok_and(|found| [TMPFS, RAMFS].contains(&(found.f_type as u64 & 0xFFFF_FFFF)))
}

/// The block that offsets, lengths and memory go by. None: there is no reading past the page cache.
fn block_of(file: &File) -> Option<u64> {
    let told = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
    let (block, memory) = match told {
        Some(told) if told.stx_mask & StatxFlags::DIOALIGN.bits() != 0 => {
            (u64::from(told.stx_dio_offset_align), told.stx_dio_mem_align as usize)
        }
        _ => (USUAL_BLOCK, 0),
    };
    let is_possible =
        block.is_power_of_two() && block <= PIECE as u64 && memory <= rustix::param::page_size();
    is_possible.then_some(block)
}

/// Some neighbouring blocks.
#[derive(Debug, PartialEq, Eq)]
struct Piece {
    at: u64,
    length: usize,
    /// The first of the ranges, in their order, that may begin before its end and end behind its beginning.
    first: usize,
}

/// Pieces on their way into memory, and from there to where they are wanted.
struct Work<'w, 'o, 'm> {
    block: u64,
    file: &'w File,
    ops: &'w mut [ReadOp<'o>],
    order: &'w [usize],
    pieces: &'w [Piece],
    /// How many pieces were begun.
    begun: usize,
    free: Vec<&'m mut [u8]>,
}

impl Work<'_, '_, '_> {
    fn one_by_one(&mut self) -> Result<(), Failure> {
        while let Some(read) = self.next() {
            self.done(read, Ok(0))?;
        }
        Ok(())
    }

    /// Reads on where one read did not come to the end, and returns where the file ends if it does.
    fn finish(&self, at: u64, out: &mut [u8], mut done: usize) -> Result<usize, Failure> {
        // The system ends inside a block only where the file does.
        while done < out.len() && (done as u64).is_multiple_of(self.block) {
            let position = at + done as u64;
            match rustix::io::pread(self.file, &mut out[done..], position) {
                Ok(0) => break,
                Ok(length) => done += length,
                Err(Errno::INTR) => {}
                Err(error) => return Err(Failure::Refused(position, error)),
            }
        }
        Ok(done)
    }

    fn hand_out(&mut self, piece: &Piece, bytes: &[u8]) -> Result<(), Failure> {
        let (begin, end) = (piece.at, piece.at + piece.length as u64);
        let there = begin + bytes.len() as u64;
        for &i in &self.order[piece.first..] {
            let op = &mut self.ops[i];
            if op.at >= end {
                break;
            }
            let (from, to) = (op.at.max(begin), end_of(op).min(end));
            if from < to {
                if to > there {
                    return Err(Failure::Ends(from.max(there)));
                }
                let out = &mut op.out[(from - op.at) as usize..(to - op.at) as usize];
                out.copy_from_slice(&bytes[(from - begin) as usize..(to - begin) as usize]);
            }
        }
        Ok(())
    }
}

impl<'m> Reads<'m> for Work<'_, '_, 'm> {
    type Error = Failure;

    fn next(&mut self) -> Option<Read<'m>> {
        let piece = self.pieces.get(self.begun)?;
        let slot = self.free.pop()?;
        self.begun += 1;
        // The slot comes back shorter, and is as long as any piece needs only if all of it is kept.
        Some(Read { key: self.begun - 1, at: piece.at, out: slot, length: piece.length })
    }

    fn done(&mut self, read: Read<'m>, outcome: Result<usize, Errno>) -> Result<(), Failure> {
        let piece = &self.pieces[read.key];
        // What failed in the queue is tried once more alone.
        let done = self.finish(read.at, &mut read.out[..read.length], outcome.unwrap_or(0))?;
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

    /// A file on a file system that has such reads, if there is one here.
    fn file_of(length: usize) -> Option<(File, Direct)> {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &content(length)).unwrap();
        let direct = Direct::switch(&file)?;
        Some((file, direct))
    }

    fn read(file: &File, direct: Direct, ranges: &[(u64, usize)]) -> Result<Vec<Vec<u8>>, Failure> {
        let mut places: Vec<_> = ranges.iter().map(|&(_, length)| vec![0; length]).collect();
        let ops = ranges.iter().zip(&mut places);
        direct.read_many(file, &mut ops.map(|(&(at, _), out)| ReadOp { at, out }).collect::<Vec<_>>())?;
        Ok(places)
    }

    /// What is in the page cache of the first `length` bytes of a file, in pages.
    fn cached_pages(file: &File, length: usize) -> usize {
        let (protection, flags) = (ProtFlags::READ, MapFlags::SHARED);
        let mut found = vec![0u8; length.div_ceil(rustix::param::page_size())];
        // SAFETY: a new mapping, which is only asked about and then taken away; `found` has a byte for each page.
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
        let direct = Direct { block: 512 };
        let mut memory = vec![0; 3 * PIECE];
        let (large, small) = memory.split_at_mut(2 * PIECE);
        let (one, two) = small.split_at_mut(100);
        let ops = [ReadOp { at: 1000, out: one }, ReadOp { at: 1100, out: &mut two[..5] }];
        assert_eq!(direct.pieces(&ops, &[0, 1]), [Piece { at: 512, length: 1024, first: 0 }]);
        let ops = [ReadOp { at: 1, out: large }, ReadOp { at: 2 * PIECE as u64 + 5000, out: &mut two[..5] }];
        let found = direct.pieces(&ops, &[0, 1]);
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
    fn the_end_of_the_file_is_told_to_the_byte() {
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
}
