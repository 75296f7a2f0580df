//! Where chunks begin in a view. A block shuffle aligns its blocks with chunks.

use super::View;
use crate::bytes;
use crate::cx::Cx;
use crate::error::Result;
use crate::reader::Reader;

/// How many records each chunk holds, if that number is the same for all files. The last chunk of a file may be
/// shorter.
pub fn chunk_records(reader: &Reader, cx: &Cx<'_>) -> Result<Option<u64>> {
    // `full`: the records of a chunk in files of several chunks. `only`: the most records in a file of one chunk.
    let (mut full, mut only) = (None, 0);
    reader.open_objects(0..reader.shards().len(), cx)?;
    for shard in reader.shards().iter().filter(|shard| shard.records() > 0) {
        let table = &shard.source(cx)?.table;
        let (first, _) = table.locate(0)?;
        let (last, _) = table.locate(table.records() - 1)?;
        if last.first_record == 0 {
            only = only.max(first.records);
            continue;
        }
        // This checks two chunks of perhaps millions. If unequal ones pass by chance, that only costs speed.
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

/// Positions of the view, in addition to 0, where a block of `block` records must begin so that blocks cover whole
/// chunks: where a file begins, and where the first whole chunk begins after one that the view cuts in two.
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

/// The view as runs of neighbouring records, `(first, how many)` each. Empty if the view does not consist of such runs.
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

/// Neighbouring records of one file that are neighbours in a view, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The position of the first one in the view.
    pub position: u64,
    /// The number of the file.
    pub shard: usize,
    /// The number of the first one in its file.
    pub record: u64,
    /// How many.
    pub len: u64,
}

/// The view as pieces of files, in order. None if the view does not consist of such pieces: if it is shuffled or mixed,
/// or leaves out every second record.
pub fn pieces(reader: &Reader, view: &View) -> Result<Option<Vec<Piece>>> {
    let Some(runs) = neighbours(view) else { return Ok(None) };
    let (mut pieces, mut position) = (Vec::new(), 0);
    for (start, len) in runs {
        let mut done = 0;
        while done < len {
            let (shard, record) = reader.shard_of(start + done)?;
            let file = &reader.shards()[shard];
            let len = (file.first() + file.records() - record).min(len - done);
            bytes::push("pieces of a view", &mut pieces, Piece { position, shard, record, len })?;
            (done, position) = (done + len, position + len);
        }
    }
    Ok(Some(pieces))
}

/// Like [`runs`], but also of slices. None if the view does not consist of runs.
fn neighbours(view: &View) -> Option<Vec<(u64, u64)>> {
    match view {
        View::Range { len: 0, .. } => Some(Vec::new()),
        View::Range { start, step, len } if *step == 1 || *len == 1 => Some(vec![(*start, *len)]),
        View::Concat(parts) => {
            let mut found = Vec::new();
            for part in parts.iter() {
                found
                    .extend(neighbours(&part.view)?.into_iter().map(|(start, len)| (part.base + start, len)));
            }
            Some(found)
        }
        View::Slice { of, start, step, len } if *step == 1 || *len == 1 => {
            let (mut found, mut begin, end) = (Vec::new(), 0, start + len);
            for (first, count) in neighbours(of)? {
                let (from, to) = ((*start).max(begin), end.min(begin + count));
                found.extend((from < to).then(|| (first + (from - begin), to.saturating_sub(from))));
                begin += count;
            }
            Some(found)
        }
        _ => None,
    }
}
