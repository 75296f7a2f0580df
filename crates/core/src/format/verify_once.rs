//! A table that verifies the hashes of each chunk at its first read only.
//!
//! It keeps one bit for each chunk. If the file was written to, all bits are cleared, and every chunk is verified again.
//! What this does not see: a page that the system drops from memory and reads again from a failing disk, and writes
//! through a memory map before the system updates the times of the file.

use super::{Chunk, Decoded, Description, Surveyed, Table, Undecoded, Way};
use crate::bytes;
use crate::cx::Cx;
use crate::error::Result;
use crate::storage::Storage;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// How many reads of single verified records of a file there are between two looks at its times. A look is a system call,
/// which would take longer than the read of a small record.
const READS_BETWEEN_LOOKS: u32 = 64;
const BITS: u64 = u64::BITS as u64;

/// A table, and which of its chunks were verified.
pub struct VerifyOnce {
    table: Box<dyn Table>,
    storage: Arc<dyn Storage>,
    verified: Vec<AtomicU64>,
    reads: Reads,
    /// The [mark](Storage::change_mark) of the file when the bits were last known to be right.
    mark: AtomicU64,
    /// How many times the bits were cleared.
    clearings: AtomicU64,
}

/// A count that has a cache line of its own: it changes with every read, and the fields beside it hardly ever.
#[repr(align(64))]
struct Reads(AtomicU32);

impl VerifyOnce {
    /// The table of a file that is verified once.
    pub fn of(table: Box<dyn Table>, storage: Arc<dyn Storage>) -> Result<Box<dyn Table>> {
        let words = table.chunks().div_ceil(BITS);
        let mut verified = bytes::list("marks of verified chunks", words)?;
        verified.extend((0..words).map(|_| AtomicU64::new(0)));
        let mark = AtomicU64::new(storage.change_mark());
        let (reads, clearings) = (Reads(AtomicU32::new(0)), AtomicU64::new(0));
        Ok(Box::new(VerifyOnce { table, storage, verified, reads, mark, clearings }))
    }

    /// Whether a chunk was verified, and the file has not changed since, as far as is known.
    #[inline]
    fn is_verified(&self, chunk: u64) -> bool {
        self.is_marked(chunk) && !self.has_changed()
    }

    /// Whether a chunk was verified since the bits were last cleared.
    #[inline]
    fn is_marked(&self, chunk: u64) -> bool {
        let word = self.verified.get((chunk / BITS) as usize);
        word.is_some_and(|word| word.load(SeqCst) >> (chunk % BITS) & 1 == 1)
    }

    #[inline]
    fn has_changed(&self) -> bool {
        // Two threads may count as one: it does not matter when exactly the next look comes.
        let reads = self.reads.0.load(Relaxed).wrapping_add(1);
        self.reads.0.store(reads, Relaxed);
        reads.is_multiple_of(READS_BETWEEN_LOOKS) && self.look()
    }

    /// Looks at the times of the file. Clears all bits if it changed.
    #[cold]
    fn look(&self) -> bool {
        let found = self.storage.change_mark();
        if self.mark.load(SeqCst) == found {
            return false;
        }
        self.clearings.fetch_add(1, SeqCst);
        self.verified.iter().for_each(|word| word.store(0, SeqCst));
        // The mark comes last: whoever finds it equal finds the bits cleared.
        self.mark.store(found, SeqCst);
        true
    }

    /// Verifies a chunk with `verify`, and notes that if it succeeds.
    #[cold]
    fn verifying<T>(&self, chunk: u64, verify: impl FnOnce() -> Result<T>) -> Result<T> {
        let clearings = self.clearings.load(SeqCst);
        let result = verify()?;
        self.note(chunk, clearings);
        Ok(result)
    }

    /// Notes that a chunk was verified. `clearings` is their number before its bytes were read.
    fn note(&self, chunk: u64, clearings: u64) {
        // The bytes that were verified may be those from before a change.
        if self.clearings.load(SeqCst) != clearings {
            return;
        }
        if let Some(word) = self.verified.get((chunk / BITS) as usize) {
            let bit = 1 << (chunk % BITS);
            word.fetch_or(bit, SeqCst);
            if self.clearings.load(SeqCst) != clearings {
                word.fetch_and(!bit, SeqCst);
            }
        }
    }

    /// The chunk that holds a record, and whether it holds other records, too.
    #[inline]
    fn chunk_of(&self, record: u64) -> (u64, bool) {
        self.table.shared_chunk(record).map_or((record, false), |(chunk, _)| (chunk, true))
    }
}

impl Table for VerifyOnce {
    fn check(&self, record: u64, checksum: Option<u32>, bytes: &[u8]) -> Result<()> {
        match self.chunk_of(record) {
            (chunk, _) if self.is_verified(chunk) => Ok(()),
            (chunk, false) => self.verifying(chunk, || self.table.check(record, checksum, bytes)),
            // One record says nothing about the others.
            (_, true) => self.table.check(record, checksum, bytes),
        }
    }

    fn copy_plain(&self, record: u64, checksum: Option<u32>, stored: &[u8], out: &mut [u8]) -> Result<()> {
        match self.chunk_of(record) {
            (chunk, _) if self.is_verified(chunk) => {
                out.copy_from_slice(stored);
                Ok(())
            }
            (chunk, false) => self.verifying(chunk, || self.table.copy_plain(record, checksum, stored, out)),
            // One record says nothing about the others.
            (_, true) => self.table.copy_plain(record, checksum, stored, out),
        }
    }

    fn decode_into(&self, record: u64, at: u64, stored: &[u8], out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
        match self.chunk_of(record) {
            (chunk, _) if self.is_verified(chunk) => {
                self.table.decode_verified_into(record, at, stored, out, cx)
            }
            (chunk, false) => self.verifying(chunk, || self.table.decode_into(record, at, stored, out, cx)),
            (_, true) => self.table.decode_into(record, at, stored, out, cx),
        }
    }

    fn two_at_once_from(&self) -> Option<usize> {
        self.table.two_at_once_from()
    }

    fn decode_two_into(&self, two: [Undecoded<'_, '_>; 2], cx: &Cx<'_>) -> Result<bool> {
        let chunks = two.each_ref().map(|stored| self.chunk_of(stored.record));
        // One that was verified needs no hash, so there is nothing to save.
        if chunks.iter().any(|(chunk, is_shared)| *is_shared || self.is_marked(*chunk)) {
            return Ok(false);
        }
        let clearings = self.clearings.load(SeqCst);
        let is_done = self.table.decode_two_into(two, cx)?;
        if is_done {
            chunks.iter().for_each(|(chunk, _)| self.note(*chunk, clearings));
        }
        Ok(is_done)
    }

    fn survey_bytes(&self, chunk: &Chunk) -> Option<u64> {
        self.table.survey_bytes(chunk)
    }

    fn survey(&self, chunk: &Chunk, stored: &[u8], cx: &Cx<'_>) -> Result<Option<Surveyed<'_>>> {
        let clearings = self.clearings.load(SeqCst);
        let index = chunk.index;
        let Some(keep) = self.table.survey(chunk, stored, cx)? else { return Ok(None) };
        Ok(Some(Box::new(move || {
            keep();
            self.note(index, clearings);
        })))
    }

    fn decode(&self, chunk: &Chunk, stored: &[u8], cx: &Cx<'_>) -> Result<Decoded> {
        // What is decoded may be cached, and then it outlives the next look. So this one comes right after.
        if self.is_marked(chunk.index) {
            let decoded = self.table.decode_verified(chunk, stored, cx)?;
            self.look();
            if self.is_marked(chunk.index) {
                return Ok(decoded);
            }
        }
        self.verifying(chunk.index, || self.table.decode(chunk, stored, cx))
    }

    fn records(&self) -> u64 {
        self.table.records()
    }

    fn chunks(&self) -> u64 {
        self.table.chunks()
    }

    fn locate(&self, record: u64) -> Result<(Chunk, u64)> {
        self.table.locate(record)
    }

    #[inline]
    fn way(&self, record: u64) -> Result<Way> {
        self.table.way(record)
    }

    fn shared_chunk(&self, record: u64) -> Option<(u64, u64)> {
        self.table.shared_chunk(record)
    }

    fn size(&self, record: u64) -> Result<Option<u64>> {
        self.table.size(record)
    }

    fn prefetch(&self, record: u64) {
        self.table.prefetch(record);
    }

    fn in_place(&self, at: u64, stored: &[u8], size: usize) -> Option<usize> {
        self.table.in_place(at, stored, size)
    }

    fn describe(&self) -> Description {
        self.table.describe()
    }

    fn index_bytes(&self) -> Option<Vec<u8>> {
        self.table.index_bytes()
    }

    fn warning(&self) -> Option<&'static str> {
        self.table.warning()
    }
}

#[cfg(test)]
mod tests;
