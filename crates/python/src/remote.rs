//! Locations from Python: local paths and URLs. Listings of object stores.

use crate::errors::Failure;
use crate::gil;
use crate::opening::with_cx;
use anyrecord::Limits;
use anyrecord::storage::location::Location;
use anyrecord::storage::remote::list;
use anyrecord::storage::remote::options::StorageOptions;
use anyrecord::storage::remote::url::{RemoteUrl, scheme};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a file is: a URL, or else a local path.
pub fn location(path: PathBuf, options: &Arc<StorageOptions>) -> anyrecord::Result<Location> {
    match path.to_str().filter(|text| scheme(text).is_some()) {
        Some(text) => Ok(Location::Url { url: RemoteUrl::parse(text)?, options: options.clone() }),
        None => Ok(Location::path(path)),
    }
}

/// What is under a URL: `(URL, size)` of each object, and the URL of each folder. `deep`: objects of all folders below.
#[pyfunction]
pub fn list_objects(
    py: Python<'_>,
    url: &str,
    deep: bool,
    storage: Vec<(String, String)>,
) -> PyResult<(Vec<(String, u64)>, Vec<String>)> {
    let url = RemoteUrl::parse(url).map_err(Failure)?;
    let (storage, limits) = (StorageOptions::new(storage).map_err(Failure)?, Limits::default());
    let listed = gil::detach(py, || {
        with_cx(&limits, |cx| list::list(&url, &storage, deep, &cx.budget.files().stats, cx))
    });
    let listed = listed.map_err(Failure)?;
    let objects = listed.objects.into_iter().map(|(url, size)| (url.as_given().to_owned(), size)).collect();
    Ok((objects, listed.folders.into_iter().map(|url| url.as_given().to_owned()).collect()))
}

/// Stores an object.
#[pyfunction]
pub fn put_object(py: Python<'_>, url: &str, bytes: Vec<u8>, storage: Vec<(String, String)>) -> PyResult<()> {
    let url = RemoteUrl::parse(url).map_err(Failure)?;
    let (storage, limits) = (StorageOptions::new(storage).map_err(Failure)?, Limits::default());
    let put = gil::detach(py, || {
        with_cx(&limits, |cx| {
            anyrecord::storage::remote::put::put(&url, &storage, bytes, &cx.budget.files().stats, cx)
        })
    });
    Ok(put.map_err(Failure)?)
}

/// The scheme of a text, if it is a URL. ValueError if there is no store for it.
#[pyfunction]
pub fn check_url(text: &str) -> PyResult<Option<String>> {
    let Some(found) = scheme(text) else { return Ok(None) };
    if !found.eq_ignore_ascii_case("file") {
        RemoteUrl::parse(text).map_err(Failure)?;
    }
    Ok(Some(found.to_ascii_lowercase()))
}
