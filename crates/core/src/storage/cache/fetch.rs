//! Reads many ranges of cached objects: from the cache, or else from servers, in whole blocks.

use super::block::{self, BLOCK};
use super::file::CachedFile;
use crate::cx::Cx;
use crate::error::Result;
use crate::storage::ReadOp;
use crate::storage::fetch::Failed;
use crate::storage::remote::transfer::{self, Transfer};
use crate::storage::stats::Stats;
use std::ops::Range;

/// Ranges of one object, with a number that names them in an error.
pub type Job<'j, 's, 'o> = (usize, &'s CachedFile, &'j mut Vec<ReadOp<'o>>);

/// Bytes of blocks that are fetched at once. While they are fetched, those before them are stored.
const WAVE: u64 = 32 << 20;

/// A block that no cache has, and the ranges that need it.
struct Missing<'s> {
    /// The index of the job.
    job: usize,
    file: &'s CachedFile,
    number: u64,
    ops: Vec<usize>,
    bytes: Vec<u8>,
}

/// Fills the ranges of all jobs. When it returns, no request is in flight.
pub fn read(jobs: &mut [Job<'_, '_, '_>], cx: &Cx<'_>) -> std::result::Result<(), Failed> {
    let mut missing = Vec::new();
    for (index, (number, file, ops)) in jobs.iter_mut().enumerate() {
        file.enroll();
        fill(index, file, ops, &mut missing, cx).map_err(|error| (*number, error))?;
    }
    // Whole blocks are worth fetching only if they can be stored.
    let (stored, passed): (Vec<_>, Vec<_>) =
        missing.into_iter().partition(|missing| missing.file.cache().is_writable());
    pass(jobs, &passed, cx)?;
    fetch(jobs, stored, cx)
}

/// Fills what the cache has.
fn fill<'s>(
    job: usize,
    file: &'s CachedFile,
    ops: &mut [ReadOp<'_>],
    missing: &mut Vec<Missing<'s>>,
    cx: &Cx<'_>,
) -> Result<()> {
    let size = file.remote().identity().size;
    let mut uses = Vec::with_capacity(ops.len());
    for (op, ReadOp { at, out }) in ops.iter().enumerate() {
        let range = crate::bytes::range("bytes", *at, out.len() as u64, size);
        let range = range.map_err(|error| error.in_file(file.remote().shown()))?;
        if !range.is_empty() {
            uses.extend((range.start / BLOCK..=(range.end - 1) / BLOCK).map(|number| (number, op)));
        }
    }
    uses.sort_unstable();
    let mut misses = vec![false; ops.len()];
    for uses in uses.chunk_by(|a, b| a.0 == b.0) {
        cx.check()?;
        let number = uses[0].0;
        let is_here = parts_of(number, size, ops, uses.iter().map(|(_, op)| *op), |parts| {
            file.resident().fill(number, parts, file.cache())
        });
        if !is_here {
            let of_block: Vec<_> = uses.iter().map(|(_, op)| *op).collect();
            of_block.iter().for_each(|&op| misses[op] = true);
            missing.push(Missing { job, file, number, ops: of_block, bytes: Vec::new() });
        }
    }
    let stats = file.remote().stats();
    for (op, is_missed) in ops.iter().zip(misses) {
        match is_missed {
            true => Stats::add(&stats.cache_misses, 1),
            false => stats.read_cached(op.out.len() as u64),
        }
    }
    Stats::add(&stats.cache_damaged, file.cache().take_damaged());
    Ok(())
}

/// Calls `act` with the parts of a block that ranges need. The ranges are sorted by their index.
fn parts_of<T>(
    number: u64,
    size: u64,
    ops: &mut [ReadOp<'_>],
    mut wanted: impl Iterator<Item = usize>,
    act: impl FnOnce(&mut [(usize, &mut [u8])]) -> T,
) -> T {
    let block = block::range(number, size);
    let mut parts = Vec::new();
    let (mut next, mut rest, mut passed) = (wanted.next(), ops, 0);
    while let Some(op) = next {
        let (_, later) = std::mem::take(&mut rest).split_at_mut(op - passed);
        let Some((op_here, later)) = later.split_first_mut() else { break };
        (passed, rest, next) = (op + 1, later, wanted.next());
        let (begin, end) = (op_here.at, op_here.at + op_here.out.len() as u64);
        let Range { start, end } = begin.max(block.start)..end.min(block.end);
        let out = &mut op_here.out[(start - begin) as usize..(end - begin) as usize];
        parts.push(((start - block.start) as usize, out));
    }
    act(&mut parts)
}

/// Fetches the ranges themselves, and not their blocks.
fn pass(
    jobs: &mut [Job<'_, '_, '_>],
    missing: &[Missing<'_>],
    cx: &Cx<'_>,
) -> std::result::Result<(), Failed> {
    if missing.is_empty() {
        return Ok(());
    }
    let mut passed = Vec::new();
    for (index, (number, file, ops)) in jobs.iter_mut().enumerate() {
        let mut is_missing = vec![false; ops.len()];
        let of_job = missing.iter().filter(|missing| missing.job == index);
        of_job.flat_map(|missing| &missing.ops).for_each(|&op| is_missing[op] = true);
        let ops = ops.iter_mut().zip(is_missing).filter(|(_, is_missing)| *is_missing);
        let ops: Vec<_> = ops.map(|(op, _)| ReadOp { at: op.at, out: &mut *op.out }).collect();
        passed.push((*number, file.remote(), ops));
    }
    let mut of_server: Vec<_> = passed
        .iter_mut()
        .filter(|(_, _, ops)| !ops.is_empty())
        .map(|(n, file, ops)| (*n, *file, ops))
        .collect();
    transfer::read(&mut of_server, cx)
}

/// Fetches blocks, copies out what the ranges need, and stores the blocks.
fn fetch(
    jobs: &mut [Job<'_, '_, '_>],
    missing: Vec<Missing<'_>>,
    cx: &Cx<'_>,
) -> std::result::Result<(), Failed> {
    let mut missing = missing.into_iter().peekable();
    let mut fetched: Vec<Missing<'_>> = Vec::new();
    while missing.peek().is_some() {
        let (mut wave, mut bytes) = (Vec::new(), 0);
        while bytes < WAVE
            && let Some(mut next) = missing.next()
        {
            let range = block::range(next.number, next.file.remote().identity().size);
            let buffer = crate::bytes::zeroed("block", range.end - range.start);
            next.bytes = buffer.map_err(|error| (jobs[next.job].0, error))?;
            bytes += range.end - range.start;
            wave.push(next);
        }
        fetch_wave(jobs, &mut wave, std::mem::take(&mut fetched), cx)?;
        for Missing { job, file, number, ops, bytes } in &mut wave {
            let size = file.remote().identity().size;
            parts_of(*number, size, jobs[*job].2, ops.iter().copied(), |parts| {
                for (at, out) in parts {
                    out.copy_from_slice(&bytes[*at..*at + out.len()]);
                }
            });
        }
        fetched = wave;
    }
    store(fetched);
    Ok(())
}

fn fetch_wave(
    jobs: &[Job<'_, '_, '_>],
    wave: &mut [Missing<'_>],
    before: Vec<Missing<'_>>,
    cx: &Cx<'_>,
) -> std::result::Result<(), Failed> {
    let mut of_files = Vec::new();
    for of_one in wave.chunk_by_mut(|a, b| a.job == b.job) {
        let (number, file) = (jobs[of_one[0].job].0, of_one[0].file.remote());
        let ops: Vec<_> = of_one
            .iter_mut()
            .map(|missing| ReadOp { at: missing.number * BLOCK, out: &mut missing.bytes })
            .collect();
        of_files.push((number, file, ops));
    }
    let mut of_server: Vec<_> =
        of_files.iter_mut().map(|(number, file, ops)| (*number, *file, ops)).collect();
    let transfer = Transfer::begin(&mut of_server, cx);
    // The requests are in flight meanwhile.
    store(before);
    transfer?.finish(cx)
}

fn store(fetched: Vec<Missing<'_>>) {
    for Missing { file, number, bytes, .. } in fetched {
        file.store(number, &bytes);
    }
}
