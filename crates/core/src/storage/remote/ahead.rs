//! Bytes that are fetched before they are read, so that a steady reader never waits.

use super::file::RemoteFile;
use super::runtime::{self, CHECK, or_panicked};
use super::transfer::plan;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::process::{self, PerProcess};
use crate::storage::ReadOp;
use crate::storage::stats::Stats;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// What the bytes in flight are counted in. A semaphore has at most 2^32 permits.
const UNIT: u64 = 1 << 10;

/// What is fetched ahead of all files of a data set. A forked child begins with nothing.
#[derive(Default)]
pub struct Ahead {
    blocks: PerProcess<Blocks>,
    /// Iterations that fetch ahead.
    users: AtomicUsize,
}

/// An iteration that fetches ahead. When the last one ends, nothing more is fetched, and nothing is kept.
pub struct AheadUser(Arc<Ahead>);

impl AheadUser {
    /// Joins the iterations of a data set.
    pub fn new(ahead: &Arc<Ahead>) -> Self {
        ahead.users.fetch_add(1, Relaxed);
        AheadUser(ahead.clone())
    }
}

impl Drop for AheadUser {
    fn drop(&mut self) {
        if self.0.users.fetch_sub(1, Relaxed) == 1 {
            self.0.blocks.with(std::mem::take);
        }
    }
}

/// A file, and where a block of it begins.
type Place = (u64, u64);

/// Blocks of many files.
#[derive(Default)]
struct Blocks {
    by_place: BTreeMap<Place, (u64, Arc<Block>)>,
    /// The places by age.
    by_age: BTreeMap<u64, Place>,
    next_age: u64,
    /// Bytes of all blocks.
    held: u64,
    in_flight: Option<InFlight>,
}

/// Bounds the bytes in flight to half of what is fetched ahead, in the order in which they were announced. What has
/// arrived makes room at once. Otherwise requests that began together would end together, and the link would be idle
/// until the next ones are answered.
#[derive(Clone)]
struct InFlight {
    free: Arc<Semaphore>,
    most: u32,
}

impl InFlight {
    fn new(readahead_bytes: u64) -> Self {
        let most = u32::try_from(readahead_bytes / 2 / UNIT).unwrap_or(u32::MAX).max(1);
        InFlight { free: Arc::new(Semaphore::new(most as usize)), most }
    }

    /// Waits until so many bytes may be in flight.
    async fn enter(self, bytes: u64) -> Room {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).min(self.most);
        // There is always a permit, because the semaphore is never closed.
        Room { permit: self.free.acquire_many_owned(units).await.ok(), arrived: 0 }
    }
}

/// Bytes that may be in flight.
struct Room {
    permit: Option<OwnedSemaphorePermit>,
    /// Bytes that have arrived and still count as in flight.
    arrived: u64,
}

impl Room {
    /// Makes room for others.
    fn arrived(&mut self, bytes: usize) {
        self.arrived += bytes as u64;
        let units = (self.arrived / UNIT) as usize;
        self.arrived %= UNIT;
        if let Some(permit) = &mut self.permit {
            drop(permit.split(units.min(permit.num_permits())));
        }
    }
}

impl Blocks {
    /// The block that has a byte of a file.
    fn covering(&self, file: u64, at: u64) -> Option<&Arc<Block>> {
        let (place, (_, block)) = self.by_place.range(..=(file, at)).next_back()?;
        (place.0 == file && block.range.contains(&at)).then_some(block)
    }

    fn add(&mut self, file: u64, block: Arc<Block>) {
        let place = (file, block.range.start);
        self.remove(place);
        self.held += block.len();
        self.by_age.insert(self.next_age, place);
        self.by_place.insert(place, (self.next_age, block));
        self.next_age += 1;
    }

    fn remove(&mut self, place: Place) {
        if let Some((age, block)) = self.by_place.remove(&place) {
            self.by_age.remove(&age);
            self.held -= block.len();
        }
    }

    /// Removes the oldest blocks: those that nobody reads make room for those that somebody may read.
    fn shrink(&mut self, most: u64) {
        while self.held > most && self.by_place.len() > 1 {
            let Some((_, &oldest)) = self.by_age.first_key_value() else { return };
            self.remove(oldest);
        }
    }

    /// Notes that a range will be read.
    fn want(&self, file: u64, range: &Range<u64>) {
        let mut at = range.start;
        while let Some(block) = self.covering(file, at).filter(|_| at < range.end) {
            let end = range.end.min(block.range.end);
            let mut state = block.state.lock().unwrap_or_else(PoisonError::into_inner);
            let known = state.wanted.entry(at).or_default();
            *known = end.max(*known);
            at = end;
        }
    }

    /// The parts of a range that no block has.
    fn missing(&self, file: u64, range: Range<u64>) -> Vec<Range<u64>> {
        let (mut parts, mut at) = (Vec::new(), range.start);
        while at < range.end {
            if let Some(block) = self.covering(file, at) {
                at = block.range.end;
                continue;
            }
            let later = self.by_place.range((file, at)..(file, range.end)).next();
            let end = later.map_or(range.end, |((_, begin), _)| *begin);
            parts.push(at..end);
            at = end;
        }
        parts
    }
}

/// A range that is being fetched, or was.
struct Block {
    range: Range<u64>,
    state: Mutex<State>,
    is_ready: Condvar,
    task: Mutex<Option<AbortHandle>>,
    /// The fork generation that the task belongs to.
    generation: u64,
}

#[derive(Default)]
struct State {
    /// The bytes so far.
    bytes: Vec<u8>,
    /// Whether no more will come.
    is_over: bool,
    /// Why not all bytes came. It is the answer to the first read that needs them.
    error: Option<Error>,
    /// The ranges that will be read: where each begins and ends. The rest lies between them.
    wanted: BTreeMap<u64, u64>,
}

impl State {
    /// Removes a range from those that will be read.
    fn was_read(&mut self, range: &Range<u64>) {
        while let Some((&begin, &end)) =
            self.wanted.range(..range.end).next_back().filter(|(_, end)| **end > range.start)
        {
            self.wanted.remove(&begin);
            if end > range.end {
                self.wanted.insert(range.end, end);
            }
            if begin < range.start {
                self.wanted.insert(begin, range.start);
            }
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        match task {
            // A forked child must not touch the threads of its parent.
            Some(task) if self.generation != process::generation() => std::mem::forget(task),
            Some(task) => task.abort(),
            None => {}
        }
    }
}

impl Ahead {
    /// How many iterations fetch ahead.
    pub fn users(&self) -> usize {
        self.users.load(Relaxed)
    }

    /// Bytes that were fetched, or are on their way.
    pub fn bytes(&self) -> u64 {
        self.blocks.with(|blocks| blocks.held)
    }

    /// Begins to fetch ranges of a file. What is already being fetched is left out.
    pub fn fetch(&self, file: &RemoteFile, ranges: &mut dyn Iterator<Item = Range<u64>>) {
        let (size, policy) = (file.identity().size, file.policy());
        let mut wanted: Vec<_> =
            ranges.filter(|range| range.start < range.end && range.end <= size).collect();
        wanted.sort_unstable_by_key(|range| range.start);
        self.blocks.with(|blocks| {
            let missing: Vec<_> =
                wanted.iter().flat_map(|range| blocks.missing(file.id(), range.clone())).collect();
            let in_flight =
                blocks.in_flight.get_or_insert_with(|| InFlight::new(policy.readahead_bytes)).clone();
            for planned in plan(&missing, policy.merge_gap, policy.part_size) {
                let block = Arc::new(Block {
                    range: planned.range,
                    state: Mutex::default(),
                    is_ready: Condvar::new(),
                    task: Mutex::default(),
                    generation: process::generation(),
                });
                // A failure is found again, and reported, when the bytes are read.
                if start(file, &block, in_flight.clone()).is_err() {
                    return;
                }
                Stats::add(&file.stats().ahead_bytes, block.len());
                blocks.add(file.id(), block);
            }
            wanted.iter().for_each(|range| blocks.want(file.id(), range));
            blocks.shrink(2 * policy.readahead_bytes.max(policy.part_size));
        });
    }

    /// Fills the ranges that were fetched, and removes them from the list.
    pub fn take(&self, file: &RemoteFile, ops: &mut Vec<ReadOp<'_>>, cx: &Cx<'_>) -> Result<()> {
        if self.blocks.with(|blocks| blocks.by_place.is_empty()) {
            return Ok(());
        }
        let mut failed = None;
        ops.retain_mut(|op| {
            if failed.is_some() {
                return true;
            }
            match self.fill(file, op, cx) {
                Ok(is_filled) => !is_filled,
                Err(error) => {
                    failed = Some(error);
                    true
                }
            }
        });
        failed.map_or(Ok(()), Err)
    }

    /// Fills a range from the blocks. False if they do not have all of it.
    fn fill(&self, file: &RemoteFile, op: &mut ReadOp<'_>, cx: &Cx<'_>) -> Result<bool> {
        let (begin, end) = (op.at, op.at + op.out.len() as u64);
        let found = self.blocks.with(|blocks| {
            let (mut at, mut pieces) = (begin, Vec::new());
            while at < end {
                let block = blocks.covering(file.id(), at)?;
                let piece = at..end.min(block.range.end);
                at = piece.end;
                pieces.push((block.clone(), piece));
            }
            Some(pieces)
        });
        let Some(pieces) = found else { return Ok(false) };
        for (block, piece) in &pieces {
            let out = &mut op.out[(piece.start - begin) as usize..(piece.end - begin) as usize];
            let copied = block.copy(piece.clone(), out, file.stats(), cx);
            if block.is_used_up() {
                self.blocks.with(|blocks| blocks.remove((file.id(), block.range.start)));
            }
            if !copied? {
                return Ok(false);
            }
        }
        Stats::add(&file.stats().ahead_hits, end - begin);
        Ok(true)
    }
}

impl Block {
    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Copies bytes, when they have arrived. False if they could not be fetched.
    fn copy(&self, range: Range<u64>, out: &mut [u8], stats: &Stats, cx: &Cx<'_>) -> Result<bool> {
        let needed = (range.end - self.range.start) as usize;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = Instant::now();
        let is_waiting = state.bytes.len() < needed;
        while state.bytes.len() < needed {
            if state.is_over {
                return state.error.take().map_or(Ok(false), Err);
            }
            let waited = self.is_ready.wait_timeout(state, CHECK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            cx.check()?;
        }
        if is_waiting {
            stats.waited(begun.elapsed());
        }
        out.copy_from_slice(&state.bytes[needed - out.len()..needed]);
        state.was_read(&range);
        Ok(true)
    }

    fn is_used_up(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_short = (state.bytes.len() as u64) < self.range.end - self.range.start;
        state.wanted.is_empty() || state.is_over && is_short
    }

    fn add(&self, piece: &Bytes) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).bytes.extend_from_slice(piece);
        self.is_ready.notify_all();
    }

    fn finish(&self, result: Result<()>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.is_over, state.error) = (true, result.err());
        self.is_ready.notify_all();
    }
}

fn start(file: &RemoteFile, block: &Arc<Block>, in_flight: InFlight) -> Result<()> {
    let (object, identity, name) = (file.object()?, file.identity().clone(), file.shown().to_owned());
    // The task must not keep the block: it ends when nobody wants the block any more.
    let (range, block_of_task) = (block.range.clone(), Arc::downgrade(block));
    let task = runtime::runtime()?.spawn(async move {
        let mut room = in_flight.enter(range.end - range.start).await;
        let take = |piece: Bytes| {
            room.arrived(piece.len());
            if let Some(block) = block_of_task.upgrade() {
                block.add(&piece);
            }
            Ok(())
        };
        let at = range.start;
        let result = or_panicked(object.read(range, &identity, take)).await;
        if let Some(block) = block_of_task.upgrade() {
            block.finish(result.map_err(|error| error.at(at).in_file(&name)));
        }
    });
    *block.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task.abort_handle());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn left(wanted: &[(u64, u64)], read: &[Range<u64>]) -> Vec<(u64, u64)> {
        let mut state = State { wanted: wanted.iter().copied().collect(), ..State::default() };
        read.iter().for_each(|range| state.was_read(range));
        state.wanted.into_iter().collect()
    }

    #[test]
    fn bytes_in_flight_are_bounded_and_those_that_arrive_make_room() {
        let in_flight = InFlight::new(20 * UNIT);
        let enter = |bytes: u64| in_flight.clone().enter(bytes).now_or_never();
        let mut first = enter(6 * UNIT).unwrap();
        // A request that is larger than the bound waits until nothing else is in flight.
        assert!(enter(5 * UNIT).is_none() && enter(100 * UNIT).is_none());
        first.arrived(UNIT as usize - 1);
        assert!(enter(5 * UNIT).is_none());
        first.arrived(1);
        let second = enter(5 * UNIT).unwrap();
        first.arrived(100 * UNIT as usize);
        assert!(enter(6 * UNIT).is_none());
        assert!(enter(5 * UNIT).is_some());
        drop((first, second));
        assert!(enter(100 * UNIT).is_some());
    }

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "these are lists of ranges")]
    fn what_was_read_is_wanted_no_more() {
        assert_eq!(left(&[(0, 10), (20, 30)], &[0..10]), [(20, 30)]);
        assert_eq!(left(&[(0, 10), (20, 30)], &[0..4]), [(4, 10), (20, 30)]);
        assert_eq!(left(&[(0, 10), (20, 30)], &[5..25]), [(0, 5), (25, 30)]);
        assert_eq!(left(&[(0, 30)], &[10..20]), [(0, 10), (20, 30)]);
        assert_eq!(left(&[(0, 30)], &[20..30, 0..10, 10..20]), []);
        assert_eq!(left(&[(5, 10)], &[0..5, 10..20]), [(5, 10)]);
    }
}
