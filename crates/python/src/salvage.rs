//! `salvage`, for paths, file objects and bytes.

use crate::attributes::from_attributes;
use crate::convert::Listener;
use crate::errors::Failure;
use crate::file_like::FileLike;
use crate::gil;
use crate::opening::{Opening, with_cx};
use crate::remote::Places;
use crate::writer::Writer;
use anyrecord::Cx;
use anyrecord::convert::{Shards, Split};
use anyrecord::error::Error;
use anyrecord::salvage::{Salvage, report::Report};
use anyrecord::series::Series;
use anyrecord::storage::Storage;
use anyrecord::storage::buffered::Buffered;
use anyrecord::storage::location::Location;
use anyrecord::storage::memory::Memory;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// The attributes of `anyrecord._salvage.Saving`.
pub struct Saving<'py> {
    /// None: records are only counted.
    writer: Option<Bound<'py, Writer>>,
    reading: Opening,
    strict: bool,
    threads: usize,
    /// `(shards, records)`, for shards with equal numbers of records.
    split: Option<(u64, u64)>,
    progress: Option<Py<PyAny>>,
    /// The total that is passed to `progress`.
    total: u64,
}

from_attributes!(Saving<'py> { writer, reading, strict, threads, split, progress, total });

/// Salvages the files in order. Returns a report for each.
fn salvage<'py>(
    py: Python<'py>,
    sources: Vec<Location>,
    saving: &Saving<'py>,
    total: u64,
) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let mut listener = Listener::new(saving.progress.as_ref(), total);
    let (format, reading) = (saving.reading.format.as_deref(), saving.reading.options());
    let split = saving.split.map(|(shards, records)| Split { shards, records });
    let (strict, threads) = (saving.strict, saving.threads);
    let mut save = |writer: Option<&mut anyrecord::writer::Writer>| {
        let shards = Shards::new(split);
        let progress = &mut |done| listener.step(done);
        let mut salvage = Salvage { writer, shards, strict, threads, progress, saved: 0, before: 0 };
        with_cx(&reading.limits, |cx: &Cx<'_>| -> anyrecord::Result<Vec<_>> {
            let mut reports = Vec::new();
            let locations: Vec<_> = sources.iter().collect();
            let mut files = Series::whole(&locations, format);
            while let Some(opened) = files.next(cx)? {
                let file = Buffered::of(&opened);
                reports.push((file.name().to_owned(), salvage.file(&file, format, &reading, cx)?));
            }
            if let Some(writer) = salvage.writer {
                salvage.shards.finish(writer)?;
            }
            Ok(reports)
        })
    };
    let saved = match &saving.writer {
        Some(writer) => writer.get().with_open(py, |writer| save(Some(writer)))?,
        None => gil::detach(py, || save(None)),
    };
    let reports = saved.map_err(Failure)?;
    reports.into_iter().map(|(name, report)| report_dict(py, &name, report)).collect()
}

fn report_dict<'py>(py: Python<'py>, name: &str, report: Report) -> PyResult<Bound<'py, PyDict>> {
    let pairs = |ranges: &[Range<u64>]| ranges.iter().map(|r| (r.start, r.end)).collect::<Vec<_>>();
    let dict = PyDict::new(py);
    dict.set_item("name", name)?;
    dict.set_item("format", report.format)?;
    dict.set_item("file_bytes", report.file_bytes)?;
    dict.set_item("records", report.records)?;
    dict.set_item("found_by_search", report.found_by_search)?;
    dict.set_item("found", pairs(&report.found))?;
    dict.set_item("skipped", pairs(&report.skipped))?;
    dict.set_item("skipped_count", report.skipped_count)?;
    dict.set_item("lost_bytes", report.lost_bytes)?;
    dict.set_item("unreadable_bytes", report.unreadable_bytes)?;
    let problems: Vec<PyErr> = report.problems.into_iter().map(|e| Failure(e).into()).collect();
    dict.set_item("problems", problems.iter().map(|e| e.value(py)).collect::<Vec<_>>())?;
    Ok(dict)
}

/// Salvages local files.
#[pyfunction]
pub fn salvage_paths<'py>(
    py: Python<'py>,
    paths: Vec<PathBuf>,
    saving: Saving<'py>,
) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let places = Places::new(&saving.reading)?;
    places.prepare(paths.iter())?;
    let locations = paths.into_iter().map(|path| places.location(path)).collect::<PyResult<_>>()?;
    salvage(py, locations, &saving, saving.total)
}

/// Salvages a Python file object.
#[pyfunction]
pub fn salvage_object<'py>(
    py: Python<'py>,
    object: Bound<'py, PyAny>,
    saving: Saving<'py>,
) -> PyResult<Bound<'py, PyDict>> {
    salvage_storage(py, Arc::new(FileLike::new(&object)?), &saving)
}

/// Salvages bytes in memory.
#[pyfunction]
pub fn salvage_bytes<'py>(
    py: Python<'py>,
    bytes: PyBackedBytes,
    name: String,
    saving: Saving<'py>,
) -> PyResult<Bound<'py, PyDict>> {
    salvage_storage(py, Arc::new(Memory::new(name, bytes)), &saving)
}

fn salvage_storage<'py>(
    py: Python<'py>,
    storage: Arc<dyn Storage>,
    saving: &Saving<'py>,
) -> PyResult<Bound<'py, PyDict>> {
    // A clone, so the last reference is dropped with the GIL: the storage may hold a Python object.
    let mut reports = salvage(py, vec![Location::Handed(storage.clone())], saving, storage.len())?;
    reports.pop().ok_or_else(|| Failure(Error::closed("there is no report")).into())
}
