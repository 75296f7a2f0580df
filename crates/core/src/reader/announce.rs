//! Lets disks and servers begin to fetch what will be read soon.

use super::batch::{BLOCK, FETCH_BYTES, WAVE};
use super::{Plan, Reader};
use crate::cx::Cx;

/// As many records of files on servers are announced together. The more, the fewer requests.
const ANNOUNCED: usize = 1 << 16;

impl Reader {
    /// Announces that records will be read soon. If recent reads missed the page cache, the disk begins to read their
    /// bytes.
    pub fn will_read(&self, indices: &[u64], cx: &Cx<'_>) {
        if self.is_warm() {
            return;
        }
        for indices in indices.chunks(if self.is_remote { ANNOUNCED } else { BLOCK }) {
            let Ok(plans) = self.plan_all(indices, cx) else { return };
            self.prefetch_batch(plans.iter());
            fetch_ahead(&plans);
        }
    }

    /// Sends the requests of a batch together, if it would be fetched in several steps.
    pub(super) fn request_together(&self, plans: &[Plan<'_>]) {
        let Some((most, _)) = self.readahead() else { return };
        let is_one_step = plans.len() <= WAVE && plans.iter().all(|plan| plan.chunk().is_none());
        let mut bytes = 0;
        let fits = |plan: &&Plan<'_>| {
            bytes += plan.stored().map_or(0, |range| range.end.saturating_sub(range.start));
            bytes <= most
        };
        let count = plans.iter().take_while(fits).count();
        if plans.len() > 1 && !(is_one_step && bytes <= FETCH_BYTES) {
            fetch_ahead(&plans[..count]);
        }
    }

    /// Whether a local cache has all bytes of all files.
    pub(super) fn is_cached(&self) -> bool {
        self.shards.iter().all(|shard| {
            let source = shard.opened_source();
            source.and_then(|source| source.mapped()).is_some_and(|mapped| mapped.is_whole())
        })
    }
}

/// Lets storages that are far away begin to fetch what will be read.
fn fetch_ahead(plans: &[Plan<'_>]) {
    let mut ranges: Vec<_> = plans
        .iter()
        .filter(|plan| !plan.is_in_place() && plan.source.storage().distance().is_far())
        .filter_map(|plan| plan.stored().map(|range| (plan.shard, range, plan.source)))
        .collect();
    ranges.sort_unstable_by_key(|(shard, range, _)| (*shard, range.start));
    for of_one in ranges.chunk_by(|a, b| a.0 == b.0) {
        of_one[0].2.storage().will_need(&mut of_one.iter().map(|(_, range, _)| range.clone()));
    }
}
