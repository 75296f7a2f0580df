//! Sets of files that are published together, and their journals. Python decides the names of shards.

use crate::errors::{Failure, external};
use crate::gil;
use crate::writer::Writer;
use anyrecord::storage::journal::{self, Journal, Lock};
use anyrecord::storage::transaction::{self, Keep, NewSet};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;

/// Publishes the sealed files of all writers together. Returns the text of the error if files of the old
/// set could not be deleted after that.
///
/// `shards`: the names of the new files, and a function that returns the paths of the existing set. None: the files get
/// the names that they were created with, and replace existing files with these names.
#[pyfunction]
pub fn publish_set(
    py: Python<'_>,
    writers: Vec<Bound<'_, Writer>>,
    journal: PathBuf,
    overwrite: bool,
    shards: Option<(Vec<PathBuf>, Py<PyAny>)>,
) -> PyResult<Option<String>> {
    let mut sealed = Vec::new();
    for writer in &writers {
        sealed.extend(writer.get().take_sealed(py)?.into_files());
    }
    let (names, find) = match shards {
        Some((names, find)) => (names, Some(find)),
        None => (sealed.iter().map(|file| file.path().to_owned()).collect(), None),
    };
    let mut find_old = || match &find {
        Some(find) => gil::attach(|py| find.call0(py)?.extract(py)).map_err(external),
        None => Ok(names.iter().filter(|name| name.symlink_metadata().is_ok()).cloned().collect()),
    };
    let published = gil::detach(py, || {
        transaction::publish(NewSet {
            files: sealed.into_iter().zip(names.iter().cloned()).collect(),
            journal: &journal,
            overwrite,
            find_old: &mut find_old,
            step: &mut || gil::attach(|py| py.check_signals()).map_err(external),
        })
    });
    let left = published.map_err(Failure)?;
    for writer in &writers {
        writer.get().set_published(py)?;
    }
    Ok(left.map(|error| error.to_string()))
}

/// The path of the journal for the shards of `path`, or for files published together into the folder `path`.
#[pyfunction]
pub fn journal_path(path: PathBuf, is_folder: bool) -> OsString {
    if is_folder { journal::path_for_folder(&path) } else { journal::path_for_set(&path) }.into()
}

/// The names of the files in a journal. None if the journal does not exist.
#[pyfunction]
pub fn journal_names(path: PathBuf) -> PyResult<Option<Vec<OsString>>> {
    let journal = Journal::read(&path).map_err(Failure)?;
    Ok(journal.map(|journal| journal.names().map(OsString::from).collect()))
}

/// Raises the error which says that publishing this set was not finished.
#[pyfunction]
pub fn refuse_journal(path: PathBuf) -> PyResult<()> {
    Err(Failure(journal::unfinished(&path)).into())
}

/// Raises the error for a set that has a journal, unless a running process is publishing the set.
#[pyfunction]
pub fn refuse_interrupted(path: PathBuf) -> PyResult<()> {
    match journal::lock(&path).map_err(Failure)? {
        Lock::Held | Lock::Gone => Ok(()),
        Lock::Ours(_) | Lock::Unknown(_) => refuse_journal(path),
    }
}

/// Finishes or undoes an interrupted publish. Returns the visible files, or None if nothing was interrupted. If it is
/// not known which set to keep, an interrupted publish is an error.
#[pyfunction]
pub fn recover(py: Python<'_>, journal: PathBuf, keep_new: Option<bool>) -> PyResult<Option<Vec<OsString>>> {
    let keep = keep_new.map(|keep_new| if keep_new { Keep::New } else { Keep::Old });
    let files = gil::detach(py, || transaction::recover(&journal, keep)).map_err(Failure)?;
    Ok(files.map(|files| files.into_iter().map(OsString::from).collect()))
}
