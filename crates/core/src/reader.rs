//! Reading: plan, fetch, decode, deliver.
//!
//! Reading one record is `plan` -> `read_into`. It uses no thread pool, no queue, no lock and no count of readers.
//! Reading many records is `read_batch` in `batch`: the same steps for many records.

mod announce;
mod batch;
mod crew;
mod damage;
mod deliver;
mod export;
mod in_order;
mod packed;
mod page_cache;
mod planning;
mod read_around;
mod row;
mod spread;
mod stored;
mod survey;

pub use damage::{Damage, Lost};
pub use deliver::Deliver;
pub use export::Export;
pub use in_order::DecodedAhead;
pub use packed::{Filled, Packed, ReadPacked};
pub use row::Row;

use crate::budget::Budget;
use crate::bytes;
use crate::cache::Cache;
use crate::cx::Cx;
use crate::error::{Error, Kind, Result};
use crate::format::{Chunk, Decoded, Way};
use crate::limits::Limits;
use crate::open::open_shards;
use crate::pool;
use crate::process::PerProcess;
use crate::shard::{Shard, Source};
use crate::storage::Distance;
use crate::storage::file_set::FileSet;
use crate::storage::remote::ahead::AheadUser;
use crate::storage::stats::COUNTS;
use damage::KnownDamage;
use page_cache::{ExpectedChunk, PageCacheHint};
use read_around::Progress;
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stored::{By, borrow, check_near, stored_length, with_stored};

/// Many files as one sequence of records.
pub struct Reader {
    shards: Vec<Arc<Shard>>,
    /// For each shard, the number of the first record after it.
    ends: Vec<u64>,
    /// Decoded chunks, by the index of the shard and the index of the chunk in its file.
    cache: Cache<(usize, u64), Decoded>,
    /// How many threads may decode a batch. None: as many as [`pool::default_threads`] returns.
    threads: Option<usize>,
    /// The limits of one call, and the state that the files share.
    limits: Limits,
    files: Arc<FileSet>,
    /// Whether some of the files are on servers.
    is_remote: bool,
    /// Whether some of the files are objects, and not local.
    has_objects: bool,
    /// Whether recent reads hit the page cache.
    page_cache: PageCacheHint,
    /// How far cold files were read around random reads.
    around: PerProcess<Progress>,
    /// The size of recently decoded chunks.
    expected: ExpectedChunk,
    /// The records that could not be read.
    damage: KnownDamage,
    closed: AtomicBool,
}

/// Where a record is, and the fastest way to read it.
pub struct Plan<'a> {
    index: u64,
    shard: usize,
    /// The record's number in its own file.
    record: u64,
    source: &'a Source,
    place: PlannedRead,
}

enum PlannedRead {
    /// The decoded chunk is in the cache.
    Kept(Row),
    /// The record has to be read from the storage.
    Stored(Way),
}

impl Plan<'_> {
    /// The size of the record, if it is known before reading.
    #[inline]
    pub fn size(&self) -> Result<Option<usize>> {
        match &self.place {
            PlannedRead::Kept(row) => Ok(Some(row.as_ref().len())),
            PlannedRead::Stored(Way::Plain { stored: range, .. }) => {
                bytes::in_memory("record", range.end - range.start).map(Some)
            }
            PlannedRead::Stored(Way::Alone { size, .. }) => Ok(Some(*size)),
            PlannedRead::Stored(Way::Shared(..)) => Ok(None),
        }
    }

    /// The chunk that has to be read.
    fn chunk(&self) -> Option<&Chunk> {
        match &self.place {
            PlannedRead::Stored(Way::Shared(chunk, _)) => Some(chunk),
            _ => None,
        }
    }

    /// The bytes of the file that have to be read.
    fn stored(&self) -> Option<Range<u64>> {
        match &self.place {
            PlannedRead::Stored(Way::Plain { stored: range, .. } | Way::Alone { stored: range, .. }) => {
                Some(range.clone())
            }
            PlannedRead::Stored(Way::Shared(chunk, _)) => Some(chunk.stored.clone()),
            PlannedRead::Kept(_) => None,
        }
    }

    /// Whether the page cache has the bytes that have to be read. Costs a system call.
    fn is_cached(&self) -> bool {
        self.stored().is_none_or(|range| is_cached(self.source, &range))
    }

    /// How many bytes of the file have to be read.
    #[inline]
    fn stored_bytes(&self) -> u64 {
        match &self.place {
            PlannedRead::Stored(Way::Plain { stored: range, .. } | Way::Alone { stored: range, .. }) => {
                range.end.saturating_sub(range.start)
            }
            PlannedRead::Stored(Way::Shared(chunk, _)) => chunk.stored.end.saturating_sub(chunk.stored.start),
            PlannedRead::Kept(_) => 0,
        }
    }

    /// Prefetches the beginning of the record's bytes into the processor's cache. Meanwhile the caller can allocate
    /// memory for the record.
    #[inline]
    pub fn prefetch(&self) {
        if let Some(range) = self.stored()
            && let Some(mapped) = self.source.mapped()
        {
            mapped.prefetch(range);
        }
    }

    /// Adds the file and the record to an out-of-memory error. Other errors stay unchanged.
    #[cold]
    pub fn attribute_memory(&self, error: Error) -> Error {
        if matches!(error.kind(), Kind::Memory) { self.attribute(error) } else { error }
    }

    /// Adds the file and the record to an error. If the file was truncated meanwhile, that is reported instead of the
    /// damage.
    #[cold]
    fn attribute(&self, error: Error) -> Error {
        let storage = self.source.storage();
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

impl Reader {
    /// The records of all shards, one after the other. `cache_bytes` limits the cache of decoded chunks. `threads` is
    /// the number of threads that decode a batch (1: the caller alone; none: a default that depends on the number of
    /// cores).
    pub fn new(shards: Vec<Arc<Shard>>, cache_bytes: usize, threads: Option<usize>) -> Result<Self> {
        let mut end = 0u64;
        let mut ends = Vec::with_capacity(shards.len());
        for shard in &shards {
            end = end.checked_add(shard.records()).ok_or_else(|| Error::limit("more than 2^64 records"))?;
            ends.push(end);
        }
        shards.iter().for_each(|shard| shard.retain());
        let is_remote = shards.iter().any(|shard| shard.location().as_url().is_some());
        let has_objects = shards.iter().any(|shard| shard.path().is_none());
        let limits = shards.first().map_or_else(Limits::default, |shard| shard.options().limits);
        let files = shards.first().map_or_else(|| FileSet::new(&limits), |shard| shard.files().clone());
        Ok(Reader {
            shards,
            ends,
            cache: Cache::new(cache_bytes),
            threads,
            limits,
            files,
            is_remote,
            has_objects,
            page_cache: PageCacheHint::default(),
            around: PerProcess::default(),
            expected: ExpectedChunk::default(),
            damage: KnownDamage::default(),
            closed: AtomicBool::new(false),
        })
    }

    /// The budget of one call.
    #[inline]
    pub fn budget(&self) -> Budget<'_> {
        Budget::new(&self.limits, &self.files)
    }

    /// Counters of what was read, by their names.
    pub fn stats(&self) -> [(&'static str, u64); COUNTS] {
        self.files.stats.counts()
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

    /// The most bytes of decoded chunks that the cache holds.
    pub fn cache_bytes(&self) -> usize {
        self.cache.limit()
    }

    /// Releases all file descriptors and caches. Every later read is an error.
    pub fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.cache.clear();
            self.shards.iter().for_each(|shard| shard.release());
        }
    }

    /// How many threads may decode a batch.
    pub fn threads(&self) -> Option<usize> {
        self.threads
    }

    /// How many threads may decode a batch, in this process.
    fn decoders(&self) -> usize {
        self.threads.unwrap_or_else(pool::default_threads)
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// The shard that holds a record, and the record's number in its file.
    #[inline]
    pub fn shard_of(&self, index: u64) -> Result<(usize, u64)> {
        if index >= self.len() {
            return Err(Error::new(
                Kind::Index,
                format!("record {index} is out of range: there are {} records", self.len()),
            ));
        }
        let shard = if self.ends.len() == 1 { 0 } else { self.ends.partition_point(|&end| end <= index) };
        let begin = if shard == 0 { 0 } else { self.ends[shard - 1] };
        Ok((shard, self.shards[shard].first() + (index - begin)))
    }

    /// Returns an error if the reader was closed.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        if self.is_closed() { Err(closed()) } else { Ok(()) }
    }

    /// Finds the way to a record. Does no I/O, unless the file is not open yet or keeps its table on disk.
    pub fn plan(&self, index: u64, cx: &Cx<'_>) -> Result<Plan<'_>> {
        self.check_open()?;
        let (shard, record) = self.shard_of(index)?;
        self.plan_in(self.shards[shard].source(cx)?, index, shard, record)
    }

    /// Like [`plan`](Self::plan), but does no I/O: none if the file is not open yet, or keeps its table on disk.
    #[inline]
    pub fn plan_without_io(&self, index: u64) -> Result<Option<Plan<'_>>> {
        self.check_open()?;
        let (shard, record) = self.shard_of(index)?;
        match self.shards[shard].opened_source() {
            Some(source) if source.has_table_in_memory => {
                self.plan_in(source, index, shard, record).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Opens objects together that are not open yet. Opened one after the other, each would wait for its server.
    pub fn open_objects(&self, shards: impl IntoIterator<Item = usize>, cx: &Cx<'_>) -> Result<()> {
        if !self.has_objects {
            return Ok(());
        }
        let is_closed = |shard: &Shard| shard.opened_source().is_none() && shard.path().is_none();
        let closed: BTreeSet<_> = shards
            .into_iter()
            .filter(|&shard| self.shards.get(shard).is_some_and(|s| is_closed(s)))
            .collect();
        let mut closed: Vec<_> = closed.into_iter().map(|shard| &self.shards[shard]).collect();
        // Each data set has its own options and limits.
        closed.sort_by_key(|shard| Arc::as_ptr(shard.files()).addr());
        for of_one in closed.chunk_by(|a, b| Arc::ptr_eq(a.files(), b.files())) {
            open_shards(&of_one.iter().map(|shard| &***shard).collect::<Vec<_>>(), cx)?;
        }
        Ok(())
    }

    // This and the next must be inlined: as calls they cost a single read 24 instructions.
    #[inline(always)]
    fn plan_in<'a>(&'a self, source: &'a Source, index: u64, shard: usize, record: u64) -> Result<Plan<'a>> {
        let place = self.place_of(source, shard, record);
        let place = place.map_err(|e| e.in_file(source.storage().name()).for_record(index))?;
        Ok(Plan { index, shard, record, source, place })
    }

    #[inline(always)]
    fn place_of(&self, source: &Source, shard: usize, record: u64) -> Result<PlannedRead> {
        // The table may know a short way to the record, but none is as short as a decoded chunk in the cache.
        if let Some((chunk, row)) = source.table.shared_chunk(record)
            && let Some(row) = self.kept(shard, chunk, row)
        {
            return Ok(PlannedRead::Kept(row));
        }
        let way = source.table.way(record)?;
        if let Way::Shared(chunk, row) = &way
            && let Some(row) = self.kept(shard, chunk.index, *row)
        {
            return Ok(PlannedRead::Kept(row));
        }
        Ok(PlannedRead::Stored(way))
    }

    /// The record, if its decoded chunk is in the cache.
    fn kept(&self, shard: usize, chunk: u64, row: u64) -> Option<Row> {
        let row = Row { chunk: self.cache.get((shard, chunk))?, row };
        row.chunk.row(row.row).is_some().then_some(row)
    }

    /// Whether recent reads hit the page cache.
    pub fn is_warm(&self) -> bool {
        self.page_cache.is_warm() && (!self.is_remote || self.is_cached())
    }

    /// Whether some of the files are on servers.
    pub fn is_remote(&self) -> bool {
        self.is_remote
    }

    /// About how many bytes of a file there are for each record, by the files that are open.
    pub fn mean_bytes(&self) -> u64 {
        let opened = self.shards.iter().filter_map(|shard| shard.opened_source());
        let about = |source: &Source| (source.storage().len(), source.table.records());
        let sums = opened.map(about).fold((0u64, 0u64), |sum, (bytes, records)| {
            (sum.0.saturating_add(bytes), sum.1.saturating_add(records))
        });
        sums.0 / sums.1.max(1)
    }

    /// Joins the iterations that fetch from servers before they read: in each data set that was opened by itself.
    pub fn fetch_ahead(&self) -> Vec<AheadUser> {
        let mut seen = HashSet::new();
        let sets = self.shards.iter().map(|shard| shard.files()).filter(|_| self.is_remote);
        sets.filter(|files| seen.insert(Arc::as_ptr(files)))
            .map(|files| AheadUser::new(&files.ahead))
            .collect()
    }

    /// How many bytes are in memory because they were fetched ahead, or are on their way.
    pub fn ahead_bytes(&self) -> u64 {
        self.files.ahead.bytes()
    }

    /// How many bytes an iteration over files on servers fetches before they are read, and for how long they last at
    /// most. None if there are no such files.
    pub fn readahead(&self) -> Option<(u64, Duration)> {
        let mut opened = self.shards.iter().filter_map(|shard| shard.opened_source());
        let mut far = || opened.find_map(|source| Some(source.storage().distance()).filter(Distance::is_far));
        // Several iterations share it.
        let users = self.files.ahead.users().max(1) as u64;
        let share = |distance: Distance| (distance.ahead.div_ceil(users), distance.ahead_time);
        self.is_remote.then(|| far().map_or((0, Duration::ZERO), share))
    }

    /// Whether reading a record is likely to end before another thread could make use of the time.
    #[inline]
    pub fn is_quick(&self, plan: &Plan<'_>) -> bool {
        match plan.source.mapped() {
            Some(mapped) => self.page_cache.is_warm() || mapped.is_memory(),
            None => false,
        }
    }

    /// Like [`read_into`](Self::read_into), for a record that [`is_quick`](Self::is_quick). If it has to be fetched from
    /// a server, the error [is elsewhere](Error::is_elsewhere). The caller makes sure that no two threads call this at
    /// the same time.
    #[inline]
    pub fn read_quickly(&self, plan: &Plan<'_>, out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
        match self.page_cache.learn(1, out.len(), || fill(plan, out, By::MapOnly, cx)) {
            Ok(()) => {
                self.files.stats.read_by_one(plan.stored_bytes());
                Ok(())
            }
            Err(error) => Err(plan.attribute(error)),
        }
    }

    /// Reads a record of known size into `out`.
    // As a call of its own it would take 25 more instructions.
    #[inline(always)]
    pub fn read_into(&self, plan: &Plan<'_>, out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
        if !self.page_cache.is_warm() && plan.source.mapped().is_some_and(|mapped| mapped.has_descriptor()) {
            return self.read_by_call(plan, out, cx);
        }
        if plan.is_in_place() {
            self.files.stats.read_mapped(1, plan.stored_bytes());
        }
        self.page_cache.learn(1, out.len(), || fill(plan, out, By::Map, cx)).map_err(|e| plan.attribute(e))
    }

    /// Reads a record that may be cold by a system call, and then what is around it.
    #[cold]
    #[inline(never)]
    fn read_by_call(&self, plan: &Plan<'_>, out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
        let read = self.page_cache.learn(1, out.len(), || fill(plan, out, By::Call, cx));
        self.read_around_one(plan, self.page_cache.has_just_missed());
        read.map_err(|e| plan.attribute(e))
    }

    /// Reads one record into a new vector.
    pub fn read(&self, index: u64) -> Result<Vec<u8>> {
        let budget = self.budget();
        let cx = Cx::new(&budget);
        let plan = self.plan(index, &cx)?;
        match plan.size()? {
            Some(size) => {
                let mut out = bytes::zeroed("record", size as u64)?;
                self.read_into(&plan, &mut out, &cx)?;
                Ok(out)
            }
            None => Ok(self.read_row(&plan, &cx)?.as_ref().to_vec()),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.close();
    }
}

/// Whether the page cache has a range of a file, as far as the file can tell.
fn is_cached(source: &Source, range: &Range<u64>) -> bool {
    let length = range.end.saturating_sub(range.start) as usize;
    source.mapped().is_none_or(|mapped| mapped.is_cached(range.start, length))
}

#[cold]
fn closed() -> Error {
    Error::closed("these records are closed").hint("open them again")
}

/// Reads a record of known size into `out`.
#[inline]
fn fill(plan: &Plan<'_>, out: &mut [u8], by: By, cx: &Cx<'_>) -> Result<()> {
    let source = plan.source;
    match &plan.place {
        // `ref`: a copy of what `borrow` has just written would stall the processor, for 10 ns a record.
        PlannedRead::Stored(Way::Plain { stored: range, checksum }) => {
            match borrow(source, range.start, out.len(), by) {
                Ok(Some(ref borrowed)) => borrowed.with(source.is_verified, cx, |bytes| {
                    source.table.copy_plain(plan.record, *checksum, bytes, out)
                }),
                Ok(None) => {
                    check_near(source, by)?;
                    source.storage().read_at(range.start, out, cx)?;
                    source.table.check(plan.record, *checksum, out)
                }
                Err(error) => Err(error),
            }
        }
        PlannedRead::Stored(Way::Alone { stored: range, .. }) => {
            let length = bytes::in_memory("chunk", range.end.saturating_sub(range.start))?;
            let decode = |stored: &[u8]| source.table.decode_into(plan.record, range.start, stored, out, cx);
            if source.is_packed {
                return with_stored(source, range, by, cx, decode);
            }
            // What is not packed is decoded from the map: the tables verify the copy that they make.
            match borrow(source, range.start, length, by) {
                Ok(Some(ref borrowed)) => borrowed.with(source.is_verified, cx, decode),
                Ok(None) => {
                    check_near(source, by)?;
                    with_stored(source, range, By::Call, cx, decode)
                }
                Err(error) => Err(error),
            }
        }
        PlannedRead::Kept(row) if row.as_ref().len() == out.len() => {
            out.copy_from_slice(row.as_ref());
            Ok(())
        }
        PlannedRead::Kept(_) => Err(Error::argument("the record's size differs from its output buffer")),
        PlannedRead::Stored(Way::Shared(..)) => {
            Err(Error::argument("the size of this record is not known before it is read"))
        }
    }
}
