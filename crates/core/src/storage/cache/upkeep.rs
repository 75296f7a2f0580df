//! A thread that looks after the blocks that this process has mapped.
//!
//! A mapped file takes room on the disk after another process has deleted it. So the thread looks every second whether
//! blocks were deleted, and takes them away. And it lets each block be marked as used again once in a while.

use super::resident::Resident;
use super::space;
use super::store::Cache;
use crate::process;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// Each process tells the folder at most once in so many seconds that it uses a block.
const USED_SECONDS: u64 = 60;

impl Cache {
    /// Looks after the blocks of an object from now on.
    pub(super) fn enroll(self: &Arc<Self>, resident: &Arc<Resident>) {
        self.residents.with(|residents| {
            residents.retain(|resident| resident.strong_count() > 0);
            residents.push(Arc::downgrade(resident));
        });
        let now = process::generation() + 1;
        if self.keeper.swap(now, SeqCst) != now {
            let cache = Arc::downgrade(self);
            // Without the thread, blocks are released when the next one is stored.
            let _ =
                std::thread::Builder::new().name("anyrecord-cache".to_owned()).spawn(move || keep(&cache));
        }
    }

    fn residents(&self) -> Vec<Arc<Resident>> {
        self.residents.with(|residents| residents.iter().filter_map(Weak::upgrade).collect())
    }

    /// Releases the blocks that were deleted. `deletions`: the number that the folder has now.
    pub(super) fn release_deleted(&self, deletions: u64) {
        if self.deletions.load(Relaxed) == deletions {
            return;
        }
        if self.release() {
            self.deletions.store(deletions, Relaxed);
        }
    }

    /// Releases the blocks that the folder no longer has. False if buffers need some of them.
    fn release(&self) -> bool {
        let mut all = true;
        for resident in self.residents() {
            all &= resident.remove_deleted(self);
        }
        all
    }

    /// Releases the blocks that others deleted since the last time.
    pub(super) fn look(&self) {
        let folder = self.folder();
        match space::usage(&folder) {
            Some(usage) => self.release_deleted(usage.deletions),
            // Somebody deleted the folder. The next block that is stored makes it again.
            None if !folder.is_at_its_path() => drop(self.release()),
            None => {}
        }
    }
}

fn keep(cache: &Weak<Cache>) {
    for second in 1u64.. {
        std::thread::park_timeout(SECOND);
        let Some(cache) = cache.upgrade() else { return };
        cache.look();
        if second.is_multiple_of(USED_SECONDS) {
            cache.residents().iter().for_each(|resident| resident.forget_use());
        }
    }
}
