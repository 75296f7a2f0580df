//! The iterator of `Records`: reads ahead in batches, so that each record costs little more than handing it over.

use crate::errors::Failure;
use crate::records::{read_many, read_one};
use anyrecord::reader::Reader;
use anyrecord::view::View;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyBytes;
use std::sync::{Arc, Mutex};

/// How far it reads ahead at the most, in records and (about) in bytes.
const MOST_RECORDS: u64 = 1024;
const MOST_BYTES: u64 = 4 << 20;

struct State {
    /// The next position to read.
    next: u64,
    /// Records that are read but not handed over, the next one last.
    ready: Vec<Py<PyBytes>>,
    /// How many records to read next time: grows, so that a look at the first one does not read a thousand.
    ahead: u64,
    /// Up to here records are read one by one, because reading them together failed.
    singly: u64,
}

/// Iterates over records, reading ahead.
#[pyclass(frozen, module = "anyrecord._core")]
pub struct RecordsIterator {
    reader: Arc<Reader>,
    view: View,
    state: Mutex<State>,
}

impl RecordsIterator {
    pub fn new(reader: Arc<Reader>, view: View) -> Self {
        let state = State { next: 0, ready: Vec::new(), ahead: 8, singly: 0 };
        RecordsIterator { reader, view, state: Mutex::new(state) }
    }

    fn refill(&self, py: Python<'_>, state: &mut State) -> PyResult<()> {
        let until = self.view.len().min(state.next + state.ahead);
        let records: Vec<u64> = (state.next..until).map(|p| self.view.get(p)).collect();
        match read_many(py, &self.reader, &records) {
            Ok(list) => {
                state.ready = list.into_vec();
                state.ready.reverse();
                let bytes: usize = state.ready.iter().map(|r| r.as_bytes(py).len()).sum();
                let mean = bytes as u64 / records.len().max(1) as u64;
                state.ahead = (2 * state.ahead).min(MOST_RECORDS).min(MOST_BYTES / mean.max(1)).max(1);
                state.next = until;
            }
            // The good records before a bad one are handed over first.
            Err(_) if records.len() > 1 => state.singly = until,
            Err(error) => {
                state.next = until;
                return Err(error);
            }
        }
        Ok(())
    }
}

#[pymethods]
impl RecordsIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        // A panic while reading leaves the state as it was before or after, never in between.
        let mut state = self.state.lock_py_attached(py).unwrap_or_else(|poisoned| poisoned.into_inner());
        self.reader.check_open().map_err(Failure)?;
        loop {
            if let Some(record) = state.ready.pop() {
                return Ok(Some(record.into_bound(py)));
            }
            if state.next >= self.view.len() {
                return Ok(None);
            }
            if state.next < state.singly {
                let record = self.view.get(state.next);
                state.next += 1;
                return read_one(py, &self.reader, record).map(Some);
            }
            self.refill(py, &mut state)?;
        }
    }

    fn __length_hint__(&self, py: Python<'_>) -> usize {
        let state = self.state.lock_py_attached(py).unwrap_or_else(|poisoned| poisoned.into_inner());
        (self.view.len() - state.next) as usize + state.ready.len()
    }
}
