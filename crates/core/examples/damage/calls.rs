//! Calls of the library that may take only so many steps, and what their errors have to say.

use anyrecord::format::ReadOptions;
use anyrecord::open::open_files;
use anyrecord::shard::RecordRange;
use anyrecord::storage::Storage;
use anyrecord::storage::file_set::FileSet;
use anyrecord::storage::location::Location;
use anyrecord::{Budget, Cx, Error, Kind, Limits, Reader, Result};
use std::cell::Cell;
use std::sync::Arc;

/// How often a call may ask whether it should stop. A call asks about once in 256 KiB of work, and the files are
/// smaller than 1 MiB, so a call that asks this often does not end.
const STEPS: u32 = 2000;
const TOO_MANY_STEPS: &str = "the call takes too many steps";

/// Opens a file of that format, or of the one that is detected.
pub fn open(storage: Arc<dyn Storage>, format: Option<&str>) -> Result<Reader> {
    let limits = Limits::default();
    let files = FileSet::new(&limits);
    let budget = Budget::new(&limits, &files);
    let steps = Steps::default();
    let stop = || steps.take();
    let cx = Cx { budget: &budget, stop: &stop };
    let file = (Location::Handed(storage), RecordRange::default());
    let shards = open_files(vec![file], format, ReadOptions::default(), &cx)?;
    Reader::new(shards, 0, Some(1))
}

/// Reads one record.
pub fn read(reader: &Reader, index: u64) -> Result<Vec<u8>> {
    let (budget, steps) = (reader.budget(), Steps::default());
    let stop = || steps.take();
    let cx = Cx { budget: &budget, stop: &stop };
    let plan = reader.plan(index, &cx)?;
    match plan.size()? {
        Some(size) => {
            let mut out = anyrecord::bytes::zeroed("record", size as u64)?;
            reader.read_into(&plan, &mut out, &cx)?;
            Ok(out)
        }
        None => Ok(reader.read_row(&plan, &cx)?.as_ref().to_vec()),
    }
}

/// Reads records that share a chunk.
pub fn read_together(reader: &Reader, indices: &[u64]) -> Result<Vec<Vec<u8>>> {
    let (budget, steps) = (reader.budget(), Steps::default());
    let stop = || steps.take();
    let mut out = Vec::new();
    reader.read_batch(indices, &mut out, &Cx { budget: &budget, stop: &stop })?;
    Ok(out)
}

/// Whether the file is in order, as far as `verify` can see.
pub fn verify(storage: &dyn Storage, format: Option<&str>) -> Result<bool> {
    let limits = Limits::default();
    let files = FileSet::new(&limits);
    let budget = Budget::new(&limits, &files);
    let steps = Steps::default();
    let stop = || steps.take();
    let cx = Cx { budget: &budget, stop: &stop };
    let parts = [RecordRange::default()];
    let report =
        anyrecord::verify::verify(storage, format, &parts, &ReadOptions::default(), &cx, &mut |_| Ok(()))?;
    report.problems.iter().try_for_each(|problem| match due(problem, storage.name(), None) {
        None => Ok(()),
        Some(missing) => Err(Error::argument(format!("a problem {missing}: {problem}"))),
    })?;
    Ok(report.is_ok())
}

/// What an error that is raised for a damaged file has to say and does not, as "without its path".
pub fn due(error: &Error, file: &str, record: Option<u64>) -> Option<&'static str> {
    if error.what() == TOO_MANY_STEPS {
        return Some("after too many steps");
    }
    if !matches!(error.kind(), Kind::Format | Kind::Truncated | Kind::Checksum | Kind::Limit) {
        return Some("of a kind that says nothing about the file");
    }
    if error.file() != Some(file) {
        return Some("without its path");
    }
    // The bytes are those of another format, or the file is empty: that is about no byte.
    let is_about_the_whole = ["wrong format", "the file is empty"].contains(&error.what());
    if error.offset().is_none() && !is_about_the_whole {
        return Some("without its offset");
    }
    if record.is_some() && error.record() != record {
        return Some("without its record");
    }
    None
}

/// Counts how often a call asks whether it should stop.
#[derive(Default)]
struct Steps(Cell<u32>);

impl Steps {
    fn take(&self) -> Result<()> {
        self.0.set(self.0.get() + 1);
        if self.0.get() > STEPS { Err(Error::closed(TOO_MANY_STEPS)) } else { Ok(()) }
    }
}
