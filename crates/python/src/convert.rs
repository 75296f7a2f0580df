//! Conversion: copies the records of files of any format to a `Writer`. Python decides what to read, where to write
//! and when to publish.

use crate::errors::{Failure, external};
use crate::gil;
use crate::opening::{Opening, with_cx};
use crate::remote::Places;
use crate::writer::{Writer, with_bytes};
use anyrecord::Cx;
use anyrecord::convert::{Input, Pour, Split};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often to check for signals and report progress.
const INTERVAL: Duration = Duration::from_millis(50);
/// Reading the clock takes as long as copying a small record, so it is read only once in this many steps.
const STEPS_PER_CLOCK_READ: u32 = 16;
/// Progress is reported after this many bytes, even if less than `INTERVAL` has passed.
const REPORT_BYTES: u64 = 32 << 20;

/// Checks for signals and calls the user's `progress` function from time to time.
pub struct Listener<'a> {
    progress: Option<&'a Py<PyAny>>,
    total: u64,
    /// The bytes done at the last report.
    reported: u64,
    last: Instant,
    steps: u32,
}

impl<'a> Listener<'a> {
    pub fn new(progress: Option<&'a Py<PyAny>>, total: u64) -> Self {
        Listener { progress, total, reported: 0, last: Instant::now(), steps: 0 }
    }

    /// Call it often, with the bytes done so far.
    pub fn step(&mut self, done: u64) -> anyrecord::Result<()> {
        self.steps += 1;
        if self.steps < STEPS_PER_CLOCK_READ && done - self.reported < 1 << 20 {
            return Ok(());
        }
        self.steps = 0;
        if done - self.reported < REPORT_BYTES && self.last.elapsed() < INTERVAL {
            return Ok(());
        }
        self.report(done)
    }

    fn report(&mut self, done: u64) -> anyrecord::Result<()> {
        self.last = Instant::now();
        // A file may have grown since its size was taken.
        let (before, done) = (self.reported, done.min(self.total));
        self.reported = done;
        gil::attach(|py| {
            py.check_signals()?;
            match self.progress {
                Some(call) if done > before => call.call1(py, (done, self.total)).map(drop),
                _ => Ok(()),
            }
        })
        .map_err(external)
    }
}

fn inputs(files: Vec<(PathBuf, u64, Option<u64>)>, options: &Opening) -> PyResult<Vec<Input>> {
    let files = options.locations(files)?.into_iter();
    Ok(files.map(|(location, range)| Input { location, range }).collect())
}

/// Writes all records of the files and returns how many were read.
///
/// `files`: `(path, first record, end or None)` of each; the end is not included. `split`: `(shards, records)`, for
/// shards with equal numbers of records. `total`: the total that is passed to `progress`.
#[pyfunction]
#[pyo3(signature = (writer, files, options, split, map, progress, total))]
#[expect(clippy::too_many_arguments, reason = "all of them are given by the one Python caller")]
pub fn pour(
    py: Python<'_>,
    writer: &Bound<'_, Writer>,
    files: Vec<(PathBuf, u64, Option<u64>)>,
    options: Opening,
    split: Option<(u64, u64)>,
    map: Option<Py<PyAny>>,
    progress: Option<Py<PyAny>>,
    total: u64,
) -> PyResult<u64> {
    let inputs = inputs(files, &options)?;
    let split = split.map(|(shards, records)| Split { shards, records });
    let mut listener = Listener::new(progress.as_ref(), total);
    let mut apply = map.as_ref().map(|map| {
        |record: &[u8], out: &mut Vec<u8>| {
            gil::attach(|py| {
                let mapped = map.bind(py).call1((PyBytes::new(py, record),))?;
                if mapped.is_none() {
                    return Ok(false);
                }
                with_bytes(&mapped, |bytes| {
                    out.extend_from_slice(bytes);
                    Ok(true)
                })
            })
            .map_err(external)
        }
    });
    let poured = writer.get().with_open(py, |writer| {
        let pour = Pour {
            writer,
            split,
            map: apply.as_mut().map(|apply| apply as _),
            progress: &mut |done| listener.step(done),
        };
        let (format, reading) = (options.format.as_deref(), options.options());
        with_cx(&reading.limits, |cx| anyrecord::convert::pour(&inputs, format, &reading, pour, cx))
    })?;
    Ok(poured.map_err(Failure)?)
}

/// How many records the files have together.
#[pyfunction]
pub fn count_records(
    py: Python<'_>,
    files: Vec<(PathBuf, u64, Option<u64>)>,
    options: Opening,
) -> PyResult<u64> {
    let inputs = inputs(files, &options)?;
    let (format, reading) = (options.format.as_deref(), options.options());
    let count = |cx: &Cx<'_>| anyrecord::convert::count(&inputs, format, &reading, cx);
    let counted = gil::detach(py, || with_cx(&reading.limits, count));
    Ok(counted.map_err(Failure)?)
}

/// Writes the index of a file, unless a valid one exists. Returns its path or URL, or None if the format needs none.
#[pyfunction]
pub fn build_index(py: Python<'_>, path: PathBuf, options: Opening) -> PyResult<Option<OsString>> {
    let (format, reading) = (options.format.as_deref(), options.options());
    let location = Places::new(&options)?.location(path)?;
    let build = |cx: &Cx<'_>| anyrecord::index_file::build(&location, format, &reading, cx);
    let built = gil::detach(py, || with_cx(&reading.limits, build)).map_err(Failure)?;
    py.check_signals()?;
    Ok(built.map(OsString::from))
}
