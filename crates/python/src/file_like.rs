//! Python file objects as storage and as output.
//!
//! The core calls these without the GIL. They take the lock of the file object first and then the GIL, so no thread holds the GIL while it
//! waits for the lock.

use crate::attributes::Name;
use crate::errors::{external, no_stop_iteration};
use crate::gil::{self, Kept};
use crate::owned::Owned;
use anyrecord::Cx;
use anyrecord::error::{Error, Result};
use anyrecord::storage::Storage;
use anyrecord::storage::output::Output;
use pyo3::exceptions::{PyBlockingIOError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

fn name_of(object: &Bound<'_, PyAny>) -> String {
    let name = object.getattr(Name("name")).and_then(|name| name.extract::<String>());
    // Not its `repr`, which contains an address: names should be the same in every process.
    name.unwrap_or_else(|_| {
        object.get_type().name().map_or("<file object>".into(), |t| format!("<{t} object>"))
    })
}

fn has_method(object: &Bound<'_, PyAny>, method: &str) -> PyResult<bool> {
    Ok(object.getattr_opt(Name(method))?.is_some_and(|m| m.is_callable()))
}

fn is_seekable(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if !has_method(object, "seek")? {
        return Ok(false);
    }
    match object.getattr_opt("seekable")? {
        Some(seekable) => seekable.call0()?.is_truthy(),
        None => Ok(true),
    }
}

/// A Python file object that is read from.
pub struct FileLike {
    /// The object has one position, so only one reader at a time may move it.
    object: Owned<Kept<Py<PyAny>>>,
    name: String,
    size: u64,
    process: u32,
}

impl FileLike {
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        gil::call(object.py(), || Self::over(object)).map_err(|error| no_stop_iteration(object.py(), error))
    }

    fn over(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if !has_method(object, "read")? {
            return Err(PyTypeError::new_err(format!(
                "expected a path, a list of paths, bytes, or a file object with read and seek, not {}",
                object.get_type().name()?
            )));
        }
        if !is_seekable(object)? {
            return Err(PyValueError::new_err(
                "the file object cannot seek, which random access needs; pass a path, or the bytes of the file",
            ));
        }
        if object.call_method1(Name("read"), (0,))?.cast::<PyBytes>().is_err() {
            return Err(PyTypeError::new_err(
                "the file object returns text, not bytes; open it in mode 'rb'",
            ));
        }
        object.call_method1(Name("seek"), (0, 2))?;
        let size = object.call_method0(Name("tell"))?.extract()?;
        let name = name_of(object);
        let object = Owned::new(Kept::new(object.clone().unbind()));
        Ok(FileLike { object, name, size, process: std::process::id() })
    }
}

impl Storage for FileLike {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> u64 {
        self.size
    }

    fn read_at(&self, at: u64, out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
        if std::process::id() != self.process {
            return Err(Error::closed("a file object's position is shared with the process that opened it")
                .in_file(&self.name)
                .hint("pass the path instead, or open the object in each process"));
        }
        cx.budget.files().stats.read(1, out.len() as u64);
        let object = self.object.lock_detached(cx.stop).map_err(|e| e.in_file(&self.name))?;
        gil::attach(|py| -> PyResult<usize> {
            let object = object.bind(py);
            object.call_method1(Name("seek"), (at,))?;
            let mut done = 0;
            while done < out.len() {
                let read = object.call_method1(Name("read"), (out.len() - done,))?;
                let piece = read.cast::<PyBytes>().map_err(PyErr::from)?.as_bytes();
                if piece.is_empty() {
                    break;
                }
                if piece.len() > out.len() - done {
                    return Err(PyValueError::new_err(format!(
                        "read() of the file object returned {} bytes, more than the {} that were requested",
                        piece.len(),
                        out.len() - done
                    )));
                }
                out[done..done + piece.len()].copy_from_slice(piece);
                done += piece.len();
            }
            Ok(done)
        })
        .map_err(external)
        .and_then(|done| {
            if done == out.len() {
                return Ok(());
            }
            Err(Error::truncated("the file object ends early")
                .in_file(&self.name)
                .at(at + done as u64)
                .expected(format_args!("{} bytes, as when it was opened", self.size))
                .found(format_args!("its end at byte {}", at + done as u64))
                .as_change())
        })
    }
}

/// A Python file object that is written to.
pub struct FileLikeOutput {
    object: Kept<Py<PyAny>>,
    name: String,
    position: u64,
    /// The position of the object at the beginning, if it can seek.
    base: Option<u64>,
}

impl FileLikeOutput {
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        gil::call(object.py(), || Self::over(object)).map_err(|error| no_stop_iteration(object.py(), error))
    }

    fn over(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if !has_method(object, "write")? {
            return Err(PyTypeError::new_err(format!(
                "expected a path or a file object with write, not {}",
                object.get_type().name()?
            )));
        }
        let io = object.py().import("io")?;
        if object.is_instance(&io.getattr(Name("TextIOBase"))?)? {
            return Err(PyTypeError::new_err("the file object takes text, not bytes; open it in mode 'wb'"));
        }
        // In append mode every write goes to the end, whatever the position is.
        let mode = object.getattr(Name("mode")).and_then(|mode| mode.extract::<String>()).unwrap_or_default();
        let base = if !mode.contains('a') && is_seekable(object)? {
            Some(object.call_method0(Name("tell"))?.extract()?)
        } else {
            None
        };
        let (name, object) = (name_of(object), Kept::new(object.clone().unbind()));
        Ok(FileLikeOutput { object, name, position: 0, base })
    }

    fn call(&self, act: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<()>) -> Result<()> {
        gil::attach(|py| act(self.object.bind(py))).map_err(external)
    }
}

/// Writes all of `bytes`, even if the object accepts only a part of them in each call.
fn write_all(object: &Bound<'_, PyAny>, mut bytes: &[u8]) -> PyResult<()> {
    while !bytes.is_empty() {
        let written = object.call_method1(Name("write"), (PyBytes::new(object.py(), bytes),))?;
        let written = match written.is_none() {
            // A raw file returns None if it would block. Many other objects return None after they wrote everything.
            true if object.is_instance(&object.py().import("io")?.getattr(Name("RawIOBase"))?)? => {
                // The number of EAGAIN differs between systems.
                let number = object.py().import("errno")?.getattr(Name("EAGAIN"))?.unbind();
                return Err(PyBlockingIOError::new_err((
                    number,
                    "the file object would block; wrap it in a buffered writer",
                )));
            }
            true => bytes.len(),
            false => written.extract::<usize>()?,
        };
        if written == 0 || written > bytes.len() {
            return Err(PyValueError::new_err(format!(
                "write() of the file object returned {written} for {} bytes; it must return how many it wrote",
                bytes.len()
            )));
        }
        bytes = &bytes[written..];
    }
    Ok(())
}

impl Output for FileLikeOutput {
    fn position(&self) -> u64 {
        self.position
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.call(|object| write_all(object, bytes))?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    fn can_patch(&self) -> bool {
        self.base.is_some()
    }

    fn skip(&mut self, length: u64) -> Result<()> {
        let Some(base) = self.base else {
            return Err(Error::argument("this output cannot seek").in_file(&self.name).at(self.position));
        };
        let position = self.position + length;
        self.call(|object| object.call_method1(Name("seek"), (base + position,)).map(drop))?;
        self.position = position;
        Ok(())
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let Some(base) = self.base else {
            return Err(Error::argument("this output cannot seek").in_file(&self.name).at(at));
        };
        self.call(|object| {
            object.call_method1(Name("seek"), (base + at,))?;
            write_all(object, bytes)?;
            object.call_method1(Name("seek"), (base + self.position,))?;
            Ok(())
        })
    }

    fn flush(&mut self) -> Result<()> {
        self.call(|object| {
            if let Some(flush) = object.getattr_opt("flush")? {
                flush.call0()?;
            }
            Ok(())
        })
    }
}
