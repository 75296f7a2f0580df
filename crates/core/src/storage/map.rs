//! A memory map of a file.
//!
//! Copying a small record out of a mapped page costs a twentieth of a system call. If a file is truncated while it is
//! mapped, or its disk fails, a read of the map would end the process. The SIGBUS handler (`sigbus`) prevents
//! that: it marks the map as faulted instead. A reader copies first and checks the mark afterwards
//! ([`Map::state_after_reading`]), like the reader of a seqlock. If a fault was marked, the reader discards the copy
//! and reads again by a positional read, which reports the error.
//!
//! A map that had a fault is not read from again. Its replaced pages hold zeros and not the bytes of the file, and a
//! page in which the file now ends shows zeros without any fault.
//!
//! A map is closed in the same way ([`Map::retire`]). Readers may be copying at that moment, so the map is marked, and
//! its pages are replaced by zeros at the same addresses. That way readers need not be counted.

use super::map_exports::Exports;
pub use super::map_registry::MapState;
use super::map_registry::{REGISTRY, Slot};
use super::sigbus;
use std::fs::File;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU8;

/// A mapped file.
pub struct Map {
    begin: NonNull<u8>,
    len: usize,
    slot: &'static Slot,
    /// The buffers that access the map directly, without checks.
    exports: Exports,
}

// SAFETY: the mapping is read-only and stays in place until `drop`. The slot consists of atomics.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the first `len` bytes of a file, if the SIGBUS handler is in place and the system has room.
    pub fn new(file: &File, len: u64) -> Option<Map> {
        let len = usize::try_from(len).ok().filter(|&len| len > 0)?;
        if !sigbus::install() {
            return None;
        }
        let (protection, flags) = (rustix::mm::ProtFlags::READ, rustix::mm::MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the system's choice touches no memory that is in use.
        let begin =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, file, 0) }.ok()?;
        let map = Self::registered(begin, len)?;
        // Records are read at random by default. Read-ahead would fetch 128 KiB from a cold disk for every 4 KiB that
        // are needed.
        // SAFETY: advice about our own mapping. Nothing is changed.
        let _ = unsafe { rustix::mm::madvise(begin, len, rustix::mm::Advice::Random) };
        Some(map)
    }

    /// Reserves addresses for `len` bytes. They read as zeros until files are placed there.
    pub fn reserve(len: u64) -> Option<Map> {
        let len = usize::try_from(len).ok().filter(|&len| len > 0)?;
        if !sigbus::install() {
            return None;
        }
        let (protection, flags) =
            (rustix::mm::ProtFlags::READ, rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::NORESERVE);
        // SAFETY: a new mapping at an address of the system's choice touches no memory that is in use.
        let begin =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, protection, flags) }.ok()?;
        Self::registered(begin, len)
    }

    fn registered(begin: *mut std::ffi::c_void, len: usize) -> Option<Map> {
        let Some((begin, slot)) = NonNull::new(begin.cast::<u8>())
            .and_then(|begin| Some((begin, REGISTRY.take(begin.as_ptr() as usize, len)?)))
        else {
            // SAFETY: mapped by the caller, and nothing refers to it.
            let _ = unsafe { rustix::mm::munmap(begin, len) };
            return None;
        };
        Some(Map { begin, len, slot, exports: Exports::default() })
    }

    /// Maps the first `len` bytes of a file to the addresses from `at` on, a multiple of the page size. Readers must not
    /// read there at the same time. False: that is not possible.
    pub fn place(&self, at: u64, file: &File, len: usize) -> bool {
        let Some(begin) = self.address(at, len) else { return false };
        let (protection, flags) =
            (rustix::mm::ProtFlags::READ, rustix::mm::MapFlags::SHARED | rustix::mm::MapFlags::FIXED);
        // SAFETY: the range lies inside our own mapping, which nobody reads there.
        let placed = unsafe { rustix::mm::mmap(begin.cast(), len, protection, flags, file, 0) };
        if placed.is_ok() {
            // SAFETY: advice about our own mapping. Nothing is changed.
            let _ = unsafe { rustix::mm::madvise(begin.cast(), len, rustix::mm::Advice::Random) };
        }
        placed.is_ok()
    }

    /// Takes the file away that was placed at `at`. Readers may read there at the same time: they get zeros.
    pub fn clear(&self, at: u64, len: usize) {
        let Some(begin) = self.address(at, len) else { return };
        let (protection, flags) = (
            rustix::mm::ProtFlags::READ,
            rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::FIXED | rustix::mm::MapFlags::NORESERVE,
        );
        // SAFETY: the range lies inside our own mapping. If the call fails, the file stays mapped.
        let _ = unsafe { rustix::mm::mmap_anonymous(begin.cast(), len, protection, flags) };
    }

    fn address(&self, at: u64, len: usize) -> Option<*mut u8> {
        let at = usize::try_from(at).ok()?;
        let is_inside = at.checked_add(len).is_some_and(|end| end <= self.len);
        // SAFETY: the range lies inside the map.
        (is_inside && len > 0).then(|| unsafe { self.begin.as_ptr().add(at) })
    }

    /// Whether buffers access the map directly, without checks.
    pub fn is_exported(&self) -> bool {
        self.exports.is_any()
    }

    /// The mapped bytes: what the file holds at the moment of the access. A copy is valid only if
    /// [`state_after_reading`](Self::state_after_reading) returns intact after it was made.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping covers `len` bytes and stays until `drop`. The SIGBUS handler takes care of a fault
        // inside it. The file may change at any time: readers copy or hash the bytes and verify the result, and do not
        // rely on two reads giving the same bytes.
        unsafe { std::slice::from_raw_parts(self.begin.as_ptr(), self.len) }
    }

    /// A flag that is 0 as long as the map can be read from.
    pub fn flag(&self) -> &'static AtomicU8 {
        self.slot.flag()
    }

    /// Whether the map can be read from.
    #[inline]
    pub fn state(&self) -> MapState {
        self.slot.state()
    }

    /// The state after a read. If it is intact, all bytes that were read from the map before this call are those of the
    /// file.
    #[inline]
    pub fn state_after_reading(&self) -> MapState {
        self.slot.state_after_reading()
    }

    /// Reads the last byte. If the file was truncated before its last page, this causes a fault, which marks the map.
    /// It finds the truncation like a check of the file size, but costs only a memory access. A truncation inside the
    /// last page is not found.
    #[inline]
    pub fn touch_end(&self) {
        // SAFETY: the last byte of the mapping, which has at least one. Volatile, because the value is not used.
        unsafe { self.begin.as_ptr().add(self.len - 1).read_volatile() };
    }

    /// Reads a byte. If its page cannot be read, this causes a fault, which marks the map.
    #[inline]
    pub fn touch(&self, at: usize) {
        if at < self.len {
            // SAFETY: a byte of the mapping. Volatile, because the value is not used.
            unsafe { self.begin.as_ptr().add(at).read_volatile() };
        }
    }

    /// Whether a range that ends at `end` has bytes in the last page.
    #[inline]
    pub fn is_in_last_page(&self, end: u64) -> bool {
        end > ((self.len - 1) & !(rustix::param::page_size() - 1)) as u64
    }

    /// Closes the file at once, even if it is being read: the mark tells readers to discard what they have read. The
    /// map stays if it is exported, because users of an export check nothing.
    pub fn retire(&self) {
        if !self.exports.retire(self.slot) {
            return;
        }
        let (protection, flags) = (
            rustix::mm::ProtFlags::READ,
            rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::FIXED | rustix::mm::MapFlags::NORESERVE,
        );
        // SAFETY: the range is our own mapping. Current readers see zeros, and the mark that was set before. If the
        // call fails, the file stays mapped until `drop`.
        let _ =
            unsafe { rustix::mm::mmap_anonymous(self.begin.as_ptr().cast(), self.len, protection, flags) };
    }

    /// Keeps the map in place until the matching [`unexport`](Self::unexport). False: the map was closed already, or a
    /// page of the map cannot be read.
    pub fn export(&self) -> bool {
        // Touching the end detects a truncated file, at the cost of a memory access.
        self.exports.begin(self.slot, || self.touch_end())
    }

    /// Ends one [`export`](Self::export).
    pub fn unexport(&self) {
        self.exports.end();
    }

    /// Whether the page cache has the first and the last page of a range.
    pub fn is_cached(&self, at: u64, len: usize) -> bool {
        let page = rustix::param::page_size();
        let ends = [at as usize, (at as usize).saturating_add(len.saturating_sub(1))];
        ends.into_iter().filter(|&end| end < self.len).all(|end| {
            let mut there = 0u8;
            // SAFETY: one page inside our own mapping, and one byte for the result.
            let asked =
                unsafe { libc::mincore(self.begin.as_ptr().add(end / page * page).cast(), page, &mut there) };
            asked != 0 || there & 1 == 1
        })
    }

    /// Advises the system that ranges `(at, length)` will be read soon, so that it reads them from the disk together.
    ///
    /// Measured on a virtio disk under other load (medians of six, rounded), with random ranges of 4 KB in batches of
    /// 256, all cold. One call for each range: 110,000/s on the map, and 120,000/s on the descriptor. One call for all
    /// ranges: 135,000/s, probably because their requests then reach the disk together. Reading beforehand into other
    /// memory through a submission queue (`uring`): 110,000/s. Without advice, in one run: 9,000/s.
    pub fn will_need(&self, ranges: &mut dyn Iterator<Item = (u64, usize)>) {
        /// The system accepts no more ranges in one call.
        const MOST: usize = 1024;
        let mut pages: Vec<libc::iovec> = Vec::with_capacity(ranges.size_hint().0.min(MOST));
        for (at, length) in ranges {
            let Some(next) = self.pages(at, length) else { continue };
            match pages.last_mut() {
                // Adjacent ranges, as they occur when a file is read in order, are merged.
                Some(last) if follows(last, &next) => {
                    last.iov_len = next.iov_base as usize + next.iov_len - last.iov_base as usize;
                }
                _ => pages.push(next),
            }
            if pages.len() == MOST {
                advise(&pages);
                pages.clear();
            }
        }
        advise(&pages);
    }

    /// The pages of a range, up to the end of the map.
    fn pages(&self, at: u64, length: usize) -> Option<libc::iovec> {
        let page = rustix::param::page_size();
        let at = usize::try_from(at).ok().filter(|&at| at < self.len)?;
        let begin = at / page * page;
        let length = at.saturating_add(length).min(self.len) - begin;
        // SAFETY: `begin` is inside the map.
        let iov_base = unsafe { self.begin.as_ptr().add(begin) };
        Some(libc::iovec { iov_base: iov_base.cast(), iov_len: length })
    }
}

/// Whether `next` begins inside `last` or right after it, and does not end before it.
fn follows(last: &libc::iovec, next: &libc::iovec) -> bool {
    let (begin, end) = (last.iov_base as usize, last.iov_base as usize + last.iov_len);
    let page = rustix::param::page_size();
    let start = next.iov_base as usize;
    begin <= start && start <= end.next_multiple_of(page) && end <= start + next.iov_len
}

/// Advises the system that pages of our own maps will be read soon.
fn advise(pages: &[libc::iovec]) {
    /// Means this process, since Linux 6.14. On older systems it is an invalid descriptor, and the call has no effect.
    const OURSELVES: libc::c_int = -10_001;
    if pages.is_empty() {
        return;
    }
    // SAFETY: advice about our own mappings. Nothing is changed.
    let status = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            OURSELVES,
            pages.as_ptr(),
            pages.len(),
            libc::MADV_WILLNEED,
            0 as libc::c_uint,
        )
    };
    if status < 0 {
        for range in pages {
            // SAFETY: as above.
            let _ =
                unsafe { rustix::mm::madvise(range.iov_base, range.iov_len, rustix::mm::Advice::WillNeed) };
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // Remove the map from the registry first: after `munmap` the addresses may belong to something else.
        REGISTRY.give_back(self.slot);
        // SAFETY: nothing borrows from the map, because it is being dropped.
        let _ = unsafe { rustix::mm::munmap(self.begin.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(content: &[u8]) -> (tempfile::NamedTempFile, Map) {
        let temp = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(temp.path(), content).unwrap();
        let map = Map::new(temp.as_file(), content.len() as u64).unwrap();
        (temp, map)
    }

    #[test]
    fn a_file_cut_under_a_map_marks_it_in_every_thread() {
        let (temp, map) = mapped(&vec![7; 1 << 20]);
        assert_eq!(map.bytes()[1 << 19], 7);
        assert_eq!(map.state(), MapState::Intact);
        temp.as_file().set_len(4096).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let map = &map;
                scope.spawn(move || {
                    let sum: u64 = map.bytes()[thread * 4096..].iter().map(|&b| u64::from(b)).sum();
                    assert!(sum <= 7 << 20);
                    assert_eq!(map.state_after_reading(), MapState::Faulted);
                });
            }
        });
    }

    #[test]
    fn a_cut_before_the_last_page_is_found_by_a_look_at_the_last_byte() {
        let (temp, map) = mapped(&vec![7; 1 << 20]);
        map.touch_end();
        assert_eq!(map.state(), MapState::Intact);
        temp.as_file().set_len((1 << 20) - 4097).unwrap();
        map.touch_end();
        assert_eq!(map.state(), MapState::Faulted);
    }

    #[test]
    fn a_retired_map_reads_as_zeros_and_says_so() {
        let (_temp, map) = mapped(&[7; 10_000]);
        assert!(map.export());
        map.retire();
        assert_eq!((map.state(), map.bytes()[9999]), (MapState::Intact, 7), "it is exported");
        map.unexport();
        map.retire();
        assert_eq!((map.state(), map.bytes()[9999]), (MapState::Retired, 0));
        assert!(!map.export());
    }

    #[test]
    fn ranges_that_will_be_needed_come_into_memory() {
        const PAGES: usize = 3000;
        let (temp, map) = mapped(&vec![7; PAGES * 4096 - 100]);
        temp.as_file().sync_all().unwrap();
        let cached = || {
            let mut found = vec![0u8; PAGES];
            // SAFETY: the mapping exists, and `found` has a byte for each page.
            assert_eq!(unsafe { libc::mincore(map.begin.as_ptr().cast(), map.len, found.as_mut_ptr()) }, 0);
            found.iter().filter(|&&page| page & 1 != 0).count()
        };
        rustix::fs::fadvise(temp.as_file(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
        if rustix::param::page_size() != 4096 || cached() > 0 {
            return; // a file system that is in memory
        }
        // Every other page, and some that the file does not have.
        let ranges = (0..PAGES as u64 + 50).step_by(2).map(|page| (page * 4096 + 10, 4000));
        map.will_need(&mut ranges.chain([(u64::MAX, 1), (PAGES as u64 * 4096 - 101, usize::MAX)]));
        let start = std::time::Instant::now();
        while cached() < PAGES / 2 + 1 && start.elapsed().as_secs() < 60 {
            std::thread::yield_now();
        }
        assert!((PAGES / 2 + 1..PAGES).contains(&cached()), "{}", cached());
    }
}
