//! Reading in order: large chunks are decoded several at a time.
//!
//! One thread decodes a chunk. A batch has the records of many small chunks, so several threads have work. Of a large
//! chunk it has a part only.

use super::{Plan, PlannedRead, Reader};
use crate::allocator;
use crate::cx::Cx;
use crate::error::{Kind, Result};
use crate::format::Way;

/// Chunks that can hardly be compressed are mostly copied. So many bytes of them are decoded at once: for more, the
/// allocator gets new memory every time, which costs more than a second thread gains.
const COPIED_AT_ONCE: usize = allocator::MOST / 2;

/// What [`Reader::decode_in_order`] did.
pub struct DecodedAhead {
    /// How many records of the first chunk are left, so that a batch can end with it.
    pub left: u64,
    /// How many records there are up to the end of the last chunk that was decoded. 0: the first one was in the cache, or
    /// some are left to be decoded one by one.
    pub records: u64,
}

impl Reader {
    /// Prepares to read the records from `index` on, in order. If the chunk of the first one is not decoded yet, it is
    /// decoded and cached, and at the same time the chunks after it: as many as there are threads, and as the cache
    /// holds. `is_next`: whether the record at some distance from `index` will be read after so many others.
    ///
    /// Returns None if the record shares no chunk, or its file is not in memory. An error: the call was stopped. What is
    /// wrong with a chunk is reported when its records are read.
    pub fn decode_in_order(
        &self,
        index: u64,
        is_next: impl Fn(u64) -> bool,
        cx: &Cx<'_>,
    ) -> Result<Option<DecodedAhead>> {
        let (mut plans, mut first, mut distance) = (Vec::new(), None, 0);
        while plans.first().is_none_or(|first| plans.len() < self.at_once(first)) && is_next(distance) {
            if self.is_known_damaged(index + distance) {
                break;
            }
            let plan = match self.plan(index + distance, cx) {
                Ok(plan) => plan,
                Err(error) if matches!(error.kind(), Kind::External(_)) => return Err(error),
                Err(_) => break,
            };
            let left = match &plan.place {
                PlannedRead::Kept(row) if plans.is_empty() => {
                    return Ok(Some(DecodedAhead { left: row.left(), records: 0 }));
                }
                // Storages that are not in memory fetch ahead by themselves.
                PlannedRead::Stored(Way::Shared(chunk, row)) if plan.is_in_place() => {
                    let left = chunk.records.saturating_sub(*row);
                    plans.push(plan);
                    left
                }
                // A chunk that is in the cache: to make room for those after it could remove it.
                PlannedRead::Kept(_) | PlannedRead::Stored(_) => break,
            };
            first = first.or(Some(left));
            distance = distance.saturating_add(left.max(1));
        }
        let Some(left) = first else { return Ok(None) };
        if plans.len() < 2 {
            return Ok(Some(DecodedAhead { left, records: 0 }));
        }
        self.cache.make_room(self.expected.bytes_of(plans.len()));
        self.prefetch_batch(plans.iter());
        match self.decode_all(&plans.iter().collect::<Vec<_>>(), cx) {
            Err(error) if matches!(error.kind(), Kind::External(_)) => Err(error),
            // Next to a damaged chunk, others may not have been decoded.
            Err(_) => Ok(Some(DecodedAhead { left, records: 0 })),
            Ok(_) => Ok(Some(DecodedAhead { left, records: distance })),
        }
    }

    /// How many chunks to decode at once, if they are like this one.
    fn at_once(&self, plan: &Plan<'_>) -> usize {
        let is_copied = plan.stored_bytes().saturating_mul(4) > 3 * self.expected.bytes_of(1) as u64;
        let most = if is_copied { self.cache.limit().min(COPIED_AT_ONCE) } else { self.cache.limit() };
        self.decoders().min(self.expected.chunks_in(most))
    }
}
