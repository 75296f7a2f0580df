//! What can be borrowed from a memory-mapped file.

use super::file::LocalFile;
use super::map::{Map, MapState};
use super::sigbus;
use super::{Borrowed, Mapped, Storage};
use crate::bytes;
use crate::cx::Cx;
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

    /// Whether a result that was computed from the bytes can be trusted. If not, [`read_again`](Self::read_again) reads
    /// the right bytes, or reports the error. `is_verified`: a checksum covers the bytes. `is_ok`: the computation did
    /// not fail.
    #[inline(always)]
    pub fn is_intact(&self, is_verified: bool, is_ok: bool) -> Result<bool> {
        // The usual case comes first, in its own branch, because every record takes it.
        if is_verified && is_ok && self.map.state_after_reading() == MapState::Intact {
            return Ok(true);
        }
        self.look_closer(is_verified, is_ok)
    }

    #[inline(never)]
    fn look_closer(&self, is_verified: bool, is_ok: bool) -> Result<bool> {
        if !is_verified {
            // If a file is truncated inside a page, the rest of that page reads as zeros, with no signal. A checksum
            // detects that. Without one, reading the last byte detects every truncation except those in the last page.
            // So only a read from the last page has to check the file size.
            self.map.touch_end();
        }
        match self.map.state_after_reading() {
            MapState::Intact => Ok(is_ok && (is_verified || !self.is_in_last_page()) || self.is_unchanged()),
            MapState::Faulted => Ok(false),
            MapState::Retired => {
                Err(Error::closed("these records were closed during the read").hint("open them again"))
            }
        }
    }

    fn is_in_last_page(&self) -> bool {
        self.map.is_in_last_page((self.at + self.bytes.len()) as u64)
    }

    #[cold]
    fn is_unchanged(&self) -> bool {
        self.file.unchanged().is_ok()
    }

    /// The result of `act` on the same range, read by a positional read.
    #[cold]
    #[inline(never)]
    pub fn read_again<T>(&self, cx: &Cx<'_>, act: &mut dyn FnMut(&[u8]) -> Result<T>) -> Result<T> {
        act(&super::read_vec(self.file, "range", self.at as u64, self.bytes.len() as u64, cx)?)
    }
}

impl LocalFile {
    /// Whether a byte can be read without waiting for the disk. True if that cannot be found out.
    fn is_at_hand(&self, at: u64) -> bool {
        let mut byte = [0];
        let read = self.with_file(|opened| {
            let into = &mut [std::io::IoSliceMut::new(&mut byte)];
            Ok(rustix::io::preadv2(&*opened.file, into, at, rustix::io::ReadWriteFlags::NOWAIT))
        });
        !matches!(read, Ok(Err(rustix::io::Errno::AGAIN)))
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
        // The map had a fault, or one of several users closed it. Positional reads still work.
        if map.state() != MapState::Intact || !sigbus::protects_this_thread() {
            return Ok(None);
        }
        Ok(Some(Borrowed::Mapped(MappedRange { file: self, map, at: begin, bytes })))
    }

    fn is_memory(&self) -> bool {
        false
    }

    fn has_descriptor(&self) -> bool {
        self.handle.get().as_ref().is_some_and(|opened| opened.is_right(&self.identity))
    }

    fn is_cached(&self, at: u64, length: usize) -> bool {
        // Other users are told by `mincore` that all pages are there. So a page is there for them if it can be read at once.
        self.map.as_ref().is_none_or(|map| map.is_cached(at, length))
            && (self.is_own
                || [at, at + length.saturating_sub(1) as u64].into_iter().all(|at| self.is_at_hand(at)))
    }

    fn will_need(&self, ranges: &mut dyn Iterator<Item = (u64, usize)>) {
        if let Some(map) = &self.map {
            map.will_need(ranges);
        }
    }

    #[cfg(unix)]
    fn fillable(&self) -> u64 {
        self.map.as_ref().map_or(0, |map| map.bytes().len() as u64)
    }

    /// By ordinary reads, though nobody needs the copies: the system recognises reads in order and then reads large blocks
    /// ahead. Advice (`MADV_WILLNEED`) makes it handle each page on its own, which took twice the time of these copies.
    #[cfg(unix)]
    fn fill_page_cache(&self, range: Range<u64>) {
        /// Small enough for the processor's cache.
        const COPIED: u64 = 128 << 10;
        let mut copy = vec![0; COPIED as usize];
        // An error is found again by the read that needs the bytes.
        let _ = self.with_file(|opened| {
            let mut at = range.start;
            while at < range.end {
                let wanted = &mut copy[..(range.end - at).min(COPIED) as usize];
                match std::os::unix::fs::FileExt::read_at(&*opened.file, wanted, at) {
                    Ok(count) if count > 0 => at += count as u64,
                    _ => break,
                }
            }
            Ok(())
        });
    }

    fn prefetch(&self, range: Range<u64>) {
        let (Ok(begin), Ok(end)) = (usize::try_from(range.start), usize::try_from(range.end)) else { return };
        if let Some(stored) = self.map.as_ref().and_then(|map| map.bytes().get(begin..end)) {
            prefetch::record(stored);
        }
    }

    fn export(&self, range: Range<u64>) -> bool {
        let Some(map) = self.map.as_ref().filter(|_| sigbus::protects_this_thread()) else { return false };
        // Only the file size shows a truncation inside the last page.
        (!map.is_in_last_page(range.end) || self.unchanged().is_ok()) && map.export()
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::storage::file::Io;
    use crate::storage::handles::Handles;

    #[test]
    fn a_range_is_read_into_the_page_cache() {
        const MB: u64 = 1 << 20;
        let temp = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(temp.path(), vec![7; 4 * MB as usize]).unwrap();
        temp.as_file().sync_all().unwrap();
        rustix::fs::fadvise(temp.as_file(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let file = LocalFile::open(temp.path(), &Handles::new(4), Io::Map).unwrap();
        assert_eq!(file.fillable(), 4 * MB);
        if file.is_cached(3 * MB, 1) {
            return; // a file system that is in memory
        }
        assert!(!file.is_at_hand(3 * MB), "another user would not see that it is cold");
        file.fill_page_cache(MB..2 * MB);
        assert!((MB..2 * MB).step_by(4096).all(|at| file.is_at_hand(at)));
        assert!((MB..2 * MB).step_by(4096).all(|at| file.is_cached(at, 1)));
        file.fill_page_cache(3 * MB..u64::MAX); // it ends where the file ends
        assert!(file.is_cached(4 * MB - 1, 1));
    }
}
