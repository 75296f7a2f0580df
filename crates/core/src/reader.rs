//! Reading: plan, fetch, decode, deliver.
//!
//! One record takes the path `plan` -> `read_into` with nothing in the way: no pool, no queue, no lock held
//! across I/O. Many records take `read_batch` in [`batch`], which is the same path for many.

mod batch;
mod warmth;

pub use batch::Deliver;

use crate::bytes;
use crate::cache::Cache;
use crate::error::{Error, Kind, Result};
use crate::format::{Chunk, Decoded};
use crate::shard::{Shard, Source};
use arc_swap::Guard;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use warmth::Warmth;

/// Scratch space that a thread keeps between reads. A larger need is met and given back.
const SCRATCH_KEPT: usize = 1 << 20;

/// Many files as one sequence of records.
pub struct Reader {
    shards: Vec<Arc<Shard>>,
    /// For each shard, the number of the record behind its last one.
    ends: Vec<u64>,
    /// Decoded chunks, known by the shard's place among all and the chunk's in its file.
    cache: Cache<(usize, u64), Decoded>,
    warmth: Warmth,
    closed: AtomicBool,
}

/// Where a record is, and the shortest way to it.
pub struct Plan {
    index: u64,
    shard: usize,
    /// The record's number in its own file.
    record: u64,
    source: Guard<Option<Arc<Source>>>,
    way: Way,
}

enum Way {
    /// The chunk is unpacked already.
    Kept(Row),
    /// These bytes are the record.
    Direct(Range<u64>),
    /// The chunk holds this one record, whose size is known.
    Alone(Chunk, usize),
    /// The chunk has to be unpacked to get at the row.
    Among(Chunk, u64),
}

impl Plan {
    fn source(&self) -> &Source {
        self.source.as_ref().expect("a plan is made from an open source")
    }

    /// The size of the record, where it is known before reading.
    pub fn size(&self) -> Result<Option<usize>> {
        match &self.way {
            Way::Kept(row) => Ok(Some(row.as_ref().len())),
            Way::Direct(range) => bytes::in_memory("record", range.end - range.start).map(Some),
            Way::Alone(_, size) => Ok(Some(*size)),
            Way::Among(..) => Ok(None),
        }
    }

    /// Adds the file and the record to an error. Damage in a file that was cut meanwhile is the cut.
    fn locate(&self, error: Error) -> Error {
        let storage = &self.source().storage;
        let error = match error.kind() {
            Kind::External(_) => return error,
            Kind::Checksum | Kind::Format => match (storage.unchanged(), error.offset()) {
                (Err(changed), Some(offset)) => changed.at(offset),
                (Err(changed), None) => changed,
                (Ok(()), _) => error,
            },
            _ => error,
        };
        error.in_file(storage.name()).for_record(self.index)
    }
}

/// A record inside a decoded chunk.
#[derive(Clone)]
pub struct Row {
    chunk: Arc<Decoded>,
    row: u64,
}

impl AsRef<[u8]> for Row {
    fn as_ref(&self) -> &[u8] {
        self.chunk.row(self.row).unwrap_or_default()
    }
}

impl Reader {
    /// The records of all shards, one after the other. `cache_bytes` bounds the decoded chunks that are kept.
    pub fn new(shards: Vec<Arc<Shard>>, cache_bytes: usize) -> Result<Self> {
        let mut end = 0u64;
        let mut ends = Vec::with_capacity(shards.len());
        for shard in &shards {
            end = end.checked_add(shard.records()).ok_or_else(|| Error::limit("more than 2^64 records"))?;
            ends.push(end);
        }
        Ok(Reader {
            shards,
            ends,
            cache: Cache::new(cache_bytes),
            warmth: Warmth::default(),
            closed: AtomicBool::new(false),
        })
    }

    /// How many records there are.
    pub fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The files.
    pub fn shards(&self) -> &[Arc<Shard>] {
        &self.shards
    }

    /// How many bytes of decoded chunks are kept at the most.
    pub fn cache_bytes(&self) -> usize {
        self.cache.limit()
    }

    /// Gives all descriptors and caches back; every read from now on is an error.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.cache.clear();
        self.shards.iter().for_each(|shard| shard.release());
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// The shard that holds a record, and the record's number in its file.
    pub fn locate(&self, index: u64) -> Result<(usize, u64)> {
        if index >= self.len() {
            return Err(Error::new(Kind::Index, format!("record {index} of {}", self.len())));
        }
        let shard = self.ends.partition_point(|&end| end <= index);
        let begin = if shard == 0 { 0 } else { self.ends[shard - 1] };
        Ok((shard, self.shards[shard].first() + (index - begin)))
    }

    /// An error if it was closed.
    pub fn check_open(&self) -> Result<()> {
        match self.is_closed() {
            true => Err(Error::closed("these records are closed").hint("open them again")),
            false => Ok(()),
        }
    }

    /// Whether the file that holds a record is open, so that [`plan`](Self::plan) makes no I/O.
    pub fn is_ready(&self, index: u64) -> bool {
        self.locate(index).is_ok_and(|(shard, _)| self.shards[shard].is_open())
    }

    /// Finds the way to a record. No I/O, unless its file is not open yet or keeps its table on disk.
    pub fn plan(&self, index: u64) -> Result<Plan> {
        self.check_open()?;
        let (shard, record) = self.locate(index)?;
        let source = self.shards[shard].source()?;
        let way = match source.as_ref() {
            Some(opened) => match self.kept(opened, shard, record) {
                Some(row) => Way::Kept(row),
                None => find_way(opened, record)
                    .map_err(|e| e.in_file(opened.storage.name()).for_record(index))?,
            },
            None => return Err(Error::closed("these records were closed meanwhile").hint("open them again")),
        };
        Ok(Plan { index, shard, record, source, way })
    }

    /// The record, where a shorter way to it may be known but its chunk is unpacked already.
    fn kept(&self, source: &Source, shard: usize, record: u64) -> Option<Row> {
        let (chunk, row) = source.table.shared(record)?;
        let row = Row { chunk: self.cache.get((shard, chunk))?, row };
        row.chunk.row(row.row).is_some().then_some(row)
    }

    /// The size of a record, where it is known before reading.
    pub fn size(&self, index: u64) -> Result<Option<u64>> {
        self.check_open()?;
        let (shard, record) = self.locate(index)?;
        match self.shards[shard].source()?.as_ref() {
            Some(source) => source.table.size(record),
            None => Ok(None),
        }
    }

    /// Whether reading a record is likely to be over sooner than another thread could use the time.
    pub fn is_quick(&self, plan: &Plan) -> bool {
        let storage = &plan.source().storage;
        storage.is_memory() || self.warmth.is_warm() && storage.is_mapped()
    }

    /// Reads a record of known size into its place.
    pub fn read_into(&self, plan: &Plan, out: &mut [u8]) -> Result<()> {
        self.warmth.learn(out.len(), || self.fill(plan, out)).map_err(|e| plan.locate(e))
    }

    fn fill(&self, plan: &Plan, out: &mut [u8]) -> Result<()> {
        let source = plan.source();
        match &plan.way {
            Way::Kept(row) if row.as_ref().len() == out.len() => {
                out.copy_from_slice(row.as_ref());
                Ok(())
            }
            Way::Kept(_) => Err(Error::argument("the record has another size than its place")),
            Way::Direct(range) => {
                match source.storage.borrow(range.start, out.len())? {
                    Some(borrowed) => borrowed.with(|bytes| {
                        out.copy_from_slice(bytes);
                        Ok(())
                    })?,
                    None => source.storage.read_at(range.start, out)?,
                }
                source.table.check(plan.record, out)
            }
            Way::Alone(chunk, _) => {
                with_stored(source, chunk, |stored| source.table.decode_into(chunk, stored, out))
            }
            Way::Among(..) => Err(Error::argument("the size of this record is not known before it is read")),
        }
    }

    /// Reads a record whose size is not known before: its chunk is unpacked and kept for its neighbours.
    pub fn read_row(&self, plan: &Plan) -> Result<Row> {
        let (chunk, row) = match &plan.way {
            Way::Among(chunk, row) => (chunk, *row),
            Way::Kept(row) => return Ok(row.clone()),
            Way::Direct(_) | Way::Alone(..) => {
                let mut out = bytes::zeroed("record", plan.size()?.unwrap_or(0) as u64)?;
                self.read_into(plan, &mut out)?;
                let ends = vec![out.len()];
                return Ok(Row { chunk: Arc::new(Decoded::new(out, ends)?), row: 0 });
            }
        };
        let key = (plan.shard, chunk.index);
        let decoded = match self.cache.get(key) {
            Some(decoded) => decoded,
            None => {
                let source = plan.source();
                let decode = |stored: &[u8]| source.table.decode(chunk, stored);
                let decoded = with_stored(source, chunk, decode).map_err(|e| plan.locate(e))?;
                let decoded = Arc::new(decoded);
                self.cache.put(key, decoded.clone());
                decoded
            }
        };
        match decoded.row(row) {
            Some(_) => Ok(Row { chunk: decoded, row }),
            None => Err(plan.locate(
                Error::format("chunk holds fewer records than the table says")
                    .at(chunk.stored.start)
                    .expected(chunk.records)
                    .found(decoded.rows()),
            )),
        }
    }

    /// Reads one record into a new vector.
    pub fn read(&self, index: u64) -> Result<Vec<u8>> {
        let plan = self.plan(index)?;
        match plan.size()? {
            Some(size) => {
                let mut out = bytes::zeroed("record", size as u64)?;
                self.read_into(&plan, &mut out)?;
                Ok(out)
            }
            None => Ok(self.read_row(&plan)?.as_ref().to_vec()),
        }
    }
}

fn find_way(source: &Source, record: u64) -> Result<Way> {
    if let Some(range) = source.table.direct(record)? {
        return Ok(Way::Direct(range));
    }
    let (chunk, row) = source.table.locate(record)?;
    match source.table.size(record)? {
        Some(size) if chunk.records == 1 => Ok(Way::Alone(chunk, bytes::in_memory("record", size)?)),
        _ => Ok(Way::Among(chunk, row)),
    }
}

/// Calls `act` with the stored bytes of a chunk: in place where they are in memory, else read into scratch space.
fn with_stored<T>(source: &Source, chunk: &Chunk, act: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
    thread_local! {
        static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    let size = source.storage.len();
    let range =
        bytes::range("chunk", chunk.stored.start, chunk.stored.end.saturating_sub(chunk.stored.start), size)?;
    let length = bytes::in_memory("chunk", range.end - range.start)?;
    if let Some(borrowed) = source.storage.borrow(range.start, length)? {
        return borrowed.with(act);
    }
    // Taken, not borrowed: a storage in Python may read records itself while it is being read from.
    let mut scratch = SCRATCH.take();
    if scratch.len() < length {
        scratch = bytes::zeroed("chunk", length as u64)?;
    }
    let result =
        source.storage.read_at(range.start, &mut scratch[..length]).and_then(|()| act(&scratch[..length]));
    if scratch.capacity() <= SCRATCH_KEPT {
        SCRATCH.set(scratch);
    }
    result
}
