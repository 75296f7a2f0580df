//! The blocks of an object that this process has verified and mapped.
//!
//! On Linux, the object has a range of addresses as long as itself, and each block is mapped at its place. So a record
//! that crosses the border of two blocks is in one piece. A block that another process deletes is taken away while
//! threads may read it. They notice it afterwards by a count ([`Resident::removals`]), like the reader of a seqlock.

use super::block::{self, BLOCK, TRAILER};
use super::key::ObjectKey;
use super::store::Cache;
use crate::process::{self, PerProcess};
#[cfg(target_os = "linux")]
use crate::storage::map::{Map, MapState};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{
    AtomicU8, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, SeqCst},
    fence,
};
use std::time::SystemTime;

// The marks of a block.
/// Its checksum was verified by this process.
const SOUND: u8 = 1;
/// It is mapped.
const MAPPED: u8 = 2;
/// It was used recently, and the folder knows that.
const USED: u8 = 4;
#[cfg(target_os = "linux")]
const HOT: u8 = SOUND | MAPPED | USED;

/// The blocks that this process has mapped.
static MAPS: AtomicUsize = AtomicUsize::new(0);

/// The blocks of one object.
pub struct Resident {
    key: ObjectKey,
    size: u64,
    marks: Box<[AtomicU8]>,
    /// The number of each block's file. Another file may have its name by now.
    inodes: Box<[AtomicU64]>,
    #[cfg(target_os = "linux")]
    map: Option<Map>,
    /// How many blocks are mapped.
    mapped: AtomicUsize,
    /// How many blocks were taken away so far.
    removals: AtomicU64,
    /// Held while blocks are mapped and taken away.
    placing: PerProcess<()>,
    /// The fork generation in which the cache knows of this object, plus 1.
    enrolled: AtomicU64,
}

/// Parts of a block to copy: where each begins in the block, and where it is copied to.
pub type Parts<'p, 'o> = &'p mut [(usize, &'o mut [u8])];

impl Resident {
    pub fn new(key: ObjectKey, size: u64) -> Self {
        let count = usize::try_from(size.div_ceil(BLOCK)).unwrap_or(0);
        Resident {
            key,
            size,
            marks: (0..count).map(|_| AtomicU8::new(0)).collect(),
            inodes: (0..count).map(|_| AtomicU64::new(0)).collect(),
            #[cfg(target_os = "linux")]
            map: Map::reserve(size).filter(|_| BLOCK.is_multiple_of(rustix::param::page_size() as u64)),
            mapped: AtomicUsize::new(0),
            removals: AtomicU64::new(0),
            placing: PerProcess::default(),
            enrolled: AtomicU64::new(0),
        }
    }

    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    #[cfg(target_os = "linux")]
    #[inline]
    pub fn map(&self) -> Option<&Map> {
        self.map.as_ref()
    }

    /// A number that changes when a block is taken away. A reader of the map compares it before and after.
    #[cfg(target_os = "linux")]
    #[inline]
    pub fn removals(&self) -> u64 {
        self.removals.load(Acquire)
    }

    /// Whether this process has to tell the cache of this object. Does so only once.
    #[inline]
    pub fn is_new(&self) -> bool {
        let now = process::generation() + 1;
        self.enrolled.load(Relaxed) != now && self.enrolled.swap(now, Relaxed) != now
    }

    /// Whether all blocks of a range are mapped. Notes that they are used.
    #[cfg(target_os = "linux")]
    #[inline]
    pub fn is_here(&self, at: u64, length: usize, cache: &Cache) -> bool {
        let first = (at / BLOCK) as usize;
        let last = (at.saturating_add((length as u64).max(1) - 1) / BLOCK) as usize;
        let is_known = self.enrolled.load(Relaxed) == process::generation() + 1;
        let is_hot = |mark: &AtomicU8| mark.load(Acquire) == HOT;
        match self.marks.get(first) {
            Some(mark) if first == last && is_known && is_hot(mark) => true,
            _ => self.look_closer(first, last, cache),
        }
    }

    #[cfg(target_os = "linux")]
    #[cold]
    #[inline(never)]
    fn look_closer(&self, first: usize, last: usize, cache: &Cache) -> bool {
        let Some(marks) = self.marks.get(first..=last) else { return false };
        let all = marks.iter().all(|mark| mark.load(Acquire) & MAPPED != 0);
        if all && self.enrolled.load(Relaxed) != process::generation() + 1 {
            // The next read by the slow way makes this process known.
            return false;
        }
        if all {
            (first..=last).for_each(|number| self.note_use(number, cache));
        }
        all
    }

    /// Whether all blocks are mapped.
    #[cfg(target_os = "linux")]
    pub fn is_whole(&self) -> bool {
        let is_intact = self.map.as_ref().is_some_and(|map| map.state() == MapState::Intact);
        is_intact && self.mapped.load(Relaxed) == self.marks.len()
    }

    /// Tells the folder that a block is used, unless it knows.
    fn note_use(&self, number: usize, cache: &Cache) {
        let Some(mark) = self.marks.get(number) else { return };
        if mark.load(Relaxed) & USED == 0 && mark.fetch_or(USED, SeqCst) & USED == 0 {
            cache.folder().touch(&block::name(&self.key, number as u64), SystemTime::now());
        }
    }

    /// From now on, the folder does not know which blocks are used.
    pub fn forget_use(&self) {
        for mark in &self.marks {
            mark.fetch_and(!USED, Relaxed);
        }
    }

    /// Whether the block was verified, or is at least in the folder.
    pub fn is_likely(&self, number: u64, cache: &Cache) -> bool {
        let mark = usize::try_from(number).ok().and_then(|number| self.marks.get(number));
        mark.is_some_and(|mark| mark.load(Relaxed) & SOUND != 0)
            || cache.folder().has(&block::name(&self.key, number))
    }

    /// Copies parts of a block. False if neither this process nor the folder has it.
    pub fn fill(&self, number: u64, parts: Parts<'_, '_>, cache: &Cache) -> bool {
        let Some((place, mark)) =
            usize::try_from(number).ok().and_then(|place| Some((place, self.marks.get(place)?)))
        else {
            return false;
        };
        if self.copy_mapped(number, mark, parts, cache) {
            self.note_use(place, cache);
            return true;
        }
        let length = self.length(number);
        if mark.load(Acquire) & (SOUND | MAPPED) == SOUND && !self.is_faulted() {
            if self.copy_read(number, length, parts, cache) {
                self.note_use(place, cache);
                return true;
            }
            // It was deleted meanwhile.
            doubt(mark);
        }
        let Some(content) = self.verified(number, length, cache) else { return false };
        for (at, out) in parts {
            let Some(found) = content.get(*at..*at + out.len()) else { return false };
            out.copy_from_slice(found);
        }
        true
    }

    #[cfg(target_os = "linux")]
    fn is_faulted(&self) -> bool {
        self.map.as_ref().is_some_and(|map| map.state() == MapState::Faulted)
    }

    #[cfg(not(target_os = "linux"))]
    fn is_faulted(&self) -> bool {
        false
    }

    /// Verifies all blocks again that are not mapped. Those that are mapped are verified again if a record is wrong.
    pub fn doubt(&self) {
        self.marks.iter().for_each(doubt);
    }

    fn length(&self, number: u64) -> usize {
        let range = block::range(number, self.size);
        (range.end - range.start) as usize
    }

    /// Copies parts of a block from the map.
    #[cfg(target_os = "linux")]
    fn copy_mapped(&self, number: u64, mark: &AtomicU8, parts: Parts<'_, '_>, cache: &Cache) -> bool {
        let Some(map) = &self.map else { return false };
        let before = self.removals();
        if mark.load(Acquire) & MAPPED == 0 || !crate::storage::sigbus::protects_this_thread() {
            return false;
        }
        if map.state() == MapState::Faulted {
            // Somebody truncated a block, or the disk failed. From now on, blocks are verified at each read.
            self.marks.iter().for_each(|mark| mark.store(0, SeqCst));
            return false;
        }
        let begin = (number * BLOCK) as usize;
        for (at, out) in parts.iter_mut() {
            let Some(found) = map.bytes().get(begin + *at..begin + *at + out.len()) else { return false };
            out.copy_from_slice(found);
        }
        if parts.iter().any(|(at, out)| !self.has_its_end(number, *at + out.len(), cache)) {
            // Somebody truncated it. It is verified again, and fails.
            self.remove(number);
            return false;
        }
        map.state_after_reading() == MapState::Intact && self.removals() == before
    }

    /// Whether a mapped block was not truncated before `end`, of which a part was read without a checksum. A block that
    /// was truncated inside a page reads as zeros after that, with no signal, but all later pages cause one. So only
    /// the last page needs a look at the size of the file.
    #[cfg(target_os = "linux")]
    fn has_its_end(&self, number: u64, end: usize, cache: &Cache) -> bool {
        let (length, page) = (self.length(number), rustix::param::page_size());
        let Some(map) = self.map.as_ref().filter(|_| length > 0) else { return true };
        map.touch((number * BLOCK) as usize + length - 1);
        end <= (length - 1) / page * page
            || self.is_file(number, cache.folder().identity(&block::name(&self.key, number)))
    }

    /// Whether that is the number and the size of the file of a block.
    fn is_file(&self, number: u64, found: Option<(u64, u64)>) -> bool {
        let inode = self.inodes.get(number as usize).map(|inode| inode.load(Relaxed));
        inode.zip(Some((self.length(number) + TRAILER) as u64)) == found
    }

    /// Like [`has_its_end`](Self::has_its_end), for a range of the object.
    #[cfg(target_os = "linux")]
    pub fn has_all_ends(&self, at: u64, length: usize, cache: &Cache) -> bool {
        let end = at + length as u64;
        (at / BLOCK..end.div_ceil(BLOCK)).all(|number| {
            let end = end.min((number + 1) * BLOCK) - number * BLOCK;
            self.has_its_end(number, end as usize, cache)
        })
    }

    #[cfg(not(target_os = "linux"))]
    fn copy_mapped(&self, _number: u64, _mark: &AtomicU8, _parts: Parts<'_, '_>, _cache: &Cache) -> bool {
        false
    }

    /// Reads parts of a block that was verified before.
    fn copy_read(&self, number: u64, length: usize, parts: Parts<'_, '_>, cache: &Cache) -> bool {
        let Ok(Some(file)) = cache.folder().read(&block::name(&self.key, number)) else { return false };
        let is_right =
            file.metadata().is_ok_and(|found| self.is_file(number, Some((found.ino(), found.len()))));
        is_right
            && parts
                .iter_mut()
                .all(|(at, out)| *at + out.len() <= length && file.read_exact_at(out, *at as u64).is_ok())
    }

    /// The content of a block of the folder, if it is sound. One that is not is deleted.
    fn verified(&self, number: u64, length: usize, cache: &Cache) -> Option<Vec<u8>> {
        let name = block::name(&self.key, number);
        let file = cache.folder().read(&name).ok()??;
        let mut content = Vec::new();
        content.try_reserve_exact(length + TRAILER + 1).ok()?;
        // An error of the disk is like a wrong checksum.
        let read = (&file).take((length + TRAILER + 1) as u64).read_to_end(&mut content);
        if read.is_err() || !block::is_sound(&self.key, number, length as u64, &content) {
            cache.folder().remove(&name);
            cache.note_damage();
            return None;
        }
        self.keep(number, &file, cache);
        self.note_use(number as usize, cache);
        Some(content)
    }

    /// Takes a block whose content is known to be sound.
    pub fn keep(&self, number: u64, file: &File, cache: &Cache) {
        let Some(mark) = usize::try_from(number).ok().and_then(|number| self.marks.get(number)) else {
            return;
        };
        if !self.place(number, file, mark, cache) && self.note_inode(number, file) {
            mark.fetch_or(SOUND, SeqCst);
        }
    }

    fn note_inode(&self, number: u64, file: &File) -> bool {
        let place = self.inodes.get(number as usize);
        let noted = place.zip(file.metadata().ok()).map(|(place, found)| place.store(found.ino(), SeqCst));
        noted.is_some()
    }

    #[cfg(target_os = "linux")]
    fn place(&self, number: u64, file: &File, mark: &AtomicU8, cache: &Cache) -> bool {
        let Some(map) = self.map.as_ref().filter(|_| cache.folder().is_local) else { return false };
        self.placing.with(|()| {
            if mark.load(Acquire) & MAPPED != 0 {
                return true;
            }
            if map.state() != MapState::Intact || !self.note_inode(number, file) {
                return false;
            }
            if MAPS.fetch_add(1, Relaxed) >= most_maps() {
                MAPS.fetch_sub(1, Relaxed);
                return false;
            }
            let is_placed = map.place(number * BLOCK, file, self.length(number));
            match is_placed {
                true => {
                    self.mapped.fetch_add(1, Relaxed);
                    mark.store(SOUND | MAPPED, std::sync::atomic::Ordering::Release);
                }
                false => drop(MAPS.fetch_sub(1, Relaxed)),
            }
            is_placed
        })
    }

    #[cfg(not(target_os = "linux"))]
    fn place(&self, _number: u64, _file: &File, _mark: &AtomicU8, _cache: &Cache) -> bool {
        false
    }

    /// Takes a block away: it was deleted, or it may be damaged. False if a buffer needs it.
    pub fn remove(&self, number: u64) -> bool {
        let Some(mark) = usize::try_from(number).ok().and_then(|number| self.marks.get(number)) else {
            return true;
        };
        self.placing.with(|()| {
            let before = mark.swap(0, SeqCst);
            self.removals.fetch_add(1, SeqCst);
            if before & MAPPED == 0 {
                return true;
            }
            self.clear(number) || {
                mark.fetch_or(before, SeqCst);
                false
            }
        })
    }

    #[cfg(target_os = "linux")]
    fn clear(&self, number: u64) -> bool {
        let Some(map) = &self.map else { return true };
        // `export` counts first and then reads the marks. So at least one of the two sees the other.
        fence(SeqCst);
        if map.is_exported() {
            return false;
        }
        map.clear(number * BLOCK, self.length(number));
        self.mapped.fetch_sub(1, Relaxed);
        MAPS.fetch_sub(1, Relaxed);
        true
    }

    #[cfg(not(target_os = "linux"))]
    fn clear(&self, _number: u64) -> bool {
        fence(SeqCst);
        true
    }

    /// Takes all blocks away and maps no more of them, unless a buffer needs some.
    #[cfg(target_os = "linux")]
    pub fn retire(&self) {
        let Some(map) = &self.map else { return };
        map.retire();
        self.placing.with(|()| {
            if map.state() == MapState::Retired {
                self.marks.iter().for_each(|mark| mark.store(0, SeqCst));
                MAPS.fetch_sub(self.mapped.swap(0, Relaxed), Relaxed);
            }
        });
    }

    /// Takes all blocks away that the folder no longer has. False if a buffer needs some of them.
    pub fn remove_deleted(&self, cache: &Cache) -> bool {
        let is_gone =
            |number: u64| !self.is_file(number, cache.folder().identity(&block::name(&self.key, number)));
        let mut all = true;
        for (number, mark) in (0..).zip(&self.marks) {
            if mark.load(Relaxed) != 0 && is_gone(number) {
                all &= self.remove(number);
            }
        }
        all
    }
}

/// Verifies a block again, if it is not mapped.
fn doubt(mark: &AtomicU8) {
    for sound in [SOUND, SOUND | USED] {
        let _ = mark.compare_exchange(sound, 0, SeqCst, Relaxed);
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        MAPS.fetch_sub(self.mapped.load(Relaxed), Relaxed);
    }
}

/// How many blocks may be mapped. A block among others takes up to two maps, and local files need some.
#[cfg(target_os = "linux")]
fn most_maps() -> usize {
    static MOST: AtomicUsize = AtomicUsize::new(0);
    match MOST.load(Relaxed) {
        0 => {
            let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
            let most = text.trim().parse::<usize>().unwrap_or(65_530) / 4;
            MOST.store(most.max(1), Relaxed);
            most
        }
        most => most,
    }
}
