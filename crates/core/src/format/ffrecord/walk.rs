//! Every byte of a file, in order: the table, what lies unused behind it, and each sample.
//!
//! A table that is damaged, or that belongs to a file whose end is cut off, still leads to the samples whose offsets can
//! be believed; the checksum of each tells whether it is one.

use super::table::{Samples, mismatch};
use crate::error::{Error, Result};
use crate::format::{ReadOptions, Span};
use crate::storage::{Storage, window::Window};

pub(super) fn walk(
    storage: &dyn Storage,
    options: &ReadOptions,
    visit: &mut dyn FnMut(Span) -> Result<()>,
) -> Result<()> {
    let size = storage.len();
    let (samples, header) = match Samples::load(storage, options.checksums) {
        Ok(read) => read,
        Err(error) if error.is_from_outside() => return Err(error),
        Err(error) => return visit(Span::Damage(0..size, error)),
    };
    let tables = 0..samples.data_begin();
    // What `open` says about the offsets comes first.
    let mut offsets = Offsets { samples: &samples, size, problem: samples.check_offsets().err() };
    let first = offsets.next(0, tables.end);
    visit(match header {
        Ok(()) => Span::Meta(tables.clone()),
        Err(error) => Span::Damage(tables.clone(), error),
    })?;
    if first > 0 {
        visit(offsets.damage(tables.end, 0, first))?;
    } else if offsets.of(0) > tables.end {
        visit(Span::Unused(tables.end..offsets.of(0)))?;
    }
    let mut window = Window::new(storage);
    let mut sample = first;
    while sample < samples.n() {
        let begin = offsets.of(sample);
        let next = offsets.next(sample + 1, begin);
        if next > sample + 1 {
            visit(offsets.damage(begin, sample, next))?;
            sample = next;
            continue;
        }
        let range = begin..offsets.of(next);
        let bytes = range.end - range.start;
        let mut hash = crc32fast::Hasher::new();
        window.pieces("sample", range.start, bytes, |piece| hash.update(piece))?;
        let (stored, computed) = (samples.checksum(sample), hash.finalize());
        visit(if stored == computed || !options.checksums {
            Span::Records { range, meta: 0, chunks: 1, first: sample, records: 1, bytes }
        } else {
            Span::Damage(range, mismatch(begin, stored, computed).for_record(sample))
        })?;
        sample = next;
    }
    Ok(())
}

/// Where samples begin, as far as that can be believed.
struct Offsets<'a> {
    samples: &'a Samples,
    size: u64,
    problem: Option<Error>,
}

impl Offsets<'_> {
    /// Where a sample begins; behind the last one, the end of the file.
    fn of(&self, sample: u64) -> u64 {
        if sample < self.samples.n() { self.samples.offset(sample) } else { self.size }
    }

    /// The first sample from `sample` on whose offset can be believed, when one before it begins at `begin`; else the
    /// number of samples, for the end of the file.
    fn next(&self, sample: u64, begin: u64) -> u64 {
        let inside = |sample| (begin..=self.size).contains(&self.of(sample));
        // Of two that are out of order, the first is the one that does not fit, unless the second fits nowhere.
        let fits = |sample| inside(sample) && (!inside(sample + 1) || self.of(sample) <= self.of(sample + 1));
        let n = self.samples.n();
        (sample..n).find(|&sample| fits(sample)).unwrap_or(n)
    }

    /// The samples up to `next`, which cannot be told apart.
    fn damage(&mut self, begin: u64, sample: u64, next: u64) -> Span {
        let at = if begin == self.of(sample) { sample + 1 } else { sample };
        let problem = self.problem.take();
        let error = problem.unwrap_or_else(|| self.samples.bad_offset(at, self.of(at), begin));
        Span::Damage(begin..self.of(next), error)
    }
}
