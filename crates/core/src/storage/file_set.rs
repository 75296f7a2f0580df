//! What the files of one data set share: the limit on open file descriptors, and one temporary file.

use super::handles::Handles;
use super::remote::ahead::Ahead;
use super::spool::Spool;
use super::stats::Stats;
use crate::limits::Limits;
use std::sync::Arc;

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
        })
    }
}
