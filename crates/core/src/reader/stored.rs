//! The stored bytes of a chunk: borrowed from memory, copied from a memory map, or read.

use crate::bytes;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::shard::Source;
use crate::storage::Borrowed;
use std::cell::RefCell;
use std::ops::Range;

/// Scratch space that a thread keeps between reads. A larger buffer is freed after the read.
const SCRATCH_KEPT: usize = 1 << 20;

/// How a mapped file is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// From the memory map. This is the fastest way if the page cache has the data.
    Map,
    /// From the memory map, and not from a server.
    MapOnly,
    /// By a system call. One call requests all pages of a cold record, while the memory map would fault on each page in
    /// turn. With sixteen threads on two cores, a system call is a third faster.
    Call,
}

/// Calls `act` with stored bytes, which it verifies and decodes. They do not change meanwhile: bytes of a mapped file
/// are copied first. Otherwise `act` could verify the right bytes, and then decode what another process has written in
/// their place.
pub(super) fn with_stored<T>(
    source: &Source,
    range: &Range<u64>,
    by: By,
    cx: &Cx<'_>,
    mut act: impl FnMut(&[u8]) -> Result<T>,
) -> Result<T> {
    let length = range.end.saturating_sub(range.start);
    match borrow(source, range.start, bytes::in_memory("chunk", length)?, by) {
        Ok(Some(Borrowed::Memory(stored))) => return act(stored),
        #[cfg(target_os = "linux")]
        Ok(Some(ref borrowed)) => {
            return borrowed.with(source.is_verified, cx, |stored| {
                with_scratch(stored.len(), |copy| {
                    copy.copy_from_slice(stored);
                    act(copy)
                })
            });
        }
        Ok(None) => check_near(source, by)?,
        Err(error) => return Err(error),
    }
    with_scratch(stored_length(source, range)?, |stored| {
        source.storage().read_at(range.start, stored, cx)?;
        act(stored)
    })
}

/// Calls `act` with scratch space of that many bytes, which hold anything.
fn with_scratch<T>(length: usize, act: impl FnOnce(&mut [u8]) -> Result<T>) -> Result<T> {
    thread_local! {
        static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    // The buffer is taken, not borrowed, because a storage in Python may read other records during this read.
    let mut scratch = SCRATCH.take();
    if scratch.len() < length {
        scratch = bytes::zeroed("chunk", length as u64)?;
    }
    let result = act(&mut scratch[..length]);
    if scratch.capacity() <= SCRATCH_KEPT {
        SCRATCH.set(scratch);
    }
    result
}

/// Returns an error if bytes that could not be borrowed are on a server, and shall not be fetched.
#[cold]
pub(super) fn check_near(source: &Source, by: By) -> Result<()> {
    if by == By::MapOnly && source.storage().distance().is_far() { Err(Error::elsewhere()) } else { Ok(()) }
}

/// Stored bytes in place, if they can be borrowed.
#[inline]
pub(super) fn borrow(source: &Source, at: u64, length: usize, by: By) -> Result<Option<Borrowed<'_>>> {
    if by == By::Call {
        return Ok(None);
    }
    source.mapped().map_or(Ok(None), |mapped| mapped.borrow(at, length))
}

/// The stored length of a chunk. An error if the file does not have all of its bytes.
#[inline]
pub(super) fn stored_length(source: &Source, range: &Range<u64>) -> Result<usize> {
    let length = range.end.saturating_sub(range.start);
    let range = bytes::range("chunk", range.start, length, source.storage().len())?;
    bytes::in_memory("chunk", range.end - range.start)
}
