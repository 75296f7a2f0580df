//! Records handed out where they lie: no copy, and no check.

use super::{Place, Plan, Reader};
use crate::error::Result;
use crate::format::Way;
use crate::shard::Shard;
use std::ops::Range;
use std::sync::Arc;

/// The bytes of a record in the memory of their storage, which stays in place as long as this lives.
///
/// Nothing is verified, now or later: a file that is cut or written to meanwhile shows here.
pub struct Export {
    shard: Arc<Shard>,
    range: Range<u64>,
}

impl Export {
    /// The bytes, as they are at the moment of looking.
    pub fn bytes(&self) -> &[u8] {
        let source = self.shard.opened_source();
        source.and_then(|source| source.storage.exported(self.range.clone())).unwrap_or_default()
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        if let Some(source) = self.shard.opened_source() {
            source.storage.unexport();
            if self.shard.is_unused() {
                // Everybody has closed it meanwhile, and only this was in the way.
                source.storage.release();
            }
        }
    }
}

impl Reader {
    /// The record in place; none where it does not lie in memory in one piece as it is.
    pub fn export(&self, plan: &Plan<'_>) -> Result<Option<Export>> {
        let (table, storage) = (&plan.source.table, &plan.source.storage);
        let range = match &plan.place {
            Place::Stored(Way::Direct(range)) => range.clone(),
            Place::Stored(Way::Alone(chunk, size)) => {
                let length = chunk.stored.end.saturating_sub(chunk.stored.start) as usize;
                let Some(stored) = storage.borrow(chunk.stored.start, length)? else { return Ok(None) };
                match table.in_place(chunk, stored.bytes(), *size) {
                    Some(at) => chunk.stored.start + at as u64..chunk.stored.start + (at + size) as u64,
                    None => return Ok(None),
                }
            }
            Place::Stored(Way::Among(..)) | Place::Kept(_) => return Ok(None),
        };
        if !storage.export(range.clone()) {
            return Ok(None);
        }
        let export = Export { shard: self.shards[plan.shard].clone(), range };
        let is_whole = export.bytes().len() as u64 == export.range.end - export.range.start;
        Ok(is_whole.then_some(export))
    }
}
