//! `Writer`: writes records to a file. Python decides the names of shards and which files they replace.

use crate::creating::{Creating, object_target, options};
use crate::errors::{Failure, external};
use crate::file_like::FileLikeOutput;
use crate::finished::{FinishedFile, FinishedWithSum};
use crate::gil;
use crate::opening::{Opening, with_cx};
use crate::owned::{Held, Owned};
use anyrecord::error::Error;
use anyrecord::format::detect;
use anyrecord::storage::remote::upload::{Comparison, Uploading};
use anyrecord::storage::remote::url::scheme;
use anyrecord::storage::temporary::Owner;
use anyrecord::writer::SealedSet;
use anyrecord::writer::pool::Listen;
use anyrecord::writer::tally::Sum;
use anyrecord::{Cx, Limits};
use pyo3::exceptions::{PyRuntimeWarning, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

enum WriterState {
    Open(Box<anyrecord::writer::Writer>),
    Sealed(SealedSet),
    /// Published, discarded, or discarded after an error.
    Done(&'static str),
}

/// Records below this size are copied with the GIL held.
const QUICK: usize = 64 << 10;

/// Writes records. `anyrecord.create` returns one.
#[pyclass(frozen, subclass, module = "anyrecord._core")]
pub struct Writer {
    state: Owned<WriterState>,
    /// What was written. Also known after the writer is done.
    num_records: AtomicU64,
    num_bytes: AtomicU64,
    format: &'static str,
    /// Who owns the temporary files, as long as there are any.
    owner: Weak<Owner>,
    /// What the uploads of this writer share. It knows of uploads that could not be aborted.
    uploads: Option<Uploading>,
    /// The counts and hashes of the files, once they are complete.
    sums: OnceLock<Vec<Option<Sum>>>,
    /// What the store told of each object, once they are complete.
    comparisons: OnceLock<Vec<Option<Comparison>>>,
    /// Whether it is being discarded. A thread that waits in it stops then.
    is_discarded: Arc<AtomicBool>,
}

/// What a writer calls while it waits.
fn listen(is_discarded: &Arc<AtomicBool>) -> Listen {
    let is_discarded = is_discarded.clone();
    Listen(Arc::new(move || match is_discarded.load(Relaxed) {
        true => Err(Error::closed("this writer was discarded meanwhile")),
        false => gil::attach(|py| py.check_signals()).map_err(external),
    }))
}

impl Writer {
    /// Who owns the temporary files, as long as there are any.
    pub fn owner(&self) -> Option<Arc<Owner>> {
        self.owner.upgrade()
    }

    /// What the uploads of this writer share.
    pub fn uploads(&self) -> Option<&Uploading> {
        self.uploads.as_ref()
    }

    /// Warns of uploads that could not be aborted.
    pub fn warn_of_uploads(&self, py: Python<'_>) -> PyResult<()> {
        for note in self.uploads.iter().flat_map(Uploading::take_notes) {
            let text = std::ffi::CString::new(note).unwrap_or_default();
            PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 2)?;
        }
        Ok(())
    }

    fn lock(&self, py: Python<'_>) -> PyResult<Held<'_, WriterState>> {
        if !self.state.is_of_this_process() {
            return Err(Failure(
                Error::closed("a writer belongs to the process that created it")
                    .hint("create one in each process, each with its own path"),
            )
            .into());
        }
        Ok(self.state.lock(py).map_err(Failure)?)
    }

    /// Calls `act` with the writer, without the GIL. Returns an error if the writer is closed.
    pub fn with_open<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut anyrecord::writer::Writer) -> T + Send,
    ) -> PyResult<T> {
        let mut state = self.lock(py)?;
        let WriterState::Open(writer) = &mut *state else { return Err(Failure(done(&state)).into()) };
        let result = gil::detach(py, || act(writer));
        self.num_records.store(writer.num_records(), Relaxed);
        self.num_bytes.store(writer.num_bytes(), Relaxed);
        Ok(result)
    }

    /// Takes the sealed files, to publish them. Until `set_published` is called, the writer counts as failed.
    pub fn take_sealed(&self, py: Python<'_>) -> PyResult<SealedSet> {
        let mut state = self.lock(py)?;
        match std::mem::replace(&mut *state, WriterState::Done("discarded after an error")) {
            WriterState::Sealed(sealed) => Ok(sealed),
            other => {
                *state = other;
                Err(Failure(done(&state)).into())
            }
        }
    }

    /// Call it when the files of [`take_sealed`](Self::take_sealed) are published.
    pub fn set_published(&self, py: Python<'_>) -> PyResult<()> {
        *self.lock(py)? = WriterState::Done("closed");
        Ok(())
    }

    fn write_bytes(&self, py: Python<'_>, record: &[u8]) -> PyResult<()> {
        let mut state = self.lock(py)?;
        let WriterState::Open(writer) = &mut *state else { return Err(Failure(done(&state)).into()) };
        // A small record is copied into its group with the GIL held, because releasing and acquiring the GIL costs
        // more. A full group is encoded and written without the GIL.
        let written = if record.len() < QUICK && writer.is_quick(record.len()) {
            writer.push(record).and_then(|full| if full { gil::detach(py, || writer.work()) } else { Ok(()) })
        } else {
            gil::detach(py, || writer.write(record))
        };
        self.num_records.store(writer.num_records(), Relaxed);
        self.num_bytes.store(writer.num_bytes(), Relaxed);
        Ok(written.map_err(Failure)?)
    }
}

fn done(state: &WriterState) -> Error {
    match state {
        WriterState::Done(what) => Error::closed(format!("this writer was {what}")).hint("create a new one"),
        _ => Error::closed("this writer is closed").hint("create a new one"),
    }
}

/// Calls `act` with the bytes of any contiguous buffer.
pub fn with_bytes<T>(record: &Bound<'_, PyAny>, act: impl FnOnce(&[u8]) -> PyResult<T>) -> PyResult<T> {
    if let Ok(bytes) = record.cast::<PyBytes>() {
        return act(bytes.as_bytes());
    }
    let refused = || {
        let found = record.get_type().name().map_or_else(|_| "object".into(), |n| n.to_string());
        let hint = match found.as_str() {
            "str" => "; encode it first",
            "ndarray" | "memoryview" => {
                " that is not C-contiguous; pass a contiguous copy, for example of numpy.ascontiguousarray"
            }
            _ => "",
        };
        PyTypeError::new_err(format!(
            "a record must be bytes or another contiguous buffer, not {found}{hint}"
        ))
    };
    let mut view = ffi::Py_buffer::new();
    // SAFETY: `view` is filled by the call, which asks for one contiguous block of `len` bytes and for its format. It
    // is released after the last use of `bytes`. Another thread could write to the buffer while a large record is
    // copied without the GIL, as during the `write` of any file; the user must prevent that.
    unsafe {
        if ffi::PyObject_GetBuffer(record.as_ptr(), &mut view, ffi::PyBUF_C_CONTIGUOUS | ffi::PyBUF_FORMAT)
            != 0
        {
            let _ = PyErr::take(record.py());
            return Err(refused());
        }
        // The bytes of an array of objects are addresses, which are meaningless in a file.
        if !view.format.is_null() && CStr::from_ptr(view.format).to_bytes().contains(&b'O') {
            ffi::PyBuffer_Release(&mut view);
            return Err(PyTypeError::new_err(
                "an array of Python objects cannot be a record; convert it to bytes first",
            ));
        }
        let bytes: &[u8] = if view.len == 0 {
            &[]
        } else {
            std::slice::from_raw_parts(view.buf.cast::<u8>(), view.len as usize)
        };
        let result = act(bytes);
        ffi::PyBuffer_Release(&mut view);
        result
    }
}

#[pymethods]
impl Writer {
    /// A writer of a path or a URL (`str`), or of a file object.
    #[new]
    #[pyo3(signature = (target, creating, keywords))]
    fn new(
        py: Python<'_>,
        target: &Bound<'_, PyAny>,
        creating: Creating,
        keywords: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let is_discarded = Arc::new(AtomicBool::new(false));
        let options = options(&creating, keywords, listen(&is_discarded))?;
        let format = detect::by_name(&creating.format).map_err(Failure)?;
        let owner = Arc::downgrade(&options.owner);
        let mut uploads = None;
        let url = target.cast::<PyString>().ok().and_then(|text| text.extract::<String>().ok());
        let writer = if let Some(url) = url.filter(|text| scheme(text).is_some()) {
            let objects = object_target(&url, &creating, &options).map_err(Failure)?;
            uploads = Some(objects.uploading.clone());
            let create =
                |cx: &Cx<'_>| anyrecord::writer::Writer::create_objects(objects, format, options, cx);
            gil::detach(py, || with_cx(&Limits::default(), create))
        } else if target.is_instance_of::<PyString>() {
            let path: PathBuf = target.extract()?;
            gil::detach(py, || anyrecord::writer::Writer::create(&path, format, options))
        } else {
            let output = Box::new(FileLikeOutput::new(target)?);
            gil::detach(py, || anyrecord::writer::Writer::over(output, format, options))
        };
        let state = Owned::new(WriterState::Open(Box::new(writer.map_err(Failure)?)));
        Ok(Writer {
            state,
            num_records: AtomicU64::new(0),
            num_bytes: AtomicU64::new(0),
            format: format.name,
            owner,
            uploads,
            sums: OnceLock::new(),
            comparisons: OnceLock::new(),
            is_discarded,
        })
    }

    /// Writes one record: bytes, or all bytes of any contiguous buffer.
    fn write(&self, record: &Bound<'_, PyAny>) -> PyResult<()> {
        with_bytes(record, |bytes| self.write_bytes(record.py(), bytes))
    }

    /// Writes many records.
    fn write_many(&self, records: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, mut calling) = (records.py(), gil::Calling::new(records.py()));
        for (count, record) in records.try_iter()?.enumerate() {
            calling.check(py);
            // Iterating a list runs no Python code, so nothing else would check for Ctrl-C.
            if count % 1024 == 0 {
                py.check_signals()?;
            }
            self.write(&record?)?;
        }
        Ok(())
    }

    /// Begins the next shard. Only for `"explicit"` sharding.
    fn _begin_shard(&self, py: Python<'_>) -> PyResult<()> {
        Ok(self.with_open(py, |writer| writer.begin_shard())?.map_err(Failure)?)
    }

    /// Finishes all files under temporary names. Returns how many there are.
    fn _seal(&self, py: Python<'_>) -> PyResult<usize> {
        let mut state = self.lock(py)?;
        match std::mem::replace(&mut *state, WriterState::Done("discarded after an error")) {
            WriterState::Open(writer) => {
                let sealed = gil::detach(py, || writer.seal());
                self.warn_of_uploads(py)?;
                let sealed = sealed.map_err(Failure)?;
                let count = sealed.len();
                // Fails only if it was sealed before, which it was not.
                let _ = (self.sums.set(sealed.sums()), self.comparisons.set(sealed.comparisons()));
                *state = WriterState::Sealed(sealed);
                Ok(count)
            }
            WriterState::Sealed(sealed) => {
                let count = sealed.len();
                *state = WriterState::Sealed(sealed);
                Ok(count)
            }
            WriterState::Done(what) => {
                *state = WriterState::Done(what);
                Err(Failure(done(&state)).into())
            }
        }
    }

    /// Reads the sealed files and compares their records with what was written.
    fn _check(&self, py: Python<'_>, options: Opening, threads: usize) -> PyResult<()> {
        let state = self.lock(py)?;
        let WriterState::Sealed(sealed) = &*state else { return Err(Failure(done(&state)).into()) };
        let format = detect::by_name(self.format).map_err(Failure)?;
        let reading = options.options();
        let check = |cx: &Cx<'_>| sealed.check(format, &reading, threads, cx);
        let checked = gil::detach(py, || with_cx(&reading.limits, check));
        Ok(checked.map_err(Failure)?)
    }

    /// Where the bytes of the one sealed file are, and the sum of its records. None if no other process can take it.
    fn _finished(&self, py: Python<'_>) -> PyResult<Option<FinishedWithSum>> {
        let state = self.lock(py)?;
        let WriterState::Sealed(sealed) = &*state else { return Err(Failure(done(&state)).into()) };
        let found = sealed.finished().map_err(Failure)?;
        Ok(found.map(|(finished, sum)| (finished.into(), sum.map(|sum| (sum.records, sum.hash)))))
    }

    /// Whether the store has told the right checksum of every byte of all objects. Never before the bytes are sent: an
    /// object that is one request is sent when it is published.
    fn _is_compared(&self) -> bool {
        self.comparisons.get().is_some_and(|all| {
            !all.is_empty() && all.iter().all(|one| one.as_ref().is_some_and(Comparison::is_done))
        })
    }

    /// Takes a complete file that another process left: what `_finished` and `_is_compared` returned there.
    #[pyo3(signature = (finished, sum, is_compared = false))]
    fn _adopt(
        &self,
        py: Python<'_>,
        finished: FinishedFile,
        sum: Option<(u64, u64)>,
        is_compared: bool,
    ) -> PyResult<()> {
        let sum = sum.map(|(records, hash)| Sum { records, hash });
        let mut state = self.lock(py)?;
        match std::mem::replace(&mut *state, WriterState::Done("discarded after an error")) {
            WriterState::Open(writer) => {
                let sealed =
                    gil::detach(py, || writer.adopt(finished.into(), sum, is_compared)).map_err(Failure)?;
                let _ = (self.sums.set(sealed.sums()), self.comparisons.set(sealed.comparisons()));
                *state = WriterState::Sealed(sealed);
                Ok(())
            }
            other => {
                *state = other;
                Err(Failure(done(&state)).into())
            }
        }
    }

    /// Discards the writer, but leaves what a store has received of its file. Another process can adopt it.
    fn _leave(&self, py: Python<'_>) -> PyResult<()> {
        let sealed = self.take_sealed(py)?;
        gil::detach(py, || sealed.leave());
        Ok(())
    }

    /// Reads the published objects and compares their records with what was written.
    fn _check_published(
        &self,
        py: Python<'_>,
        urls: Vec<PathBuf>,
        options: Opening,
        threads: usize,
    ) -> PyResult<()> {
        let files = urls.into_iter().map(|url| (url, 0, None)).collect();
        let locations = options.locations(files)?.into_iter().map(|(location, _)| location);
        let sums = self.sums.get().into_iter().flatten().copied();
        let objects: Vec<_> = locations.zip(sums).collect();
        let format = detect::by_name(self.format).map_err(Failure)?;
        let reading = options.options();
        let check = |cx: &Cx<'_>| SealedSet::check_published(&objects, format, &reading, threads, cx);
        Ok(gil::detach(py, || with_cx(&reading.limits, check)).map_err(Failure)?)
    }

    /// Publishes the one sealed file under its name.
    fn _publish(&self, py: Python<'_>) -> PyResult<()> {
        let sealed = self.take_sealed(py)?;
        let published = gil::detach(py, || with_cx(&Limits::default(), |cx| sealed.publish(cx)));
        self.warn_of_uploads(py)?;
        published.map_err(Failure)?;
        self.set_published(py)
    }

    /// Discards everything. Returns whether there was anything to discard.
    fn _discard(&self, py: Python<'_>) -> PyResult<bool> {
        if !self.state.is_of_this_process() {
            return Ok(false);
        }
        self.is_discarded.store(true, Relaxed);
        let mut state = self.lock(py)?;
        let before = std::mem::replace(&mut *state, WriterState::Done("discarded"));
        if let WriterState::Done(what) = before {
            *state = WriterState::Done(what);
            return Ok(false);
        }
        gil::detach(py, || drop(before));
        self.warn_of_uploads(py)?;
        Ok(true)
    }

    /// Whether the writer is closed and takes no more records.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(!self.state.is_of_this_process() || !matches!(*self.lock(py)?, WriterState::Open(_)))
    }

    /// How many records were written so far.
    #[getter]
    fn num_records(&self) -> u64 {
        self.num_records.load(Relaxed)
    }

    /// How many bytes these records have.
    #[getter]
    fn num_bytes(&self) -> u64 {
        self.num_bytes.load(Relaxed)
    }

    /// Name of the format.
    #[getter]
    fn format(&self) -> &'static str {
        self.format
    }
}
