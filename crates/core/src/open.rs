//! Opening many files at once: their tables are read in parallel, so that damage is an error at open.

use crate::cx::Cx;
use crate::error::Result;
use crate::format::ReadOptions;
use crate::parallel;
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
    let threads = if files.len() <= FEW { 1 } else { OPENERS };
    parallel::for_each(&files, threads, cx, |(location, range), cx| {
        Shard::open(location.clone(), *range, format, options, cx).map(Arc::new)
    })
}
