//! Proves where samples begin and end although a part of the tables is damaged or missing.
//!
//! | damaged | proof |
//! |---|---|
//! | the number of samples | the number for which the first offset is the end of the tables, and their checksum fits |
//! | the checksum of the tables | each sample has its own checksum |
//! | an offset | the place between its neighbours where the checksums of both samples fit |
//! | the checksum of a sample | with the computed one instead, the checksum of the tables fits |

use super::{ENTRY, HEADER};
use crate::bytes;
use crate::cx::Cx;
use crate::error::Result;
use crate::storage::Storage;
use crate::storage::window::Window;
use std::ops::Range;

/// How many numbers of samples are tried if the checksum of the tables does not decide.
const COUNTS_TRIED: usize = 64;

/// The number of samples, if the stored one is wrong: one for which the first offset is the end of the tables. A number
/// for which the checksum of the tables fits as well is certain. Otherwise all others are returned.
pub(super) enum Counts {
    Certain(u64),
    Possible(Vec<u64>),
}

pub(super) fn find_count(storage: &dyn Storage, checksum: u32, cx: &Cx<'_>) -> Result<Counts> {
    let most = storage.len().saturating_sub(HEADER) / ENTRY;
    let (mut offsets, mut tables) = (Window::new(storage, cx), Window::new(storage, cx));
    let (mut hash, mut hashed) = (crc32fast::Hasher::new(), HEADER);
    let mut possible = Vec::new();
    let mut pace = cx.pace();
    for n in 1..=most {
        pace.step(8)?;
        let end = HEADER + ENTRY * n;
        if bytes::u64_le(offsets.get("first offset", HEADER + 4 * n, 8)?, 0) != end {
            continue;
        }
        tables.pieces("tables", hashed, end - hashed, |piece| hash.update(piece))?;
        hashed = end;
        let mut whole = crc32fast::Hasher::new();
        whole.update(&n.to_le_bytes());
        whole.combine(&hash);
        if checksum != 0 && whole.finalize() == checksum {
            return Ok(Counts::Certain(n));
        }
        if possible.len() < COUNTS_TRIED {
            possible.push(n);
        }
    }
    Ok(Counts::Possible(possible))
}

/// Finds ends of samples by their checksums. `crc32fast` is fast for long input; this one for every prefix of it.
pub(super) struct EndFinder {
    table: [u32; 256],
}

impl EndFinder {
    pub(super) fn new() -> Self {
        let mut table = [0; 256];
        for (byte, entry) in table.iter_mut().enumerate() {
            let mut value = byte as u32;
            for _ in 0..8 {
                value = if value & 1 == 1 { 0xedb8_8320 ^ value >> 1 } else { value >> 1 };
            }
            *entry = value;
        }
        EndFinder { table }
    }

    /// The first offset in `range` at which a sample that begins at `range.start` and has `checksum` could end.
    /// `is_right` decides whether it does.
    pub(super) fn find(
        &self,
        window: &mut Window<'_>,
        range: Range<u64>,
        checksum: u32,
        mut is_right: impl FnMut(u64) -> Result<bool>,
    ) -> Result<Option<u64>> {
        let (mut value, mut at) = (u32::MAX, range.start);
        if !value == checksum && is_right(at)? {
            return Ok(Some(at));
        }
        while at < range.end {
            let piece = window.get("sample", at, (range.end - at).min(PIECE))?;
            let mut found = None;
            for (here, &byte) in piece.iter().enumerate() {
                value = self.table[usize::from(value as u8 ^ byte)] ^ value >> 8;
                if !value == checksum {
                    let end = at + here as u64 + 1;
                    if is_right(end)? {
                        found = Some(end);
                        break;
                    }
                }
            }
            if found.is_some() {
                return Ok(found);
            }
            at += (range.end - at).min(PIECE);
        }
        Ok(None)
    }
}

/// How much is searched between two interruption checks.
const PIECE: u64 = 1 << 20;
