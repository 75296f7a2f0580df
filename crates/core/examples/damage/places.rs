//! Which bytes are changed, and where a file is cut.

use crate::whole::{Unit, Whole};
use std::ops::Range;

/// Runs of zeros that are at least this long are padding.
const LONG_RUN: usize = 300;
/// Bytes at either end of such a run that are treated like all others.
const EDGE: usize = 70;
/// Bytes at the beginning of a chunk that may be its header.
const HEADER: u64 = 48;
/// Bytes at the end of a chunk that may be a checksum.
const TRAILER: u64 = 4;
/// The size of a Riegeli block, which begins with a header of 24 bytes.
const BLOCK: u64 = 1 << 16;
const BLOCK_HEADER: u64 = 24;
/// In files of more bytes, one bit of each byte of content is changed. Of structure, always all.
const LARGE: usize = 64 << 10;
/// Of the other bytes, a short check takes every so many. Primes, so that all kinds have their turn.
const STRIDE: u64 = 211;
const PADDING_STRIDE: u64 = 4099;

/// Each byte of a part of a file with each value that it is changed to.
pub fn changes(whole: &Whole, part: Range<u64>, is_all: bool) -> Vec<(u64, u8)> {
    let padding = is_padding(&whole.bytes);
    let is_large = whole.bytes.len() > LARGE;
    let needs_structure = if is_all { is_large } else { !whole.is_small() };
    let structure = needs_structure.then(|| is_structure(whole));
    let mut changes = Vec::new();
    for at in part {
        let byte = whole.bytes[at as usize];
        let is_taken = match &structure {
            _ if is_all => true,
            None => true,
            Some(_) if padding[at as usize] => at.is_multiple_of(PADDING_STRIDE),
            Some(structure) => structure[at as usize] || at.is_multiple_of(STRIDE),
        };
        if !is_taken {
            continue;
        }
        let is_content = is_all && structure.as_ref().is_some_and(|structure| !structure[at as usize]);
        if padding[at as usize] || is_content {
            changes.push((at, byte ^ 1 << (at % 8)));
            continue;
        }
        changes.extend((0..8).map(|bit| (at, byte ^ 1 << bit)));
        if byte != 0xff && (byte ^ 0xff).count_ones() > 1 {
            changes.push((at, 0xff));
        }
    }
    changes
}

/// The sizes to which a file is cut.
pub fn cuts(whole: &Whole, part: Range<u64>, is_all: bool) -> Vec<u64> {
    if is_all || whole.is_small() {
        return part.collect();
    }
    let (padding, structure) = (is_padding(&whole.bytes), is_structure(whole));
    let is_taken = |at: &u64| match padding[*at as usize] {
        true => at.is_multiple_of(PADDING_STRIDE),
        false => structure[*at as usize] || at.is_multiple_of(STRIDE),
    };
    part.filter(is_taken).collect()
}

/// For each byte, whether it is inside a long run of zeros.
fn is_padding(bytes: &[u8]) -> Vec<bool> {
    let mut padding = vec![false; bytes.len()];
    let mut begin = 0;
    for run in bytes.chunk_by(|a, b| (*a == 0) == (*b == 0)) {
        if run.first() == Some(&0) && run.len() >= LONG_RUN {
            padding[begin + EDGE..begin + run.len() - EDGE].fill(true);
        }
        begin += run.len();
    }
    padding
}

/// For each byte, whether it may be something else than the stored bytes of a record. Of a file that cannot be opened,
/// only the first and the last bytes are known to be.
fn is_structure(whole: &Whole) -> Vec<bool> {
    let mut structure = vec![true; whole.bytes.len()];
    let nothing_known = [Unit { stored: 0..whole.len(), records: 0..0 }];
    for unit in whole.units.as_deref().unwrap_or(&nothing_known) {
        let inner = unit.stored.start + HEADER..unit.stored.end.saturating_sub(TRAILER);
        if !inner.is_empty() {
            structure[inner.start as usize..inner.end as usize].fill(false);
        }
    }
    let blocks = (0..whole.len()).step_by(BLOCK as usize);
    for at in blocks.flat_map(|block| block..(block + BLOCK_HEADER).min(whole.len())) {
        structure[at as usize] = true;
    }
    structure
}
