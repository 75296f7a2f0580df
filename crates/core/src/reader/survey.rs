//! Uncompressed chunks in memory are verified and searched for their records, instead of being decoded.
//!
//! To decode such a chunk is to copy it twice, and the records are then copied a third time. Afterwards the table knows
//! where each record is, and how to verify it alone.

use super::batch::{COPIED_IN_A_NANOSECOND, chunk_of, fitting};
use super::stored::{By, borrow};
use super::{Plan, Reader};
use crate::cx::Cx;
use crate::error::Result;

/// How many bytes tables keep about the chunks of one batch. They forget old chunks for new ones, and the batch needs all
/// of its chunks. The chunks beyond this are decoded.
const KEPT_BYTES: u64 = 16 << 20;

impl Reader {
    /// Plans records anew whose chunks can be surveyed, after a survey of these chunks.
    pub(super) fn survey_all<'a>(&'a self, plans: &mut [Plan<'a>], cx: &Cx<'_>) -> Result<()> {
        let mut wanted: Vec<&Plan<'a>> = plans.iter().filter(|plan| plan.can_be_surveyed()).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        wanted.sort_by_key(|plan| chunk_of(plan));
        wanted.dedup_by_key(|plan| chunk_of(plan));
        let mut kept = 0u64;
        wanted.retain(|plan| {
            kept = kept.saturating_add(plan.survey_bytes().unwrap_or(0));
            kept <= KEPT_BYTES
        });
        let mut rest = &mut wanted[..];
        while !rest.is_empty() {
            // Cold chunks are fetched a few at a time.
            let count = if self.page_cache.is_warm() { rest.len() } else { fitting(rest.iter().copied()) };
            let (now, later) = rest.split_at_mut(count);
            self.prefetch_batch(now.iter().copied());
            let bytes: u64 = now.iter().map(|plan| plan.stored_bytes()).sum();
            self.files.stats.read_mapped(now.len() as u64, bytes);
            self.spread(now, 2 * bytes / COPIED_IN_A_NANOSECOND, cx, |plans, cx| {
                plans.iter().try_for_each(|plan| survey(plan, cx).map(|_| ()))
            })?;
            rest = later;
        }
        for plan in plans.iter_mut().filter(|plan| plan.can_be_surveyed()) {
            *plan = self.plan_in(plan.source, plan.index, plan.shard, plan.record)?;
        }
        Ok(())
    }

    /// The same for one record. None: its chunk has to be decoded.
    pub(super) fn survey_one<'a>(&'a self, plan: &Plan<'a>, cx: &Cx<'_>) -> Result<Option<Plan<'a>>> {
        if !plan.can_be_surveyed() {
            return Ok(None);
        }
        if !self.page_cache.is_warm() {
            self.read_around_one(plan, !plan.is_cached());
        }
        if !survey(plan, cx)? {
            return Ok(None);
        }
        self.files.stats.read_mapped(1, plan.stored_bytes());
        let plan = self.plan_in(plan.source, plan.index, plan.shard, plan.record)?;
        Ok(Some(plan).filter(|plan| plan.chunk().is_none()))
    }
}

/// Whether the chunk of a plan could be surveyed. What is wrong with it is reported when it is decoded.
fn survey(plan: &Plan<'_>, cx: &Cx<'_>) -> Result<bool> {
    let Some(chunk) = plan.chunk() else { return Ok(false) };
    let length = usize::try_from(plan.stored_bytes()).unwrap_or(usize::MAX);
    let surveyed = borrow(plan.source, chunk.stored.start, length, By::Map).and_then(|borrowed| {
        let survey = |stored: &[u8]| plan.source.table.survey(chunk, stored, cx);
        borrowed.map_or(Ok(None), |borrowed| borrowed.with(plan.source.is_verified, cx, survey))
    });
    match surveyed {
        Ok(found) => Ok(found.map(|keep| keep()).is_some()),
        Err(error) if error.is_damage() => Ok(false),
        Err(error) => Err(plan.attribute(error)),
    }
}

impl Plan<'_> {
    /// Whether its chunk has to be read, and can be surveyed.
    fn can_be_surveyed(&self) -> bool {
        self.survey_bytes().is_some_and(|bytes| bytes <= KEPT_BYTES) && self.is_in_place()
    }

    fn survey_bytes(&self) -> Option<u64> {
        self.chunk().and_then(|chunk| self.source.table.survey_bytes(chunk))
    }
}
