//! The iterator of `Records`: reads ahead in batches, so that each record costs little more than handing it over.

use crate::errors::{Failure, no_stop_iteration};
use crate::gil;
use crate::interrupts::with_cx;
use crate::owned::{Held, Owned};
use crate::records::{read_many, read_one};
use crate::views::fingerprint_of;
use anyrecord::reader::Reader;
use anyrecord::view::View;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::sync::Arc;

/// How far it reads ahead at the most, in records and (about) in bytes: what stays in the processor's cache until it
/// is handed over, and is enough work for several threads where it has to be decompressed.
const MOST: (u64, u64) = (512, 1 << 20);
/// The same where records share chunks, which are decompressed whole, and this is several of them: one alone would be
/// work for only one thread.
const MOST_GROUPED: (u64, u64) = (4096, 8 << 20);
/// How far a cold file is asked for ahead of that, in records and (about) in bytes.
const FORESEEN_RECORDS: u64 = 4096;
const FORESEEN_BYTES: u64 = 8 << 20;

struct IteratorState {
    /// The next position to read.
    next: u64,
    /// Records that are read but not handed over, the next one last.
    ready: Vec<Py<PyBytes>>,
    /// How many records to read next time: grows, so that a look at the first one does not read a thousand.
    ahead: u64,
    /// Up to here records are read one by one, because reading them together failed.
    singly: u64,
    /// Up to here they were asked for ahead.
    foreseen: u64,
}

impl IteratorState {
    /// Nothing is read yet.
    fn at(position: u64) -> Self {
        IteratorState { next: position, ready: Vec::new(), ahead: 8, singly: 0, foreseen: 0 }
    }
}

/// Iterates over records, reading ahead. Made by `iter()` and `resume`.
#[pyclass(frozen, module = "anyrecord._core")]
pub struct RecordsIterator {
    reader: Arc<Reader>,
    view: View,
    state: Owned<IteratorState>,
}

impl RecordsIterator {
    pub fn new(reader: Arc<Reader>, view: View, position: u64) -> Self {
        let state = IteratorState::at(position.min(view.len()));
        RecordsIterator { reader, view, state: Owned::new(state) }
    }

    fn state(&self, py: Python<'_>) -> PyResult<Held<'_, IteratorState>> {
        Ok(self.state.lock(py).map_err(Failure)?)
    }

    fn refill(&self, py: Python<'_>, state: &mut IteratorState) -> PyResult<()> {
        let until = self.view.len().min(state.next + state.ahead);
        let count = until - state.next;
        match read_many(py, &self.reader, &self.view, (state.next..until).collect()) {
            Ok(list) => {
                state.ready = list.into_reversed()?;
                let bytes: usize = state.ready.iter().map(|r| r.as_bytes(py).len()).sum();
                let mean = (bytes as u64 / count.max(1)).max(1);
                let group = self.reader.group_of(self.view.get(until - 1));
                let is_worth_it =
                    group.is_some_and(|records| records.saturating_mul(2 * mean) <= MOST_GROUPED.1);
                let (most_records, most_bytes) = if is_worth_it { MOST_GROUPED } else { MOST };
                state.ahead = (2 * state.ahead).min(most_records).min(most_bytes / mean).max(1);
                state.next = until;
                self.foresee(py, state, mean);
            }
            // Not about a record, but what a signal handler raised. Nothing is lost, the next call tries again.
            Err(error) if !is_about_a_record(py, &error) => return Err(error),
            // The good records before a bad one are handed over first.
            Err(_) if count > 1 => state.singly = until,
            Err(error) => {
                state.next = until;
                return Err(error);
            }
        }
        Ok(())
    }
}

impl RecordsIterator {
    /// Asks for what comes next, if reads have been cold lately: the disk works while the records before it are used.
    fn foresee(&self, py: Python<'_>, state: &mut IteratorState, mean: u64) {
        let distance = FORESEEN_RECORDS.min(FORESEEN_BYTES / mean);
        // Half of the distance is asked for at a time, so that it is asked for in large pieces.
        if self.reader.is_warm() || state.foreseen >= state.next + distance / 2 {
            return;
        }
        let (from, until) = (state.foreseen.max(state.next), self.view.len().min(state.next + distance));
        state.foreseen = until;
        if from < until {
            gil::detach(py, || {
                let mut positions: Vec<u64> = (from..until).collect();
                self.view.get_many(&mut positions);
                with_cx(&self.reader, |cx| self.reader.will_read(&positions, cx));
            });
        }
    }
}

/// Whether an error came from the file, so that other records may be readable.
fn is_about_a_record(py: Python<'_>, error: &PyErr) -> bool {
    let ours = || py.import("anyrecord.errors")?.getattr("RecordError");
    error.is_instance_of::<PyOSError>(py) || ours().is_ok_and(|class| error.is_instance(py, &class))
}

#[pymethods]
impl RecordsIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.next(py).map_err(|error| no_stop_iteration(py, error))
    }

    fn __length_hint__(&self, py: Python<'_>) -> PyResult<usize> {
        let state = self.state(py)?;
        Ok((self.view.len() - state.next) as usize + state.ready.len())
    }

    /// Where it is: the position of the next record to be handed over, whatever was read ahead.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let state = self.state(py)?;
        let dict = PyDict::new(py);
        dict.set_item("position", state.next - state.ready.len() as u64)?;
        dict.set_item("length", self.view.len())?;
        dict.set_item("fingerprint", fingerprint_of(&self.reader, &self.view))?;
        Ok(dict)
    }

    /// Continues at the position of a state; one of another view is a ValueError, and changes nothing.
    fn load_state_dict(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let check = py.import("anyrecord._iteration")?.getattr("position_of")?;
        let fingerprint = fingerprint_of(&self.reader, &self.view);
        let position: u64 = check.call1((state, self.view.len(), fingerprint))?.extract()?;
        *self.state(py)? = IteratorState::at(position);
        Ok(())
    }
}

impl RecordsIterator {
    #[inline]
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let mut state = self.state(py)?;
        self.reader.check_open().map_err(Failure)?;
        loop {
            if let Some(record) = state.ready.pop() {
                return Ok(Some(record.into_bound(py)));
            }
            if state.next >= self.view.len() {
                return Ok(None);
            }
            if state.next < state.singly {
                let record = read_one(py, &self.reader, self.view.get(state.next));
                if record.as_ref().map_or_else(|error| is_about_a_record(py, error), |_| true) {
                    state.next += 1;
                }
                return record.map(Some);
            }
            self.refill(py, &mut state)?;
        }
    }
}
