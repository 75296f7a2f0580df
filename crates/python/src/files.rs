//! `verify`, for paths, file objects and bytes.

use crate::errors::{Failure, external};
use crate::file_like::FileLike;
use crate::gil;
use crate::opening::{Opening, with_cx};
use crate::remote::Places;
use anyrecord::Cx;
use anyrecord::error::{Error, Result};
use anyrecord::series::Series;
use anyrecord::shard::RecordRange;
use anyrecord::storage::Storage;
use anyrecord::storage::buffered::Buffered;
use anyrecord::storage::location::Location;
use anyrecord::storage::memory::Memory;
use anyrecord::verify::Report;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Progress is reported, and Ctrl-C checked, once in this many bytes.
const STEP: u64 = 8 << 20;

/// Ranges of records: `(first, end or None)` of each. The end is not included.
type Parts = Vec<(u64, Option<u64>)>;

/// Reports progress and checks for signals, from time to time.
struct Steps<'a> {
    progress: Option<&'a Py<PyAny>>,
    /// The bytes of the files before this one.
    before: u64,
    /// How far the last report was.
    reported: u64,
}

impl Steps<'_> {
    /// So many bytes of a file of `size` bytes are verified.
    fn reach(&mut self, reached: u64, size: u64) -> Result<()> {
        let done = self.before + reached;
        if done < self.reported + STEP && reached < size {
            return Ok(());
        }
        self.reported = done;
        gil::attach(|py| {
            py.check_signals()?;
            self.progress.map_or(Ok(()), |call| call.call1(py, (done, size)).map(drop))
        })
        .map_err(external)
    }
}

/// Verifies files in order.
fn verify<'py>(
    py: Python<'py>,
    files: &[(Location, Parts)],
    opening: &Opening,
    progress: Option<&Py<PyAny>>,
) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let (format, reading) = (opening.format.as_deref(), opening.options());
    let mut steps = Steps { progress, before: 0, reported: 0 };
    let verify = |cx: &Cx<'_>| -> Result<Vec<_>> {
        let locations: Vec<_> = files.iter().map(|(location, _)| location).collect();
        let (mut opened, mut reports) = (Series::whole(&locations, format), Vec::new());
        for (_, parts) in files {
            let Some(file) = opened.next(cx)? else { break };
            let (file, size) = (Buffered::of(&file), file.storage.len());
            let parts: Vec<_> = parts.iter().map(|&(start, stop)| RecordRange { start, stop }).collect();
            let mut step = |reached| steps.reach(reached, size);
            let report = anyrecord::verify::verify(&file, format, &parts, &reading, cx, &mut step)?;
            reports.push((file.name().to_owned(), report));
            steps.before += size;
        }
        Ok(reports)
    };
    let reports = gil::detach(py, || with_cx(&reading.limits, verify)).map_err(Failure)?;
    reports.into_iter().map(|(name, report)| report_dict(py, &name, report)).collect()
}

fn verify_storage<'py>(
    py: Python<'py>,
    storage: Arc<dyn Storage>,
    options: &Opening,
    progress: Option<&Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    // Dropped with the GIL: the storage may hold a Python object.
    let files = [(Location::Handed(storage), vec![(0, None)])];
    let mut reports = verify(py, &files, options, progress)?;
    reports.pop().ok_or_else(|| Failure(Error::closed("there is no report")).into())
}

fn report_dict<'py>(py: Python<'py>, name: &str, report: Report) -> PyResult<Bound<'py, PyDict>> {
    let pairs = |ranges: &[Range<u64>]| ranges.iter().map(|r| (r.start, r.end)).collect::<Vec<_>>();
    let dict = PyDict::new(py);
    dict.set_item("name", name)?;
    dict.set_item("format", report.format)?;
    dict.set_item("file_bytes", report.file_bytes)?;
    dict.set_item("records", report.records)?;
    dict.set_item("chunks", report.chunks)?;
    dict.set_item("record_bytes", report.record_bytes)?;
    dict.set_item("decoded_bytes", report.decoded_bytes)?;
    dict.set_item("meta_bytes", report.meta_bytes)?;
    dict.set_item("unused", pairs(&report.unused))?;
    dict.set_item("unused_bytes", report.unused_bytes)?;
    dict.set_item("damaged", pairs(&report.damaged))?;
    dict.set_item("damaged_bytes", report.damaged_bytes)?;
    dict.set_item("problem_count", report.problem_count)?;
    let problems: Vec<PyErr> = report.problems.into_iter().map(|e| Failure(e).into()).collect();
    dict.set_item("problems", problems.iter().map(|e| e.value(py)).collect::<Vec<_>>())?;
    Ok(dict)
}

/// Verifies files: the path or URL of each, and the ranges of its records to count.
#[pyfunction]
#[pyo3(signature = (files, options, progress=None))]
pub fn verify_paths(
    py: Python<'_>,
    files: Vec<(PathBuf, Parts)>,
    options: Opening,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let places = Places::new(&options)?;
    places.prepare(files.iter().map(|(path, _)| path))?;
    let located = |(path, parts)| Ok((places.location(path)?, parts));
    let files = files.into_iter().map(located).collect::<PyResult<Vec<_>>>()?;
    verify(py, &files, &options, progress.as_ref())
}

/// Verifies a Python file object.
#[pyfunction]
#[pyo3(signature = (object, options, progress=None))]
pub fn verify_object<'py>(
    py: Python<'py>,
    object: Bound<'py, PyAny>,
    options: Opening,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    verify_storage(py, Arc::new(FileLike::new(&object)?), &options, progress.as_ref())
}

/// Verifies bytes in memory.
#[pyfunction]
#[pyo3(signature = (bytes, name, options, progress=None))]
pub fn verify_bytes(
    py: Python<'_>,
    bytes: PyBackedBytes,
    name: String,
    options: Opening,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyDict>> {
    verify_storage(py, Arc::new(Memory::new(name, bytes)), &options, progress.as_ref())
}
