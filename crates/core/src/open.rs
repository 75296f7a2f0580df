//! Opening many files at once: their tables are read in parallel, so that damage is an error at open.

use crate::cx::Cx;
use crate::error::Result;
use crate::format::ReadOptions;
use crate::parallel;
use crate::process;
use crate::shard::{RecordRange, Shard};
use crate::storage::location::Location;
use std::sync::Arc;

/// Opening a file is mostly waiting, so there are more threads than cores; each small file costs about two reads.
const OPENERS: usize = 16;
/// Up to this many files, starting threads costs more than opening.
const FEW: usize = 4;

/// Opens files, in the given order, as one data set. The first error, in that order, is returned.
pub fn open_files(
    files: Vec<(Location, RecordRange)>,
    format: Option<&str>,
    options: ReadOptions,
    cx: &Cx<'_>,
) -> Result<Vec<Arc<Shard>>> {
    // A forked child starts no short-lived threads: for a new thread the C library may take the stack of one that was
    // ending in the parent at the moment of the fork, and free its thread-local memory a second time (seen with glibc
    // 2.36). Pools are started once, which makes it much rarer.
    let threads = if files.len() <= FEW || process::generation() > 0 { 1 } else { OPENERS };
    parallel::for_each(&files, threads, cx, |(location, range), cx| {
        Shard::open(location.clone(), *range, format, options, cx).map(Arc::new)
    })
}
