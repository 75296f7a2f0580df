//! Opens paths and objects as a `Source`: the files of a data set and a view of their records.

use crate::attributes::{Name, from_attributes};
use crate::damage::Policy;
use crate::errors::Failure;
use crate::file_like::FileLike;
use crate::gil;
use crate::interrupts::{self, Interrupts};
use crate::remote::Places;
use anyrecord::format::{ReadOptions, Table, TableHome};
use anyrecord::reader::Reader;
use anyrecord::shard::{RecordRange, Shard, Source as OpenSource};
use anyrecord::storage::Storage;
#[cfg(unix)]
use anyrecord::storage::cache::store::Cache;
use anyrecord::storage::file::Io;
use anyrecord::storage::file_set::FileSet;
use anyrecord::storage::location::Location;
use anyrecord::storage::memory::Memory;
use anyrecord::view::View;
use anyrecord::{Budget, Cx, Limits};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use std::collections::HashSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// Opened files and a view of their records. `Records` is built on it.
#[pyclass(frozen, module = "anyrecord._core")]
pub struct Source {
    pub reader: Arc<Reader>,
    pub view: View,
    /// The Python object that [`Opening`] was read from. A pickle of the records contains it.
    pub options: Py<PyAny>,
    /// What happens to damaged records. None: they are errors.
    pub policy: Option<Arc<Policy>>,
}

/// The attributes of `anyrecord._options.OpenOptions`.
pub struct Opening {
    pub format: Option<String>,
    pub checksums: bool,
    pub once: bool,
    pub table: String,
    pub io: String,
    pub decoded_chunk_bytes: u64,
    pub decoded_bytes: u64,
    pub spool_bytes: u64,
    pub open_files: usize,
    pub cache_bytes: usize,
    pub cache: Option<(PathBuf, Option<u64>)>,
    pub threads: Option<usize>,
    pub reads_on: bool,
    pub storage: Vec<(String, String)>,
    pub store: Option<Py<PyAny>>,
}

from_attributes!(Opening {
    format,
    checksums,
    once,
    table,
    io,
    decoded_chunk_bytes,
    decoded_bytes,
    spool_bytes,
    open_files,
    cache_bytes,
    cache,
    threads,
    reads_on,
    storage,
    store
});

impl Opening {
    /// The locations of files: paths and URLs.
    pub fn locations(
        &self,
        files: Vec<(PathBuf, u64, Option<u64>)>,
    ) -> PyResult<Vec<(Location, RecordRange)>> {
        let places = Places::new(self)?;
        places.prepare(files.iter().map(|(path, ..)| path))?;
        let files = files.into_iter();
        files.map(|(path, start, stop)| Ok((places.location(path)?, RecordRange { start, stop }))).collect()
    }

    /// What the files share. With the local cache, if there is one.
    pub fn file_set(&self, limits: &Limits) -> PyResult<Arc<FileSet>> {
        let Some((folder, limit)) = &self.cache else { return Ok(FileSet::new(limits)) };
        #[cfg(unix)]
        {
            let cache = Python::attach(|py| gil::detach(py, || Cache::open(folder, *limit)));
            let cache = cache.map_err(Failure)?;
            Ok(FileSet::with_cache(limits, Some(cache)))
        }
        #[cfg(not(unix))]
        {
            let _ = (folder, limit);
            Err(PyValueError::new_err("cache= is not available on this system"))
        }
    }

    pub fn options(&self) -> ReadOptions {
        ReadOptions {
            checksums: self.checksums,
            once: self.once,
            table: if self.table == "disk" { TableHome::Disk } else { TableHome::Memory },
            io: match self.io.as_str() {
                "plain" => Io::Plain,
                "map" => Io::Map,
                "direct" => Io::Direct,
                _ => Io::Auto,
            },
            limits: Limits {
                decoded_chunk_bytes: self.decoded_chunk_bytes,
                decoded_bytes: self.decoded_bytes,
                spool_bytes: self.spool_bytes,
                open_files: self.open_files,
            },
            reads_on: self.reads_on,
        }
    }
}

/// Calls `act` in the context of a call that opens files: with a new budget, and interruptible by Ctrl-C.
pub fn with_cx<T>(limits: &Limits, act: impl FnOnce(&Cx<'_>) -> T) -> T {
    with_files(limits, &FileSet::new(limits), act)
}

fn with_files<T>(limits: &Limits, files: &Arc<FileSet>, act: impl FnOnce(&Cx<'_>) -> T) -> T {
    let stop = Interrupts::default();
    act(&Cx { budget: &Budget::new(limits, files), stop: &stop })
}

fn source(shards: Vec<Arc<Shard>>, options: &Bound<'_, PyAny>) -> PyResult<Source> {
    let opening: Opening = options.extract()?;
    let reader = Reader::new(shards, opening.cache_bytes, opening.threads).map_err(Failure)?;
    let view = View::all(reader.len());
    let policy = Policy::new(options, vec![reader.len()])?;
    Ok(Source { reader: Arc::new(reader), view, options: options.clone().unbind(), policy })
}

/// Opens files: `(path or URL, first record, end or None)` of each. The end is not included.
#[pyfunction]
pub fn open_paths(
    py: Python<'_>,
    files: Vec<(PathBuf, u64, Option<u64>)>,
    options: &Bound<'_, PyAny>,
) -> PyResult<Source> {
    let opening: Opening = options.extract()?;
    let files = opening.locations(files)?;
    let (format, reading) = (opening.format.as_deref(), opening.options());
    // Local files do without the cache, and do not make its folder.
    let has_objects = files.iter().any(|(location, _)| location.as_url().is_some());
    let shared = if has_objects { opening.file_set(&reading.limits)? } else { FileSet::new(&reading.limits) };
    let open = |cx: &Cx<'_>| anyrecord::open::open_files(files, format, reading, cx);
    let opened = gil::detach(py, || with_files(&reading.limits, &shared, open));
    source(opened.map_err(Failure)?, options)
}

fn open_storage(py: Python<'_>, storage: Arc<dyn Storage>, options: &Bound<'_, PyAny>) -> PyResult<Source> {
    let opening: Opening = options.extract()?;
    let (format, reading) = (opening.format.as_deref(), opening.options());
    // A clone, so the last reference is dropped with the GIL: the storage may hold a Python object.
    let location = Location::Handed(storage.clone());
    let open = |cx: &Cx<'_>| Shard::open(location, RecordRange::default(), format, reading, cx);
    let shard = gil::detach(py, || with_cx(&reading.limits, open));
    source(vec![Arc::new(shard.map_err(Failure)?)], options)
}

/// Opens a Python file object that can seek.
#[pyfunction]
pub fn open_object(py: Python<'_>, object: Bound<'_, PyAny>, options: &Bound<'_, PyAny>) -> PyResult<Source> {
    let storage = Arc::new(FileLike::new(&object)?);
    open_storage(py, storage, options)
}

/// Opens the bytes of a file that is in memory.
#[pyfunction]
pub fn open_bytes(
    py: Python<'_>,
    bytes: PyBackedBytes,
    name: String,
    options: &Bound<'_, PyAny>,
) -> PyResult<Source> {
    open_storage(py, Arc::new(Memory::new(name, bytes)), options)
}

/// An entry of [`Source::files`].
type NamedFile = (OsString, u64, u64, String, Option<OsString>);

/// An entry of [`Source::files`], as a pickle stores it.
type SavedFile = (PathBuf, u64, u64, String);

/// Builds a source from a pickle. Files are opened when they are first read. `origins`: see [`Source::origins`].
#[pyfunction]
pub fn restore(
    files: Vec<SavedFile>,
    view: Vec<i128>,
    options: &Bound<'_, PyAny>,
    origins: Vec<u64>,
) -> PyResult<Source> {
    let opening: Opening = options.extract()?;
    let reading = opening.options();
    let places = Places::new(&opening)?;
    let mut shards = Vec::with_capacity(files.len());
    let files = files
        .into_iter()
        .map(|(path, first, records, format)| Ok((places.location(path)?, first, records, format)));
    let files = files.collect::<PyResult<Vec<_>>>()?;
    let has_objects = files.iter().any(|(location, ..)| location.as_url().is_some());
    let shared = if has_objects { opening.file_set(&reading.limits)? } else { FileSet::new(&reading.limits) };
    for (location, first, records, format) in files {
        shards.push(Arc::new(Shard::later(location, first, records, &format, reading, shared.clone())));
    }
    let mut source = source(shards, options)?;
    source.view = View::from_numbers(&view, source.reader.len()).map_err(Failure)?;
    if !origins.is_empty() {
        source.policy = Policy::new(options, origins)?;
    }
    Ok(source)
}

/// How many chunks hold the records of a shard.
fn chunks_of(shard: &Shard, table: &dyn Table) -> anyrecord::Result<u64> {
    let Some(last) = shard.records().checked_sub(1) else { return Ok(0) };
    if shard.records() == table.records() {
        return Ok(table.chunks());
    }
    let (first, last) = (table.locate(shard.first())?.0, table.locate(shard.first() + last)?.0);
    Ok(last.index - first.index + 1)
}

impl Source {
    /// Opens the objects that are not open yet, together.
    fn open_all(&self) -> anyrecord::Result<()> {
        let shards = 0..self.reader.shards().len();
        interrupts::with_cx(&self.reader, |cx| self.reader.open_objects(shards, cx))
    }

    fn warnings_of(
        &self,
        warning: impl Fn(&OpenSource) -> Option<&'static str>,
    ) -> PyResult<Vec<(String, &'static str)>> {
        let mut found = Vec::new();
        self.open_all().map_err(Failure)?;
        for shard in self.reader.shards() {
            let source = interrupts::with_cx(&self.reader, |cx| shard.source(cx)).map_err(Failure)?;
            found.extend(warning(source).map(|warning| (shard.name(), warning)));
        }
        Ok(found)
    }
}

#[pymethods]
impl Source {
    /// The options it was opened with.
    #[getter]
    fn options(&self, py: Python<'_>) -> Py<PyAny> {
        self.options.clone_ref(py)
    }

    /// The end of each data set that was opened by itself, as a record number. Only if damaged records are not errors.
    fn origins(&self) -> Vec<u64> {
        self.policy.as_ref().map_or_else(Vec::new, |policy| policy.origins().to_vec())
    }

    /// The damaged records so far: `(path, number in the file, number in the source, error)`.
    fn skipped(&self) -> PyResult<Vec<(String, u64, u64, String)>> {
        self.policy.as_ref().map_or_else(|| Ok(Vec::new()), |policy| policy.listed(&self.reader))
    }

    /// Reports `options` to the garbage collector: `on_error` may be a method of an object that holds these records.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.options)
    }

    /// The view as numbers.
    fn view_numbers(&self) -> Vec<i128> {
        self.view.to_numbers()
    }

    /// `(path or name, first record, records, format, absolute path)` of each file. The last is None if it has no path.
    fn files(&self, py: Python<'_>) -> PyResult<Vec<NamedFile>> {
        // The names in a store are paths: together with the options, they can be opened again.
        let is_stored = !self.options.getattr(py, Name("store"))?.is_none(py);
        let named = |s: &Shard| s.path().map_or_else(|| s.name().into(), |path| path.into());
        let absolute = |s: &Shard| match s.location().as_url() {
            Some(url) => Some(url.as_given().into()),
            None if is_stored => Some(s.name().into()),
            None => s.absolute().map(Into::into),
        };
        let shards = self.reader.shards().iter();
        Ok(shards.map(|s| (named(s), s.first(), s.records(), s.format().to_owned(), absolute(s))).collect())
    }

    /// `(path, warning)` of each file whose format has a warning.
    fn warnings(&self) -> PyResult<Vec<(String, &'static str)>> {
        self.warnings_of(|source| source.table.warning())
    }

    /// `(path, warning)` of each file that is not read in the way that was asked for.
    fn storage_warnings(&self) -> PyResult<Vec<(String, &'static str)>> {
        self.warnings_of(|source| source.warning())
    }

    /// `(format, records, chunks, file bytes, record bytes, decoded bytes, codec, options)` of each file. For a range,
    /// records and chunks are those of the range.
    #[expect(clippy::type_complexity, reason = "unpacked at once by the one Python caller")]
    fn descriptions(
        &self,
    ) -> PyResult<Vec<(&'static str, u64, u64, u64, u64, Option<u64>, Option<String>, Option<String>)>> {
        let mut found = Vec::new();
        self.open_all().map_err(Failure)?;
        for shard in self.reader.shards() {
            let source = interrupts::with_cx(&self.reader, |cx| shard.source(cx)).map_err(Failure)?;
            let about = source.table.describe();
            let (name, size) = (source.format.name, source.storage().len());
            let chunks = chunks_of(shard, &*source.table).map_err(Failure)?;
            let sizes = (about.record_bytes, about.decoded_bytes);
            found.push((name, shard.records(), chunks, size, sizes.0, sizes.1, about.codec, about.options));
        }
        Ok(found)
    }

    /// The counters of what was read, by their names. Data sets that were opened by themselves are added up.
    fn stats(&self) -> Vec<(&'static str, u64)> {
        let mut counts = self.reader.stats().to_vec();
        let files = self.reader.shards().iter().map(|shard| shard.files());
        let mut seen = HashSet::from([Arc::as_ptr(self.reader.budget().files())]);
        for other in files.filter(|files| seen.insert(Arc::as_ptr(files))) {
            for (sum, (_, count)) in counts.iter_mut().zip(other.stats.counts()) {
                sum.1 += count;
            }
        }
        counts
    }

    /// How many bytes are in memory because they were fetched ahead, or are on their way.
    fn ahead_bytes(&self) -> u64 {
        self.reader.ahead_bytes()
    }

    /// Closes the files and frees the caches. Reading is an error after that.
    fn close(&self, py: Python<'_>) {
        gil::detach(py, || self.reader.close());
    }

    #[getter]
    fn closed(&self) -> bool {
        self.reader.is_closed()
    }
}
