//! `on_error=`: what happens to records that cannot be read, when the caller asked to read on.
//!
//! The core reads a batch around its damaged records (`Reader::read_sound`). Here each of them is left out, replaced,
//! or passed to the user's function; counted, listed and reported.

use crate::attributes::Name;
use crate::deliver::BytesList;
use crate::errors::{Failure, add_note, no_stop_iteration};
use crate::gil;
use crate::interrupts::with_cx;
use crate::opening::Source;
use anyrecord::process::PerProcess;
use anyrecord::ranges::RangeSet;
use anyrecord::reader::{Lost, Reader};
use anyrecord::view::View;
use pyo3::exceptions::{PyException, PyOSError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use std::ffi::CString;
use std::ops::Range;
use std::sync::Arc;

/// How many damaged records are listed. They take some 30 MB then; of a file with more damage, that many tell enough.
const MOST_LISTED: usize = 100_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum OnError {
    Skip,
    Replace,
    /// The attribute `on_error` of the options is a function.
    Call,
}

/// What happens to damaged records, and those that were met so far. Views of the same source share it.
pub struct Policy {
    on_error: OnError,
    max_errors: Option<u64>,
    /// The end of each data set that was opened by itself, as a record number. A record is replaced by one of the same
    /// data set.
    origins: Vec<u64>,
    log: PerProcess<Log>,
}

/// What this process has met.
#[derive(Default)]
struct Log {
    records: RangeSet,
    count: u64,
    /// The damage that a warning has told about.
    warned: RangeSet,
    listed: Vec<Lost>,
}

/// Why a damaged record has no value.
pub struct Unsettled {
    pub error: PyErr,
    /// Whether the error takes the record's place: an iterator continues after the record, not with it.
    pub is_its_value: bool,
}

impl From<Unsettled> for PyErr {
    fn from(unsettled: Unsettled) -> PyErr {
        unsettled.error
    }
}

fn in_its_place(py: Python<'_>, error: PyErr) -> Unsettled {
    // Ctrl-C says nothing about the record.
    Unsettled { is_its_value: error.is_instance_of::<PyException>(py), error }
}

fn not_yet(error: PyErr) -> Unsettled {
    Unsettled { error, is_its_value: false }
}

impl Policy {
    /// The policy of a source that was opened with these options. None: errors are raised.
    pub fn new(options: &Bound<'_, PyAny>, origins: Vec<u64>) -> PyResult<Option<Arc<Self>>> {
        let on_error = options.getattr(Name("on_error"))?;
        let on_error = match on_error.cast::<PyString>() {
            Ok(name) if name == "raise" => return Ok(None),
            Ok(name) if name == "skip" => OnError::Skip,
            Ok(_) => OnError::Replace,
            Err(_) => OnError::Call,
        };
        let max_errors = options.getattr(Name("max_errors"))?.extract()?;
        Ok(Some(Arc::new(Policy { on_error, max_errors, origins, log: PerProcess::default() })))
    }

    /// The policy of several sources together, which have the same options. `bases`: for each source, the number of its
    /// first record among all.
    pub fn of_all(
        options: &Bound<'_, PyAny>,
        sources: &[Py<Source>],
        bases: &[u64],
        reader: &Reader,
    ) -> PyResult<Option<Arc<Self>>> {
        let Some(first) = sources.first().and_then(|source| source.get().policy.as_ref()) else {
            return Ok(None);
        };
        let has_same = |source: &Py<Source>| {
            let (policy, shards) = (&source.get().policy, source.get().reader.shards());
            policy.as_ref().is_some_and(|policy| Arc::ptr_eq(policy, first))
                && shards.len() == reader.shards().len()
        };
        // Views of one source: what was met in one is known in all.
        if sources.iter().all(has_same) {
            return Ok(Some(first.clone()));
        }
        let mut origins: Vec<u64> = Vec::new();
        for (source, base) in sources.iter().zip(bases) {
            let policy = source.get().policy.as_ref();
            origins.extend(policy.iter().flat_map(|policy| policy.origins.iter().map(|end| base + end)));
        }
        origins.sort_unstable();
        origins.dedup();
        Policy::new(options, origins)
    }

    /// The ends of the data sets that were opened by themselves.
    pub fn origins(&self) -> &[u64] {
        &self.origins
    }

    /// Whether damaged records are left out.
    pub fn leaves_out(&self) -> bool {
        self.on_error == OnError::Skip
    }

    fn origin_of(&self, record: u64, reader: &Reader) -> Range<u64> {
        let at = self.origins.partition_point(|&end| end <= record);
        let begin = if at == 0 { 0 } else { self.origins[at - 1] };
        begin..self.origins.get(at).copied().unwrap_or(reader.len())
    }

    /// The damaged records that were left out or replaced: `(path, number in the file, number in the source, error)`.
    pub fn listed(&self, reader: &Reader) -> PyResult<Vec<(String, u64, u64, String)>> {
        let listed = self.log.with(|log| log.listed.clone());
        let told = listed.iter().map(|lost| {
            let (path, record) = place_of(reader, lost.record)?;
            Ok((path, record, lost.record, lost.error().to_string()))
        });
        told.collect::<anyrecord::Result<_>>().map_err(|e| Failure(e).into())
    }

    /// What takes the place of a damaged record. None: it is left out.
    pub fn settle(
        &self,
        py: Python<'_>,
        reader: &Reader,
        options: &Py<PyAny>,
        lost: &Lost,
    ) -> Result<Option<Py<PyBytes>>, Unsettled> {
        let has_room = |log: &mut Log| {
            log.records.contains(lost.record) || self.max_errors.is_none_or(|most| log.count < most)
        };
        if !self.log.with(has_room) {
            return Err(self.too_many(py, lost));
        }
        let value = match self.on_error {
            OnError::Skip => None,
            OnError::Replace => Some(self.neighbour(py, reader, lost)?),
            OnError::Call => Some(call(py, options, lost).map_err(|error| in_its_place(py, error))?),
        };
        let is_told = self.log.with(|log| {
            if !has_room(log) {
                return None;
            }
            if !log.records.contains(lost.record) {
                log.records.insert(lost.record..lost.record + 1);
                log.count += 1;
                if log.listed.len() < MOST_LISTED {
                    log.listed.push(lost.clone());
                }
            }
            let is_told = log.warned.contains(lost.record);
            log.warned.insert(lost.damage.records.clone());
            Some(is_told)
        });
        match is_told {
            // Another thread has met other damage meanwhile.
            None => return Err(self.too_many(py, lost)),
            Some(true) => {}
            Some(false) => self.warn(py, reader, lost).map_err(not_yet)?,
        }
        Ok(value)
    }

    fn neighbour(&self, py: Python<'_>, reader: &Reader, lost: &Lost) -> Result<Py<PyBytes>, Unsettled> {
        let within = self.origin_of(lost.record, reader);
        let read = gil::detach(py, || with_cx(reader, |cx| reader.read_neighbour(lost.record, &within, cx)));
        match read.map_err(|e| not_yet(Failure(e).into()))? {
            Some(bytes) => Ok(PyBytes::new(py, &bytes).unbind()),
            None => {
                let error = PyErr::from(Failure(lost.error()));
                note(
                    py,
                    &error,
                    "no other record can be read that could take its place (on_error=\"replace\")",
                );
                Err(in_its_place(py, error))
            }
        }
    }

    #[cold]
    fn too_many(&self, py: Python<'_>, lost: &Lost) -> Unsettled {
        let error = PyErr::from(Failure(lost.error()));
        let most = self.max_errors.unwrap_or_default();
        note(py, &error, &format!("more than max_errors={most} records are damaged"));
        in_its_place(py, error)
    }

    /// Warns of damage. With `-W error` this is an exception.
    fn warn(&self, py: Python<'_>, reader: &Reader, lost: &Lost) -> PyResult<()> {
        let (path, record) = place_of(reader, lost.record).map_err(Failure)?;
        let done = match self.on_error {
            OnError::Skip => "left out",
            OnError::Replace => "replaced by the next one that can be read",
            OnError::Call => "replaced by the result of on_error",
        };
        let mut text = format!("record {record} of {path} is damaged and was {done}: {}", lost.error());
        let together = &lost.damage.records;
        if together.end - together.start > 1 {
            let first = place_of(reader, together.start).map_err(Failure)?.1;
            let last = first + (together.end - together.start - 1);
            text += &format!(
                "; records {first} to {last} of the file are damaged with it, and no further warning follows for them"
            );
        }
        let text = CString::new(text.replace('\0', "?"))?;
        gil::call(py, || {
            let category = py.import("anyrecord.errors")?.getattr(Name("DamageWarning"))?;
            PyErr::warn(py, &category, &text, 1)
        })
    }
}

/// The file of a record, and the record's number in it.
fn place_of(reader: &Reader, record: u64) -> anyrecord::Result<(String, u64)> {
    let (shard, number) = reader.shard_of(record)?;
    Ok((reader.shards()[shard].name(), number))
}

fn note(py: Python<'_>, error: &PyErr, text: &str) {
    // The note is optional: ignore a failure to add it.
    let _ = gil::call(py, || add_note(py, error, text));
}

/// Calls the user's function with the error of a record.
fn call(py: Python<'_>, options: &Py<PyAny>, lost: &Lost) -> PyResult<Py<PyBytes>> {
    let core = lost.error();
    let place = (core.file().map(str::to_owned), core.offset());
    let error = PyErr::from(Failure(core));
    gil::call(py, || {
        let value = error.value(py);
        if error.is_instance_of::<PyOSError>(py) {
            // Errors of the disk say where, too.
            value.setattr(Name("path"), place.0)?;
            value.setattr(Name("offset"), place.1)?;
            value.setattr(Name("record"), lost.record)?;
        }
        let function = options.bind(py).getattr(Name("on_error"))?;
        let result = function.call1((value,))?;
        match result.cast_into::<PyBytes>() {
            Ok(bytes) => Ok(bytes.unbind()),
            Err(other) => Err(PyTypeError::new_err(format!(
                "on_error must return the bytes to use for the record, or raise; it returned {}",
                other.into_inner().get_type().name()?
            ))),
        }
    })
    .map_err(|error| no_stop_iteration(py, error))
}

/// Reads the records at many positions. Those that cannot be read are settled by the policy of the source.
pub fn read_settled(
    py: Python<'_>,
    source: &Source,
    view: &View,
    policy: &Policy,
    positions: Vec<u64>,
) -> PyResult<BytesList> {
    let (mut list, lost) = read_sound(py, &source.reader, view, positions)?;
    for lost in lost {
        list.put(lost.position, policy.settle(py, &source.reader, &source.options, &lost)?);
    }
    Ok(list)
}

/// Reads the records at many positions, as far as they can be read.
pub fn read_sound(
    py: Python<'_>,
    reader: &Reader,
    view: &View,
    mut positions: Vec<u64>,
) -> PyResult<(BytesList, Vec<Lost>)> {
    gil::detach(py, || {
        view.get_many(&mut positions);
        let mut list = BytesList::new(positions.len())?;
        let lost = with_cx(reader, |cx| reader.read_sound(&positions, &mut list, cx))?;
        Ok((list, lost))
    })
    .map_err(|e| Failure(e).into())
}
