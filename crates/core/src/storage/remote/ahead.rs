//! Bytes that are fetched before they are read, so that a steady reader never waits.

use super::file::RemoteFile;
use super::runtime;
use super::transfer::plan;
use crate::cx::Cx;
use crate::error::Result;
use crate::process::{self, PerProcess};
use crate::storage::ReadOp;
use crate::storage::stats::Stats;
use bytes::Bytes;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;

/// How often a waiting call asks whether it shall stop.
const CHECK: Duration = Duration::from_millis(20);

/// What is fetched ahead of one object. A forked child begins with nothing.
#[derive(Default)]
pub struct Ahead {
    blocks: PerProcess<Vec<Arc<Block>>>,
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
    /// How many bytes will be read. The rest lies between them.
    wanted: u64,
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
    /// Begins to fetch ranges. Those that are already being fetched are left out.
    pub fn fetch(&self, file: &RemoteFile, ranges: &mut dyn Iterator<Item = Range<u64>>) {
        let size = file.identity().size;
        // What is not on its way yet. Ranges overlap at their beginnings: a reader goes forward.
        let rest = |blocks: &[Arc<Block>], range: &mut Range<u64>| {
            while let Some(block) = blocks.iter().find(|block| block.range.contains(&range.start)) {
                range.start = block.range.end;
            }
            range.start < range.end
        };
        let mut wanted: Vec<_> =
            ranges.filter(|range| range.start < range.end && range.end <= size).collect();
        wanted.sort_unstable_by_key(|range| range.start);
        let policy = file.policy();
        self.blocks.with(|blocks| {
            wanted.retain_mut(|range| rest(blocks, range));
            for planned in plan(&wanted, policy.merge_gap, policy.part_size) {
                let range = planned.range;
                let used =
                    wanted.iter().map(|w| w.end.min(range.end).saturating_sub(w.start.max(range.start)));
                let block = Arc::new(Block {
                    range: range.clone(),
                    state: Mutex::new(State { wanted: used.sum(), ..State::default() }),
                    is_ready: Condvar::new(),
                    task: Mutex::default(),
                    generation: process::generation(),
                });
                // A failure is found again, and reported, when the bytes are read.
                if start(file, &block).is_err() {
                    return;
                }
                Stats::add(&file.stats().ahead_bytes, range.end - range.start);
                blocks.push(block);
            }
            // Blocks that nobody reads make room for those that somebody may read.
            let mut held: u64 = blocks.iter().map(|block| block.range.end - block.range.start).sum();
            let most = 2 * policy.readahead_bytes.max(policy.part_size);
            while held > most && blocks.len() > 1 {
                let oldest = blocks.remove(0);
                held -= oldest.range.end - oldest.range.start;
            }
        });
    }

    /// Fills the ranges that were fetched, and removes them from the list.
    pub fn take(&self, ops: &mut Vec<ReadOp<'_>>, stats: &Stats, cx: &Cx<'_>) -> Result<()> {
        let blocks = self.blocks.with(|blocks| blocks.clone());
        if blocks.is_empty() {
            return Ok(());
        }
        let mut failed = None;
        ops.retain_mut(|op| {
            if failed.is_some() {
                return true;
            }
            match fill(op, &blocks, stats, cx) {
                Ok(is_filled) => !is_filled,
                Err(error) => {
                    failed = Some(error);
                    true
                }
            }
        });
        self.blocks.with(|blocks| blocks.retain(|block| !block.is_used_up()));
        failed.map_or(Ok(()), Err)
    }
}

/// Fills a range from the blocks. False if they do not have all of it.
fn fill(op: &mut ReadOp<'_>, blocks: &[Arc<Block>], stats: &Stats, cx: &Cx<'_>) -> Result<bool> {
    let end = op.at + op.out.len() as u64;
    let (mut at, mut pieces) = (op.at, Vec::new());
    while at < end {
        let Some(block) = blocks.iter().find(|block| block.range.contains(&at)) else { return Ok(false) };
        let piece = at..end.min(block.range.end);
        at = piece.end;
        pieces.push((block, piece));
    }
    for (block, piece) in &pieces {
        let out = &mut op.out[(piece.start - op.at) as usize..(piece.end - op.at) as usize];
        if !block.copy(piece.clone(), out, stats, cx)? {
            return Ok(false);
        }
    }
    Stats::add(&stats.ahead_hits, end - op.at);
    Ok(true)
}

impl Block {
    /// Copies bytes, when they have arrived. False if they could not be fetched.
    fn copy(&self, range: Range<u64>, out: &mut [u8], stats: &Stats, cx: &Cx<'_>) -> Result<bool> {
        let needed = (range.end - self.range.start) as usize;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = Instant::now();
        let is_waiting = state.bytes.len() < needed;
        while state.bytes.len() < needed {
            if state.is_over {
                return Ok(false);
            }
            let waited = self.is_ready.wait_timeout(state, CHECK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            cx.check()?;
        }
        if is_waiting {
            stats.waited(begun.elapsed());
        }
        out.copy_from_slice(&state.bytes[needed - out.len()..needed]);
        state.wanted = state.wanted.saturating_sub(out.len() as u64);
        Ok(true)
    }

    fn is_used_up(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_short = (state.bytes.len() as u64) < self.range.end - self.range.start;
        state.wanted == 0 || state.is_over && is_short
    }

    fn add(&self, piece: &Bytes) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).bytes.extend_from_slice(piece);
        self.is_ready.notify_all();
    }

    fn finish(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_over = true;
        self.is_ready.notify_all();
    }
}

fn start(file: &RemoteFile, block: &Arc<Block>) -> Result<()> {
    let (object, identity) = (file.object()?, file.identity().clone());
    // The task must not keep the block: it ends when nobody wants the block any more.
    let (range, block_of_task) = (block.range.clone(), Arc::downgrade(block));
    let task = runtime::runtime()?.spawn(async move {
        let take = |piece: Bytes| {
            if let Some(block) = block_of_task.upgrade() {
                block.add(&piece);
            }
            Ok(())
        };
        let _ = object.read(range, &identity, take).await;
        if let Some(block) = block_of_task.upgrade() {
            block.finish();
        }
    });
    *block.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task.abort_handle());
    Ok(())
}
