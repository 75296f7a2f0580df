//! Objects are read through a cache whose files are deleted and damaged meanwhile.

use super::block::{self, BLOCK};
use super::file::CachedFile;
use super::store::Cache;
use crate::budget::Budget;
use crate::cx::{Cx, for_tests};
use crate::limits::Limits;
use crate::storage::file_set::FileSet;
use crate::storage::remote::open::{self, FirstPart};
use crate::storage::remote::options::StorageOptions;
use crate::storage::remote::put::put;
use crate::storage::remote::url::RemoteUrl;
use crate::storage::{ReadOp, Storage};
use proptest::prelude::*;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const SIZE: usize = 5 * BLOCK as usize + 12_345;

fn content() -> Vec<u8> {
    (0..SIZE).map(|at| (at * 31 % 251) as u8 ^ (at >> 16) as u8).collect()
}

/// A new object, and the set of files that counts its reads.
struct Fixture {
    temp: tempfile::TempDir,
    content: Vec<u8>,
    url: RemoteUrl,
    files: Arc<FileSet>,
}

impl Fixture {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let url = RemoteUrl::parse(&format!("memory://cache/{}", NEXT.fetch_add(1, Relaxed))).unwrap();
        let (content, cx) = (content(), for_tests(Limits::default()));
        put(&url, &StorageOptions::default(), content.clone(), &Arc::default(), &cx).unwrap();
        let files = FileSet::new(&Limits::default());
        Fixture { temp: tempfile::tempdir().unwrap(), content, url, files }
    }

    fn folder(&self) -> PathBuf {
        self.temp.path().join("cache")
    }

    fn cache(&self, blocks: u64) -> Arc<Cache> {
        Cache::open(&self.folder(), Some(blocks * block::disk_bytes(BLOCK))).unwrap()
    }

    fn with_cx<T>(&self, act: impl FnOnce(&Cx<'_>) -> T) -> T {
        act(&Cx::new(&Budget::new(&Limits::default(), &self.files)))
    }

    fn open(&self, cache: &Arc<Cache>) -> CachedFile {
        let object = (self.url.clone(), Arc::new(StorageOptions::default()), FirstPart::Beginning);
        let opened = self.with_cx(|cx| open::open(vec![object], &self.files, cx)).unwrap().pop().unwrap();
        CachedFile::new(opened.unwrap().0, cache).map_err(|_| "not cached").unwrap()
    }

    fn check(&self, file: &CachedFile, ranges: &[(u64, usize)]) {
        let mut places: Vec<Vec<u8>> = ranges.iter().map(|(_, length)| vec![0; *length]).collect();
        let mut ops: Vec<_> =
            ranges.iter().zip(&mut places).map(|((at, _), out)| ReadOp { at: *at, out }).collect();
        self.with_cx(|cx| file.read_many(&mut ops, cx)).unwrap();
        for ((at, length), found) in ranges.iter().zip(&places) {
            assert!(*found == self.content[*at as usize..][..*length], "{length} bytes at {at}");
        }
        #[cfg(target_os = "linux")]
        for &(at, length) in ranges {
            let borrowed = file.mapped().unwrap().borrow(at, length).unwrap();
            let Some(borrowed) = borrowed else { continue };
            let copy = self.with_cx(|cx| borrowed.with(false, cx, |bytes| Ok(bytes.to_vec()))).unwrap();
            assert!(copy == self.content[at as usize..][..length], "{length} bytes in place at {at}");
        }
    }

    fn check_all(&self, file: &CachedFile) {
        self.check(file, &[(0, SIZE)]);
    }

    fn count(&self, name: &str) -> u64 {
        self.files.stats.has_cache.store(true, Relaxed);
        self.files.stats.counts().into_iter().find(|(known, _)| *known == name).unwrap().1
    }

    fn blocks(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.folder()).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| block::is_name(path.file_name().unwrap().to_str().unwrap())).collect()
    }
}

#[test]
fn what_was_read_once_needs_no_server() {
    let fixture = Fixture::new();
    let cache = fixture.cache(100);
    fixture.check_all(&fixture.open(&cache));
    assert_eq!(fixture.blocks().len(), 6);
    let requests = fixture.count("requests");
    assert_eq!((fixture.count("cache_hits"), fixture.count("cache_misses")), (0, 1));
    let file = fixture.open(&cache);
    fixture.check(&file, &[(0, 10), (BLOCK - 5, 10), (SIZE as u64 - 1, 1), (BLOCK + 7, 3 * BLOCK as usize)]);
    fixture.check_all(&file);
    assert_eq!(fixture.count("requests"), requests + 1, "opening is one request");
    assert_eq!((fixture.count("cache_hits"), fixture.count("cache_misses")), (5, 1));
    assert_eq!(std::fs::metadata(fixture.folder()).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn neighbouring_blocks_are_one_request() {
    let fixture = Fixture::new();
    let file = fixture.open(&fixture.cache(100));
    let before = fixture.count("requests");
    fixture.check(&file, &[(10, 10), (BLOCK + 10, 10), (2 * BLOCK + 10, 10), (5 * BLOCK, 10)]);
    assert_eq!(fixture.count("requests"), before + 2);
    assert_eq!(fixture.blocks().len(), 4);
}

#[test]
fn an_object_that_was_replaced_shares_nothing_with_the_old_one() {
    let mut fixture = Fixture::new();
    let cache = fixture.cache(100);
    fixture.check_all(&fixture.open(&cache));
    fixture.content.iter_mut().for_each(|byte| *byte ^= 1);
    let cx = for_tests(Limits::default());
    put(&fixture.url, &StorageOptions::default(), fixture.content.clone(), &Arc::default(), &cx).unwrap();
    fixture.check_all(&fixture.open(&cache));
    assert_eq!(fixture.blocks().len(), 12);
}

/// Ways to damage a block file, or what is in its place.
fn damage(path: &Path, how: u8, at: u64) {
    let length = std::fs::symlink_metadata(path).map_or(0, |found| found.len());
    let edit = || std::fs::OpenOptions::new().write(true).read(true).open(path).unwrap();
    match how {
        0 => std::fs::remove_file(path).unwrap(),
        1 => edit().set_len(at % length.max(1)).unwrap(),
        2 => std::fs::write(path, b"").unwrap(),
        3 => {
            // Another file in its place: a change in place is one of a file that is mapped already.
            let mut bytes = std::fs::read(path).unwrap();
            let at = at as usize % bytes.len().max(1);
            bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 0x40);
            std::fs::remove_file(path).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        4 => {
            std::fs::remove_file(path).unwrap();
            std::os::unix::fs::symlink("/etc/passwd", path).unwrap();
        }
        5 => {
            std::fs::remove_file(path).unwrap();
            std::fs::create_dir(path).unwrap();
        }
        6 => {
            std::fs::remove_file(path).unwrap();
            let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
            assert!(made.success());
        }
        7 => {
            let bytes = [std::fs::read(path).unwrap(), vec![0; 100]].concat();
            std::fs::remove_file(path).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        _ => std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o000)).unwrap(),
    }
}

#[test]
fn damaged_blocks_are_fetched_again_whether_they_were_used_before_or_not() {
    for how in 0..=8 {
        let fixture = Fixture::new();
        let cache = fixture.cache(100);
        let used = fixture.open(&cache);
        fixture.check_all(&used);
        fixture.blocks().iter().zip(1..).for_each(|(path, at)| damage(path, how, at * 7919));
        let misses = fixture.count("cache_misses");
        fixture.check_all(&fixture.open(&cache));
        assert!(fixture.count("cache_misses") > misses || how == 8, "{how}: nothing was fetched");
        fixture.check_all(&used);
        fixture.check(&used, &[(BLOCK - 100, 200), (3, 70_000), (2 * BLOCK, 10)]);
        fixture.check_all(&fixture.open(&cache));
    }
}

#[test]
fn a_block_of_another_object_under_its_name_is_not_used() {
    let (one, other) = (Fixture::new(), Fixture::new());
    one.check_all(&one.open(&one.cache(100)));
    let cache = other.cache(100);
    other.check_all(&other.open(&cache));
    for (from, to) in one.blocks().iter().zip(other.blocks()) {
        std::fs::remove_file(&to).unwrap();
        std::fs::copy(from, to).unwrap();
    }
    other.check_all(&other.open(&cache));
    assert_eq!(other.count("cache_damaged"), 6);
}

#[test]
#[cfg(target_os = "linux")]
fn a_block_that_changed_after_it_was_verified_is_verified_again_when_its_record_is_wrong() {
    let fixture = Fixture::new();
    let file = fixture.open(&fixture.cache(100));
    fixture.check_all(&file);
    for path in fixture.blocks() {
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(b"damaged", 100).unwrap();
    }
    let (at, length) = (BLOCK + 90, 50);
    let right = fixture.content[at as usize..][..length].to_vec();
    let check = |bytes: &[u8]| match *bytes == right {
        true => Ok(bytes.to_vec()),
        false => Err(crate::error::Error::checksum("wrong")),
    };
    let borrowed = file.mapped().unwrap().borrow(at, length).unwrap().unwrap();
    assert_eq!(fixture.with_cx(|cx| borrowed.with(true, cx, check)).unwrap(), right);
    assert_eq!(fixture.count("cache_damaged"), 1);
}

#[test]
#[cfg(target_os = "linux")]
fn blocks_that_others_delete_are_released_unless_a_buffer_needs_them() {
    let fixture = Fixture::new();
    let cache = fixture.cache(100);
    let file = fixture.open(&cache);
    fixture.check_all(&file);
    let mapped = file.mapped().unwrap();
    assert!(mapped.is_whole() && mapped.export(BLOCK..BLOCK + 10));
    fixture.blocks().iter().for_each(|path| std::fs::remove_file(path).unwrap());
    cache.release_deleted(77);
    assert!(mapped.is_whole());
    assert_eq!(mapped.exported(BLOCK..BLOCK + 10).unwrap(), &fixture.content[BLOCK as usize..][..10]);
    let borrowed = mapped.borrow(5, 10).unwrap().unwrap();
    mapped.unexport();
    cache.release_deleted(77);
    assert!(!mapped.is_whole() && mapped.borrow(0, 10).unwrap().is_none());
    assert!(!mapped.export(BLOCK..BLOCK + 10));
    let copy = fixture.with_cx(|cx| borrowed.with(true, cx, |bytes| Ok(bytes.to_vec()))).unwrap();
    assert_eq!(copy, &fixture.content[5..15], "it was borrowed before, and read again");
    fixture.check_all(&file);
}

#[test]
#[cfg(target_os = "linux")]
fn ranges_that_no_object_has_are_not_here() {
    let fixture = Fixture::new();
    let file = fixture.open(&fixture.cache(100));
    fixture.check_all(&file);
    let mapped = file.mapped().unwrap();
    for range in [u64::MAX - 1..u64::MAX, 0..u64::MAX, SIZE as u64 - 1..10 * SIZE as u64, u64::MAX..u64::MAX]
    {
        assert!(!mapped.holds(range));
    }
    assert!(mapped.holds(5..5) && mapped.holds(0..SIZE as u64));
    assert!(mapped.borrow(u64::MAX, usize::MAX).is_err() && mapped.borrow(SIZE as u64, 1).is_err());
    assert_eq!(mapped.borrow(SIZE as u64 - 1, 1).unwrap().unwrap().bytes(), &fixture.content[SIZE - 1..]);
    mapped.retire();
    assert!(!mapped.is_whole() && !mapped.holds(0..1) && mapped.borrow(0, 1).unwrap().is_none());
}

#[test]
fn a_folder_that_cannot_be_written_is_read_from() {
    let fixture = Fixture::new();
    let cache = fixture.cache(100);
    fixture.check(&fixture.open(&cache), &[(0, 3 * BLOCK as usize)]);
    // Not by permissions: the superuser may write everywhere.
    std::fs::remove_file(fixture.folder().join(".usage")).unwrap();
    std::fs::create_dir(fixture.folder().join(".usage")).unwrap();
    let file = fixture.open(&cache);
    fixture.check_all(&file);
    fixture.check(&file, &[(10, 10), (4 * BLOCK + 5, 100)]);
    assert_eq!(fixture.blocks().len(), 3);
    let bytes = fixture.count("bytes");
    fixture.check(&file, &[(4 * BLOCK + 5, 100)]);
    assert_eq!(fixture.count("bytes"), bytes + 100, "what cannot be stored is not fetched in whole blocks");
}

/// Ways in which the folder disappears.
fn lose(folder: &Path, how: u8) {
    match how {
        0 => std::fs::remove_dir_all(folder).unwrap(),
        1 => {
            // With the folder that it is in.
            std::fs::remove_dir_all(folder.parent().unwrap()).unwrap();
        }
        2 => {
            std::fs::remove_dir_all(folder).unwrap();
            std::fs::create_dir(folder).unwrap();
        }
        _ => std::fs::rename(folder, folder.with_extension("moved")).unwrap(),
    }
}

#[test]
fn a_folder_that_is_deleted_is_made_again_by_the_next_block_or_the_next_open() {
    for (how, opened) in (0..4).flat_map(|how| [(how, false), (how, true)]) {
        let fixture = Fixture::new();
        let cache = fixture.cache(100);
        let file = fixture.open(&cache);
        fixture.check(&file, &[(0, 2 * BLOCK as usize)]);
        lose(&fixture.folder(), how);
        if opened {
            assert!(Arc::ptr_eq(&cache, &fixture.cache(100)));
            assert!(fixture.folder().is_dir(), "{how}");
        }
        fixture.check_all(&file);
        // A folder that was moved is used until the next open.
        if how < 3 || opened {
            assert!(fixture.blocks().len() >= 4, "{how} {opened}");
        }
        fixture.check_all(&fixture.open(&cache));
        let misses = fixture.count("cache_misses");
        fixture.check_all(&fixture.open(&cache));
        assert_eq!(fixture.count("cache_misses"), misses, "{how} {opened}: it is used again");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn what_is_mapped_of_a_deleted_folder_is_released_and_stored_again() {
    let fixture = Fixture::new();
    let cache = fixture.cache(100);
    let file = fixture.open(&cache);
    fixture.check_all(&file);
    assert!(file.mapped().unwrap().is_whole());
    std::fs::remove_dir_all(fixture.folder()).unwrap();
    cache.look();
    assert!(!file.mapped().unwrap().holds(0..1), "its room on the disk is free");
    fixture.check_all(&file);
    assert_eq!(fixture.blocks().len(), 6);
}

#[test]
fn a_folder_that_cannot_be_made_again_stops_nobody_and_an_open_tries_at_once() {
    let fixture = Fixture::new();
    let cache = fixture.cache(100);
    let file = fixture.open(&cache);
    fixture.check(&file, &[(0, BLOCK as usize)]);
    std::fs::remove_dir_all(fixture.folder()).unwrap();
    std::fs::write(fixture.folder(), b"in its place").unwrap();
    fixture.check_all(&file);
    assert!(!cache.is_writable());
    std::fs::remove_file(fixture.folder()).unwrap();
    fixture.cache(100);
    assert!(cache.is_writable());
    fixture.check_all(&fixture.open(&cache));
    assert_eq!(fixture.blocks().len(), 6);
}

#[test]
fn a_limit_without_room_for_a_block_is_refused() {
    let fixture = Fixture::new();
    assert!(Cache::open(&fixture.folder(), Some(1000)).is_err());
    assert!(Cache::open(Path::new("/dev/null/cache"), None).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn reads_are_right_whatever_happens_to_the_folder(
        limit in 1u64..8,
        steps in prop::collection::vec(
            (prop::collection::vec((0..SIZE as u64, 0usize..2_500_000), 1..6), 0u8..14, any::<u64>()), 1..12),
    ) {
        let fixture = Fixture::new();
        let cache = fixture.cache(limit);
        let files = [fixture.open(&cache), fixture.open(&cache)];
        for (number, (ranges, how, at)) in steps.into_iter().enumerate() {
            let ranges: Vec<_> =
                ranges.into_iter().map(|(at, length)| (at, length.min(SIZE - at as usize))).collect();
            fixture.check(&files[number % 2], &ranges);
            prop_assert!(fixture.blocks().len() as u64 <= limit.max(1) + 6);
            let blocks = fixture.blocks();
            if let Some(path) = blocks.get(at as usize % blocks.len().max(1))
                && path.symlink_metadata().is_ok_and(|found| found.is_file())
            {
                match how {
                    ..=7 => damage(path, how, at),
                    8 => drop(std::fs::remove_file(fixture.folder().join(".usage"))),
                    _ => {}
                }
            }
        }
    }
}
