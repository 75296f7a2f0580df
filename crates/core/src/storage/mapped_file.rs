//! What can be borrowed from a memory-mapped file.

use super::file::LocalFile;
use super::map::{self, Map, State};
use super::{Borrowed, Mapped, Storage};
use crate::bytes;
use crate::error::{Error, Result};
use crate::prefetch;
use std::ops::Range;

/// A range of a mapped file.
pub struct MappedRange<'a> {
    file: &'a LocalFile,
    map: &'a Map,
    at: usize,
    bytes: &'a [u8],
}

impl<'a> MappedRange<'a> {
    /// The bytes in place.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// An error if the file was truncated under the map. `verified`: a checksum has covered the bytes.
    #[inline]
    pub fn confirm(&self, verified: bool) -> Result<()> {
        if !verified {
            // A file that is truncated inside a page reads as zeros from there to the end of the page, with no signal.
            // A checksum sees that. Without one, a look at the last byte finds every cut but those in the last page,
            // and only who reads from that one has to ask for the size.
            self.map.touch_end();
            if self.at + self.bytes.len() > self.map.last_page() {
                self.file.unchanged()?;
            }
        }
        match self.map.state() {
            State::Intact => Ok(()),
            state => Err(self.file.unreadable(self.map, state, self.at as u64)),
        }
    }
}

impl LocalFile {
    #[cold]
    fn unreadable(&self, map: &Map, state: State, at: u64) -> Error {
        match state {
            State::Retired => Error::closed("these records were closed meanwhile").hint("open them again"),
            _ => map.broken().in_file(&self.name).at(at),
        }
    }
}

impl Mapped for LocalFile {
    #[inline]
    fn borrow(&self, at: u64, length: usize) -> Result<Option<Borrowed<'_>>> {
        let Some(map) = &self.map else { return Ok(None) };
        let begin = usize::try_from(at).unwrap_or(usize::MAX);
        let Some(bytes) = map.bytes().get(begin..begin.saturating_add(length)) else {
            bytes::range("read", at, length as u64, self.len()).map_err(|e| e.in_file(&self.name))?;
            return Ok(None);
        };
        look_after_the_guard();
        match map.state() {
            State::Intact => Ok(Some(Borrowed::Mapped(MappedRange { file: self, map, at: begin, bytes }))),
            // Given back by one of several who share it: the others go on without.
            State::Retired => Ok(None),
            State::Broken => Err(self.unreadable(map, State::Broken, at)),
        }
    }

    fn is_memory(&self) -> bool {
        false
    }

    fn has_descriptor(&self) -> bool {
        self.handle.get().as_ref().is_some_and(|opened| opened.is_right(&self.identity))
    }

    fn is_cached(&self, at: u64, length: usize) -> bool {
        self.map.as_ref().is_none_or(|map| map.is_cached(at, length))
    }

    fn will_need(&self, ranges: &mut dyn Iterator<Item = (u64, usize)>) {
        if let Some(map) = &self.map {
            map.will_need(ranges);
        }
    }

    fn prefetch(&self, range: Range<u64>) {
        /// Behind its first lines, the processor finds the rest of a record by itself.
        const LINES: usize = 512;
        let (Ok(begin), Ok(end)) = (usize::try_from(range.start), usize::try_from(range.end)) else { return };
        if let Some(bytes) = self.map.as_ref().and_then(|map| map.bytes().get(begin..end)) {
            prefetch::bytes(bytes, LINES);
        }
    }

    fn export(&self) -> bool {
        self.map.as_ref().is_some_and(Map::export)
    }

    fn unexport(&self) {
        if let Some(map) = &self.map {
            map.unexport();
        }
    }

    fn exported(&self, range: Range<u64>) -> Option<&[u8]> {
        let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
        self.map.as_ref()?.bytes().get(range)
    }

    fn retire(&self) {
        if let Some(map) = &self.map {
            map.retire();
        }
    }
}

/// Frameworks may install a handler of their own after ours, so it is looked after again: at the first read of each
/// thread, and once in a while. A look at every read would cost as much as the read.
fn look_after_the_guard() {
    const EVERY: u32 = 1024;
    thread_local! {
        static READS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }
    let reads = READS.get();
    READS.set(reads.wrapping_add(1));
    if reads.is_multiple_of(EVERY) {
        map::ensure_guard();
    }
}
