//! What the files of one data set share: the limit on open file descriptors, and one temporary file.

#[cfg(unix)]
use super::cache::store::Cache;
use super::handles::Handles;
use super::remote::ahead::Ahead;
use super::spool::Spool;
use super::stats::Stats;
use crate::limits::Limits;
use std::sync::Arc;
#[cfg(unix)]
use std::sync::atomic::Ordering::Relaxed;

/// Shared by the files that are opened together.
pub struct FileSet {
    /// The descriptors of data files.
    pub handles: Arc<Handles>,
    /// The temporary file.
    pub spool: Spool,
    /// Counters of what is read.
    pub stats: Arc<Stats>,
    /// What is fetched from servers before it is read.
    pub ahead: Arc<Ahead>,
    /// The local cache of remote objects.
    #[cfg(unix)]
    pub cache: Option<Arc<Cache>>,
}

impl FileSet {
    /// A new set. No file is open yet.
    pub fn new(limits: &Limits) -> Arc<Self> {
        let handles = Handles::new(limits.open_files);
        Arc::new(FileSet {
            spool: Spool::new(limits.spool_bytes, handles.clone()),
            handles,
            stats: Arc::default(),
            ahead: Arc::default(),
            #[cfg(unix)]
            cache: None,
        })
    }

    /// A new set, with a cache for remote objects.
    #[cfg(unix)]
    pub fn with_cache(limits: &Limits, cache: Option<Arc<Cache>>) -> Arc<Self> {
        let handles = Handles::new(limits.open_files);
        let stats = Stats::default();
        stats.has_cache.store(cache.is_some(), Relaxed);
        Arc::new(FileSet {
            spool: Spool::new(limits.spool_bytes, handles.clone()),
            handles,
            stats: Arc::new(stats),
            ahead: Arc::default(),
            cache,
        })
    }
}
