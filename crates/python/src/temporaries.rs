//! Temporary files of writers that were killed. Python decides which targets are meant and what to do.

use crate::errors::Failure;
use crate::gil;
use anyrecord::error::Error;
use anyrecord::storage::stale::{self, Search, State, Wanted};
use anyrecord::storage::temporary;
use pyo3::prelude::*;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;

/// A temporary file: its path, the name of its target, its size, its writer, its number, whether it holds samples, its
/// state, and why the state is unknown.
type Found = (OsString, String, u64, String, u64, bool, &'static str, Option<&'static str>);

fn described(search: Search) -> (Vec<Found>, usize) {
    let describe = |file: stale::Temporary| {
        let (state, why) = match file.state {
            State::Stale => ("stale", None),
            State::Removed => ("removed", None),
            State::Alive => ("alive", None),
            State::Publishing => ("publishing", None),
            State::Unknown(why) => ("unknown", Some(why)),
        };
        (file.path.into(), file.target, file.bytes, file.writer, file.number, file.is_samples, state, why)
    };
    (search.found.into_iter().map(describe).collect(), search.names)
}

/// The temporary files in a folder, and how many names the folder has. `targets` are file names. None: all targets.
#[pyfunction]
pub fn find_temporaries(
    py: Python<'_>,
    folder: PathBuf,
    targets: Option<Vec<OsString>>,
) -> PyResult<(Vec<Found>, usize)> {
    let wanted = Wanted { folder: &folder, targets: targets.as_deref() };
    Ok(described(gil::detach(py, || stale::find(wanted)).map_err(Failure)?))
}

/// Like `find_temporaries`. Also removes the files of dead writers, or those of them that are in `chosen`.
#[pyfunction]
pub fn remove_temporaries(
    py: Python<'_>,
    folder: PathBuf,
    targets: Option<Vec<OsString>>,
    chosen: Option<HashSet<PathBuf>>,
) -> PyResult<(Vec<Found>, usize)> {
    let wanted = Wanted { folder: &folder, targets: targets.as_deref() };
    let is_chosen = |path: &std::path::Path| chosen.as_ref().is_none_or(|chosen| chosen.contains(path));
    Ok(described(gil::detach(py, || stale::remove(wanted, &is_chosen)).map_err(Failure)?))
}

/// The lock on a temporary folder, which shows that its process is alive.
#[pyclass(frozen, module = "anyrecord._core")]
pub struct FolderLock {
    _lock: Option<File>,
}

/// Creates a temporary folder beside `target`. Returns its path, and the lock on it.
#[pyfunction]
pub fn create_temporary_folder(target: PathBuf) -> PyResult<(OsString, FolderLock)> {
    let (path, lock) = temporary::create_folder(&target)
        .map_err(|e| Failure(Error::io("cannot create", e).in_file(&target.to_string_lossy())))?;
    Ok((path.into(), FolderLock { _lock: lock }))
}
