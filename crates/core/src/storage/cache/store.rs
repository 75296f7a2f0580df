//! A cache: stores blocks, and goes on without if that fails.

use super::block;
use super::folder::{self, Folder};
use super::key::{self, ObjectKey};
use super::resident::Resident;
use super::space;
use super::warn;
use crate::error::{Error, Result};
use crate::process::PerProcess;
use arc_swap::{ArcSwap, Guard};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant, SystemTime};

/// After a failure, nothing is stored for so long.
const PAUSE: Duration = Duration::from_secs(60);
/// Nor if another process keeps the lock.
const SHORT_PAUSE: Duration = Duration::from_secs(1);

/// A cache in a folder.
pub struct Cache {
    /// Replaced if it was deleted.
    folder: ArcSwap<Folder>,
    limit: u64,
    /// What [`paused_until`](Self::paused_until) counts from.
    begun: Instant,
    /// In milliseconds.
    paused_until: AtomicU64,
    has_warned: AtomicBool,
    has_warned_of_objects: AtomicBool,
    /// Blocks of the folder that were not sound.
    damaged: AtomicU64,
    /// Held while a block is stored. So a process writes one block at a time.
    storing: PerProcess<()>,
    /// The objects of this process.
    pub(super) residents: PerProcess<Vec<Weak<Resident>>>,
    /// [`space::Usage::deletions`] when this process last released what was deleted.
    pub(super) deletions: AtomicU64,
    /// The fork generation whose thread looks after this cache, plus 1.
    pub(super) keeper: AtomicU64,
}

type Known = HashMap<(PathBuf, Option<u64>), Weak<Cache>>;

static CACHES: LazyLock<PerProcess<Known>> = LazyLock::new(PerProcess::default);

/// Call this before threads are started, so that no fork finds the lock of an initialisation held.
pub fn prepare() {
    LazyLock::force(&CACHES);
    key::prepare();
}

impl Cache {
    /// The cache of a folder. `limit`: the most bytes on its disk. None: most of what is free.
    pub fn open(path: &Path, limit: Option<u64>) -> Result<Arc<Self>> {
        let refused = |error| Error::io("cannot open the cache", error).in_file(&path.to_string_lossy());
        let path = folder::absolute(path.as_os_str()).map_err(refused)?;
        let known = (path, limit);
        if let Some(cache) = CACHES.with(|caches| caches.get(&known).and_then(Weak::upgrade)) {
            cache.storing.with(|()| cache.renew()).map_err(refused)?;
            return Ok(cache);
        }
        let least = block::disk_bytes(block::BLOCK);
        if let Some(limit) = limit.filter(|&limit| limit < least) {
            return Err(Error::argument(format!("a cache of {limit} bytes has no room for a block"))
                .expected(format_args!("at least {least}")));
        }
        let folder = Folder::open(&known.0).map_err(refused)?;
        let usage = space::usage(&folder);
        let limit = match limit {
            Some(limit) => limit,
            None => {
                let used = usage.map_or_else(|| space::counted(&folder), |usage| Ok(usage.bytes));
                let (free, all) = folder.room().map_err(refused)?;
                let room = free.saturating_add(used.map_err(refused)?).min(all);
                (room / 10 * 9).max(least)
            }
        };
        let cache = Arc::new(Cache {
            folder: ArcSwap::from_pointee(folder),
            limit,
            begun: Instant::now(),
            paused_until: AtomicU64::new(0),
            has_warned: AtomicBool::new(false),
            has_warned_of_objects: AtomicBool::new(false),
            damaged: AtomicU64::new(0),
            storing: PerProcess::default(),
            residents: PerProcess::default(),
            deletions: AtomicU64::new(usage.map_or(0, |usage| usage.deletions)),
            keeper: AtomicU64::new(0),
        });
        CACHES.with(|caches| {
            caches.retain(|_, cache| cache.strong_count() > 0);
            caches.insert(known, Arc::downgrade(&cache));
        });
        Ok(cache)
    }

    pub(super) fn folder(&self) -> Guard<Arc<Folder>> {
        self.folder.load()
    }

    /// Makes the folder again if it was deleted, and uses what is at its path. Returns whether that was necessary. Call
    /// this with [`storing`](Self::storing) held.
    fn renew(&self) -> io::Result<bool> {
        let folder = self.folder();
        if folder.is_at_its_path() {
            return Ok(false);
        }
        self.folder.store(Arc::new(Folder::open(folder.path())?));
        // What failed before failed in the other folder.
        self.paused_until.store(0, Relaxed);
        Ok(true)
    }

    /// Counts a block that was not sound.
    pub(super) fn note_damage(&self) {
        self.damaged.fetch_add(1, Relaxed);
    }

    /// How many blocks were not sound since the last call.
    pub(super) fn take_damaged(&self) -> u64 {
        if self.damaged.load(Relaxed) == 0 { 0 } else { self.damaged.swap(0, Relaxed) }
    }

    /// Whether blocks can be stored, as far as is known.
    pub(super) fn is_writable(&self) -> bool {
        let until = self.paused_until.load(Relaxed);
        until == 0 || self.begun.elapsed().as_millis() as u64 >= until
    }

    fn pause(&self, time: Duration) {
        self.paused_until.store((self.begun.elapsed() + time).as_millis() as u64, Relaxed);
    }

    /// Stores a block. Returns its file. None if that is not possible: then it is fetched again the next time.
    pub(super) fn store(&self, key: &ObjectKey, number: u64, bytes: &[u8]) -> Option<File> {
        match self.storing.with(|()| self.try_store(key, number, bytes)) {
            Ok(file) => file,
            Err(error) => {
                self.pause(PAUSE);
                if !self.has_warned.swap(true, SeqCst) {
                    let folder = self.folder();
                    let folder = folder.path().display();
                    warn(&format!(
                        "the cache {folder} cannot be written: {error}; reading goes on without storing"
                    ));
                }
                None
            }
        }
    }

    fn try_store(&self, key: &ObjectKey, number: u64, bytes: &[u8]) -> io::Result<Option<File>> {
        if !self.is_writable() {
            return Ok(None);
        }
        match self.store_in(&self.folder(), key, number, bytes) {
            Err(_) if self.renew()? => self.store_in(&self.folder(), key, number, bytes),
            stored => stored,
        }
    }

    fn store_in(
        &self,
        folder: &Folder,
        key: &ObjectKey,
        number: u64,
        bytes: &[u8],
    ) -> io::Result<Option<File>> {
        let name = block::name(key, number);
        // Another process may have been faster.
        if folder.has(&name) {
            return Ok(None);
        }
        let size = block::disk_bytes(bytes.len() as u64);
        let Some(usage) = space::reserve(folder, self.limit, size, SystemTime::now())? else {
            self.pause(SHORT_PAUSE);
            return Ok(None);
        };
        self.release_deleted(usage.deletions);
        let created = folder.create(&name, &[bytes, &block::trailer(key, number, bytes)]);
        if !matches!(created, Ok(Some(_))) {
            let _ = space::give_back(folder, size);
        }
        created
    }

    /// Says once that an object is not cached.
    pub(super) fn cannot_cache(&self, name: &str) {
        if !self.has_warned_of_objects.swap(true, SeqCst) {
            warn(&format!(
                "{name} is not cached: its server does not say which version it is, or it changed a moment ago"
            ));
        }
    }
}
