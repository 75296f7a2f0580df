//! A file mapped into memory, and the guard that makes that safe.
//!
//! Copying a small record out of a mapped page costs a twentieth of a system call. But a file that is cut under a
//! map, or a disk that fails, is not an error return there: it is the signal SIGBUS, which ends the process. So
//! there is a guard. Its handler recognises faults inside our own maps by their address, marks the map as broken,
//! puts a page of zeros where the fault was, and lets the interrupted copy go on; whoever copied looks at the mark
//! afterwards and throws the copy away ([`Map::state`]). Every other fault goes to the handler that was there
//! before.
//!
//! The order matters: the mark is set before the page is placed, so that no copy can see the zeros without the mark.
//! A reader borrows the map while it copies, so that the handler never replaces somebody else's memory.
//!
//! A map is given back in the same way ([`Map::retire`]): readers may be copying at that moment, so the file is
//! replaced by zeros under the same addresses and the map is marked. That costs readers no count of who is reading.

use crate::error::Error;
use std::fs::File;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicUsize, Ordering};

/// A mapped file.
pub struct Map {
    begin: NonNull<u8>,
    len: usize,
    slot: &'static Slot,
    /// Buffers that look straight at the map and check nothing: it stays as long as one is there.
    exports: AtomicUsize,
}

/// What can be said of the bytes of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// All that was read so far are bytes of the file.
    Intact,
    /// A page could not be read.
    Broken,
    /// It was given back.
    Retired,
}

// SAFETY: the mapping is read-only and stays in place until `drop`; the slot is made of atomics.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the first `len` bytes of a file, if the guard is in place and the system has room.
    pub fn new(file: &File, len: u64) -> Option<Map> {
        let len = usize::try_from(len).ok().filter(|&len| len > 0)?;
        if !guard::ensure() {
            return None;
        }
        let (protection, flags) = (rustix::mm::ProtFlags::READ, rustix::mm::MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the system's choice touches no memory that is in use.
        let begin =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, file, 0) }.ok()?;
        let begin = NonNull::new(begin.cast::<u8>())?;
        // Records are read at random unless somebody says otherwise; reading ahead by itself would fetch 128 KiB
        // from a cold disk for every 4 KiB that are wanted.
        // SAFETY: advice about our own mapping; nothing is changed.
        let _ = unsafe { rustix::mm::madvise(begin.as_ptr().cast(), len, rustix::mm::Advice::Random) };
        let slot = Slot::take(begin.as_ptr() as usize, len);
        Some(Map { begin, len, slot, exports: AtomicUsize::new(0) })
    }

    /// The mapped bytes. They are what the file holds at the moment of looking; believe a copy only if
    /// [`state`](Self::state) says so afterwards.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping covers `len` bytes and stays until `drop`; a fault inside it is answered by the guard.
        // The file may change under us: readers copy or hash the bytes and verify the result, and rely on no two
        // looks being the same.
        unsafe { std::slice::from_raw_parts(self.begin.as_ptr(), self.len) }
    }

    /// Whether what was read from the map so far was made up by the guard.
    #[inline]
    pub fn state(&self) -> State {
        match self.slot.state.load(Ordering::Acquire) {
            INTACT => State::Intact,
            BROKEN => State::Broken,
            _ => State::Retired,
        }
    }

    /// Whether it was given back.
    #[inline]
    pub fn is_retired(&self) -> bool {
        self.state() == State::Retired
    }

    /// Looks at the last byte. If the file was cut in a page before that one, this finds out, as a read of the size
    /// would, at the price of a look at memory. A cut inside the last page stays unseen.
    #[inline]
    pub fn touch_end(&self) {
        // SAFETY: the last byte of the mapping, which has at least one. Volatile, because the value is not wanted.
        unsafe { self.begin.as_ptr().add(self.len - 1).read_volatile() };
    }

    /// Where the last page begins.
    #[inline]
    pub fn last_page(&self) -> usize {
        (self.len - 1) & !(guard::page() - 1)
    }

    /// Gives the file back at once, whoever is reading: what they have is marked as not to be believed. Stays if
    /// somebody looks at it who checks nothing.
    pub fn retire(&self) {
        let before = self.slot.state.swap(RETIRED, Ordering::SeqCst);
        if before == RETIRED {
            return;
        }
        // The mark first, then the count; `export` does it the other way round, so that one of the two sees the other.
        if self.exports.load(Ordering::SeqCst) > 0 {
            // Unless the guard has marked it meanwhile.
            let _ = self.slot.state.compare_exchange(RETIRED, before, Ordering::SeqCst, Ordering::SeqCst);
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

    /// Keeps the map in place until as many [`unexport`](Self::unexport)s have come. False: it is too late.
    pub fn export(&self) -> bool {
        self.exports.fetch_add(1, Ordering::SeqCst);
        let is_there = self.slot.state.load(Ordering::SeqCst) != RETIRED;
        if !is_there {
            self.unexport();
        }
        is_there
    }

    /// The end of one [`export`](Self::export).
    pub fn unexport(&self) {
        self.exports.fetch_sub(1, Ordering::SeqCst);
    }

    /// The error of a map that is not intact.
    pub fn broken(&self) -> Error {
        Error::truncated("the file ends early, or cannot be read any more")
            .expected(format_args!("{} bytes in the file, as when it was opened", self.len))
            .found("a page that cannot be read")
            .hint("was it cut or written to meanwhile?")
    }

    /// Whether the page cache has the first and the last page of a range.
    pub fn is_cached(&self, at: u64, len: usize) -> bool {
        let page = guard::page();
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
    let page = guard::page();
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
        self.slot.give_back();
        // SAFETY: nobody borrows from the map any more, or it could not be dropped.
        let _ = unsafe { rustix::mm::munmap(self.begin.as_ptr().cast(), self.len) };
    }
}

const INTACT: u8 = 0;
const BROKEN: u8 = 1;
const RETIRED: u8 = 2;

/// One place in the registry that the signal handler looks into. Never freed, so that it can be read at any time.
struct Slot {
    begin: AtomicUsize,
    end: AtomicUsize,
    /// [`INTACT`], [`BROKEN`] or [`RETIRED`].
    state: AtomicU8,
    taken: AtomicBool,
    next: *const Slot,
}

// SAFETY: `next` is written once, before the slot is published, and points to a slot that is never freed.
unsafe impl Sync for Slot {}

static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(std::ptr::null_mut());

/// All slots there ever were. Safe in a signal handler: it only loads.
fn slots() -> impl Iterator<Item = &'static Slot> {
    let mut next: *const Slot = SLOTS.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: slots are leaked on purpose, so that every pointer in the list is valid for ever.
        let slot = unsafe { next.as_ref() }?;
        next = slot.next;
        Some(slot)
    })
}

impl Slot {
    fn take(begin: usize, len: usize) -> &'static Slot {
        let free = |slot: &&Slot| !slot.taken.swap(true, Ordering::AcqRel);
        let slot = slots().find(free).unwrap_or_else(Self::publish);
        slot.state.store(INTACT, Ordering::Release);
        slot.end.store(begin + len, Ordering::Release);
        slot.begin.store(begin, Ordering::Release);
        slot
    }

    fn publish() -> &'static Slot {
        let fresh = Box::new(Slot {
            begin: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            state: AtomicU8::new(INTACT),
            taken: AtomicBool::new(true),
            next: std::ptr::null(),
        });
        let fresh = Box::leak(fresh);
        loop {
            let head = SLOTS.load(Ordering::Acquire);
            fresh.next = head;
            if SLOTS.compare_exchange(head, fresh, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return fresh;
            }
        }
    }

    fn give_back(&self) {
        self.begin.store(0, Ordering::Release);
        self.end.store(0, Ordering::Release);
        self.taken.store(false, Ordering::Release);
    }

    fn holds(&self, address: usize) -> bool {
        let begin = self.begin.load(Ordering::Acquire);
        begin != 0 && begin <= address && address < self.end.load(Ordering::Acquire)
    }
}

/// The signal handler and its installation.
mod guard {
    use super::{BROKEN, Ordering, slots};
    use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize};

    /// What was installed before us. Leaked, because the handler may look at any time.
    static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());
    static PAGE: AtomicUsize = AtomicUsize::new(0);
    /// The thread that is passing a signal on, if one is: whoever came after us may call us back.
    static PASSING: AtomicI32 = AtomicI32::new(0);

    /// The size of a page.
    pub(super) fn page() -> usize {
        PAGE.load(Ordering::Relaxed)
    }

    fn current() -> Option<libc::sigaction> {
        // SAFETY: an all-zero action is a valid value of the C struct, and the call fills it.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            (libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut action) == 0).then_some(action)
        }
    }

    fn ours() -> usize {
        handle as *const () as usize
    }

    /// Sees to it that our handler is the one that is installed; others may have come after us.
    pub(super) fn ensure() -> bool {
        let Some(before) = current() else { return false };
        if before.sa_sigaction == ours() {
            return true;
        }
        PAGE.store(rustix::param::page_size(), Ordering::Release);
        // Leaked, with the ones before it: a handler may be looking at them.
        BEFORE.store(Box::into_raw(Box::new(before)), Ordering::Release);
        // SAFETY: the action is filled completely, and `handle` does only what a signal handler may.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = ours();
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) == 0
        }
    }

    /// Only loads, stores and system calls: this runs in the middle of anything.
    extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the system calls us with a valid `info`, whose address is set when the code says it is a fault.
        let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
        let is_fault = code > 0;
        if is_fault && let Some(slot) = slots().find(|slot| slot.holds(address)) {
            slot.state.store(BROKEN, Ordering::Release);
            let page = PAGE.load(Ordering::Acquire);
            // SAFETY: the page lies inside a mapping of ours, which its reader holds in place; a private page of
            // zeros there is seen by readers of that map alone, and they look at the mark.
            let placed = unsafe {
                libc::mmap(
                    (address / page * page) as *mut libc::c_void,
                    page,
                    libc::PROT_READ,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                    -1,
                    0,
                )
            };
            if placed != libc::MAP_FAILED {
                return;
            }
        }
        pass_on(signal, is_fault, info, context);
    }

    /// To the handler before us, as if we were not there.
    fn pass_on(signal: libc::c_int, is_fault: bool, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: what `BEFORE` points to is never freed or changed; a handler is called in the form it was
        // installed in, with the arguments that we were called with.
        unsafe {
            let before = BEFORE.load(Ordering::Acquire);
            let thread = libc::gettid();
            let called_back = PASSING.swap(thread, Ordering::AcqRel) == thread;
            let action = if before.is_null() || called_back { libc::SIG_DFL } else { (*before).sa_sigaction };
            match action {
                // A tool that came after us (Python's faulthandler) tells of a fault, puts us back and raises the
                // signal again. Returning lets the fault happen again, this time to us. If it is not ours either,
                // the default action takes it then.
                libc::SIG_DFL if !is_fault && !called_back && (*info).si_pid() == libc::getpid() => {}
                libc::SIG_DFL | libc::SIG_IGN => {
                    libc::signal(signal, libc::SIG_DFL);
                    if !is_fault && !called_back {
                        libc::raise(signal);
                    }
                }
                _ if (*before).sa_flags & libc::SA_SIGINFO != 0 => {
                    let call: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                        std::mem::transmute(action);
                    call(signal, info, context);
                }
                _ => {
                    let call: extern "C" fn(libc::c_int) = std::mem::transmute(action);
                    call(signal);
                }
            }
            PASSING.store(0, Ordering::Release);
        }
    }
}

/// Looks again whether the guard is still installed; cheap enough for now and then, not for every read.
pub fn ensure_guard() {
    guard::ensure();
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
        assert_eq!(map.state(), State::Intact);
        temp.as_file().set_len(4096).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let map = &map;
                scope.spawn(move || {
                    let sum: u64 = map.bytes()[thread * 4096..].iter().map(|&b| u64::from(b)).sum();
                    assert!(sum <= 7 << 20);
                    assert_eq!(map.state(), State::Broken);
                });
            }
        });
    }

    #[test]
    fn a_cut_before_the_last_page_is_found_by_a_look_at_the_last_byte() {
        let (temp, map) = mapped(&vec![7; 1 << 20]);
        map.touch_end();
        assert_eq!(map.state(), State::Intact);
        temp.as_file().set_len((1 << 20) - 4097).unwrap();
        map.touch_end();
        assert_eq!(map.state(), State::Broken);
    }

    #[test]
    fn a_retired_map_reads_as_zeros_and_says_so() {
        let (_temp, map) = mapped(&[7; 10_000]);
        assert!(map.export());
        map.retire();
        assert_eq!((map.state(), map.bytes()[9999]), (State::Intact, 7), "somebody looks at it");
        map.unexport();
        map.retire();
        assert_eq!((map.state(), map.bytes()[9999]), (State::Retired, 0));
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

    #[test]
    fn a_slot_is_used_again_and_starts_intact() {
        let (temp, map) = mapped(&[1; 10_000]);
        temp.as_file().set_len(0).unwrap();
        assert_eq!(map.bytes()[9000], 0);
        assert_eq!(map.state(), State::Broken);
        drop(map);
        let before = slots().count();
        for _ in 0..100 {
            let (_temp, map) = mapped(&[1; 10_000]);
            assert_eq!(map.state(), State::Intact);
        }
        assert!(slots().count() <= before + 8, "slots of dropped maps are taken again");
    }
}
