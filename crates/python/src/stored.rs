//! Objects that a Python object reads: of obstore stores and fsspec file systems.
//!
//! The Python object is an `anyrecord._store_files.StoreFiles`. One call of its `read` gets many ranges of an object.

use crate::attributes::Name;
use crate::errors::external;
use crate::gil::{self, Kept};
use anyrecord::Cx;
use anyrecord::error::{Error, Result};
use anyrecord::storage::{Distance, LOCAL, ReadOp, Storage};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

/// How far apart reads should be: a request costs as much time as many bytes.
const DISTANCE: Distance = Distance { first: 8 << 20, near: 1 << 20, largest: 16 << 20, ahead: 1, ..LOCAL };

/// An object that is read by Python code.
pub struct StoredFile {
    files: Kept<Py<PyAny>>,
    path: String,
    size: u64,
}

impl StoredFile {
    /// Asks for the size of an object, unless `files` knows it already.
    pub fn open(files: &Py<PyAny>, path: String) -> PyResult<Self> {
        let open = |py: Python<'_>| files.call_method1(py, "size", (&path,))?.extract(py);
        let size = gil::call_here(open)?;
        let files = gil::call_here(|py| files.clone_ref(py));
        Ok(StoredFile { files: Kept::new(files), path, size })
    }

    /// The file at another path of the same store, if there is one.
    fn other(&self, py: Python<'_>, path: String) -> Option<Self> {
        let size = self.files.call_method1(py, "size_if_any", (&path,)).ok()?.extract(py).ok()?;
        Some(StoredFile { files: Kept::new(self.files.clone_ref(py)), path, size })
    }
}

impl Storage for StoredFile {
    fn name(&self) -> &str {
        &self.path
    }

    fn len(&self) -> u64 {
        self.size
    }

    fn read_at(&self, at: u64, out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
        self.read_many(&mut [ReadOp { at, out }], cx)
    }

    fn read_many(&self, ops: &mut [ReadOp<'_>], cx: &Cx<'_>) -> Result<()> {
        cx.check()?;
        let end = |op: &ReadOp<'_>| op.at.saturating_add(op.out.len() as u64);
        if let Some(op) = ops.iter().find(|op| end(op) > self.size) {
            return Err(Error::truncated("the object is too short")
                .in_file(&self.path)
                .at(op.at)
                .expected(format_args!("{} bytes", op.out.len()))
                .found(format_args!("its end at byte {}", self.size)));
        }
        let ranges: Vec<_> = ops.iter().map(|op| (op.at, end(op))).collect();
        gil::attach(|py| -> PyResult<()> {
            let pieces = self.files.bind(py).call_method1(Name("read"), (&self.path, ranges))?;
            for (op, piece) in ops.iter_mut().zip(pieces.try_iter()?) {
                // `read` of the Python class has checked the number of pieces and their sizes.
                PyBuffer::<u8>::get(&piece?)?.copy_to_slice(py, op.out)?;
            }
            Ok(())
        })
        .map_err(external)
    }

    fn distance(&self) -> Distance {
        DISTANCE
    }

    fn beside(&self, name: &dyn Fn(&OsStr) -> OsString) -> Option<Arc<dyn Storage>> {
        let at = self.path.rfind('/').map_or(0, |slash| slash + 1);
        let renamed = name(OsStr::new(&self.path[at..])).into_string().ok()?;
        let path = format!("{}{renamed}", &self.path[..at]);
        gil::attach(|py| self.other(py, path)).map(|file| Arc::new(file) as Arc<dyn Storage>)
    }

    fn unchanged(&self) -> Result<()> {
        let check = |py: Python<'_>| self.files.call_method1(py, "check", (&self.path,)).map(drop);
        gil::attach(check).map_err(external)
    }
}
