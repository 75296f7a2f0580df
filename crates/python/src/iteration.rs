//! The iterator of `Records`. It reads ahead in batches, which makes each record cheap.

use crate::attributes::Name;
use crate::damage::read_sound;
use crate::deliver::NewBytes;
use crate::errors::{Failure, no_stop_iteration};
use crate::gil;
use crate::interrupts::with_cx;
use crate::opening::Source;
use crate::owned::{Held, Owned};
use crate::records::{read_many, read_one};
use crate::views::fingerprint_of;
use anyrecord::reader::{Lost, Reader};
use anyrecord::storage::remote::ahead::AheadUser;
use anyrecord::view::View;
use pyo3::exceptions::PyOSError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The largest batch that is read ahead, in records and in (approximate) bytes. It stays in the processor's cache until it
/// is delivered, and from 4 KB a record on it is enough work to wake another thread.
const MOST: (u64, u64) = (512, 4 << 20);
/// Two larger records are read ahead together if they have at most so many bytes: one for each of two threads.
const TWO_LARGE: u64 = 8 << 20;
/// The largest batch if records share chunks. A chunk is decompressed whole by one thread, so several threads need a
/// batch of several chunks.
const MOST_GROUPED: (u64, u64) = (4096, 8 << 20);
/// How far ahead of the batch a file that is not in the page cache is prefetched, in records and (approximate) bytes.
const PREFETCH_RECORDS: u64 = 4096;
const PREFETCH_BYTES: u64 = 8 << 20;
/// How far ahead files on servers are fetched in the beginning, in (approximate) bytes.
const REMOTE_BYTES: u64 = 1 << 20;

struct IteratorState {
    /// The next position to read.
    next: u64,
    /// Records that were read and not delivered yet, in reverse order.
    ready: Vec<Py<PyBytes>>,
    /// What comes after the records that are ready, in reverse order, if some of the records read ahead are damaged.
    later: Vec<Ahead>,
    /// How many records to read next time. It grows, so asking for only the first record does not read a thousand.
    ahead: u64,
    /// Records before this position are read one by one, because reading them in a batch failed.
    singly: u64,
    /// Records in one chunk, if a batch has only a part of them. Otherwise 0.
    large_group: u64,
    /// Chunks that hold records before this position were decoded ahead.
    decoded: u64,
    /// Whether such a chunk had left the cache before it was needed: others use the cache, too.
    is_crowded: bool,
    announced: Announced,
}

/// Records that were read ahead. A damaged one is left out, replaced or reported only when its turn comes.
enum Ahead {
    /// In reverse order.
    Sound(Vec<Py<PyBytes>>),
    Damaged(Lost),
}

impl IteratorState {
    /// The position of the next record to deliver.
    fn position(&self) -> u64 {
        let later = self.later.iter().map(|ahead| match ahead {
            Ahead::Sound(records) => records.len() as u64,
            Ahead::Damaged(_) => 1,
        });
        self.next - self.ready.len() as u64 - later.sum::<u64>()
    }

    /// The state at a position, with nothing read yet.
    fn at(position: u64) -> Self {
        IteratorState {
            next: position,
            ready: Vec::new(),
            later: Vec::new(),
            ahead: 8,
            singly: 0,
            large_group: 0,
            decoded: 0,
            is_crowded: false,
            announced: Announced::new(position),
        }
    }
}

/// Iterates over records and reads ahead. `iter()` and `resume` return one.
#[pyclass(frozen, module = "anyrecord._core")]
pub struct RecordsIterator {
    source: Py<Source>,
    reader: Arc<Reader>,
    view: View,
    state: Owned<IteratorState>,
}

impl RecordsIterator {
    pub fn new(source: Py<Source>, view: View, position: u64) -> Self {
        let state = IteratorState::at(position.min(view.len()));
        let reader = source.get().reader.clone();
        RecordsIterator { source, reader, view, state: Owned::new(state) }
    }

    #[inline]
    fn state(&self, py: Python<'_>) -> PyResult<Held<'_, IteratorState>> {
        Ok(self.state.lock(py).map_err(Failure)?)
    }

    fn refill(&self, py: Python<'_>, state: &mut IteratorState) -> PyResult<()> {
        if state.announced.is_new() && self.reader.is_remote() {
            state.announced.go_on(py, &self.reader, &self.view, state.next, self.reader.mean_bytes());
        }
        let until = self.view.len().min(state.next + state.ahead);
        let until = self.decode_in_order(py, state, until)?;
        let count = until - state.next;
        match self.read(py, state.next..until) {
            Ok((ready, later)) => {
                let mut bytes: usize = ready.iter().map(|r| r.as_bytes(py).len()).sum();
                for ahead in &later {
                    if let Ahead::Sound(records) = ahead {
                        bytes += records.iter().map(|r| r.as_bytes(py).len()).sum::<usize>();
                    }
                }
                (state.ready, state.later) = (ready, later);
                let mean = (bytes as u64 / count.max(1)).max(1);
                let group = self.reader.group_of(self.view.get(until - 1)).unwrap_or(0);
                let is_large = group.saturating_mul(2 * mean) > MOST_GROUPED.1;
                state.large_group = if is_large { group } else { 0 };
                let (most_records, most_bytes) = if group == 0 || is_large { MOST } else { MOST_GROUPED };
                let two = (TWO_LARGE / mean).min(2);
                state.ahead = (2 * state.ahead).min(most_records).min((most_bytes / mean).max(two)).max(1);
                state.next = until;
                state.announced.go_on(py, &self.reader, &self.view, until, mean);
            }
            // This is not about a record: a signal handler raised it, or a server failed. The next call tries again.
            Err(error) if !self.is_about_a_record(py, &error) => return Err(error),
            // Read the records one by one, to deliver the good records before the bad one.
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
    /// Decodes several large chunks at a time, once a whole chunk was read in order. Returns where the next batch ends:
    /// at `until`, or at the end of a chunk before it.
    fn decode_in_order(&self, py: Python<'_>, state: &mut IteratorState, until: u64) -> PyResult<u64> {
        if state.large_group == 0 || state.is_crowded {
            return Ok(until);
        }
        let (begin, next) = (state.announced.begin, state.next);
        let (first, rest) = (self.view.get(next), self.view.len() - next);
        let is_in_order = |distance: u64| {
            distance < rest && self.view.get(next + distance).checked_sub(distance) == Some(first)
        };
        if !is_in_order(until - 1 - next) {
            return Ok(until);
        }
        let is_long = next - begin >= state.large_group;
        let is_next = |distance| distance == 0 || is_long && is_in_order(distance);
        let ahead = gil::detach(py, || {
            with_cx(&self.reader, |cx| self.reader.decode_in_order(first, is_next, cx)).map_err(Failure)
        })?;
        let Some(ahead) = ahead else { return Ok(until) };
        if ahead.records > 0 {
            state.is_crowded = next < state.decoded;
            state.decoded = next.saturating_add(ahead.records);
        }
        Ok(until.min(next.saturating_add(ahead.left.max(1))))
    }

    /// Reads the records at some positions: those before the first damaged one, and what comes after them.
    fn read(&self, py: Python<'_>, positions: Range<u64>) -> PyResult<(Vec<Py<PyBytes>>, Vec<Ahead>)> {
        let positions = positions.collect();
        if self.source.get().policy.is_none() {
            let list = read_many::<NewBytes>(py, &self.reader, &self.view, positions)?;
            return Ok((list.into_reversed()?, Vec::new()));
        }
        let (list, lost) = read_sound(py, &self.reader, &self.view, positions)?;
        if lost.is_empty() {
            return Ok((list.into_reversed()?, Vec::new()));
        }
        let (mut objects, mut later) = (list.into_objects(), Vec::new());
        for lost in lost.into_iter().rev() {
            let after: Vec<_> = objects.drain(lost.position + 1..).rev().flatten().collect();
            objects.truncate(lost.position);
            if !after.is_empty() {
                later.push(Ahead::Sound(after));
            }
            later.push(Ahead::Damaged(lost));
        }
        Ok((objects.into_iter().rev().flatten().collect(), later))
    }

    /// Whether an error came from the file. Then other records may still be readable. A disk fails at some of its
    /// places, a server at all of them.
    fn is_about_a_record(&self, py: Python<'_>, error: &PyErr) -> bool {
        let ours = || py.import("anyrecord.errors")?.getattr(Name("RecordError"));
        error.is_instance_of::<PyOSError>(py) && !self.reader.is_remote()
            || ours().is_ok_and(|class| error.is_instance(py, &class))
    }

    /// Reads one record, because reading in a batch failed. An error that is not damage takes the record's place.
    #[cold]
    fn read_next(&self, py: Python<'_>, state: &mut IteratorState) -> PyResult<()> {
        let read = self.read(py, state.next..state.next + 1);
        if read.as_ref().map_or_else(|error| self.is_about_a_record(py, error), |_| true) {
            state.next += 1;
        }
        (state.ready, state.later) = read?;
        Ok(())
    }

    /// The next of the records that were read ahead around damage. None: it is left out, or it is ready now.
    #[cold]
    fn next_ahead(&self, py: Python<'_>, state: &mut IteratorState) -> PyResult<Option<Py<PyBytes>>> {
        let source = self.source.get();
        match (state.later.pop(), &source.policy) {
            (Some(Ahead::Sound(records)), _) => state.ready = records,
            (Some(Ahead::Damaged(lost)), Some(policy)) => {
                let settled = policy.settle(py, &self.reader, &source.options, &lost);
                return settled.map_err(|unsettled| {
                    if !unsettled.is_its_value {
                        // The next call tries again.
                        state.later.push(Ahead::Damaged(lost));
                    }
                    unsettled.into()
                });
            }
            _ => {}
        }
        Ok(None)
    }
}

/// How far an iteration has announced the records that it will read.
pub struct Announced {
    /// The position of the first record.
    begin: u64,
    /// Records before this position were announced.
    until: u64,
    begun: Instant,
    /// What was fetched from servers ends with the iteration.
    users: Vec<AheadUser>,
}

impl Announced {
    pub fn new(begin: u64) -> Self {
        Announced { begin, until: 0, begun: Instant::now(), users: Vec::new() }
    }

    /// Whether nothing was announced yet.
    fn is_new(&self) -> bool {
        self.until == 0
    }

    /// Announces the records from `next` on, if recent reads missed the page cache. The disk or the server works while
    /// the user's code runs. `mean` is the size of recent records.
    fn go_on(&mut self, py: Python<'_>, reader: &Reader, view: &View, next: u64, mean: u64) {
        let mean = mean.max(1);
        if self.users.is_empty() && reader.is_remote() {
            self.users = reader.fetch_ahead();
        }
        let distance = match reader.readahead() {
            Some((most, time)) => self.remote_bytes(mean * (next - self.begin.min(next)), most, time) / mean,
            None => PREFETCH_RECORDS.min(PREFETCH_BYTES / mean),
        };
        // Announce at least a quarter of the distance at a time, so requests are large. More is announced than may be in
        // flight, so the link is never idle.
        if reader.is_warm() || self.until >= next.saturating_add(distance - distance / 4) {
            return;
        }
        let (mut from, mut until) = (self.until.max(next), view.len().min(next.saturating_add(distance)));
        if reader.is_remote() {
            // The records of a whole window are neighbours, so few requests bring them. Those of a part are not.
            until = Some(view.window_end(until)).filter(|end| end - until <= distance).unwrap_or(until);
        }
        self.until = until.max(self.until);
        if from >= until {
            return;
        }
        gil::detach(py, || {
            while from < until {
                // One window after the other: what is read first shall arrive first.
                let window_end = Some(view.window_end(from + 1)).filter(|end| *end > from + 1);
                let end = until.min(window_end.unwrap_or(until));
                let mut positions: Vec<u64> = (from..end).collect();
                view.get_many(&mut positions);
                with_cx(reader, |cx| reader.will_read(&positions, cx));
                from = end;
            }
        });
    }
}

impl Announced {
    /// How many bytes to fetch ahead from servers, after `read` bytes were read. It grows with them, so asking for only
    /// the first record does not fetch the whole file. A slow reader needs less at once than a fast one.
    fn remote_bytes(&self, read: u64, most: u64, time: Duration) -> u64 {
        let per_second = read as f64 / self.begun.elapsed().as_secs_f64().max(1e-3);
        let lasting = (per_second * time.as_secs_f64()) as u64;
        most.min(REMOTE_BYTES + 4 * read).min(lasting.max(REMOTE_BYTES))
    }
}

/// Lets servers send records before they are read, for an iteration in Python.
#[pyclass(frozen, module = "anyrecord._core")]
pub struct ReadAhead {
    reader: Arc<Reader>,
    view: View,
    announced: Owned<Announced>,
}

impl ReadAhead {
    pub fn new(reader: Arc<Reader>, view: View, begin: u64) -> Self {
        ReadAhead { reader, view, announced: Owned::new(Announced::new(begin)) }
    }
}

#[pymethods]
impl ReadAhead {
    /// Announces the records from position `next` on.
    fn go_on(&self, py: Python<'_>, next: u64) -> PyResult<()> {
        let mut announced = self.announced.lock(py).map_err(Failure)?;
        announced.go_on(py, &self.reader, &self.view, next, self.reader.mean_bytes());
        Ok(())
    }
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
        Ok((self.view.len() - state.position()) as usize)
    }

    /// Returns the state: the position of the next record to deliver, whatever was read ahead.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let state = self.state(py)?;
        let dict = PyDict::new(py);
        dict.set_item("position", state.position())?;
        dict.set_item("length", self.view.len())?;
        dict.set_item("fingerprint", fingerprint_of(&self.reader, &self.view))?;
        Ok(dict)
    }

    /// The position of the next record to deliver.
    #[getter]
    fn _position(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.state(py)?.position())
    }

    /// Continues at a position. Any that is out of range means the end.
    ///
    /// The first record is read alone, because the caller may seek again after it.
    fn _seek(&self, py: Python<'_>, position: i64) -> PyResult<()> {
        let position = u64::try_from(position).unwrap_or(u64::MAX).min(self.view.len());
        let mut state = self.state(py)?;
        *state = IteratorState::at(position);
        (state.singly, state.ahead) = (position.saturating_add(1), 2);
        Ok(())
    }

    /// Reports the source to the garbage collector.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.source)
    }

    /// Continues at the position of a state. A state of another view raises ValueError and changes nothing.
    fn load_state_dict(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
        let check = py.import("anyrecord._iteration")?.getattr(Name("position_of"))?;
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
            if !state.later.is_empty() {
                match self.next_ahead(py, &mut state)? {
                    Some(record) => return Ok(Some(record.into_bound(py))),
                    None => continue,
                }
            }
            if state.next >= self.view.len() {
                return Ok(None);
            }
            if state.next < state.singly {
                if self.source.get().policy.is_some() {
                    self.read_next(py, &mut state)?;
                    continue;
                }
                let record = read_one(py, &self.reader, self.view.get(state.next));
                if record.as_ref().map_or_else(|error| self.is_about_a_record(py, error), |_| true) {
                    state.next += 1;
                }
                return record.map(Some);
            }
            self.refill(py, &mut state)?;
        }
    }
}
