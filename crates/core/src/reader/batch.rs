//! Many records in one read: planned together, fetched together, delivered in the requested order.

use super::crew::with_crew;
use super::row::{Row, row_of};
use super::spread::{Team, locked};
use super::{By, Deliver, Plan, PlannedRead, Reader, fill, is_cached, stored_length, with_stored};
use crate::bytes;
use crate::cx::Cx;
use crate::cx::Stop;
use crate::error::{Error, Kind, Result};
use crate::format::{Decoded, Undecoded, Way};
use crate::shard::Source;
use crate::storage::ReadOp;
use crate::storage::fetch::{Fetch, fetch};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Records planned at once: enough for any training batch, and a bound on the memory for a plan of millions.
pub(super) const BLOCK: usize = 4096;
/// Bytes of decoded chunks held at once, before their records are copied out.
const HELD_BYTES: usize = 32 << 20;
/// Stored bytes fetched at once.
pub(super) const FETCH_BYTES: u64 = 16 << 20;
/// Records fetched at once: enough for the queue of any disk, and few enough to be decoded while the next are fetched.
pub(super) const WAVE: usize = 256;
/// How many fetched waves may wait to be decoded.
const WAVES_HELD: usize = 4;
/// How many records ahead the bytes of a record are prefetched.
const BYTES_AHEAD: usize = 4;
/// Ranges of a batch that are looked up in the page cache, to find out whether the batch is cold.
const PROBES: usize = 8;

// Rough costs in nanoseconds, to decide whether a second thread is worth it.
/// A record, in addition to its bytes.
const RECORD: u64 = 100;
/// A record that is decompressed, in addition to its bytes, which take a nanosecond each.
const PACKED_RECORD: u64 = 1000;
/// Bytes copied and hashed in one nanosecond.
pub(super) const COPIED_IN_A_NANOSECOND: u64 = 8;
/// A stored byte of a chunk that is decoded, in addition to the bytes that this gives.
const CHUNK_BYTE: u64 = 2;

/// A record whose size is known, and its destination.
type Job<'p, 'a, 'o> = (&'p Plan<'a>, &'o mut [u8]);

impl Reader {
    /// Reads many records, in any order, with repeats, and delivers each to its position.
    pub fn read_batch(&self, indices: &[u64], out: &mut dyn Deliver, cx: &Cx<'_>) -> Result<()> {
        for (block, indices) in indices.chunks(BLOCK).enumerate() {
            let mut plans = self.plan_all(indices, cx)?;
            self.request_together(&plans);
            self.survey_all(&mut plans, cx)?;
            let (mut sized, mut shared) = (Vec::with_capacity(plans.len()), Vec::new());
            for (i, plan) in plans.iter().enumerate() {
                match plan.size()? {
                    Some(size) => sized.push((block * BLOCK + i, size)),
                    None => shared.push((block * BLOCK + i, plan)),
                }
            }
            if !sized.is_empty() {
                let is_sized = |plan: &&Plan<'_>| {
                    shared.is_empty() || !matches!(plan.place, PlannedRead::Stored(Way::Shared(..)))
                };
                self.read_sized(plans.iter().filter(is_sized), &sized, out, cx)?;
            }
            if !shared.is_empty() {
                self.read_shared(shared, out, cx)?;
            }
        }
        Ok(())
    }

    /// Reads records whose size is known: all buffers are allocated first, and filled straight from the storage.
    fn read_sized<'p, 'a: 'p>(
        &self,
        plans: impl Iterator<Item = &'p Plan<'a>> + Clone,
        sizes: &[(usize, usize)],
        out: &mut dyn Deliver,
        cx: &Cx<'_>,
    ) -> Result<()> {
        let places = out.reserve(sizes).map_err(|error| no_room(error, plans.clone(), sizes))?;
        let mut jobs: Vec<Job<'p, 'a, '_>> = plans.zip(places).collect();
        if jobs.iter().any(|(plan, _)| !plan.is_mapped()) {
            let (mapped, unmapped) = jobs.into_iter().partition(|(plan, _)| plan.is_mapped());
            self.read_unmapped(unmapped, cx)?;
            jobs = mapped;
        }
        self.prefetch_batch(jobs.iter().map(|(plan, _)| *plan));
        let (mut bytes, mut cost, mut reads, mut stored) = (0, 0, 0, 0);
        for (plan, place) in &jobs {
            bytes += place.len();
            cost += plan.cost(place.len());
            reads += u64::from(matches!(plan.place, PlannedRead::Stored(_)));
            stored += plan.stored_bytes();
        }
        self.files.stats.read_mapped(reads, stored);
        self.page_cache.learn(jobs.len(), bytes, || self.spread(&mut jobs, cost, cx, fill_all))
    }

    /// Fetches cold ranges together, if recent reads missed the page cache and a check of some ranges finds a cold one.
    pub(super) fn prefetch_batch<'p, 'a: 'p>(&self, plans: impl Iterator<Item = &'p Plan<'a>>) {
        if self.page_cache.is_warm() {
            return;
        }
        let mut ranges: Vec<(usize, Range<u64>, &Source)> = plans
            .filter(|plan| plan.is_in_place())
            .filter_map(|plan| plan.stored().map(|range| (plan.shard, range, plan.source)))
            .collect();
        let length = |range: &Range<u64>| (range.end.saturating_sub(range.start)) as usize;
        let step = (ranges.len() / PROBES).max(1);
        let is_cached = |(_, range, source): &(usize, Range<u64>, &Source)| is_cached(source, range);
        let is_cold = !ranges.iter().step_by(step).all(is_cached);
        if !is_cold {
            if self.is_reading_around() {
                self.read_around(ranges.into_iter().map(|(shard, range, _)| (shard, range)), false);
            }
            return;
        }
        self.page_cache.note_miss();
        ranges.sort_unstable_by_key(|(shard, range, _)| (*shard, range.start));
        for of_one in ranges.chunk_by(|a, b| a.0 == b.0) {
            let wanted = of_one.iter().map(|(_, range, _)| (range.start, length(range)));
            if let Some(mapped) = of_one[0].2.storage().mapped() {
                mapped.will_need(&mut { wanted });
            }
        }
        self.read_around(ranges.into_iter().map(|(shard, range, _)| (shard, range)), true);
    }

    /// Reads records of storages that are not in memory. Many are fetched at once, from all files together. While the
    /// next ones are fetched, the previous ones are decoded.
    fn read_unmapped(&self, mut jobs: Vec<Job<'_, '_, '_>>, cx: &Cx<'_>) -> Result<()> {
        jobs.sort_by_key(|(plan, _)| plan.shard);
        let cost = jobs.iter().map(|(plan, place)| plan.cost(place.len())).sum();
        let (mut waves, mut rest) = (Vec::new(), &mut jobs[..]);
        while !rest.is_empty() {
            let count = fitting(rest.iter().map(|(plan, _)| *plan)).min(WAVE);
            let (now, later) = rest.split_at_mut(count);
            waves.push(now);
            rest = later;
        }
        let Some(pool) = self.pool_for(cost, waves.len()) else {
            // One wave has nothing to overlap with, but several threads can still share its work.
            let one = |wave| self.spread(&mut Fetched::of(wave, cx)?.items(), cost, cx, decode_items);
            return waves.into_iter().try_for_each(one);
        };
        let mut waves = waves.into_iter();
        while waves.len() > 0 {
            let came = Mutex::new(VecDeque::<(usize, Fetched<'_, '_, '_, '_>)>::new());
            let (team, budget) = (Team::default(), cx.budget);
            let decode_next = |cx: &Cx<'_>| {
                let Some((number, mut fetched)) = ({ locked(&came).pop_front() }) else { return false };
                team.note(number, decode_items(&mut fetched.items(), cx));
                true
            };
            let help = || {
                decode_next(&Cx { budget, stop: team.cancelled() });
            };
            let interrupted = with_crew(&help, |crew| {
                for (number, wave) in waves.by_ref().take(WAVES_HELD).enumerate() {
                    match Fetched::of(wave, cx) {
                        Ok(fetched) => {
                            locked(&came).push_back((number, fetched));
                            crew.call(pool, 1);
                        }
                        Err(error) => team.note(number, Err(error)),
                    }
                    if team.is_cancelled() {
                        break;
                    }
                }
                // All waves are fetched. The calling thread decodes those that no other thread has begun.
                let own = || team.cancelled().check().and_then(|()| cx.check());
                while decode_next(&Cx { budget, stop: &own }) {}
                crew.wait(team.cancelled(), cx)
            });
            team.result(interrupted)?;
        }
        Ok(())
    }

    /// Reads records that share chunks with others. Each chunk is decoded once, and its rows are copied out together.
    /// As many chunks are decoded at once as are expected to take [`HELD_BYTES`] together.
    fn read_shared(
        &self,
        mut plans: Vec<(usize, &Plan<'_>)>,
        out: &mut dyn Deliver,
        cx: &Cx<'_>,
    ) -> Result<()> {
        plans.sort_by_key(|(_, plan)| chunk_of(plan));
        let groups: Vec<_> = plans.chunk_by(|a, b| chunk_of(a.1) == chunk_of(b.1)).collect();
        let mut rows: Vec<(usize, Row)> = Vec::new();
        let mut held = cx.budget.hold(0)?;
        let (mut rest, mut most) = (&groups[..], usize::MAX);
        while !rest.is_empty() {
            let count = fitting(rest.iter().map(|group| group[0].1));
            let (now, later) = rest.split_at(count.min(self.expected.chunks_in(HELD_BYTES)).min(most));
            let firsts: Vec<_> = now.iter().map(|group| group[0].1).collect();
            self.prefetch_batch(firsts.iter().copied());
            let decoded = match self.decode_all(&firsts, cx) {
                // Too many chunks at once for the budget. After the rows are copied out, a single chunk may fit.
                Err(error) if cx.budget.is_exhausted(&error) && (firsts.len() > 1 || held.bytes() > 0) => {
                    self.copy_out(&rows, out, cx).map_err(|e| firsts[0].attribute_memory(e))?;
                    (rows, held, most) = (Vec::new(), cx.budget.hold(0)?, 1);
                    continue;
                }
                decoded => decoded?,
            };
            rest = later;
            for (group, decoded) in now.iter().zip(decoded) {
                // The decoded chunk is in memory already. If it exceeds the budget, the rows are copied out at once.
                let is_over = held.grow(decoded.memory() as u64).is_err();
                for (position, plan) in *group {
                    if let PlannedRead::Stored(Way::Shared(chunk, row)) = &plan.place {
                        rows.push((*position, row_of(plan, chunk, decoded.clone(), *row)?));
                    }
                }
                if is_over || held.bytes() >= HELD_BYTES as u64 {
                    self.copy_out(&rows, out, cx).map_err(|e| group[0].1.attribute_memory(e))?;
                    (rows, held) = (Vec::new(), cx.budget.hold(0)?);
                }
            }
        }
        let last = groups.last().map(|group| group[0].1);
        let copied = self.copy_out(&rows, out, cx);
        copied.map_err(|error| match last {
            Some(plan) => plan.attribute_memory(error),
            None => error,
        })
    }

    /// Decodes the chunk of each plan, and caches it.
    pub(super) fn decode_all(&self, plans: &[&Plan<'_>], cx: &Cx<'_>) -> Result<Vec<Arc<Decoded>>> {
        let mut cost = 0;
        let decoded = self.expected.bytes_of(1) as u64 / COPIED_IN_A_NANOSECOND;
        let mut jobs = Vec::with_capacity(plans.len());
        for (plan, stored) in plans.iter().zip(fetch_chunks(plans, cx)?) {
            cost += CHUNK_BYTE * plan.stored_bytes() + decoded;
            jobs.push((*plan, stored, None));
        }
        let mapped = jobs.iter().filter(|(_, stored, _)| stored.is_none());
        let mapped =
            mapped.fold((0, 0), |(reads, bytes), (plan, ..)| (reads + 1, bytes + plan.stored_bytes()));
        self.files.stats.read_mapped(mapped.0, mapped.1);
        self.spread(&mut jobs, cost, cx, |jobs, cx| {
            jobs.iter_mut().try_for_each(|(plan, stored, decoded)| {
                let Some(chunk) = plan.chunk() else { return Ok(()) };
                let decode = |stored: &[u8]| plan.source.table.decode(chunk, stored, cx);
                let unpacked = match stored {
                    Some(stored) => decode(stored),
                    None => with_stored(plan.source, &chunk.stored, By::Map, cx, decode),
                };
                *decoded = Some(self.keep(plan, chunk, unpacked.map_err(|e| plan.attribute(e))?));
                Ok(())
            })
        })?;
        Ok(jobs.into_iter().filter_map(|(_, _, decoded)| decoded).collect())
    }

    fn copy_out(&self, rows: &[(usize, Row)], out: &mut dyn Deliver, cx: &Cx<'_>) -> Result<()> {
        let wanted: Vec<_> = rows.iter().map(|(position, row)| (*position, row.as_ref().len())).collect();
        let bytes: usize = wanted.iter().map(|(_, size)| size).sum();
        let mut jobs: Vec<_> = out.reserve(&wanted)?.into_iter().zip(rows).collect();
        self.spread(&mut jobs, bytes as u64 / COPIED_IN_A_NANOSECOND, cx, |jobs, _| {
            jobs.iter_mut().for_each(|(place, (_, row))| place.copy_from_slice(row.as_ref()));
            Ok(())
        })
    }
}

/// The chunk that has to be read for a plan: its file and its number.
pub(super) fn chunk_of(plan: &Plan<'_>) -> (usize, u64) {
    (plan.shard, plan.chunk().map_or(0, |chunk| chunk.index))
}

/// Fetched records: those that are stored uncompressed are in their destinations, the others in a buffer.
struct Fetched<'j, 'p, 'a, 'o> {
    jobs: &'j mut [Job<'p, 'a, 'o>],
    buffer: Vec<u8>,
    /// How many bytes of the buffer belong to each record.
    lengths: Vec<usize>,
}

impl<'j, 'p, 'a, 'o> Fetched<'j, 'p, 'a, 'o> {
    fn of(jobs: &'j mut [Job<'p, 'a, 'o>], cx: &Cx<'_>) -> Result<Self> {
        let mut lengths = Vec::with_capacity(jobs.len());
        for (plan, _) in jobs.iter() {
            lengths.push(match &plan.place {
                PlannedRead::Stored(Way::Alone { stored, .. }) => {
                    stored_length(plan.source, stored).map_err(|e| plan.attribute(e))?
                }
                _ => 0,
            });
        }
        let mut buffer = bytes::zeroed("chunks", lengths.iter().sum::<usize>() as u64)?;
        let mut rest = &mut buffer[..];
        let reads = jobs.iter_mut().zip(&lengths).filter_map(|((plan, place), &length)| {
            let (stored, later) = std::mem::take(&mut rest).split_at_mut(length);
            rest = later;
            let op = match &plan.place {
                PlannedRead::Stored(Way::Plain { stored, .. }) => ReadOp { at: stored.start, out: place },
                PlannedRead::Stored(Way::Alone { stored: range, .. }) => {
                    ReadOp { at: range.start, out: stored }
                }
                _ => return None,
            };
            Some((*plan, op))
        });
        fetch_planned(reads, cx)?;
        Ok(Fetched { jobs, buffer, lengths })
    }

    /// Each record, its destination, and its stored bytes if they are in the buffer.
    fn items(&mut self) -> Vec<Item<'_>> {
        let mut rest = &self.buffer[..];
        let with_stored = self.jobs.iter_mut().zip(&self.lengths).map(|((plan, place), &length)| {
            let (stored, later) = rest.split_at(length);
            rest = later;
            (*plan, &mut **place, stored)
        });
        with_stored.collect()
    }
}

/// A fetched record: its plan, its destination, its stored bytes.
type Item<'i> = (&'i Plan<'i>, &'i mut [u8], &'i [u8]);

/// Checks and decodes fetched records.
fn decode_items(items: &mut [Item<'_>], cx: &Cx<'_>) -> Result<()> {
    items.iter_mut().try_for_each(|(plan, place, stored)| {
        let table = &plan.source.table;
        let done = match &plan.place {
            PlannedRead::Stored(Way::Alone { stored: range, .. }) => {
                table.decode_into(plan.record, range.start, stored, place, cx)
            }
            PlannedRead::Stored(Way::Plain { checksum, .. }) => table.check(plan.record, *checksum, place),
            _ => Ok(()),
        };
        done.map_err(|e| plan.attribute(e))
    })
}

impl Plan<'_> {
    /// Whether its bytes can be accessed in place now.
    #[inline]
    pub(super) fn is_in_place(&self) -> bool {
        self.source.is_mapped(|| self.stored().unwrap_or(0..0))
    }

    /// Whether it can be read without a system call, as far as is known.
    fn is_mapped(&self) -> bool {
        matches!(self.place, PlannedRead::Kept(_)) || self.is_in_place()
    }

    /// About how many nanoseconds it takes to read a record of that size.
    fn cost(&self, size: usize) -> u64 {
        match &self.place {
            PlannedRead::Stored(Way::Alone { .. }) if self.source.is_packed => PACKED_RECORD + size as u64,
            _ => RECORD + size as u64 / COPIED_IN_A_NANOSECOND,
        }
    }
}

/// Reads records whose bytes are mapped or in memory.
fn fill_all(jobs: &mut [Job<'_, '_, '_>], cx: &Cx<'_>) -> Result<()> {
    let prefetch = |jobs: &[Job<'_, '_, '_>], i: usize| {
        if let Some((next, _)) = jobs.get(i + BYTES_AHEAD) {
            next.prefetch();
        }
    };
    let mut i = 0;
    while i < jobs.len() {
        prefetch(jobs, i);
        if let [one, other, ..] = &mut jobs[i..]
            && one.1.len() >= one.0.source.two_at_once_from
            && fill_two(one, other, cx)?
        {
            prefetch(jobs, i + 1);
            i += 2;
            continue;
        }
        let (plan, place) = &mut jobs[i];
        fill(plan, place, By::Map, cx).map_err(|e| plan.attribute(e))?;
        i += 1;
    }
    Ok(())
}

/// Reads two records at once. False: that is not possible, or something is wrong with one of them. Then they must be read
/// one by one.
fn fill_two(one: &mut Job<'_, '_, '_>, other: &mut Job<'_, '_, '_>, cx: &Cx<'_>) -> Result<bool> {
    let ((plan, place), (other_plan, other_place)) = (one, other);
    let source = plan.source;
    if !std::ptr::eq(source, other_plan.source) || other_place.len() < source.two_at_once_from {
        return Ok(false);
    }
    let (
        PlannedRead::Stored(Way::Alone { stored: range, .. }),
        PlannedRead::Stored(Way::Alone { stored: other_range, .. }),
    ) = (&plan.place, &other_plan.place)
    else {
        return Ok(false);
    };
    let Some(mapped) = source.mapped() else { return Ok(false) };
    let borrow = |range: &Range<u64>| {
        let length = usize::try_from(range.end.saturating_sub(range.start)).ok()?;
        mapped.borrow(range.start, length).ok()?
    };
    let (Some(borrowed), Some(other_borrowed)) = (borrow(range), borrow(other_range)) else {
        return Ok(false);
    };
    let two = [
        Undecoded { record: plan.record, at: range.start, bytes: borrowed.bytes(), out: place },
        Undecoded {
            record: other_plan.record,
            at: other_range.start,
            bytes: other_borrowed.bytes(),
            out: other_place,
        },
    ];
    let is_done = source.table.decode_two_into(two, cx).map_err(|error| plan.attribute(error))?;
    Ok(is_done && borrowed.is_intact() && other_borrowed.is_intact())
}

/// The stored bytes of the chunks that are not in memory, from all files together. The plans are sorted by file.
fn fetch_chunks(plans: &[&Plan<'_>], cx: &Cx<'_>) -> Result<Vec<Option<Vec<u8>>>> {
    let mut all = Vec::with_capacity(plans.len());
    for plan in plans {
        let chunk = plan.chunk().filter(|_| !plan.is_in_place());
        all.push(match chunk {
            Some(chunk) => {
                let length = stored_length(plan.source, &chunk.stored).map_err(|e| plan.attribute(e))?;
                Some(bytes::zeroed("chunk", length as u64).map_err(|e| plan.attribute(e))?)
            }
            None => None,
        });
    }
    let reads = plans.iter().zip(&mut all).filter_map(|(plan, out)| {
        let (chunk, out) = plan.chunk().zip(out.as_mut())?;
        Some((*plan, ReadOp { at: chunk.stored.start, out }))
    });
    fetch_planned(reads, cx)?;
    Ok(all)
}

/// Reads ranges of many files together. The plans that they belong to are sorted by file.
fn fetch_planned<'p, 'a: 'p, 'o>(
    reads: impl Iterator<Item = (&'p Plan<'a>, ReadOp<'o>)>,
    cx: &Cx<'_>,
) -> Result<()> {
    // For each file, the ranges to read, and the records they belong to.
    let (mut fetches, mut wanted) = (Vec::<Fetch<'p, 'o>>::new(), Vec::<Vec<&'p Plan<'a>>>::new());
    for (plan, op) in reads {
        match fetches.last_mut().zip(wanted.last_mut()) {
            Some((fetch, plans)) if plans[0].shard == plan.shard => {
                fetch.ops.push(op);
                plans.push(plan);
            }
            _ => {
                fetches.push(Fetch { storage: plan.source.storage(), ops: vec![op] });
                wanted.push(vec![plan]);
            }
        }
    }
    fetch(&mut fetches, cx).map_err(|(file, error)| {
        let plans = &wanted[file];
        attribute(plans.iter().copied(), plans[0].source, error)
    })
}

/// How many of the plans to fetch at once: at least one, and not more bytes than [`FETCH_BYTES`].
pub(super) fn fitting<'p, 'a: 'p>(plans: impl Iterator<Item = &'p Plan<'a>>) -> usize {
    let mut bytes = 0;
    let fits = plans.take_while(|plan| {
        let range = plan.stored().unwrap_or(0..0);
        bytes += range.end.saturating_sub(range.start);
        bytes <= FETCH_BYTES
    });
    fits.count().max(1)
}

/// Adds the record whose bytes could not be read to an error of a read of many ranges.
#[cold]
fn attribute<'p, 'a: 'p>(
    mut plans: impl Iterator<Item = &'p Plan<'a>>,
    source: &Source,
    error: Error,
) -> Error {
    let at = error.offset();
    match plans.find(|plan| at.is_some_and(|at| plan.stored().is_some_and(|range| range.contains(&at)))) {
        Some(plan) => plan.attribute(error),
        None if matches!(error.kind(), Kind::External(_)) => error,
        None => error.in_file(source.storage().name()),
    }
}

/// Names the largest record in an out-of-memory error, because it is the likely cause.
#[cold]
fn no_room<'p, 'a: 'p>(
    error: Error,
    plans: impl Iterator<Item = &'p Plan<'a>>,
    sizes: &[(usize, usize)],
) -> Error {
    let largest = sizes.iter().zip(plans).max_by_key(|((_, size), _)| *size);
    match largest {
        Some((_, plan)) => plan.attribute_memory(error),
        None => error,
    }
}
