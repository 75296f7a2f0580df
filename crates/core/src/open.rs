//! Opens many files at once. Reads their tables together. Damage in a table is an error when the files are opened.
//!
//! Opening one file takes a few small reads, and each depends on the one before: the beginning, the end, the table. If
//! files were opened one after the other, every read would wait for the disk or the server. So all files go through
//! the same steps together:
//!
//! 1. [`fetch`] reads the beginnings of all files at once.
//! 2. The table of every file is read from the bytes in memory. [`Partial`] notes which ranges are missing.
//! 3. [`fetch`] reads the missing ranges of all files at once. Then step 2 is repeated.
//!
//! A file is done when its table is read. A file with a large table, with damage, or without a table is opened
//! separately, in one of several threads. So error messages are made in one place, and no large table is copied.

use crate::budget::Budget;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::format::{Format, ReadOptions, Table, detect};
use crate::parallel;
use crate::process;
use crate::shard::{RecordRange, Shard, Source, first_part};
use crate::storage::ReadOp;
use crate::storage::buffered::Buffered;
use crate::storage::fetch::{Fetch, Queue, fetch};
use crate::storage::location::{Location, Opened};
use crate::storage::partial::{FetchedRange, Partial};
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Threads that open files. They mostly wait, so there are more than there usually are cores.
const OPENERS: usize = 16;
/// Up to this many files are opened one by one. Opening so few together costs more than it saves.
const FEW: usize = 4;
/// At most this many files are opened together.
const TOGETHER: usize = 1024;
/// After this many steps, a file is opened separately. A format with a table needs at most 4.
const STEPS: usize = 5;
/// The bytes of all files that are in memory at once, without their beginnings. A file that needs more is opened
/// separately.
const MOST_BYTES: u64 = 64 << 20;
/// Bytes that are read from the beginning of every file. Every format has something there.
const BEGINNING: u64 = 4096;
/// At most this many bytes of one file are fetched in one step.
const MOST_OF_A_FILE: u64 = 1 << 20;

/// Opens files, in the given order, as one data set.
pub fn open_files(
    files: Vec<(Location, RecordRange)>,
    format: Option<&str>,
    options: ReadOptions,
    cx: &Cx<'_>,
) -> Result<Vec<Arc<Shard>>> {
    let wanted: Vec<_> = files.iter().map(|(location, _)| (location, format)).collect();
    let sources = Opener { options }.open_all(&wanted, cx)?;
    let shard = |((location, range), source)| {
        Shard::of_source(location, range, source, options, cx.budget.files().clone()).map(Arc::new)
    };
    files.into_iter().zip(sources).map(shard).collect()
}

/// Opens the files of shards of one data set that are not open yet.
pub fn open_shards(shards: &[&Shard], cx: &Cx<'_>) -> Result<()> {
    let Some(first) = shards.first() else { return Ok(()) };
    let budget = Budget::new(&first.options().limits, first.files());
    let wanted: Vec<_> = shards.iter().map(|shard| (shard.location(), Some(shard.format()))).collect();
    let sources =
        Opener { options: *first.options() }.open_all(&wanted, &Cx { budget: &budget, stop: cx.stop })?;
    shards.iter().zip(sources).try_for_each(|(shard, source)| shard.set_source(source))
}

/// Where a file is, and its format if that is given.
type Wanted<'f> = (&'f Location, Option<&'f str>);

/// Opens files with options.
struct Opener {
    options: ReadOptions,
}

/// A file that is being opened.
struct PendingFile<'f> {
    location: &'f Location,
    format: Option<&'f str>,
    opened: Opened,
    /// The pieces before `filled` hold bytes that were read. The others are still empty.
    pieces: Vec<FetchedRange>,
    filled: usize,
    state: TableState,
}

enum TableState {
    /// The table is not read yet. The next try may need more bytes.
    Trying,
    /// The table was read.
    Done(&'static Format, Box<dyn Table>),
    /// The file is opened separately.
    Alone,
}

/// The outcome of one try.
enum Tried {
    Table(&'static Format, Box<dyn Table>),
    Missing(Vec<Range<u64>>),
    Failed,
}

impl Opener {
    /// Opens files. The results are in the same order.
    fn open_all(&self, files: &[Wanted<'_>], cx: &Cx<'_>) -> Result<Vec<Source>> {
        let is_remote = files.iter().any(|(location, _)| location.as_url().is_some());
        if files.len() <= FEW && !is_remote {
            return parallel::for_each(files, 1, cx, |(location, format), cx| {
                Source::open(location, *format, &self.options, cx)
            });
        }
        let mut sources = Vec::with_capacity(files.len());
        // At most as many files as may be open at once. With more, files would have to be reopened at every step.
        for files in files.chunks(cx.budget.files().handles.limit().min(TOGETHER)) {
            sources.extend(self.open_together(files, cx)?);
        }
        Ok(sources)
    }

    fn open_together(&self, files: &[Wanted<'_>], cx: &Cx<'_>) -> Result<Vec<Source>> {
        // A forked child starts no short-lived threads. The C library may give a new thread the stack of a thread that
        // was ending in the parent at the moment of the fork. It then frees the thread-local memory of that thread a
        // second time (seen with glibc 2.36). Thread pools are started only once, so they hit this much more rarely.
        let is_forked = process::generation() > 0;
        let openers = if is_forked { 1 } else { OPENERS };
        let cores = if is_forked { 1 } else { std::thread::available_parallelism().map_or(1, usize::from) };
        let mut opening = self.start(files, openers, cx)?;
        self.read_tables(&mut opening, cores, cx)?;
        self.finish(opening, openers, cx)
    }

    fn start<'f>(&self, files: &[Wanted<'f>], threads: usize, cx: &Cx<'_>) -> Result<Vec<PendingFile<'f>>> {
        let locations: Vec<_> =
            files.iter().map(|&(location, format)| (location, first_part(location, format))).collect();
        let mut objects = Location::open_objects(&locations, cx)?.into_iter();
        let objects: Vec<_> =
            files.iter().map(|(location, _)| location.as_url().and_then(|_| objects.next())).collect();
        let all: Vec<_> =
            files.iter().zip(objects).map(|(file, object)| (file, Mutex::new(object))).collect();
        parallel::for_each(&all, threads, cx, |(file, object), cx| {
            if let Some(object) = object.lock().ok().and_then(|mut object| object.take()) {
                return object.map(|opened| pending_object(**file, opened));
            }
            let &&(location, format) = file;
            let opened = location.open(self.options.io, first_part(location, format), cx)?;
            if opened.part.is_some() {
                return Ok(pending_object(**file, opened));
            }
            let beginning = FetchedRange::empty(0..BEGINNING.min(opened.storage.len()))
                .map_err(|error| error.in_file(opened.storage.name()));
            let (state, pieces) = match opened.storage.queue() {
                // This storage shares no queue with others, so reading them together gains nothing.
                Queue::Own => (TableState::Alone, Vec::new()),
                _ if is_without_table(**file) => (TableState::Alone, Vec::new()),
                _ => (TableState::Trying, vec![beginning?]),
            };
            Ok(PendingFile { location, format, opened, pieces, filled: 0, state })
        })
    }

    /// Reads the tables of the files together, except where that gains nothing.
    fn read_tables(&self, opening: &mut [PendingFile<'_>], threads: usize, cx: &Cx<'_>) -> Result<()> {
        read_missing(&mut still_trying(opening), cx)?;
        let mut left = MOST_BYTES;
        for _ in 0..STEPS {
            let mut trying = still_trying(opening);
            if trying.is_empty() {
                break;
            }
            let tried = parallel::for_each(&trying, threads, cx, |file, cx| Ok(self.try_one(file, cx)))?;
            trying.iter_mut().zip(tried).for_each(|(file, tried)| file.take(tried, &mut left));
            read_missing(&mut still_trying(opening), cx)?;
        }
        Ok(())
    }

    /// Opens the remaining files separately.
    fn finish(&self, opening: Vec<PendingFile<'_>>, threads: usize, cx: &Cx<'_>) -> Result<Vec<Source>> {
        let alone: Vec<_> =
            opening.iter().filter(|file| !matches!(file.state, TableState::Done(..))).collect();
        let sources = parallel::for_each(&alone, threads, cx, |file, cx| {
            let storage = Buffered::new(&*file.opened.storage, &file.pieces[..file.filled]);
            let (format, table) =
                Source::read_table(&storage, file.location, file.format, &self.options, cx)?;
            Source::new(file.opened.clone(), format, table, &self.options)
        })?;
        let mut sources = sources.into_iter();
        let source = |file: PendingFile<'_>| match file.state {
            TableState::Done(format, table) => Source::new(file.opened, format, table, &self.options),
            TableState::Trying | TableState::Alone => sources.next().ok_or_else(Error::cancellation),
        };
        opening.into_iter().map(source).collect()
    }

    /// Reads the table of a file from the bytes that are in memory.
    fn try_one(&self, file: &PendingFile<'_>, cx: &Cx<'_>) -> Tried {
        let (options, storage) = (&self.options, Partial::new(&*file.opened.storage, &file.pieces));
        let read = || {
            // A request for the bytes that prove the format of a remote object is saved if its table can be read.
            let named = file.location.as_url().and_then(|url| detect::by_suffix(url.shown()));
            if let Some(format) =
                named.filter(|format| file.format.is_none() && format.open_indexed.is_none())
            {
                match (format.open)(&storage, options, cx) {
                    Err(_) if !storage.is_missing_something() => {}
                    table => return Ok((format, table?)),
                }
            }
            let format = detect::named_or_detected(file.format, &storage, options, cx)?;
            // The format has no table, but the file name did not show that.
            if format.open_indexed.is_some() {
                return Err(Error::cancellation());
            }
            Ok((format, (format.open)(&storage, options, cx)?))
        };
        let read = read();
        let missing = storage.into_missing();
        match read {
            _ if !missing.is_empty() => Tried::Missing(missing),
            Ok((format, table)) => Tried::Table(format, table),
            Err(_) => Tried::Failed,
        }
    }
}

/// A remote object, with the bytes that came with opening.
fn pending_object((location, format): Wanted<'_>, mut opened: Opened) -> PendingFile<'_> {
    let part = opened.part.take().and_then(Arc::into_inner);
    let pieces: Vec<_> = part.into_iter().collect();
    let is_alone = is_without_table((location, format));
    let state = if is_alone { TableState::Alone } else { TableState::Trying };
    PendingFile { location, format, opened, filled: pieces.len(), pieces, state }
}

/// Whether the file seems to be of a format without a table. Opening such a file searches all of it for chunks.
fn is_without_table((location, format): Wanted<'_>) -> bool {
    let format = match format {
        Some(name) => detect::by_name(name).ok(),
        None => detect::by_suffix(&location.name()),
    };
    format.is_some_and(|format| format.open_indexed.is_some())
}

impl PendingFile<'_> {
    /// Takes the outcome of a try. Adds an empty piece for each missing range. If they exceed the bytes `left`, or if
    /// there is not enough memory, the file is opened separately.
    fn take(&mut self, tried: Tried, left: &mut u64) {
        match tried {
            Tried::Table(format, table) => {
                self.state = TableState::Done(format, table);
                // `left` does not count the first piece, the beginning of the file.
                *left += self.pieces.drain(..).skip(1).map(|piece| piece.bytes.len() as u64).sum::<u64>();
            }
            Tried::Missing(ranges) => match empty_pieces(ranges, left) {
                Some(pieces) => self.pieces.extend(pieces),
                None => self.state = TableState::Alone,
            },
            Tried::Failed => self.state = TableState::Alone,
        }
    }

    /// The reads that fill the empty pieces.
    fn job(&mut self) -> Fetch<'_, '_> {
        let empty = self.pieces[self.filled..].iter_mut();
        let ops = empty.map(|piece| ReadOp { at: piece.at, out: &mut piece.bytes }).collect();
        Fetch { storage: &*self.opened.storage, ops }
    }
}

/// Buffers for ranges of one file. None if they are too large for one step, for `left`, or for the memory.
fn empty_pieces(ranges: Vec<Range<u64>>, left: &mut u64) -> Option<Vec<FetchedRange>> {
    let bytes = ranges.iter().map(|range| range.end - range.start).sum::<u64>();
    if bytes > MOST_OF_A_FILE.min(*left) {
        return None;
    }
    let pieces = ranges.into_iter().map(FetchedRange::empty).collect::<Result<_>>().ok()?;
    *left -= bytes;
    Some(pieces)
}

/// Fetches the missing bytes of the files. If that fails, each file is opened separately, and the opening of the faulty
/// one returns the error.
fn read_missing(files: &mut [&mut PendingFile<'_>], cx: &Cx<'_>) -> Result<()> {
    let mut jobs: Vec<_> = files.iter_mut().map(|file| file.job()).collect();
    let fetched = fetch(&mut jobs, cx);
    drop(jobs);
    if fetched.is_err() {
        cx.check()?;
    }
    for file in files {
        match fetched {
            Ok(()) => file.filled = file.pieces.len(),
            Err(_) => file.state = TableState::Alone,
        }
    }
    Ok(())
}

fn still_trying<'o, 'f>(files: &'o mut [PendingFile<'f>]) -> Vec<&'o mut PendingFile<'f>> {
    files.iter_mut().filter(|file| matches!(file.state, TableState::Trying)).collect()
}

#[cfg(test)]
mod tests;
