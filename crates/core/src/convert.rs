//! Converts files of any format to files of any other. Records are streamed, one chunk at a time.
//!
//! [`pour`] reads files in order and writes to a [`Writer`]. Files are scanned from front to back without a table,
//! except if only some of their records are wanted. If input and output have the same format and records are not
//! changed, chunks are copied in their stored form, as far as the format and its options allow it.

use crate::cx::Cx;
use crate::error::{Error, Kind, Result};
use crate::format::walk::{self, Content};
use crate::format::{ReadOptions, detect};
use crate::index_file;
use crate::series::Series;
use crate::shard::RecordRange;
use crate::storage::buffered::Buffered;
use crate::storage::location::Location;
use crate::storage::{Distance, Storage};
use crate::writer::Writer;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A file to read, or some of its records.
#[derive(Clone)]
pub struct Input {
    /// The file.
    pub location: Location,
    /// Which of its records.
    pub range: RecordRange,
}

/// Writes the new record into the buffer. Returns false to leave the record out.
pub type Map<'a> = &'a mut dyn FnMut(&[u8], &mut Vec<u8>) -> Result<bool>;

/// Called with the number of input bytes read so far: after every record or copied chunk, and after every file. An
/// error stops the conversion.
pub type Progress<'a> = &'a mut dyn FnMut(u64) -> Result<()>;

/// Consecutive shards whose numbers of records differ by at most 1.
#[derive(Clone, Copy, Debug)]
pub struct Split {
    /// How many shards.
    pub shards: u64,
    /// How many records there are in total.
    pub records: u64,
}

impl Split {
    /// The number of the first record after shard `shard`.
    fn end(&self, shard: u64) -> u64 {
        let (each, more) = (self.records / self.shards, self.records % self.shards);
        each * (shard + 1) + more.min(shard + 1)
    }
}

/// Tells a writer when to begin the next shard of a [`Split`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Shards {
    split: Option<Split>,
    /// The shard that is being written.
    shard: u64,
}

impl Shards {
    /// At the first shard. Without a split, the writer decides by itself.
    pub fn new(split: Option<Split>) -> Self {
        Shards { split, shard: 0 }
    }

    /// Begins new shards until record number `next` belongs to the current one.
    pub fn turn(&mut self, next: u64, writer: &mut Writer) -> Result<()> {
        let Some(split) = self.split else { return Ok(()) };
        while self.shard + 1 < split.shards && next >= split.end(self.shard) {
            writer.begin_shard()?;
            self.shard += 1;
        }
        Ok(())
    }

    /// Whether `records` records from number `next` on all belong to the current shard.
    fn has_room(&self, next: u64, records: u64) -> bool {
        let room = self.split.filter(|split| self.shard + 1 < split.shards);
        room.is_none_or(|split| split.end(self.shard) - next >= records)
    }

    /// Begins the remaining shards, which have no records.
    pub fn finish(self, writer: &mut Writer) -> Result<()> {
        let shards = self.split.map_or(0, |split| split.shards);
        (self.shard + 1..shards).try_for_each(|_| writer.begin_shard())
    }
}

/// A file that knows how far it was read in order. The format is found out at the end of a file, and some tables are there:
/// such reads do not count.
struct Watched<'a> {
    file: &'a dyn Storage,
    reached: AtomicU64,
}

/// A read counts if it begins at most this far after what was read before. The walk skips padding.
const MOST_SKIPPED: u64 = 1 << 20;

impl<'a> Watched<'a> {
    fn new(file: &'a dyn Storage) -> Self {
        Watched { file, reached: AtomicU64::new(0) }
    }

    /// From here on it is read in order.
    fn begin_at(&self, at: u64) {
        self.reached.fetch_max(at, Relaxed);
    }
}

impl Storage for Watched<'_> {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_at(&self, at: u64, out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
        self.file.read_at(at, out, cx)?;
        if at <= self.reached.load(Relaxed).saturating_add(MOST_SKIPPED) {
            self.reached.fetch_max(at + out.len() as u64, Relaxed);
        }
        Ok(())
    }

    fn distance(&self) -> Distance {
        self.file.distance()
    }

    fn will_need(&self, ranges: &mut dyn Iterator<Item = Range<u64>>) {
        self.file.will_need(ranges);
    }

    fn unchanged(&self) -> Result<()> {
        self.file.unchanged()
    }
}

/// How many records the inputs have together.
pub fn count(inputs: &[Input], format: Option<&str>, options: &ReadOptions, cx: &Cx<'_>) -> Result<u64> {
    let too_many = || Error::format("files have more than 2^64 records together");
    let (open, known): (Vec<_>, Vec<_>) = inputs.iter().partition(|input| input.range.stop.is_none());
    let mut known =
        known.iter().map(|Input { range, .. }| range.stop.unwrap_or(0).saturating_sub(range.start));
    let mut records = known.try_fold(0, u64::checked_add).ok_or_else(too_many)?;
    let locations: Vec<_> = open.iter().map(|input| &input.location).collect();
    let mut files = Series::headers(&locations, format);
    for input in open {
        cx.check()?;
        let Some(opened) = files.next(cx)? else { break };
        let file = Buffered::of(&opened);
        let counted = detect::named_or_detected(format, &file, options, cx)
            .and_then(|format| walk::count(format, &file, options, cx));
        let here = counted.map_err(|e| e.in_file(file.name()))?.saturating_sub(input.range.start);
        records = u64::checked_add(records, here).ok_or_else(too_many)?;
    }
    Ok(records)
}

/// A conversion: where the records go, and how.
pub struct Pour<'a> {
    /// Where the records go.
    pub writer: &'a mut Writer,
    /// How shards are balanced. If set, the conversion tells the writer when to begin a shard.
    pub split: Option<Split>,
    /// How each record is changed. None: records stay unchanged.
    pub map: Option<Map<'a>>,
    /// The progress callback.
    pub progress: Progress<'a>,
}

/// Reads all records of `inputs` in order and writes them. Returns how many were read.
///
/// This does not publish the output. After an error, the output cannot be published.
pub fn pour(
    inputs: &[Input],
    format: Option<&str>,
    options: &ReadOptions,
    pour: Pour<'_>,
    cx: &Cx<'_>,
) -> Result<u64> {
    let shards = Shards::new(pour.split);
    let mut state = Conversion { pour, read: 0, first: 0, shards, before: 0, mapped: Vec::new() };
    let locations: Vec<_> = inputs.iter().map(|input| &input.location).collect();
    let is_whole = inputs.iter().all(|input| input.range == RecordRange::default());
    let series = if is_whole { Series::whole } else { Series::headers };
    let mut files = series(&locations, format);
    for input in inputs {
        let Some(opened) = files.next(cx)? else { break };
        let file = Buffered::of(&opened);
        let file = Watched::new(&file);
        state.first = state.read;
        pour_file(&file, input, format, options, &mut state, cx).map_err(|e| e.in_file(file.name()))?;
        state.before += file.len();
        (state.pour.progress)(state.before)?;
    }
    state.shards.finish(state.pour.writer)?;
    Ok(state.read)
}

fn pour_file(
    file: &Watched<'_>,
    input: &Input,
    format: Option<&str>,
    options: &ReadOptions,
    state: &mut Conversion<'_>,
    cx: &Cx<'_>,
) -> Result<()> {
    let format = detect::named_or_detected(format, file, options, cx)?;
    if input.range != RecordRange::default() {
        let table = index_file::open_table(&input.location, file, format, options, cx)?;
        let range = input.range.within(table.records())?;
        state.first = state.read.wrapping_sub(range.start);
        if !range.is_empty() {
            file.begin_at(table.locate(range.start)?.0.stored.start);
        }
        return walk::scan_table(&*table, file, range, cx, &mut |record| state.record(record, file));
    }
    let same = state.pour.map.is_none() && format.name == state.pour.writer.format().name;
    let write = same.then(|| state.pour.writer.write_options().clone());
    walk::scan_chunks(format, file, options, write.as_ref(), cx, &mut |records, chunk| {
        state.chunk(records, chunk, file)
    })
}

struct Conversion<'a> {
    pour: Pour<'a>,
    /// Records read so far, of all inputs.
    read: u64,
    /// Subtracted from `read`, this gives the number of the record in the current input.
    first: u64,
    shards: Shards,
    /// Bytes of the inputs before this one.
    before: u64,
    mapped: Vec<u8>,
}

impl Conversion<'_> {
    fn record(&mut self, record: &[u8], file: &Watched<'_>) -> Result<()> {
        self.shards.turn(self.read, self.pour.writer)?;
        let number = self.read.wrapping_sub(self.first);
        self.read += 1;
        let record = match &mut self.pour.map {
            None => Some(record),
            Some(map) => {
                self.mapped.clear();
                let kept = map(record, &mut self.mapped).map_err(|e| e.for_record(number))?;
                kept.then_some(&*self.mapped)
            }
        };
        if let Some(record) = record {
            self.pour.writer.write(record).map_err(|e| match e.kind() {
                // The output format cannot store this record.
                Kind::Argument => e.for_record(number),
                _ => e,
            })?;
        }
        (self.pour.progress)(self.before + file.reached.load(Relaxed))
    }

    fn chunk(&mut self, records: u64, chunk: &dyn Content, file: &Watched<'_>) -> Result<()> {
        if self.shards.has_room(self.read, records) && self.pour.writer.takes_chunk(records) {
            self.shards.turn(self.read, self.pour.writer)?;
            if let Some(carried) = chunk.carry()? {
                self.read += records;
                self.pour.writer.carry(carried, chunk)?;
                return (self.pour.progress)(self.before + file.reached.load(Relaxed));
            }
        }
        chunk.rows(&mut |record| self.record(record, file))
    }
}
