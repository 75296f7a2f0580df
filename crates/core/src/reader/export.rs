//! Records exported in place: no copy, and no check.

use super::{Plan, PlannedRead, Reader};
use crate::error::Result;
use crate::format::Way;
use crate::shard::Shard;
use std::ops::Range;
use std::sync::Arc;

/// The bytes of a record in the memory of their storage, which stays in place as long as this lives.
///
/// Nothing is verified, now or later. If the file is truncated or written to, the bytes here change too.
pub struct Export {
    shard: Arc<Shard>,
    range: Range<u64>,
}

impl Export {
    /// The bytes at the moment of the access.
    pub fn bytes(&self) -> &[u8] {
        let mapped = self.shard.opened_source().and_then(|source| source.mapped());
        mapped.and_then(|mapped| mapped.exported(self.range.clone())).unwrap_or_default()
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        if let Some(source) = self.shard.opened_source() {
            if let Some(mapped) = source.mapped() {
                mapped.unexport();
            }
            if self.shard.is_unused() {
                // All readers have closed the shard meanwhile. Only this export kept it open.
                source.release();
            }
        }
    }
}

impl Reader {
    /// Exports the record in place. None if it is not in memory, or not stored uncompressed and in one piece.
    pub fn export(&self, plan: &Plan<'_>) -> Result<Option<Export>> {
        let Some(mapped) = plan.source.mapped() else { return Ok(None) };
        let range = match &plan.place {
            PlannedRead::Stored(Way::Plain { stored, .. }) => stored.clone(),
            PlannedRead::Stored(Way::Alone { stored, size }) => {
                let (begin, length) = (stored.start, stored.end.saturating_sub(stored.start) as usize);
                let Some(stored) = mapped.borrow(begin, length)? else { return Ok(None) };
                match plan.source.table.in_place(begin, stored.bytes(), *size) {
                    Some(at) => begin + at as u64..begin + (at + size) as u64,
                    None => return Ok(None),
                }
            }
            PlannedRead::Stored(Way::Shared(..)) | PlannedRead::Kept(_) => return Ok(None),
        };
        if !mapped.export(range.clone()) {
            return Ok(None);
        }
        let export = Export { shard: self.shards[plan.shard].clone(), range };
        let is_whole = export.bytes().len() as u64 == export.range.end - export.range.start;
        Ok(is_whole.then_some(export))
    }
}
