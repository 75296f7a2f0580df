//! An object as a storage.

use super::ahead::Ahead;
use super::options::{Policy, StorageOptions};
use super::request::{Identity, Object};
use super::stores::Store;
use super::url::RemoteUrl;
use super::{stores, transfer};
use crate::cx::Cx;
use crate::error::Result;
use crate::process::PerProcess;
use crate::storage::fetch::Queue;
use crate::storage::file_set::FileSet;
use crate::storage::stats::Stats;
use crate::storage::{Distance, ReadOp, Storage};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// An object of a store.
pub struct RemoteFile {
    url: RemoteUrl,
    options: Arc<StorageOptions>,
    identity: Identity,
    /// What distinguishes it from other files of the process.
    id: u64,
    stats: Arc<Stats>,
    ahead: Arc<Ahead>,
    /// The store of this process, once it was needed.
    store: PerProcess<Option<&'static Store>>,
}

impl RemoteFile {
    /// An object whose identity is known.
    pub fn new(url: RemoteUrl, options: Arc<StorageOptions>, identity: Identity, files: &FileSet) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (id, stats, ahead) = (NEXT.fetch_add(1, Relaxed), files.stats.clone(), files.ahead.clone());
        RemoteFile { url, options, identity, id, stats, ahead, store: PerProcess::default() }
    }

    /// What distinguishes it from other files of the process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// What identifies its content.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Where it is.
    pub fn url(&self) -> &RemoteUrl {
        &self.url
    }

    /// The server that has it: scheme, host and port. Some(None) if it is not on a server, None if that is not known.
    pub fn origin(&self) -> Option<Option<Arc<String>>> {
        Some(self.object().ok()?.store.origin.load_full())
    }

    /// How many more bytes may be fetched ahead.
    pub fn readahead_room(&self) -> u64 {
        self.options.policy.readahead_bytes.saturating_sub(self.ahead.bytes())
    }

    /// The URL without secrets.
    pub fn shown(&self) -> &str {
        self.url.shown()
    }

    /// How requests are made.
    pub fn policy(&self) -> &Policy {
        &self.options.policy
    }

    /// The counters of the data set.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The object in the store of this process.
    pub fn object(&self) -> Result<Object> {
        let known = self.store.with(|store| *store);
        let store = match known {
            Some(store) => store,
            None => {
                let found = stores::of(&self.url, &self.options)?;
                self.store.with(|store| *store = Some(found));
                found
            }
        };
        Ok(Object::new(&self.url, store, &self.stats))
    }

    /// Fills the ranges that were fetched ahead, and removes them from the list.
    pub(super) fn take_ahead(&self, ops: &mut Vec<ReadOp<'_>>, cx: &Cx<'_>) -> Result<()> {
        self.ahead.take(self, ops, cx)
    }
}

impl Storage for RemoteFile {
    fn name(&self) -> &str {
        self.url.shown()
    }

    fn len(&self) -> u64 {
        self.identity.size
    }

    fn read_at(&self, at: u64, out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
        let mut ops = vec![ReadOp { at, out }];
        transfer::read(&mut [(0, self, &mut ops)], cx).map_err(|(_, error)| error)
    }

    fn read_many(&self, ops: &mut [ReadOp<'_>], cx: &Cx<'_>) -> Result<()> {
        let mut ops = ops.iter_mut().map(|op| ReadOp { at: op.at, out: &mut *op.out }).collect();
        transfer::read(&mut [(0, self, &mut ops)], cx).map_err(|(_, error)| error)
    }

    fn queue(&self) -> Queue<'_> {
        Queue::Remote(self)
    }

    fn will_need(&self, ranges: &mut dyn Iterator<Item = Range<u64>>) {
        self.ahead.fetch(self, ranges);
    }

    fn distance(&self) -> Distance {
        let policy = &self.options.policy;
        let largest = (4 * policy.part_size).min(policy.max_bytes_in_flight).max(policy.part_size);
        // At least 1, because a server is far away even if nothing is fetched ahead.
        let ahead = policy.readahead_bytes.max(1);
        let near = policy.merge_gap.max(1 << 20);
        Distance { first: policy.part_size, near, largest, ahead, ahead_time: policy.readahead_time }
    }
}
