//! Core errors as the exceptions of `anyrecord.errors`, with all that they know.

use crate::gil::{self, Kept};
use anyrecord::{Error, Kind};
use pyo3::exceptions::{PyIndexError, PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;
use std::io::ErrorKind;

/// A core error on its way to Python. `?` turns one into a `PyErr`.
pub struct Failure(pub Error);

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        // Making an exception runs Python code.
        gil::call_here(|py| exception(py, failure.0).unwrap_or_else(|e| e))
    }
}

/// A Python error on its way through the core; it comes out as it went in.
pub fn external(error: PyErr) -> Error {
    Error::new(Kind::External(Box::new(Kept::new(error))), "a Python object failed")
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
        Kind::External(_) => return Ok(inner(error)),
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

/// The Python error inside, as it went in.
fn inner(error: Error) -> PyErr {
    let text = error.to_string();
    match error.into_kind() {
        Kind::External(inner) => match inner.downcast::<Kept<PyErr>>() {
            Ok(error) => error.into_inner(),
            Err(_) => PyOSError::new_err(text),
        },
        _ => PyOSError::new_err(text),
    }
}

/// `OSError(errno, text, path)`, from which Python itself makes the right subclass.
fn os_error(error: &Error) -> PyErr {
    let Kind::Io(io) = error.kind() else { return PyOSError::new_err(error.to_string()) };
    // The path is an attribute of its own, and Python prints it behind the text.
    let path = error.file().map(str::to_owned);
    let text = match &path {
        Some(path) => error.to_string().replacen(&format!(" in {path}"), "", 1),
        None => error.to_string(),
    };
    // On Windows the system's number is no errno, and Python makes one of it.
    if let Some(number) = io.raw_os_error().filter(|_| cfg!(windows)) {
        return PyOSError::new_err((0, text, path, number));
    }
    let errno = io.raw_os_error().unwrap_or(match io.kind() {
        // Linux numbers, which are the same on every system that has these conditions.
        ErrorKind::NotFound => 2,
        ErrorKind::AlreadyExists => 17,
        ErrorKind::IsADirectory => 21,
        ErrorKind::InvalidInput => 22,
        _ => 5,
    });
    match path {
        Some(path) => PyOSError::new_err((errno, text, path)),
        None => PyOSError::new_err((errno, text)),
    }
}
