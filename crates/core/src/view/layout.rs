//! Where chunks begin under a view: what a block shuffle aligns its blocks with.

use super::View;
use crate::cx::Cx;
use crate::error::Result;
use crate::reader::Reader;

/// How many records each chunk holds, where that is one number for all files. The last chunk of a file may be shorter.
pub fn chunk_records(reader: &Reader, cx: &Cx<'_>) -> Result<Option<u64>> {
    // What files of several chunks say, and the most that the only chunk of a file holds.
    let (mut full, mut only) = (None, 0);
    for shard in reader.shards().iter().filter(|shard| shard.records() > 0) {
        let table = &shard.source(cx)?.table;
        let (first, _) = table.locate(0)?;
        let (last, _) = table.locate(table.records() - 1)?;
        if last.first_record == 0 {
            only = only.max(first.records);
            continue;
        }
        // Looking at two chunks of perhaps millions. Unequal ones that happen to pass cost speed, nothing else.
        let equal =
            last.index.checked_mul(first.records) == Some(last.first_record) && last.records <= first.records;
        if !equal || full.is_some_and(|full| full != first.records) {
            return Ok(None);
        }
        full = Some(first.records);
    }
    Ok(match full {
        Some(full) => (only <= full).then_some(full),
        None => (only > 0).then_some(only),
    })
}

/// Positions of the view, besides 0, where a block of `block` records must begin so that blocks cover whole chunks:
/// where a file begins, and where the first whole chunk begins behind a cut through one.
pub fn cuts(reader: &Reader, view: &View, block: u64) -> Vec<u64> {
    let (mut cuts, mut position) = (Vec::new(), 0);
    for (start, len) in runs(view) {
        let mut begin = 0;
        for shard in reader.shards() {
            let end = begin + shard.records();
            let (from, to) = (start.max(begin), (start + len).min(end));
            if from < to {
                let at = position + (from - start);
                let into_block = (shard.first() + (from - begin)) % block;
                cuts.push(at);
                cuts.extend(
                    (into_block > 0 && block - into_block < to - from).then(|| at + (block - into_block)),
                );
            }
            begin = end;
        }
        position += len;
    }
    cuts.retain(|&cut| cut > 0);
    cuts
}

/// The view as runs of neighbouring records, `(first, how many)` each; none where it has no such runs.
fn runs(view: &View) -> Vec<(u64, u64)> {
    match view {
        View::Range { start, step: 1, len } => vec![(*start, *len)],
        View::Concat(parts) => {
            let inner = parts.iter().map(|part| match &part.view {
                View::Range { start, step: 1, len } => Some((part.base + start, *len)),
                _ => None,
            });
            inner.collect::<Option<_>>().unwrap_or_default()
        }
        _ => Vec::new(),
    }
}
