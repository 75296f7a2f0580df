//! The limit: how many bytes of blocks there are, and which are deleted first.
//!
//! The file `.usage` has the number of bytes. It is changed under a lock of that file, before a block is written. A
//! process that is killed meanwhile leaves a number that is too large. That does no harm: before blocks are deleted,
//! they are all counted. A file `.usage` that is missing or damaged leads to a count as well.

use super::block;
use super::folder::{Entry, Folder, TEMPORARY};
use crate::hash::crc32c;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant, SystemTime};

const NAME: &str = ".usage";
const MAGIC: [u8; 8] = *b"ARusage1";
const SIZE: usize = 28;
/// How long a process waits for the lock. After that it does without the cache.
const PATIENCE: Duration = Duration::from_millis(200);
/// A file that nobody has written to for so long was left by a process that was killed.
const ABANDONED: Duration = Duration::from_secs(600);

/// What the folder holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes on the disk.
    pub bytes: u64,
    /// Changes whenever blocks were deleted.
    pub deletions: u64,
}

impl Usage {
    fn encode(self) -> [u8; SIZE] {
        let mut text = [0; SIZE];
        text[..8].copy_from_slice(&MAGIC);
        text[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        text[16..24].copy_from_slice(&self.deletions.to_le_bytes());
        let crc = crc32c::append(0, &text[..24]);
        text[24..].copy_from_slice(&crc.to_le_bytes());
        text
    }

    fn read(file: &File) -> Option<Self> {
        let mut text = [0; SIZE];
        file.read_exact_at(&mut text, 0).ok()?;
        let number = |at: usize| Some(u64::from_le_bytes(text.get(at..at + 8)?.try_into().ok()?));
        let usage = Usage { bytes: number(8)?, deletions: number(16)? };
        (usage.encode() == text).then_some(usage)
    }
}

/// What the folder holds, as far as is known.
pub fn usage(folder: &Folder) -> Option<Usage> {
    Usage::read(&folder.read(NAME).ok()??)
}

/// What the folder holds, counted.
pub fn counted(folder: &Folder) -> io::Result<u64> {
    Ok(blocks(folder, SystemTime::now())?.iter().map(disk_bytes).sum())
}

/// Makes room for a block of `bytes` bytes on the disk. None: another process keeps the lock for too long.
pub fn reserve(folder: &Folder, limit: u64, bytes: u64, now: SystemTime) -> io::Result<Option<Usage>> {
    let Some(file) = folder.update(NAME)? else {
        return Err(io::Error::other(".usage is not a file"));
    };
    if !lock(&file)? {
        return Ok(None);
    }
    let known = Usage::read(&file);
    let mut usage = known.unwrap_or_default();
    if known.is_none() || usage.bytes.saturating_add(bytes) > limit {
        let (left, deleted) = make_room(folder, limit, bytes, now)?;
        // A file that was damaged may have had any number before.
        let step = if known.is_none() { rand_step() } else { u64::from(deleted) };
        usage = Usage { bytes: left, deletions: usage.deletions.wrapping_add(step) };
    }
    usage.bytes = usage.bytes.saturating_add(bytes);
    file.write_all_at(&usage.encode(), 0)?;
    // Closing the file ends the lock.
    Ok(Some(usage))
}

/// Gives back the room for a block that was not written after all.
pub fn give_back(folder: &Folder, bytes: u64) -> io::Result<()> {
    let Some(file) = folder.update(NAME)? else { return Ok(()) };
    // Without the lock, the number stays too large until the next count.
    if lock(&file)?
        && let Some(usage) = Usage::read(&file)
    {
        let usage = Usage { bytes: usage.bytes.saturating_sub(bytes), ..usage };
        file.write_all_at(&usage.encode(), 0)?;
    }
    Ok(())
}

fn rand_step() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

fn lock(file: &File) -> io::Result<bool> {
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if begun.elapsed() >= PATIENCE => return Ok(false),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Deletes the blocks that were not used for longest, if there is not enough room. Returns the bytes that are left, and
/// whether blocks were deleted.
fn make_room(folder: &Folder, limit: u64, bytes: u64, now: SystemTime) -> io::Result<(u64, bool)> {
    let mut entries = blocks(folder, now)?;
    let mut left: u64 = entries.iter().map(disk_bytes).sum();
    if left.saturating_add(bytes) <= limit {
        return Ok((left, false));
    }
    // A little more room than is needed, so that not every block leads to a count.
    let most = (limit / 20 * 19).min(limit.saturating_sub(bytes));
    entries.sort_unstable_by_key(|entry| entry.modified);
    let mut deleted = false;
    for entry in entries.iter().filter(|entry| !entry.name.starts_with(TEMPORARY)) {
        if left <= most {
            break;
        }
        if folder.remove(&entry.name) {
            left -= disk_bytes(entry);
            deleted = true;
        }
    }
    Ok((left, deleted))
}

/// The blocks, and those that are being written. Those that will never be complete are deleted.
fn blocks(folder: &Folder, now: SystemTime) -> io::Result<Vec<Entry>> {
    let is_ours = |entry: &Entry| {
        let age = now.duration_since(entry.modified).unwrap_or_default();
        match entry.name.starts_with(TEMPORARY) {
            true => age < ABANDONED || !folder.remove(&entry.name),
            false => block::is_name(&entry.name),
        }
    };
    Ok(folder.list()?.into_iter().filter(is_ours).collect())
}

fn disk_bytes(entry: &Entry) -> u64 {
    block::disk_bytes(entry.size.saturating_sub(block::TRAILER as u64))
}

#[cfg(test)]
mod tests {
    use super::super::key::ObjectKey;
    use super::*;
    use proptest::prelude::*;
    use std::time::UNIX_EPOCH;

    const EACH: u64 = 8192;

    fn at(second: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(second)
    }

    fn name(number: u64) -> String {
        block::name(&ObjectKey([1; 32]), number)
    }

    fn temp() -> (tempfile::TempDir, Folder) {
        let temp = tempfile::tempdir().unwrap();
        let folder = Folder::open(&temp.path().join("cache")).unwrap();
        (temp, folder)
    }

    fn add(folder: &Folder, number: u64, second: u64, limit: u64) {
        reserve(folder, limit, EACH, at(second)).unwrap().unwrap();
        folder.create(&name(number), &[&[0; EACH as usize - block::TRAILER], &[0; block::TRAILER]]).unwrap();
        folder.touch(&name(number), at(second));
    }

    fn numbers(folder: &Folder) -> Vec<u64> {
        (0..100).filter(|&number| folder.has(&name(number))).collect()
    }

    #[test]
    fn the_blocks_that_were_not_used_for_longest_are_deleted() {
        let (_temp, folder) = temp();
        (0..4).for_each(|number| add(&folder, number, 1000 + number, 4 * EACH));
        assert_eq!(numbers(&folder), [0, 1, 2, 3]);
        folder.touch(&name(0), at(2000));
        add(&folder, 4, 2001, 4 * EACH);
        assert_eq!(numbers(&folder), [0, 2, 3, 4]);
        let before = usage(&folder).unwrap();
        assert_eq!(before.bytes, 4 * EACH);
        add(&folder, 5, 2002, 4 * EACH);
        assert_eq!(numbers(&folder), [0, 3, 4, 5]);
        assert_ne!(usage(&folder).unwrap().deletions, before.deletions, "other processes have to know");
    }

    #[test]
    fn a_large_folder_gets_room_for_several_blocks_at_once() {
        let (_temp, folder) = temp();
        (0..40).for_each(|number| add(&folder, number, 1000 + number, 40 * EACH));
        add(&folder, 40, 2000, 40 * EACH);
        assert_eq!(numbers(&folder), (2..=40).collect::<Vec<_>>());
    }

    #[test]
    fn a_wrong_number_is_counted_again() {
        let damages: [&dyn Fn(&std::path::Path); 5] = [
            &|path| std::fs::remove_file(path).unwrap(),
            &|path| std::fs::write(path, b"").unwrap(),
            &|path| std::fs::write(path, b"something else that is longer than it").unwrap(),
            &|path| {
                let mut bytes = std::fs::read(path).unwrap();
                bytes[10] ^= 1;
                std::fs::write(path, bytes).unwrap();
            },
            &|path| std::fs::write(path, Usage { bytes: u64::MAX, deletions: 3 }.encode()).unwrap(),
        ];
        for damage in damages {
            let (temp, folder) = temp();
            (0..3).for_each(|number| add(&folder, number, 1000 + number, 10 * EACH));
            damage(&temp.path().join("cache/.usage"));
            add(&folder, 3, 2000, 10 * EACH);
            assert_eq!(usage(&folder).unwrap().bytes, 4 * EACH);
            assert_eq!(numbers(&folder), [0, 1, 2, 3]);
        }
    }

    #[test]
    fn what_killed_processes_left_is_deleted_and_what_is_not_ours_stays() {
        let (temp, folder) = temp();
        for name in [".new-1-1-old", ".new-1-2-young", "important.txt", "0.1"] {
            std::fs::write(temp.path().join("cache").join(name), [0; 100]).unwrap();
            folder.touch(name, at(1000));
        }
        folder.touch(".new-1-2-young", at(5000));
        std::os::unix::fs::symlink(temp.path(), temp.path().join("cache").join(name(9))).unwrap();
        add(&folder, 1, 5000, EACH);
        add(&folder, 2, 5001, EACH);
        assert!(!folder.has(".new-1-1-old"));
        assert!(temp.path().join("cache").join(name(9)).is_symlink());
        for kept in [".new-1-2-young", "important.txt", "0.1", &name(2)] {
            assert!(folder.has(kept), "{kept}");
        }
        assert!(!folder.has(&name(1)));
    }

    #[test]
    fn room_that_was_not_needed_is_given_back() {
        let (_temp, folder) = temp();
        add(&folder, 1, 1, 10 * EACH);
        reserve(&folder, 10 * EACH, EACH, at(1)).unwrap().unwrap();
        give_back(&folder, EACH).unwrap();
        assert_eq!(usage(&folder).unwrap().bytes, EACH);
    }

    #[test]
    fn a_process_that_keeps_the_lock_stops_nobody() {
        let (_temp, folder) = temp();
        add(&folder, 1, 1, 10 * EACH);
        let held = folder.update(NAME).unwrap().unwrap();
        held.lock().unwrap();
        assert_eq!(reserve(&folder, 10 * EACH, EACH, at(1)).unwrap(), None);
        drop(held);
        assert!(reserve(&folder, 10 * EACH, EACH, at(1)).unwrap().is_some());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn the_limit_is_held_whatever_is_stored_used_and_lost(
            limit in 1u64..12,
            steps in prop::collection::vec((0u64..20, 0u8..4), 1..60),
        ) {
            let (temp, folder) = temp();
            for (time, (number, what)) in (1000..).zip(steps) {
                match what {
                    0 => folder.touch(&name(number), at(time)),
                    1 => drop(folder.remove(&name(number))),
                    2 if time % 7 == 0 => drop(std::fs::remove_file(temp.path().join("cache/.usage"))),
                    _ => add(&folder, number, time, limit * EACH),
                }
                prop_assert!(numbers(&folder).len() as u64 <= limit);
            }
        }
    }
}
