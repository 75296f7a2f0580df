//! A file mapped into memory.
//!
//! Copying a small record out of a mapped page costs a twentieth of a system call. A file that is truncated while it is
//! mapped, or a disk that fails, would end the process: the [SIGBUS handler](super::sigbus) turns that into a mark on
//! the map. A reader copies first and looks at the mark afterwards ([`Map::state_after_reading`]), like the reader of a
//! seqlock. If a fault was marked, it throws the copy away and reads again by a positional read, which says what is
//! wrong.
//!
//! A map that had a fault is not read from again: pages that were replaced by zeros would be taken for the file's, and
//! a page in which the file ends now shows zeros without any fault.
//!
//! A map is closed in the same way ([`Map::retire`]): readers may be copying at that moment, so the file is replaced by
//! zeros under the same addresses and the map is marked. That way readers need not be counted.

pub use super::map_registry::MapState;
use super::map_registry::{REGISTRY, Slot};
use super::sigbus;
use std::fs::File;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering, fence};

/// A mapped file.
pub struct Map {
    begin: NonNull<u8>,
    len: usize,
    slot: &'static Slot,
    /// Buffers that look straight at the map and check nothing: it stays as long as one is there.
    exports: AtomicUsize,
}

// SAFETY: the mapping is read-only and stays in place until `drop`; the slot is made of atomics.
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
        let Some((begin, slot)) = NonNull::new(begin.cast::<u8>())
            .and_then(|begin| Some((begin, REGISTRY.take(begin.as_ptr() as usize, len)?)))
        else {
            // SAFETY: mapped above, and nobody has seen it.
            let _ = unsafe { rustix::mm::munmap(begin, len) };
            return None;
        };
        // Records are read at random unless somebody says otherwise; reading ahead by itself would fetch 128 KiB
        // from a cold disk for every 4 KiB that are wanted.
        // SAFETY: advice about our own mapping; nothing is changed.
        let _ = unsafe { rustix::mm::madvise(begin.as_ptr().cast(), len, rustix::mm::Advice::Random) };
        Some(Map { begin, len, slot, exports: AtomicUsize::new(0) })
    }

    /// The mapped bytes. They are what the file holds at the moment of looking; believe a copy only if
    /// [`state_after_reading`](Self::state_after_reading) is intact.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping covers `len` bytes and stays until `drop`; a fault inside it is answered by the SIGBUS
        // handler. The file may change under us: readers copy or hash the bytes and verify the result, and rely on
        // no two looks being the same.
        unsafe { std::slice::from_raw_parts(self.begin.as_ptr(), self.len) }
    }

    /// A number that is 0 as long as the map can be read from.
    pub fn flag(&self) -> &'static AtomicU8 {
        self.slot.flag()
    }

    /// Whether the map can be read from.
    #[inline]
    pub fn state(&self) -> MapState {
        self.slot.state()
    }

    /// Whether all that was read from the map before this call are bytes of the file.
    #[inline]
    pub fn state_after_reading(&self) -> MapState {
        // A processor may execute the loads of a copy after a later load. The fence keeps them before the look at the
        // mark; without it a copy could see zeros and still find no mark.
        fence(Ordering::Acquire);
        self.slot.state()
    }

    /// Looks at the last byte. If the file was cut in a page before that one, this finds out, as a read of the size
    /// would, at the price of a look at memory. A cut inside the last page stays unseen.
    #[inline]
    pub fn touch_end(&self) {
        // SAFETY: the last byte of the mapping, which has at least one. Volatile, because the value is not wanted.
        unsafe { self.begin.as_ptr().add(self.len - 1).read_volatile() };
    }

    /// Whether a range that ends there has bytes in the last page.
    #[inline]
    pub fn is_in_last_page(&self, end: u64) -> bool {
        end > ((self.len - 1) & !(rustix::param::page_size() - 1)) as u64
    }

    /// Closes the file at once, whoever is reading: what they have is marked as not to be believed. The map stays if
    /// somebody looks at it who checks nothing.
    pub fn retire(&self) {
        let before = self.slot.mark_retired();
        if before == MapState::Retired {
            return;
        }
        // The mark first, then the count; `export` does it the other way round, so that one of the two sees the other.
        if self.exports.load(Ordering::SeqCst) > 0 {
            self.slot.mark_open_again(before);
            return;
        }
        let (protection, flags) = (
            rustix::mm::ProtFlags::READ,
            rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::FIXED | rustix::mm::MapFlags::NORESERVE,
        );
        // SAFETY: the range is our own mapping. Readers that are in it see zeros, and the mark that was set before.
        // If it fails, the file stays until `drop`.
        let _ =
            unsafe { rustix::mm::mmap_anonymous(self.begin.as_ptr().cast(), self.len, protection, flags) };
    }

    /// Keeps the map in place until as many [`unexport`](Self::unexport)s have come. False: it is too late, or a page
    /// of the map cannot be read.
    pub fn export(&self) -> bool {
        self.exports.fetch_add(1, Ordering::SeqCst);
        // The end of the file tells whether it was truncated, at the price of a look at memory.
        self.touch_end();
        // Also for the order against `retire`.
        fence(Ordering::SeqCst);
        let is_there = self.state() == MapState::Intact;
        if !is_there {
            self.unexport();
        }
        is_there
    }

    /// The end of one [`export`](Self::export).
    pub fn unexport(&self) {
        self.exports.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether the page cache has the first and the last page of a range.
    pub fn is_cached(&self, at: u64, len: usize) -> bool {
        let page = rustix::param::page_size();
        let ends = [at as usize, (at as usize).saturating_add(len.saturating_sub(1))];
        ends.into_iter().filter(|&end| end < self.len).all(|end| {
            let mut there = 0u8;
            // SAFETY: one page inside our own mapping, and a place for the one byte that tells about it.
            let asked =
                unsafe { libc::mincore(self.begin.as_ptr().add(end / page * page).cast(), page, &mut there) };
            asked != 0 || there & 1 == 1
        })
    }

    /// Tells the system that ranges `(at, length)` will be read soon, so that they come from the disk together.
    ///
    /// Measured on a virtio disk with others at work (medians of six, rounded), random ranges of 4 KB in batches of
    /// 256, all cold: one call for each range 110,000/s on the map and 120,000/s on the descriptor; one call for all
    /// 135,000/s, probably because their requests then reach the disk together; read beforehand into other memory
    /// through a queue (`uring`) 110,000/s. Without a word, in one run: 9,000/s.
    pub fn will_need(&self, ranges: &mut dyn Iterator<Item = (u64, usize)>) {
        /// The system takes no more in one call.
        const MOST: usize = 1024;
        let mut pages: Vec<libc::iovec> = Vec::with_capacity(ranges.size_hint().0.min(MOST));
        for (at, length) in ranges {
            let Some(next) = self.pages(at, length) else { continue };
            match pages.last_mut() {
                // Neighbours, as they come when a file is read in order, are one range.
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

    /// The pages of a range, as far as the map goes.
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

/// Whether a range begins in another one or right behind it, and ends behind it.
fn follows(last: &libc::iovec, next: &libc::iovec) -> bool {
    let (begin, end) = (last.iov_base as usize, last.iov_base as usize + last.iov_len);
    let page = rustix::param::page_size();
    let start = next.iov_base as usize;
    begin <= start && start <= end.next_multiple_of(page) && end <= start + next.iov_len
}

/// Tells the system that pages of our own maps will be read soon.
fn advise(pages: &[libc::iovec]) {
    /// This process, since Linux 6.14. Before, it is no descriptor, and nothing happens.
    const OURSELVES: libc::c_int = -10_001;
    if pages.is_empty() {
        return;
    }
    // SAFETY: advice about our own mappings; nothing is changed.
    let told = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            OURSELVES,
            pages.as_ptr(),
            pages.len(),
            libc::MADV_WILLNEED,
            0 as libc::c_uint,
        )
    };
    if told < 0 {
        for range in pages {
            // SAFETY: as above.
            let _ =
                unsafe { rustix::mm::madvise(range.iov_base, range.iov_len, rustix::mm::Advice::WillNeed) };
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // Out of the registry first: from now on the addresses are nobody's.
        REGISTRY.give_back(self.slot);
        // SAFETY: nobody borrows from the map any more, or it could not be dropped.
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
        assert_eq!((map.state(), map.bytes()[9999]), (MapState::Intact, 7), "somebody looks at it");
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
            // SAFETY: asks about a mapping that is there, and has a byte for each page.
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
