//! Two chunks that hold one uncompressed record each, decoded in one pass.
//!
//! HighwayHash mostly waits for its own results, so hashing two records at once takes hardly longer than hashing one. This
//! is a fast path: if anything is unusual or damaged, the chunks are decoded one by one, which finds out what it is.

use super::chunk::{ChunkView, Pieces};
use super::{simple, single};
use crate::cx::{Cx, Pace};
use crate::error::Result;
use crate::format::Undecoded;
use crate::hash::highway_copy::CopyHasher;

/// Smaller records are decoded one by one: most of their time is not the hash.
pub const LEAST: usize = 512;

/// Decodes both chunks, if each holds one uncompressed record of the size of its `out` and has the right hashes. If not,
/// returns false, and what is in `out` is undefined. The only errors are those of the interruption check.
pub fn decode(two: [Undecoded<'_, '_>; 2], cx: &Cx<'_>) -> Result<bool> {
    let [one, other] = two;
    let (Some(mut one), Some(mut other)) = (Half::of(one, cx), Half::of(other, cx)) else { return Ok(false) };
    let mut pace = cx.pace();
    loop {
        let count = one.available().min(other.available());
        if count == 0 {
            break;
        }
        pace.step(2 * count as u64)?;
        CopyHasher::copy_two([one.take(count), other.take(count)]);
    }
    Ok(one.copy_rest(&mut pace)? && other.copy_rest(&mut pace)?)
}

/// One of the two.
struct Half<'s, 'o> {
    hasher: CopyHasher,
    /// The hash that the data should have.
    expected: u64,
    /// What of the record is not copied yet: the rest of one piece of the chunk, and the pieces after it.
    rest: &'s [u8],
    pieces: Pieces<'s>,
    out: &'o mut [u8],
}

impl<'s, 'o> Half<'s, 'o> {
    /// A chunk whose header and layout are right, with nothing copied.
    #[inline]
    fn of(chunk: Undecoded<'s, 'o>, cx: &Cx<'_>) -> Option<Self> {
        let Undecoded { at, bytes, out, .. } = chunk;
        // Any error here means that the chunk is not a simple one, so none may be that of an interruption.
        let cx = &Cx::new(cx.budget);
        let (expected, mut pieces, mut before) = match single::find(at, bytes, out.len()) {
            Some(lone) if lone.has_sound_header() => {
                (lone.data_hash(), Pieces::of_one(lone.data), lone.record_in_data())
            }
            Some(_) => return None,
            None => {
                let view = ChunkView::read(at, bytes, true).ok()?;
                let begin = simple::begin_of_one(&view, out.len(), cx).ok()??;
                (view.header.data_hash, view.data_pieces(), begin)
            }
        };
        let mut hasher = CopyHasher::new();
        let mut rest: &[u8] = &[];
        while before > 0 {
            let piece = pieces.next()?;
            let (skipped, record) = piece.split_at(before.min(piece.len()));
            hasher.update(skipped);
            before -= skipped.len();
            rest = record;
        }
        Some(Half { hasher, expected, rest, pieces, out })
    }

    /// How many bytes of the record lie in one piece. 0: everything is copied.
    #[inline]
    fn available(&mut self) -> usize {
        while self.rest.is_empty() {
            match self.pieces.next() {
                Some(piece) => self.rest = piece,
                None => return 0,
            }
        }
        self.rest.len().min(self.out.len())
    }

    /// The next `count` bytes of the record, and their places.
    #[inline]
    fn take(&mut self, count: usize) -> (&mut CopyHasher, &'s [u8], &mut [u8]) {
        let (bytes, rest) = self.rest.split_at(count);
        let (place, places) = std::mem::take(&mut self.out).split_at_mut(count);
        (self.rest, self.out) = (rest, places);
        (&mut self.hasher, bytes, place)
    }

    /// Copies what is left. Returns whether the record is whole and the hash is right.
    #[inline]
    fn copy_rest(mut self, pace: &mut Pace<'_>) -> Result<bool> {
        loop {
            let count = self.available();
            if count == 0 {
                break;
            }
            pace.step(count as u64)?;
            let (hasher, bytes, place) = self.take(count);
            hasher.copy(bytes, place);
        }
        Ok(self.out.is_empty() && self.rest.is_empty() && self.hasher.finish() == self.expected)
    }
}

#[cfg(test)]
mod tests;
