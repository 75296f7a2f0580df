//! Finds the next header after damage, in formats whose chunks follow each other without a table.

use super::walk::Walk;
use crate::error::Result;
use crate::storage::window::Window;

/// How many bytes are searched for a header at once.
const PIECE: u64 = 1 << 20;

/// A file that is walked from header to header.
pub struct Search<'a> {
    /// The walk.
    pub walk: &'a Walk<'a>,
    /// The bytes at the position of the walk.
    pub window: Window<'a>,
    /// The bytes that a header points to. They have their own window, so that the search keeps its position.
    pub ahead: Window<'a>,
    /// The size of the file.
    pub size: u64,
    /// Work that is left for checking headers, in bytes. A file made of false headers would otherwise be read once for
    /// each of them.
    budget: u64,
}

/// Recognises the headers of one format.
pub trait FindHeader {
    /// The size of a header.
    const HEADER: u64;
    /// The size of the smallest chunk.
    const SMALLEST: u64;
    /// What a header says.
    type Header;

    /// The position of the first possible header in `piece`, which begins at `at` in the file.
    fn find(&mut self, piece: &[u8], at: u64, file_size: u64) -> Option<(u64, Self::Header)>;

    /// Whether a chunk begins at `at`: its data has the right checksum. A header alone can be part of a record, and can
    /// claim bytes of other chunks.
    fn is_chunk(&mut self, at: u64, header: &Self::Header, search: &mut Search<'_>) -> Result<bool>;
}

impl<'a> Search<'a> {
    /// At the beginning of the file.
    pub fn new(walk: &'a Walk<'a>) -> Self {
        let size = walk.storage.len();
        let window = || Window::new(walk.storage, walk.cx);
        Search { walk, window: window(), ahead: window(), size, budget: size.saturating_mul(4) }
    }

    /// The position of the next chunk, or else the end of the file.
    pub fn find<F: FindHeader>(&mut self, from: u64, headers: &mut F) -> Result<u64> {
        Ok(self.find_before(from, self.size, headers)?.unwrap_or(self.size))
    }

    /// The position of the next chunk whose header ends at `limit` or before it.
    pub fn find_before<F: FindHeader>(
        &mut self,
        mut from: u64,
        limit: u64,
        headers: &mut F,
    ) -> Result<Option<u64>> {
        let mut end = from;
        while limit.saturating_sub(from) >= F::SMALLEST {
            if end - from < F::HEADER {
                end = limit.min(from + PIECE);
            }
            let piece = self.window.get("damaged bytes", from, end - from)?;
            let Some((found, header)) = headers.find(piece, from, self.size) else {
                // A header may lie across the end of the piece.
                from = end - (F::HEADER - 1);
                continue;
            };
            if headers.is_chunk(found, &header, self)? {
                return Ok(Some(found));
            }
            from = found + 1;
        }
        Ok(None)
    }

    /// Whether there is work left for hashing so many bytes.
    pub fn may_hash(&mut self, bytes: u64) -> bool {
        let left = self.budget.checked_sub(bytes);
        self.budget = left.unwrap_or(self.budget);
        left.is_some()
    }
}

#[cfg(test)]
mod tests;
