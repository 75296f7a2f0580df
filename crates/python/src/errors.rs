//! Converts core errors to the exceptions of `anyrecord.errors`, with all their attributes.

use crate::attributes::Name;
use crate::gil::{self, Kept};
use anyrecord::{Error, Kind};
use pyo3::exceptions::{
    PyException, PyIndexError, PyMemoryError, PyOSError, PyRuntimeWarning, PyStopIteration, PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;
use std::ffi::CString;
use std::fmt::{Display, Formatter};
use std::io::ErrorKind;

/// A core error that `?` converts to a `PyErr`.
pub struct Failure(pub Error);

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        // Constructing an exception runs Python code.
        gil::call_here(|py| exception(py, failure.0).unwrap_or_else(|e| e))
    }
}

/// A Python error inside a core error.
#[derive(Debug)]
struct Raised {
    error: Kept<PyErr>,
    /// What the system said, if it is an `OSError`. It tells the core whether the disk failed.
    cause: Option<std::io::Error>,
}

impl Display for Raised {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Raised {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| cause as _)
    }
}

/// Wraps a Python error as a core error. It is converted back unchanged, except for a `StopIteration`.
pub fn external(error: PyErr) -> Error {
    let (error, cause) = gil::attach(|py| {
        let error = no_stop_iteration(py, error);
        let number = || error.value(py).getattr(Name("errno"))?.extract::<i32>();
        let number = if error.is_instance_of::<PyOSError>(py) { number().ok() } else { None };
        (error, number.map(std::io::Error::from_raw_os_error))
    });
    let raised = Raised { error: Kept::new(error), cause };
    Error::new(Kind::External(Box::new(raised)), "a Python object failed")
}

/// Replaces a `StopIteration` of a user's object or function by a `RuntimeError`, as a generator does. It would end a
/// loop over the records without an error.
pub fn no_stop_iteration(py: Python<'_>, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyStopIteration>(py) {
        return error;
    }
    let made = || -> PyResult<PyErr> {
        let make = py.import("anyrecord._calls")?.getattr(Name("stop_iteration_error"))?;
        Ok(PyErr::from_value(make.call1((error.value(py),))?))
    };
    let replaced = made().unwrap_or_else(|failed| failed);
    replaced.set_cause(py, Some(error));
    replaced
}

fn exception(py: Python<'_>, error: Error) -> PyResult<PyErr> {
    let class = match error.kind() {
        Kind::Truncated => "TruncatedError",
        Kind::Checksum => "ChecksumError",
        Kind::Limit => "LimitError",
        Kind::Closed => "ClosedError",
        Kind::Publish => "PublishError",
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
    let class = py.import("anyrecord.errors")?.getattr(Name(class))?;
    let value = class.call((error.to_string(),), Some(&fields.into_py_dict(py)?))?;
    Ok(PyErr::from_value(value))
}

/// The wrapped Python error. If the core knows the record, a note on the error names it.
fn inner(py: Python<'_>, error: Error) -> PyErr {
    let text = error.to_string();
    let note = error
        .file()
        .zip(error.record())
        .map(|(file, record)| format!("while working on record {record} of {file}"));
    match error.into_kind() {
        Kind::External(inner) => match inner.downcast::<Raised>() {
            Ok(raised) => {
                let error = raised.error.into_inner();
                if let Some(note) = note.filter(|_| error.is_instance_of::<PyException>(py)) {
                    // The note is optional: ignore a failure to add it.
                    let _ = add_note(py, &error, &note);
                }
                error
            }
            Err(_) => PyOSError::new_err(text),
        },
        _ => PyOSError::new_err(text),
    }
}

/// Adds a note to an error.
pub fn add_note(py: Python<'_>, error: &PyErr, note: &str) -> PyResult<()> {
    py.import("anyrecord._calls")?.getattr(Name("add_note"))?.call1((error.value(py), note)).map(drop)
}

/// `OSError(errno, text, path)`. Python chooses the subclass from the errno.
fn os_error(error: &Error) -> PyErr {
    let Kind::Io(io) = error.kind() else { return PyOSError::new_err(error.to_string()) };
    let text = error.to_string();
    let path = error.file().map(str::to_owned);
    // Python prints the path attribute after the text, so the path is removed from the text.
    let text =
        path.as_ref().map_or_else(|| text.clone(), |path| text.replacen(&format!(" in {path}"), "", 1));
    match (io.raw_os_error(), path) {
        // On Windows the code is not an errno. Python finds the matching errno if the code is the fourth argument.
        (Some(code), path) if cfg!(windows) => PyOSError::new_err((0, text, path, code)),
        (code, Some(path)) => PyOSError::new_err((code.unwrap_or_else(|| errno_of(io.kind())), text, path)),
        (code, None) => PyOSError::new_err((code.unwrap_or_else(|| errno_of(io.kind())), text)),
    }
}

/// The errno of an error that did not come from the system. Most have the same number on Linux, macOS and Windows.
fn errno_of(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::NotFound => 2,
        ErrorKind::Interrupted => 4,
        ErrorKind::OutOfMemory => 12,
        ErrorKind::PermissionDenied => 13,
        ErrorKind::AlreadyExists => 17,
        ErrorKind::NotADirectory => 20,
        ErrorKind::IsADirectory => 21,
        ErrorKind::InvalidInput => 22,
        ErrorKind::StorageFull => 28,
        ErrorKind::BrokenPipe => 32,
        ErrorKind::TimedOut if cfg!(target_os = "linux") => 110,
        ErrorKind::TimedOut if cfg!(windows) => 10060,
        ErrorKind::TimedOut => 60,
        _ => 5,
    }
}

/// Shows a `RuntimeWarning`. If warnings are errors, it is printed: what was going on has not failed.
pub fn warn(text: &str) {
    let Ok(text) = CString::new(text.replace('\0', "?")) else { return };
    gil::attach(|py| {
        if let Err(error) = PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 1) {
            error.write_unraisable(py, None);
        }
    });
}
