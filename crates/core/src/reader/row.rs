//! Records that share a chunk: the chunk is decoded whole and cached, and a record is a row of it.

use super::{By, Plan, PlannedRead, Reader, with_stored};
use crate::bytes;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::format::{Chunk, Decoded, Way};
use std::sync::Arc;

/// A record inside a decoded chunk.
#[derive(Clone)]
pub struct Row {
    pub(super) chunk: Arc<Decoded>,
    pub(super) row: u64,
}

impl Row {
    /// How many records its chunk has from this one on.
    pub(super) fn left(&self) -> u64 {
        (self.chunk.rows() as u64).saturating_sub(self.row)
    }
}

impl AsRef<[u8]> for Row {
    fn as_ref(&self) -> &[u8] {
        self.chunk.row(self.row).unwrap_or_default()
    }
}

impl Reader {
    /// Reads a record whose size is not known before reading. Its chunk is decoded and cached, because it also holds
    /// the neighbouring records.
    pub fn read_row(&self, plan: &Plan<'_>, cx: &Cx<'_>) -> Result<Row> {
        match &plan.place {
            PlannedRead::Stored(Way::Shared(chunk, row)) => match self.survey_one(plan, cx)? {
                Some(plan) => self.read_row(&plan, cx),
                None => row_of(plan, chunk, self.decode_chunk(plan, chunk, cx)?, *row),
            },
            PlannedRead::Kept(row) => Ok(row.clone()),
            PlannedRead::Stored(_) => {
                let mut out = bytes::zeroed("record", plan.size()?.unwrap_or(0) as u64)?;
                self.read_into(plan, &mut out, cx)?;
                let ends = vec![out.len()];
                Ok(Row { chunk: Arc::new(Decoded::new(out, ends)?), row: 0 })
            }
        }
    }

    /// How many records share the record's chunk and are decoded together with it. None if the record is read alone, or
    /// its file is not open yet.
    pub fn group_of(&self, index: u64) -> Option<u64> {
        let (shard, record) = self.shard_of(index).ok()?;
        match self.place_of(self.shards[shard].opened_source()?, shard, record).ok()? {
            PlannedRead::Kept(row) => Some(row.chunk.rows() as u64),
            PlannedRead::Stored(Way::Shared(chunk, _)) => Some(chunk.records),
            PlannedRead::Stored(Way::Plain { .. } | Way::Alone { .. }) => None,
        }
    }

    /// Decodes the chunk of a plan, and caches it.
    pub(super) fn decode_chunk(&self, plan: &Plan<'_>, chunk: &Chunk, cx: &Cx<'_>) -> Result<Arc<Decoded>> {
        let decode = |stored: &[u8]| plan.source.table.decode(chunk, stored, cx);
        if plan.is_in_place() {
            self.files.stats.read_mapped(1, plan.stored_bytes());
        }
        if !self.page_cache.is_warm() && plan.is_in_place() {
            self.read_around_one(plan, !plan.is_cached());
        }
        let decoded = with_stored(plan.source, &chunk.stored, By::Map, cx, decode);
        Ok(self.keep(plan, chunk, decoded.map_err(|e| plan.attribute(e))?))
    }

    /// Puts a decoded chunk into the cache.
    pub(super) fn keep(&self, plan: &Plan<'_>, chunk: &Chunk, decoded: Decoded) -> Arc<Decoded> {
        let decoded = Arc::new(decoded);
        self.expected.note(decoded.memory());
        self.cache.put((plan.shard, chunk.index), decoded.clone());
        decoded
    }
}

/// A row of the decoded chunk of a plan. An error if the chunk has too few rows.
pub(super) fn row_of(plan: &Plan<'_>, chunk: &Chunk, decoded: Arc<Decoded>, row: u64) -> Result<Row> {
    if decoded.row(row).is_some() {
        return Ok(Row { chunk: decoded, row });
    }
    Err(plan.attribute(
        Error::format("chunk holds fewer records than the table says")
            .at(chunk.stored.start)
            .expected(chunk.records)
            .found(decoded.rows()),
    ))
}
