//! Sets of objects that appear together, and their journals. Python decides the names of shards.

use crate::errors::{Failure, external};
use crate::gil;
use crate::opening::with_cx;
use crate::writer::Writer;
use anyrecord::error::Error;
use anyrecord::storage::remote::options::StorageOptions;
use anyrecord::storage::remote::upload::{journal as object_journal, set, single};
use anyrecord::storage::remote::url::RemoteUrl;
use anyrecord::storage::transaction::Keep;
use anyrecord::{Cx, Limits, Result};
use pyo3::prelude::*;
use std::sync::Arc;

fn parsed(urls: &[String]) -> Result<Vec<RemoteUrl>> {
    urls.iter().map(|url| RemoteUrl::parse(url)).collect()
}

fn options(storage: Vec<(String, String)>) -> Result<Arc<StorageOptions>> {
    StorageOptions::new(storage).map(Arc::new)
}

/// Publishes the sealed objects of all writers together.
///
/// `names`: the URLs of the new objects. `find_old`: a function that returns the URLs of the existing set.
#[pyfunction]
pub fn publish_objects(
    py: Python<'_>,
    writers: Vec<Bound<'_, Writer>>,
    journal: &str,
    overwrite: bool,
    names: Vec<String>,
    find_old: Py<PyAny>,
) -> PyResult<()> {
    let journal = RemoteUrl::parse(journal).map_err(Failure)?;
    let names = parsed(&names).map_err(Failure)?;
    let uploading = writers.first().and_then(|writer| writer.get().uploads().cloned());
    let uploading = uploading.ok_or_else(|| Failure(Error::closed("there is nothing to publish")))?;
    let mut objects = Vec::new();
    for writer in &writers {
        objects.extend(writer.get().take_sealed(py)?.into_objects());
    }
    let is_named =
        |((_, own), name): (&(_, Option<RemoteUrl>), &RemoteUrl)| own.as_ref().is_none_or(|own| own == name);
    if objects.len() != names.len() || !objects.iter().zip(&names).all(is_named) {
        return Err(Failure(Error::argument("the shards have other names than they were begun with")).into());
    }
    let mut find_old = || {
        let found: Vec<String> = gil::attach(|py| find_old.call0(py)?.extract(py)).map_err(external)?;
        parsed(&found)
    };
    let members = objects.into_iter().map(|(member, _)| member).zip(names).collect();
    let published = gil::detach(py, || {
        let find_old = &mut find_old;
        let set = set::NewSet { members, journal, overwrite, uploading, find_old };
        with_cx(&Limits::default(), |cx| set::publish(set, cx))
    });
    for writer in &writers {
        writer.get().warn_of_uploads(py)?;
    }
    published.map_err(Failure)?;
    writers.iter().try_for_each(|writer| writer.get().set_published(py))
}

/// The names of the objects in a journal, and the error for those who need one of them. None if there is no journal.
#[pyfunction]
pub fn read_object_journal(
    py: Python<'_>,
    url: &str,
    storage: Vec<(String, String)>,
) -> PyResult<Option<(Vec<String>, Py<PyAny>)>> {
    let (url, options) = (RemoteUrl::parse(url).map_err(Failure)?, options(storage).map_err(Failure)?);
    let read = |cx: &Cx<'_>| set::read_journal(&url, &options, cx);
    let journal = gil::detach(py, || with_cx(&Limits::default(), read)).map_err(Failure)?;
    let target = object_journal::target_of(&url);
    journal.map(|journal| told(py, url.shown(), &target, &journal)).transpose()
}

/// The same, for a journal that was read by other means. `name`: where it is. `target`: the name of the set.
#[pyfunction]
pub fn parse_object_journal(
    py: Python<'_>,
    name: &str,
    target: &str,
    bytes: &[u8],
) -> PyResult<Option<(Vec<String>, Py<PyAny>)>> {
    match object_journal::Journal::decode(bytes) {
        None if !object_journal::Journal::is_one(bytes) => Ok(None),
        Some(journal) => told(py, name, target, &journal).map(Some),
        None => Err(Failure(object_journal::unfinished(name, target, None)).into()),
    }
}

fn told(
    py: Python<'_>,
    name: &str,
    target: &str,
    journal: &object_journal::Journal,
) -> PyResult<(Vec<String>, Py<PyAny>)> {
    let error: PyErr = Failure(object_journal::unfinished(name, target, Some(journal))).into();
    Ok((journal.names().map(str::to_owned).collect(), error.into_value(py).into_any()))
}

/// Finishes or undoes an interrupted publish of objects. Returns the visible ones, or None if nothing was interrupted.
#[pyfunction]
pub fn recover_objects(
    py: Python<'_>,
    journal: &str,
    keep_new: Option<bool>,
    storage: Vec<(String, String)>,
) -> PyResult<Option<Vec<String>>> {
    let keep = keep_new.map(|keep_new| if keep_new { Keep::New } else { Keep::Old });
    let (url, options) = (RemoteUrl::parse(journal).map_err(Failure)?, options(storage).map_err(Failure)?);
    let recover = |cx: &Cx<'_>| set::recover(&url, &options, keep, cx);
    let found = gil::detach(py, || with_cx(&Limits::default(), recover)).map_err(Failure)?;
    Ok(found.map(|urls| urls.iter().map(|url| url.as_given().to_owned()).collect()))
}

/// Deletes objects. Those that do not exist are no error.
#[pyfunction]
pub fn delete_objects(py: Python<'_>, urls: Vec<String>, storage: Vec<(String, String)>) -> PyResult<()> {
    let (urls, options) = (parsed(&urls).map_err(Failure)?, options(storage).map_err(Failure)?);
    let delete = |cx: &Cx<'_>| set::delete(&urls, &options, cx);
    Ok(gil::detach(py, || with_cx(&Limits::default(), delete)).map_err(Failure)?)
}

/// The bytes of a small object. None if it does not exist.
#[pyfunction]
pub fn read_object(py: Python<'_>, url: &str, storage: Vec<(String, String)>) -> PyResult<Option<Vec<u8>>> {
    let (url, options) = (RemoteUrl::parse(url).map_err(Failure)?, options(storage).map_err(Failure)?);
    let read = |cx: &Cx<'_>| single::read(&url, &options, cx);
    Ok(gil::detach(py, || with_cx(&Limits::default(), read)).map_err(Failure)?)
}

/// Lets a store forget the parts of an upload. One that does not exist is no error.
#[pyfunction]
pub fn abort_upload(py: Python<'_>, url: &str, id: &str, storage: Vec<(String, String)>) -> PyResult<()> {
    let (url, options) = (RemoteUrl::parse(url).map_err(Failure)?, options(storage).map_err(Failure)?);
    let abort = |cx: &Cx<'_>| single::abort(&url, id, &options, cx);
    Ok(gil::detach(py, || with_cx(&Limits::default(), abort)).map_err(Failure)?)
}
