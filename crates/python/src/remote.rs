//! Locations from Python: local paths and URLs. Listings of object stores.

use crate::errors::Failure;
use crate::gil;
use crate::opening::{Opening, with_cx};
use crate::stored::StoredFile;
use anyrecord::storage::location::Location;
use anyrecord::storage::remote::list;
use anyrecord::storage::remote::open;
use anyrecord::storage::remote::options::StorageOptions;
use anyrecord::storage::remote::request::Identity;
use anyrecord::storage::remote::url::{RemoteUrl, scheme};
use anyrecord::{Cx, Limits};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;

/// What names of files are about.
pub struct Places {
    options: Arc<StorageOptions>,
    /// An `anyrecord._store_files.StoreFiles`. It reads all files.
    store: Option<Py<PyAny>>,
}

impl Places {
    pub fn new(opening: &Opening) -> PyResult<Self> {
        let options = StorageOptions::new(opening.storage.iter().cloned()).map_err(Failure)?;
        let store = gil::call_here(|py| opening.store.as_ref().map(|store| store.clone_ref(py)));
        Ok(Places { options: Arc::new(options), store })
    }

    /// Asks for the sizes of files in the store together.
    pub fn prepare<'p>(&self, paths: impl Iterator<Item = &'p PathBuf>) -> PyResult<()> {
        let Some(store) = &self.store else { return Ok(()) };
        let paths: Vec<_> = paths.filter_map(|path| path.to_str()).collect();
        gil::call_here(|py| store.call_method1(py, "ask_sizes", (paths,)).map(drop))
    }

    /// Where a file is: in the store if there is one, or else a URL, or else a local path.
    pub fn location(&self, path: PathBuf) -> PyResult<Location> {
        match (&self.store, path.to_str()) {
            (Some(store), Some(text)) => {
                Ok(Location::Handed(Arc::new(StoredFile::open(store, text.to_owned())?)))
            }
            (_, Some(text)) if scheme(text).is_some() => {
                let url = RemoteUrl::parse(text).map_err(Failure)?;
                Ok(Location::Url { url, options: self.options.clone() })
            }
            _ => Ok(Location::path(path)),
        }
    }
}

fn identities(py: Python<'_>, urls: &[String], storage: Vec<(String, String)>) -> PyResult<Vec<Identity>> {
    let (options, limits) = (StorageOptions::new(storage).map_err(Failure)?, Limits::default());
    let urls = urls.iter().map(|url| RemoteUrl::parse(url)).collect::<anyrecord::Result<Vec<_>>>();
    let urls = urls.map_err(Failure)?;
    let ask = |cx: &Cx<'_>| open::identities(urls, &Arc::new(options), &cx.budget.files().stats, cx);
    Ok(gil::detach(py, || with_cx(&limits, ask)).map_err(Failure)?)
}

/// The size of each object.
#[pyfunction]
pub fn object_sizes(py: Python<'_>, urls: Vec<String>, storage: Vec<(String, String)>) -> PyResult<Vec<u64>> {
    Ok(identities(py, &urls, storage)?.into_iter().map(|identity| identity.size).collect())
}

/// A text for each object, which is another one for another content.
#[pyfunction]
pub fn object_identities(
    py: Python<'_>,
    urls: Vec<String>,
    storage: Vec<(String, String)>,
) -> PyResult<Vec<String>> {
    Ok(identities(py, &urls, storage)?.iter().map(Identity::text).collect())
}

/// A URL, and the size of its object.
type ObjectSize = (String, u64);

/// What is under a URL: `(URL, size)` of each object, and the URL of each folder. `deep`: objects of all folders below.
#[pyfunction]
pub fn list_objects(
    py: Python<'_>,
    url: &str,
    deep: bool,
    storage: Vec<(String, String)>,
) -> PyResult<(Vec<ObjectSize>, Vec<String>)> {
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
