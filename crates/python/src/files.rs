//! `verify`, for paths, file objects and bytes.

use crate::errors::{Failure, external};
use crate::file_like::FileLike;
use crate::gil;
use crate::opening::{Opening, with_cx};
use crate::remote::Places;
use anyrecord::Cx;
use anyrecord::shard::RecordRange;
use anyrecord::storage::Storage;
use anyrecord::storage::file::Io;
use anyrecord::storage::memory::Memory;
use anyrecord::storage::remote::open::FirstPart;
use anyrecord::verify::Report;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;
use std::ops::Range;
use std::path::PathBuf;

/// Progress is reported, and Ctrl-C checked, once in this many bytes.
const STEP: u64 = 8 << 20;

/// Ranges of records: `(first, end or None)` of each. The end is not included.
type Parts = Vec<(u64, Option<u64>)>;

fn verify<'py>(
    py: Python<'py>,
    storage: &dyn Storage,
    parts: Parts,
    opening: &Opening,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let (size, mut reported) = (storage.len(), 0);
    let mut step = |reached: u64| {
        if reached < reported + STEP && reached < size {
            return Ok(());
        }
        reported = reached;
        gil::attach(|py| {
            py.check_signals()?;
            progress.as_ref().map_or(Ok(()), |call| call.call1(py, (reached, size)).map(drop))
        })
        .map_err(external)
    };
    let parts: Vec<_> = parts.into_iter().map(|(start, stop)| RecordRange { start, stop }).collect();
    let (format, reading) = (opening.format.as_deref(), opening.options());
    let verify = |cx: &Cx<'_>| anyrecord::verify::verify(storage, format, &parts, &reading, cx, &mut step);
    let report = gil::detach(py, || with_cx(&reading.limits, verify));
    report_dict(py, storage.name(), report.map_err(Failure)?)
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

/// Verifies a local file.
#[pyfunction]
#[pyo3(signature = (path, parts, options, progress=None))]
pub fn verify_path(
    py: Python<'_>,
    path: PathBuf,
    parts: Parts,
    options: Opening,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyDict>> {
    let location = Places::new(&options)?.location(path)?;
    let open = |cx: &Cx<'_>| location.open(Io::Plain, FirstPart::Beginning, cx);
    let file = gil::detach(py, || with_cx(&options.options().limits, open)).map_err(Failure)?;
    verify(py, &*file.storage, parts, &options, progress)
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
    verify(py, &FileLike::new(&object)?, vec![(0, None)], &options, progress)
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
    verify(py, &Memory::new(name, bytes), vec![(0, None)], &options, progress)
}
