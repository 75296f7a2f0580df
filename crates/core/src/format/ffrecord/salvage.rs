//! Visits every sample that can be proved to be whole, even if the tables are damaged or were never finished.

use super::proofs::{Counts, EndFinder, find_count};
use super::table::Samples;
use super::walk::{visit_sample, visit_samples};
use super::{ENTRY, HEADER};
use crate::bytes;
use crate::error::{Error, Result};
use crate::format::walk::{Span, Walk};
use crate::storage::window::Window;
use std::ops::Range;

/// How many samples are looked at to decide between possible numbers of samples.
const SAMPLES_TRIED: u64 = 16;
/// How many ends of a sample are tried.
const ENDS_TRIED: u64 = 64;
/// How many damaged checksums of samples are tried one by one.
const CHECKSUMS_TRIED: usize = 16;
/// How many bytes after the last sample are looked for. A checksum fits at a wrong place about once in 4 GiB, so a
/// damaged sample must not be tried at each of its bytes.
const APPENDED: u64 = 64 << 10;

pub(super) fn walk(walk: &Walk<'_>, visit: &mut dyn FnMut(Span<'_>) -> Result<()>) -> Result<()> {
    let (storage, cx, size) = (walk.storage, walk.cx, walk.storage.len());
    let read = Samples::read(storage, true, cx);
    let mut head = [0; HEADER as usize];
    match read {
        Ok((samples, Ok(()))) if !samples.is_old() => return whole(walk, samples, visit),
        Err(error) if error.is_from_outside() || size < HEADER => {
            return visit(Span::damage(0..size, walk.damage(error)?));
        }
        _ => storage.read_at(0, &mut head, cx)?,
    }
    let stored_checksum = bytes::u32_le(&head, 0);
    let mut counts = match find_count(storage, stored_checksum, cx)? {
        Counts::Certain(n) => return whole(walk, Samples::with_count(storage, n, cx)?, visit),
        Counts::Possible(counts) => counts,
    };
    let stored = bytes::u64_le(&head, 4);
    let most = (size - HEADER) / ENTRY;
    if (1..=most).contains(&stored) {
        counts.retain(|&n| n != stored);
        counts.insert(0, stored);
    }
    let mut best = None;
    for &n in &counts {
        let samples = Samples::with_count(storage, n, cx)?;
        let proved = if counts.len() > 1 { proved_samples(walk, &samples)? } else { 1 };
        if best.as_ref().is_none_or(|&(most, _)| proved > most) && (proved > 0 || n == stored) {
            best = Some((proved, samples));
        }
    }
    match (best, read_error(walk)?) {
        (Some((_, samples)), _) => Repair::new(walk, samples, stored_checksum).run(visit),
        (None, error) => visit(Span::damage(0..size, error)),
    }
}

/// Why the tables cannot be used at all.
fn read_error(walk: &Walk<'_>) -> Result<Error> {
    match Samples::read(walk.storage, true, walk.cx) {
        Err(error) => walk.damage(error),
        Ok((_, Err(error))) => walk.damage(error),
        Ok((_, Ok(()))) => Ok(unwritten()),
    }
}

fn unwritten() -> Error {
    Error::format("unfinished FFRecord file: nothing in it says where the other samples are")
        .hint("its writer was stopped before it wrote their part of the table")
}

/// The tables are right: what they say about a sample is certain.
fn whole(walk: &Walk<'_>, mut samples: Samples, visit: &mut dyn FnMut(Span<'_>) -> Result<()>) -> Result<()> {
    visit(Span::Meta(0..samples.data_begin()))?;
    let Some(end) = end_before_other_bytes(walk, &samples)? else {
        return visit_samples(walk, &samples, samples.n(), visit);
    };
    samples.set_end(end);
    visit_samples(walk, &samples, samples.n() - 1, visit)?;
    let other = Error::format("bytes after the last sample").at(end).expected("the end of the file");
    visit(Span::damage(end..walk.storage.len(), walk.damage(other)?))
}

/// Where the last sample ends, if other bytes were appended to the file. The tables say only where it begins.
fn end_before_other_bytes(walk: &Walk<'_>, samples: &Samples) -> Result<Option<u64>> {
    let size = walk.storage.len();
    let Some(last) = samples.n().checked_sub(1) else { return Ok(None) };
    let range = samples.offset(last)..size;
    let mut window = Window::new(walk.storage, walk.cx);
    let is_possible = samples.data_begin() <= range.start && range.start < range.end;
    if !is_possible || is_right(&mut window, samples, last, range.clone())? {
        return Ok(None);
    }
    EndFinder::new().find(&mut window, range, samples.checksum(last), |end| Ok(size - end <= APPENDED))
}

/// How many of the first samples have the right checksum.
fn proved_samples(walk: &Walk<'_>, samples: &Samples) -> Result<u64> {
    let mut window = Window::new(walk.storage, walk.cx);
    let mut proved = 0;
    for sample in 0..samples.n().min(SAMPLES_TRIED) {
        let range = samples.range(sample);
        if range.start < range.end && is_right(&mut window, samples, sample, range)? {
            proved += 1;
        }
    }
    Ok(proved)
}

fn crc(window: &mut Window<'_>, range: Range<u64>) -> Result<u32> {
    let mut hash = crc32fast::Hasher::new();
    window
        .pieces("sample", range.start, range.end.saturating_sub(range.start), |piece| hash.update(piece))?;
    Ok(hash.finalize())
}

/// Whether a range of the file is possible for a sample, and has its checksum.
fn is_right(window: &mut Window<'_>, samples: &Samples, sample: u64, range: Range<u64>) -> Result<bool> {
    let is_possible =
        samples.data_begin() <= range.start && range.start <= range.end && range.end <= window.size();
    Ok(is_possible && crc(window, range)? == samples.checksum(sample))
}

/// Tables that are partly wrong, and what was proved about them.
struct Repair<'a> {
    walk: &'a Walk<'a>,
    /// Proved offsets and checksums replace the stored ones here.
    samples: Samples,
    stored_checksum: u32,
    /// The samples from here on have no entry in the tables yet.
    written: u64,
    /// Samples that could not be proved.
    lost: Vec<Range<u64>>,
    /// Samples whose end was found by search.
    found: Vec<Range<u64>>,
    /// Bytes that may still be hashed. Damaged offsets can make every sample seem as long as the file.
    budget: u64,
}

impl<'a> Repair<'a> {
    fn new(walk: &'a Walk<'a>, samples: Samples, stored_checksum: u32) -> Self {
        let is_written = |&sample: &u64| samples.checksum(sample) != 0 || samples.offset(sample) != 0;
        let written = (0..samples.n()).rev().find(is_written).map_or(0, |last| last + 1);
        let budget = walk.storage.len().saturating_mul(8);
        Repair { walk, samples, stored_checksum, written, lost: Vec::new(), found: Vec::new(), budget }
    }

    fn run(mut self, visit: &mut dyn FnMut(Span<'_>) -> Result<()>) -> Result<()> {
        let mut window = Window::new(self.walk.storage, self.walk.cx);
        let (mut suspects, mut pace) = (Vec::new(), self.walk.cx.pace());
        let mut bad = None;
        for sample in 0..self.samples.n() {
            pace.step(64)?;
            if self.is_sound(&mut window, sample)? {
                if let Some(first) = bad.take() {
                    self.repair(&mut window, first..sample, &mut suspects)?;
                }
            } else {
                bad.get_or_insert(sample);
            }
        }
        if let Some(first) = bad {
            self.repair(&mut window, first..self.samples.n(), &mut suspects)?;
        }
        self.replace_checksums(&mut window, suspects)?;
        self.visit_all(visit)
    }

    fn may_hash(&mut self, bytes: u64) -> bool {
        let left = self.budget.checked_sub(bytes);
        self.budget = left.unwrap_or(self.budget);
        left.is_some()
    }

    /// Whether a sample has the right checksum where the table says that it is.
    fn is_sound(&mut self, window: &mut Window<'_>, sample: u64) -> Result<bool> {
        if sample >= self.written {
            return Ok(false);
        }
        let range = self.samples.range(sample);
        Ok(self.may_hash(range.end.saturating_sub(range.start))
            && is_right(window, &self.samples, sample, range)?)
    }

    /// Finds out where the samples of `run` are. Those before and after it are sound.
    fn repair(&mut self, window: &mut Window<'_>, run: Range<u64>, suspects: &mut Vec<u64>) -> Result<()> {
        let size = self.walk.storage.len();
        let end = if run.end < self.samples.n() { self.samples.offset(run.end) } else { size };
        let first = self.samples.offset(run.start);
        let mut begins = vec![if run.start == 0 { self.samples.data_begin() } else { first }];
        if run.start == 0 && first > begins[0] && first <= size {
            // The format allows the samples to begin anywhere after the tables.
            begins.push(first);
        }
        for &begin in &begins {
            if self.split(window, run.clone(), begin..end)? {
                return Ok(());
            }
        }
        if run.end - run.start == 1 && run.start < self.written {
            let begin = if begins.contains(&first) { first } else { begins[0] };
            self.samples.set_offset(run.start, begin);
            suspects.push(run.start);
        } else {
            self.lost.push(run);
        }
        Ok(())
    }

    /// Finds the ends of the samples of `run`, which lie in `range`, one after the other by their checksums. Returns
    /// whether the first of them was found.
    fn split(&mut self, window: &mut Window<'_>, run: Range<u64>, range: Range<u64>) -> Result<bool> {
        let finder = EndFinder::new();
        let mut begin = range.start;
        let known = run.start..run.end.min(self.written);
        let mut is_as_stored = false;
        for sample in known.clone() {
            is_as_stored = self.samples.offset(sample) == begin;
            self.samples.set_offset(sample, begin);
            if range.end < begin || self.budget == 0 {
                return Ok(self.give_up(run, sample));
            }
            let checksum = self.samples.checksum(sample);
            if sample + 1 == run.end {
                // The end of the last one is known.
                self.budget = self.budget.saturating_sub(range.end - begin);
                if crc(window, begin..range.end)? == checksum {
                    return Ok(true);
                }
                // Only an unfinished file may go on after its last sample.
                if run.end < self.samples.n() || self.stored_checksum != 0 {
                    return Ok(self.give_up(run, sample));
                }
            }
            let found = self.find_end(&finder, window, sample, begin..range.end, sample + 2 == run.end)?;
            self.budget = self.budget.saturating_sub(found.unwrap_or(range.end) - begin);
            let Some(end) = found else { return Ok(self.give_up(run, sample)) };
            begin = end;
            if sample + 1 == self.samples.n() {
                self.samples.set_end(end);
            } else if sample + 1 >= self.written {
                self.samples.set_offset(sample + 1, end);
            }
        }
        // No sound sample confirms where the last of them ends.
        let end = if is_as_stored { known.end } else { self.confirmed_end(known.clone()) };
        if end == run.start {
            return Ok(false);
        }
        self.found.push(run.start..end);
        if end < run.end {
            self.lost.push(end..run.end);
        }
        Ok(true)
    }

    /// The end of the samples in `found`, without the empty ones at its end. An empty sample has the checksum 0, and so
    /// has an entry that was lost. So only a sample after it confirms it.
    fn confirmed_end(&self, found: Range<u64>) -> u64 {
        let is_confirmed = |&sample: &u64| self.samples.checksum(sample) != 0;
        found.clone().rev().find(is_confirmed).map_or(found.start, |last| last + 1)
    }

    /// Where a sample that begins at `range.start` ends. If it is the last but one, the last one must fit as well.
    fn find_end(
        &self,
        finder: &EndFinder,
        window: &mut Window<'_>,
        sample: u64,
        range: Range<u64>,
        is_last_but_one: bool,
    ) -> Result<Option<u64>> {
        let is_last_but_one = is_last_but_one && sample + 1 < self.written;
        let next = is_last_but_one.then(|| self.samples.checksum(sample + 1));
        let mut ahead = Window::new(self.walk.storage, self.walk.cx);
        let mut tries = ENDS_TRIED;
        finder.find(window, range.clone(), self.samples.checksum(sample), |end| match next {
            // A checksum fits at a wrong place about once in 4 GiB.
            Some(_) if tries == 0 => Ok(false),
            Some(next) => {
                tries -= 1;
                Ok(crc(&mut ahead, end..range.end)? == next)
            }
            None => Ok(true),
        })
    }

    /// The end of `sample` was not found. Those before it in `run` were, without a confirmation from behind.
    fn give_up(&mut self, run: Range<u64>, sample: u64) -> bool {
        let end = self.confirmed_end(run.start..sample);
        if end == run.start {
            return false;
        }
        self.found.push(run.start..end);
        self.lost.push(end..run.end);
        true
    }

    /// Samples between sound neighbours whose checksum does not fit: if the checksum of the tables fits with the
    /// computed one instead, only the stored checksum was damaged.
    fn replace_checksums(&mut self, window: &mut Window<'_>, suspects: Vec<u64>) -> Result<()> {
        let mut computed = Vec::with_capacity(suspects.len());
        for &sample in &suspects {
            let range = self.samples.range(sample);
            let is_possible = range.start <= range.end && range.end <= window.size();
            computed.push(if is_possible { Some(crc(window, range)?) } else { None });
        }
        let stored: Vec<u32> = suspects.iter().map(|&sample| self.samples.checksum(sample)).collect();
        let replace = |samples: &mut Samples, wanted: &dyn Fn(usize) -> bool| {
            for (number, &sample) in suspects.iter().enumerate() {
                let new = computed[number].filter(|_| wanted(number)).unwrap_or(stored[number]);
                samples.set_checksum(sample, new);
            }
        };
        let tries = if self.stored_checksum == 0 || suspects.is_empty() {
            0
        } else {
            suspects.len().min(CHECKSUMS_TRIED) + 1
        };
        for number in 0..tries {
            // First all of them, then each alone.
            let wanted = |other: usize| number == 0 || other + 1 == number;
            replace(&mut self.samples, &wanted);
            if self.samples.header_checksum(self.walk.cx)? == self.stored_checksum {
                let unproved = suspects.iter().enumerate().filter(|&(other, _)| !wanted(other));
                self.lost.extend(unproved.map(|(_, &sample)| sample..sample + 1));
                return Ok(());
            }
        }
        replace(&mut self.samples, &|_| false);
        self.lost.extend(suspects.into_iter().map(|sample| sample..sample + 1));
        Ok(())
    }

    fn visit_all(mut self, visit: &mut dyn FnMut(Span<'_>) -> Result<()>) -> Result<()> {
        self.lost.sort_by_key(|run| run.start);
        self.found.sort_by_key(|run| run.start);
        let (mut lost, mut found) = (self.lost.iter().peekable(), self.found.iter().peekable());
        let mut window = Window::new(self.walk.storage, self.walk.cx);
        let mut reached = self.samples.data_begin();
        visit(Span::Meta(0..reached))?;
        let mut sample = 0;
        while sample < self.samples.n() {
            if let Some(run) = lost.next_if(|run| run.contains(&sample)) {
                let next = if run.end < self.samples.n() {
                    self.samples.offset(run.end)
                } else {
                    self.walk.storage.len()
                };
                visit(Span::damage(reached..next.max(reached), self.why_lost(&mut window, sample)?))?;
                sample = run.end;
                continue;
            }
            while found.next_if(|run| run.end <= sample).is_some() {}
            let found_by_search = found.peek().is_some_and(|run| run.contains(&sample));
            let range = self.samples.range(sample);
            reached = range.end;
            visit_sample(self.walk, &self.samples, &mut window, sample, range, found_by_search, visit)?;
            sample += 1;
        }
        Ok(())
    }

    fn why_lost(&self, window: &mut Window<'_>, sample: u64) -> Result<Error> {
        if sample >= self.written {
            return Ok(unwritten().for_record(sample));
        }
        let range = match self.samples.range_after(sample, self.samples.data_begin()) {
            Ok(range) => range,
            Err(error) => return Ok(error),
        };
        let checked = self.samples.check_hash(sample, crc(window, range)?);
        let unproved = || Error::checksum("nothing proves where the sample ends");
        Ok(checked.err().unwrap_or_else(unproved).for_record(sample))
    }
}
