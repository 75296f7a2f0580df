//! Core errors as the exceptions of `anyrecord.errors`, with all that they know.

use anyrecord::{Error, Kind};
use pyo3::exceptions::{PyException, PyIndexError, PyMemoryError, PyOSError, PyStopIteration, PyValueError};
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;
use std::io::ErrorKind;

/// A core error on its way to Python. `?` turns one into a `PyErr`.
pub struct Failure(pub Error);

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        Python::attach(|py| exception(py, failure.0).unwrap_or_else(|e| e))
    }
}

/// A Python error on its way through the core; it comes out as it went in, unless it would be taken for an end.
pub fn external(error: PyErr) -> Error {
    let error = Python::attach(|py| not_an_end(py, error));
    Error::new(Kind::External(Box::new(error)), "a Python object failed")
}

/// An error of a caller's object or function. A `StopIteration` of theirs would end a loop over the records in silence;
/// it is a `RuntimeError`, as it is in a generator.
pub fn not_an_end(py: Python<'_>, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyStopIteration>(py) {
        return error;
    }
    let made = || -> PyResult<PyErr> {
        let make = py.import("anyrecord._calls")?.getattr("not_an_end")?;
        Ok(PyErr::from_value(make.call1((error.value(py),))?))
    };
    let told = made().unwrap_or_else(|failed| failed);
    told.set_cause(py, Some(error));
    told
}

fn exception(py: Python<'_>, error: Error) -> PyResult<PyErr> {
    let class = match error.kind() {
        Kind::Truncated => "TruncatedError",
        Kind::Checksum => "ChecksumError",
        Kind::Limit => "LimitError",
        Kind::Closed => "ClosedError",
        Kind::Argument => return Ok(PyValueError::new_err(error.to_string())),
        Kind::Memory => return Ok(PyMemoryError::new_err(error.to_string())),
        Kind::Index => return Ok(PyIndexError::new_err(error.to_string())),
        Kind::Io(_) => return Ok(os_error(&error)),
        Kind::External(_) => return Ok(inner(py, error)),
        _ => "FormatError",
    };
    let fields = [
        ("path", error.file().into_pyobject(py)?.into_any()),
        ("offset", error.offset().into_pyobject(py)?.into_any()),
        ("record", error.record().into_pyobject(py)?.into_any()),
        ("expected", error.expected_text().into_pyobject(py)?.into_any()),
        ("found", error.found_text().into_pyobject(py)?.into_any()),
    ];
    let class = py.import("anyrecord.errors")?.getattr(class)?;
    let value = class.call((error.to_string(),), Some(&fields.into_py_dict(py)?))?;
    Ok(PyErr::from_value(value))
}

/// The Python error inside, as it went in; with a note where the core knows which record it was about.
fn inner(py: Python<'_>, error: Error) -> PyErr {
    let text = error.to_string();
    let note = error
        .file()
        .zip(error.record())
        .map(|(file, record)| format!("while working on record {record} of {file}"));
    match error.into_kind() {
        Kind::External(inner) => match inner.downcast::<PyErr>() {
            Ok(error) => {
                if let Some(note) = note.filter(|_| error.is_instance_of::<PyException>(py)) {
                    // Without the note the error is still the right one.
                    let _ = add_note(py, &error, &note);
                }
                *error
            }
            Err(_) => PyOSError::new_err(text),
        },
        _ => PyOSError::new_err(text),
    }
}

fn add_note(py: Python<'_>, error: &PyErr, note: &str) -> PyResult<()> {
    py.import("anyrecord._calls")?.getattr("add_note")?.call1((error.value(py), note)).map(drop)
}

/// `OSError(errno, text, path)`, from which Python itself makes the right subclass.
fn os_error(error: &Error) -> PyErr {
    let Kind::Io(io) = error.kind() else { return PyOSError::new_err(error.to_string()) };
    let errno = io.raw_os_error().unwrap_or(match io.kind() {
        // Linux numbers, which are the same on every system that has these conditions.
        ErrorKind::NotFound => 2,
        ErrorKind::AlreadyExists => 17,
        ErrorKind::IsADirectory => 21,
        ErrorKind::InvalidInput => 22,
        _ => 5,
    });
    let text = error.to_string();
    match error.file() {
        // The path is an attribute of its own, and Python prints it behind the text.
        Some(path) => {
            PyOSError::new_err((errno, text.replacen(&format!(" in {path}"), "", 1), path.to_owned()))
        }
        None => PyOSError::new_err((errno, text)),
    }
}
