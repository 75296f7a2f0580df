//! Opening many files at once: their tables are read in parallel, so that damage is an error at open.

use crate::error::{Error, Result};
use crate::format::ReadOptions;
use crate::parallel::start_helpers;
use crate::shard::{RecordRange, Shard};
use crate::storage::handles::Handles;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Opening a file is mostly waiting, so there are more threads than cores; each small file costs about two reads.
const OPENERS: usize = 16;

/// Opens local files, in the given order. The first error, in that order, is returned.
///
/// `interrupted` is asked from the calling thread now and then; an error from it stops the others.
pub fn open_files(
    files: Vec<(PathBuf, RecordRange)>,
    format: Option<&str>,
    options: ReadOptions,
    interrupted: &mut dyn FnMut() -> Result<()>,
) -> Result<Vec<Arc<Shard>>> {
    let handles = Handles::new(options.limits.open_files);
    let open = |(path, range): &(PathBuf, RecordRange)| {
        Shard::open(path.clone(), *range, format, options, handles.clone()).map(Arc::new)
    };
    // A few files are open sooner than threads are started.
    if files.len() <= 4 {
        return files
            .iter()
            .map(|file| {
                interrupted()?;
                open(file)
            })
            .collect();
    }
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = |mut check: Option<&mut dyn FnMut() -> Result<()>>| {
        let mut opened = Vec::new();
        while !stop.load(Relaxed) {
            if let Some(check) = &mut check
                && let Err(error) = check()
            {
                stop.store(true, Relaxed);
                return (opened, Some(error));
            }
            let at = next.fetch_add(1, Relaxed);
            let Some(file) = files.get(at) else { break };
            let shard = open(file);
            if shard.is_err() {
                stop.store(true, Relaxed);
            }
            opened.push((at, shard));
        }
        (opened, None)
    };
    let mut all = std::thread::scope(|scope| {
        let others = start_helpers(scope, OPENERS.min(files.len()) - 1, || work(None));
        let (mut all, interrupt) = work(Some(interrupted));
        for other in others {
            match other.join() {
                Ok((opened, _)) => all.extend(opened),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        interrupt.map_or(Ok(all), Err)
    })?;
    all.sort_unstable_by_key(|(at, _)| *at);
    let shards: Vec<_> = all.into_iter().map(|(_, shard)| shard).collect::<Result<_>>()?;
    if shards.len() == files.len() { Ok(shards) } else { Err(Error::closed("opening was stopped")) }
}
