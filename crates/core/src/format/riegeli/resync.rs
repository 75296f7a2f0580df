//! Finds the next chunk after damage in a file whose footer cannot be used.
//!
//! Every 65,536 bytes a block header says which chunk it interrupts. Its place is fixed, so it is never part of a
//! record, and what it says is certain. Between block headers, chunks are found by the hash of their header, at every
//! byte. Such a chunk may be part of a record that holds a Riegeli file.

use super::block::{self, BLOCK_HEADER, BlockHeader};
use super::chunk::{CHUNK_HEADER, HEADER_SPAN, Header, kind};
use crate::bytes;
use crate::error::Result;
use crate::format::walk::Walk;
use crate::storage::read_vec;
use std::ops::Range;

/// Where the walk continues.
pub struct Resumed {
    /// The offset of the next chunk, or the end of the file.
    pub at: u64,
    /// Whether a block header says that a chunk begins there.
    pub is_certain: bool,
}

/// The search for chunks. It keeps what it found in the last block, so that many damaged places in one block cost about
/// as much as one.
pub struct Resync<'a> {
    walk: &'a Walk<'a>,
    /// The last range that was searched.
    searched: Range<u64>,
    /// The places of chunks in that range.
    found: Vec<u64>,
    /// Bytes of chunks that may still be hashed in vain. A file made of false headers would otherwise be hashed once for
    /// each of them.
    budget: u64,
}

impl<'a> Resync<'a> {
    /// A search that has found nothing yet.
    pub fn new(walk: &'a Walk<'a>) -> Self {
        let budget = walk.storage.len().saturating_mul(4);
        Resync { walk, searched: 0..0, found: Vec::new(), budget }
    }

    /// Counts the bytes of a chunk that was found by its header and is damaged. Returns whether to search inside it.
    pub fn may_search_inside(&mut self, chunk: &Range<u64>) -> bool {
        let left = self.budget.checked_sub(chunk.end - chunk.start);
        self.budget = left.unwrap_or(self.budget);
        left.is_some()
    }

    /// Where the next chunk begins after damage at `damage`, where a chunk should begin.
    pub fn next_chunk(&mut self, damage: u64) -> Result<Resumed> {
        let size = self.walk.storage.len();
        let mut from = damage + 1;
        while from < size {
            self.walk.cx.check()?;
            let block = from + block::left_in_block(from);
            let known = interrupted(self.walk, block)?;
            if let Some(chunk) = known.as_ref().filter(|chunk| chunk.start < from) {
                // A damaged chunk reaches beyond the block header. Nothing else lies in between.
                return Ok(Resumed { at: chunk.end.min(size), is_certain: true });
            }
            let end = known.as_ref().map_or(block.saturating_add(1), |chunk| chunk.start).min(size);
            let limit = known.as_ref().map_or(size, |chunk| chunk.start);
            if let Some(at) = self.search(from..end, limit)? {
                return Ok(Resumed { at, is_certain: false });
            }
            if let Some(chunk) = known {
                return Ok(Resumed { at: chunk.start, is_certain: true });
            }
            from = block + 1;
        }
        Ok(Resumed { at: size, is_certain: true })
    }

    /// The first place of a chunk in `range`. No chunk there reaches beyond `limit`, where another one begins.
    fn search(&mut self, range: Range<u64>, limit: u64) -> Result<Option<u64>> {
        if self.searched.end != range.end || self.searched.start > range.start {
            self.found = headers(self.walk, range.clone(), limit)?;
            self.searched = range.clone();
        }
        let first = self.found.partition_point(|&begin| begin < range.start);
        Ok(self.found.get(first).copied())
    }
}

/// The chunk that the block header at `block` interrupts, or that begins there. `None` if the header is damaged.
fn interrupted(walk: &Walk<'_>, block: u64) -> Result<Option<Range<u64>>> {
    if block.saturating_add(BLOCK_HEADER) > walk.storage.len() {
        return Ok(None);
    }
    let mut stored = [0; BLOCK_HEADER as usize];
    walk.storage.read_at(block, &mut stored, walk.cx)?;
    let Some(header) = BlockHeader::plausible(&stored, true) else { return Ok(None) };
    let chunk = block.checked_sub(header.previous).zip(block.checked_add(header.next));
    let is_possible =
        |&(begin, end): &(u64, u64)| end > block && block::is_boundary(begin) && block::is_boundary(end);
    Ok(chunk.filter(is_possible).map(|(begin, end)| begin..end))
}

/// All places in `range` where a chunk header with the right hash begins, and the chunk ends by `limit`.
fn headers(walk: &Walk<'_>, range: Range<u64>, limit: u64) -> Result<Vec<u64>> {
    let size = walk.storage.len();
    let until = range.end.saturating_add(HEADER_SPAN).min(size);
    let stored = read_vec(walk.storage, "damaged bytes", range.start, until - range.start, walk.cx)?;
    let mut pace = walk.cx.pace();
    let mut found = Vec::new();
    for at in range.clone() {
        pace.step(1)?;
        let head = &stored[(at - range.start) as usize..];
        // Nearly all bytes are no header. They cost no hash.
        if !block::is_boundary(at) || !is_plausible(at, head, size) {
            continue;
        }
        pace.step(CHUNK_HEADER)?;
        let header = Header::read(at, head, true);
        if header.and_then(|header| header.end(at)).is_ok_and(|end| end <= limit) {
            found.push(at);
        }
    }
    Ok(found)
}

/// Whether the kind and the size of the data could be those of a chunk header. True if a block header interrupts it.
fn is_plausible(at: u64, head: &[u8], size: u64) -> bool {
    if block::left_in_block(at) < CHUNK_HEADER {
        return true;
    }
    let Some(head) = head.get(..CHUNK_HEADER as usize) else { return false };
    let is_known = matches!(head[24], kind::METADATA | kind::PADDING | kind::SIMPLE | kind::TRANSPOSED);
    is_known && bytes::u64_le(head, 8) <= size
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cx::for_tests;
    use crate::format::ReadOptions;
    use crate::format::array_record::ARRAY_RECORD;
    use crate::format::walk::{Depth, Span};
    use crate::limits::Limits;
    use crate::storage::memory::Memory;

    #[test]
    fn false_headers_are_hashed_no_more_than_a_few_times() {
        // Every block is full of headers that claim the rest of it. Hashing every claim would be 800 passes.
        let (blocks, begin) = (4, 2 * BLOCK_HEADER);
        let mut file = vec![0; (blocks * block::BLOCK) as usize];
        for at in (0..file.len() as u64).filter(|at| at % block::BLOCK >= begin && at % CHUNK_HEADER == 0) {
            let Some(data_size) = block::left_in_block(at).checked_sub(2 * CHUNK_HEADER) else { continue };
            let header = Header { data_size, data_hash: 7, kind: kind::SIMPLE, records: 1, decoded: 5 };
            let at = at as usize;
            file[at..at + CHUNK_HEADER as usize].copy_from_slice(&header.to_bytes());
        }
        let (mut claimed, mut covered, size) = (0, 0, file.len() as u64);
        let visit = &mut |span: Span<'_>| {
            let range = span.range();
            // A span of damage begins at each header whose claim was hashed.
            claimed += block::left_in_block(range.start);
            covered += range.end - range.start;
            Ok(())
        };
        let (memory, options, cx) =
            (Memory::new("test", file), ReadOptions::default(), for_tests(Limits::default()));
        (ARRAY_RECORD.walk)(&Walk::resuming(&memory, &options, Depth::Checked, &cx), visit).unwrap();
        assert_eq!(covered, size);
        assert!((size..16 * size).contains(&claimed), "{} passes over the file", claimed / size);
    }
}
