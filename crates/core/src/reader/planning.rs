//! Finds the places and sizes of many records, in several threads if there are many of them.

use super::{Plan, Reader};
use crate::bytes;
use crate::cx::Cx;
use crate::error::Result;

/// About how many nanoseconds it takes to find one record. Its table entry is rarely in the processor's cache.
const FIND: u64 = 80;
/// How many records ahead a table entry is prefetched.
const ENTRIES_AHEAD: usize = 16;

impl Reader {
    /// Finds the way to each record.
    pub(super) fn plan_all(&self, indices: &[u64], cx: &Cx<'_>) -> Result<Vec<Plan<'_>>> {
        self.open_objects(indices.iter().filter_map(|&index| Some(self.shard_of(index).ok()?.0)), cx)?;
        let found = self.find_together(indices, cx, Ok)?;
        let mut plans = Vec::with_capacity(indices.len());
        // A loop of its own: most batches are found by one thread, and a plan is large to look at and move.
        if found.is_empty() {
            for (i, &index) in indices.iter().enumerate() {
                indices.get(i + ENTRIES_AHEAD).inspect(|next| self.prefetch_entry(**next));
                plans.push(self.plan(index, cx)?);
            }
            return Ok(plans);
        }
        for (plan, &index) in found.into_iter().zip(indices) {
            plans.push(plan.map_or_else(|| self.plan(index, cx), Ok)?);
        }
        Ok(plans)
    }

    /// The size of a record, if it is known before reading.
    pub fn size(&self, index: u64, cx: &Cx<'_>) -> Result<Option<u64>> {
        self.check_open()?;
        let (shard, record) = self.shard_of(index)?;
        self.shards[shard].source(cx)?.table.size(record)
    }

    /// The size of each record, if all are known before reading.
    pub fn sizes(&self, indices: &[u64], cx: &Cx<'_>) -> Result<Option<Vec<u64>>> {
        let mut sizes = bytes::list("sizes of records", indices.len() as u64)?;
        let Some(&first) = indices.first() else { return Ok(Some(sizes)) };
        // In most files either all sizes are known or none.
        if self.size(first, cx)?.is_none() {
            return Ok(None);
        }
        let mut found = self.find_together(indices, cx, |plan| plan.size())?.into_iter();
        let mut pace = cx.pace();
        for (i, &index) in indices.iter().enumerate() {
            pace.step(FIND)?;
            let size = match found.next().flatten() {
                Some(size) => size.map(|size| size as u64),
                None => {
                    indices.get(i + ENTRIES_AHEAD).inspect(|next| self.prefetch_entry(**next));
                    self.size(index, cx)?
                }
            };
            let Some(size) = size else { return Ok(None) };
            sizes.push(size);
        }
        Ok(Some(sizes))
    }

    /// Finds records in tables that are in memory, in the threads of the pool, if there are enough records to wake it.
    /// Returns nothing otherwise. The others are None: only the calling thread does I/O.
    fn find_together<'a, T: Send>(
        &'a self,
        indices: &[u64],
        cx: &Cx<'_>,
        find: impl Fn(Plan<'a>) -> Result<T> + Sync + Send,
    ) -> Result<Vec<Option<T>>> {
        let cost = FIND.saturating_mul(indices.len() as u64);
        if self.pool_for(cost, indices.len()).is_none() {
            return Ok(Vec::new());
        }
        let mut found = bytes::list("places of records", indices.len() as u64)?;
        found.resize_with(indices.len(), || None);
        let mut wanted = bytes::list("places of records", indices.len() as u64)?;
        wanted.extend(indices.iter().copied().zip(&mut found));
        self.spread(&mut wanted, cost, cx, |wanted, _| {
            for i in 0..wanted.len() {
                wanted.get(i + ENTRIES_AHEAD).inspect(|(next, _)| self.prefetch_entry(*next));
                let (index, place) = &mut wanted[i];
                if let Some(plan) = self.plan_without_io(*index)? {
                    **place = Some(find(plan)?);
                }
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Prefetches the table entry of a record into the processor's cache.
    #[inline]
    fn prefetch_entry(&self, index: u64) {
        if let Ok((shard, record)) = self.shard_of(index)
            && let Some(source) = self.shards[shard].opened_source()
        {
            source.table.prefetch(record);
        }
    }
}
