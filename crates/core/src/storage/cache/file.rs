//! An object with a cache, as a storage.

use super::block::{self, BLOCK};
use super::fetch;
use super::key::ObjectKey;
use super::resident::Resident;
use super::store::Cache;
use crate::cx::Cx;
use crate::error::Result;
use crate::storage::fetch::Queue;
use crate::storage::remote::file::RemoteFile;
use crate::storage::{Distance, ReadOp, Storage};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// An object whose blocks are cached.
pub struct CachedFile {
    remote: RemoteFile,
    cache: Arc<Cache>,
    resident: Arc<Resident>,
}

impl CachedFile {
    /// Puts a cache before an object. The object itself if it cannot be cached.
    #[expect(clippy::result_large_err, reason = "the caller uses either of the two")]
    pub fn new(remote: RemoteFile, cache: &Arc<Cache>) -> std::result::Result<Self, RemoteFile> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
        let key = remote.origin().and_then(|origin| {
            ObjectKey::of(remote.url(), origin.as_deref().map(String::as_str), remote.identity(), now)
        });
        let Some(key) = key else {
            cache.cannot_cache(remote.shown());
            return Err(remote);
        };
        let resident = Arc::new(Resident::new(key, remote.identity().size));
        Ok(CachedFile { remote, cache: cache.clone(), resident })
    }

    pub(super) fn remote(&self) -> &RemoteFile {
        &self.remote
    }

    pub(super) fn cache(&self) -> &Cache {
        &self.cache
    }

    pub(super) fn resident(&self) -> &Resident {
        &self.resident
    }

    /// Lets the cache look after this object in this process.
    pub(super) fn enroll(&self) {
        if self.resident.is_new() {
            self.cache.enroll(&self.resident);
        }
    }

    /// Stores a block that was fetched.
    pub(super) fn store(&self, number: u64, bytes: &[u8]) {
        if let Some(file) = self.cache.store(self.resident.key(), number, bytes) {
            self.resident.keep(number, &file, &self.cache);
        }
    }
}

impl Storage for CachedFile {
    fn name(&self) -> &str {
        self.remote.name()
    }

    fn len(&self) -> u64 {
        self.remote.len()
    }

    fn read_at(&self, at: u64, out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
        let mut ops = vec![ReadOp { at, out }];
        fetch::read(&mut [(0, self, &mut ops)], cx).map_err(|(_, error)| error)
    }

    fn read_many(&self, ops: &mut [ReadOp<'_>], cx: &Cx<'_>) -> Result<()> {
        let mut ops = ops.iter_mut().map(|op| ReadOp { at: op.at, out: &mut *op.out }).collect();
        fetch::read(&mut [(0, self, &mut ops)], cx).map_err(|(_, error)| error)
    }

    fn queue(&self) -> Queue<'_> {
        Queue::Cached(self)
    }

    fn distance(&self) -> Distance {
        self.remote.distance()
    }

    fn will_need(&self, ranges: &mut dyn Iterator<Item = Range<u64>>) {
        if !self.cache.is_writable() {
            return self.remote.will_need(ranges);
        }
        let size = self.len();
        let mut numbers = BTreeSet::new();
        for range in ranges.filter(|range| range.start < range.end && range.end <= size) {
            numbers.extend(range.start / BLOCK..=(range.end - 1) / BLOCK);
        }
        // Records that lie far apart need many blocks. Those beyond the limit are fetched when they are read.
        let mut room = self.remote.readahead_room();
        let blocks = numbers.into_iter().filter(|&number| !self.resident.is_likely(number, &self.cache));
        let blocks = blocks.map(|number| block::range(number, size)).take_while(|range| {
            let fits = range.end - range.start <= room;
            room = room.saturating_sub(range.end - range.start);
            fits
        });
        let blocks: Vec<_> = blocks.collect();
        if !blocks.is_empty() {
            self.remote.will_need(&mut blocks.into_iter());
        }
    }

    fn unchanged(&self) -> Result<()> {
        // Something in the bytes is wrong. If it was a block, the next read finds out.
        self.resident.doubt();
        self.remote.unchanged()
    }

    #[cfg(target_os = "linux")]
    #[inline]
    fn mapped(&self) -> Option<&dyn crate::storage::Mapped> {
        Some(self)
    }
}

#[cfg(target_os = "linux")]
pub use in_place::CachedRange;

#[cfg(target_os = "linux")]
mod in_place {
    use super::CachedFile;
    use crate::cx::Cx;
    use crate::error::{Error, Result};
    use crate::prefetch;
    use crate::storage::cache::block::BLOCK;
    use crate::storage::map::{Map, MapState};
    use crate::storage::{Borrowed, Mapped, Storage, sigbus};
    use std::ops::Range;

    /// A range of a cached object that is mapped.
    pub struct CachedRange<'a> {
        file: &'a CachedFile,
        /// [`super::Resident::removals`] before the bytes were read.
        removals: u64,
        at: u64,
        bytes: &'a [u8],
    }

    impl<'a> CachedRange<'a> {
        /// The bytes in place.
        #[inline]
        pub fn bytes(&self) -> &'a [u8] {
            self.bytes
        }

        /// Whether a result that was computed from the bytes can be trusted. `is_verified`: a checksum covers the bytes.
        /// `is_ok`: the computation did not fail.
        #[inline(always)]
        pub fn is_intact(&self, is_verified: bool, is_ok: bool) -> Result<bool> {
            let is_whole = is_verified || self.has_all_ends();
            let is_here = self.map().is_some_and(|map| map.state_after_reading() == MapState::Intact)
                && self.file.resident.removals() == self.removals;
            if is_here && is_whole && is_ok { Ok(true) } else { self.look_closer(is_here) }
        }

        /// Not a field: a larger result of `borrow` would cost reads of local files, too.
        #[inline(always)]
        fn map(&self) -> Option<&'a Map> {
            self.file.resident.map()
        }

        fn has_all_ends(&self) -> bool {
            self.file.resident.has_all_ends(self.at, self.bytes.len(), &self.file.cache)
        }

        #[cold]
        #[inline(never)]
        fn look_closer(&self, is_here: bool) -> Result<bool> {
            if self.map().is_some_and(|map| map.state() == MapState::Retired) {
                return Err(
                    Error::closed("these records were closed during the read").hint("open them again")
                );
            }
            if is_here {
                // The disk may have changed a block since it was verified. So it is verified again.
                let end = self.at + (self.bytes.len() as u64).max(1);
                (self.at / BLOCK..end.div_ceil(BLOCK)).for_each(|number| {
                    self.file.resident.remove(number);
                });
            }
            Ok(false)
        }

        /// The result of `act` on the same range, verified again or fetched.
        #[cold]
        #[inline(never)]
        pub fn read_again<T>(&self, cx: &Cx<'_>, act: &mut dyn FnMut(&[u8]) -> Result<T>) -> Result<T> {
            act(&crate::storage::read_vec(self.file, "range", self.at, self.bytes.len() as u64, cx)?)
        }
    }

    impl Mapped for CachedFile {
        #[inline]
        fn borrow(&self, at: u64, length: usize) -> Result<Option<Borrowed<'_>>> {
            let Some(map) = self.resident.map() else { return Ok(None) };
            let begin = usize::try_from(at).unwrap_or(usize::MAX);
            let Some(bytes) = map.bytes().get(begin..begin.saturating_add(length)) else {
                crate::bytes::range("read", at, length as u64, self.len())
                    .map_err(|error| error.in_file(self.name()))?;
                return Ok(None);
            };
            let removals = self.resident.removals();
            let is_here = map.state() == MapState::Intact
                && self.resident.is_here(at, length, &self.cache)
                && sigbus::protects_this_thread();
            if !is_here {
                return Ok(None);
            }
            Ok(Some(Borrowed::Cached(CachedRange { file: self, removals, at, bytes })))
        }

        fn holds(&self, range: Range<u64>) -> bool {
            let length = range.end.saturating_sub(range.start) as usize;
            self.resident.map().is_some_and(|map| {
                map.state() == MapState::Intact && self.resident.is_here(range.start, length, &self.cache)
            })
        }

        fn is_whole(&self) -> bool {
            self.resident.is_whole()
        }

        fn is_memory(&self) -> bool {
            false
        }

        fn is_cached(&self, at: u64, length: usize) -> bool {
            self.resident.map().is_none_or(|map| map.is_cached(at, length))
        }

        fn will_need(&self, ranges: &mut dyn Iterator<Item = (u64, usize)>) {
            if let Some(map) = self.resident.map() {
                map.will_need(ranges);
            }
        }

        fn prefetch(&self, range: Range<u64>) {
            let (Ok(begin), Ok(end)) = (usize::try_from(range.start), usize::try_from(range.end)) else {
                return;
            };
            if let Some(stored) = self.resident.map().and_then(|map| map.bytes().get(begin..end)) {
                prefetch::record(stored);
            }
        }

        fn export(&self, range: Range<u64>) -> bool {
            let Some(map) = self.resident.map().filter(|_| sigbus::protects_this_thread()) else {
                return false;
            };
            let is_kept = map.export();
            // The blocks stay from now on, if they are there.
            let is_here = is_kept && self.holds(range);
            if is_kept && !is_here {
                map.unexport();
            }
            is_here
        }

        fn unexport(&self) {
            if let Some(map) = self.resident.map() {
                map.unexport();
            }
        }

        fn exported(&self, range: Range<u64>) -> Option<&[u8]> {
            let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
            self.resident.map()?.bytes().get(range)
        }

        fn retire(&self) {
            self.resident.retire();
        }
    }
}
