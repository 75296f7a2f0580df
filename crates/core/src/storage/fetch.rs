//! Reads ranges of many storages together.
//!
//! A batch may need ranges of many files. If the files were read one after the other, every read would wait for its disk
//! or its server. So [`fetch`] takes all ranges at once, and one queue serves all storages of the same kind. O_DIRECT
//! files share one ring (`io_uring`). For files read through the page cache, the system is advised of the ranges before
//! they are read (read-ahead). The requests to all servers are in flight together.
//!
//! When [`fetch`] returns, no read is in flight. While it runs, the queue bounds what is in flight: its memory bounds
//! the bytes, its depth bounds the requests, and the limit of the data set bounds the open files.

#[cfg(unix)]
use super::cache::{self, file::CachedFile};
use super::file::LocalFile;
use super::remote::file::RemoteFile;
use super::remote::transfer::Transfer;
use super::{ReadOp, Storage};
#[cfg(target_os = "linux")]
use super::{cold, direct};
use crate::cx::Cx;
use crate::error::Error;
use crate::parallel;
use crate::process;
use std::sync::Mutex;

/// Ranges of one storage.
pub struct Fetch<'s, 'o> {
    /// The storage.
    pub storage: &'s dyn Storage,
    /// The ranges, and where their bytes are written to.
    pub ops: Vec<ReadOp<'o>>,
}

/// What serves the reads of a storage.
pub enum Queue<'s> {
    /// The `read_many` of the storage. No other storage shares it.
    Own,
    /// The ring of O_DIRECT reads.
    #[cfg(target_os = "linux")]
    Direct(&'s LocalFile),
    /// Reads through the page cache.
    PageCache(&'s LocalFile),
    /// Requests to servers.
    Remote(&'s RemoteFile),
    /// A local cache, and requests to servers.
    #[cfg(unix)]
    Cached(&'s CachedFile),
}

/// The number of the job that failed, and the error.
pub type Failed = (usize, Error);

/// Fills all ranges of all jobs.
pub fn fetch(jobs: &mut [Fetch<'_, '_>], cx: &Cx<'_>) -> Result<(), Failed> {
    // A single storage needs no shared queue.
    if let [job] = jobs {
        return job.storage.read_many(&mut job.ops, cx).map_err(|error| (0, error));
    }
    #[cfg(target_os = "linux")]
    let (mut directs, mut cached) = (Vec::new(), Vec::new());
    let (mut remote, mut others) = (Vec::new(), Vec::new());
    #[cfg(unix)]
    let mut with_cache = Vec::new();
    for (number, job) in jobs.iter_mut().enumerate() {
        match job.storage.queue() {
            Queue::Own => others.push((number, job)),
            Queue::Remote(file) => remote.push((number, file, &mut job.ops)),
            #[cfg(unix)]
            Queue::Cached(file) => with_cache.push((number, file, &mut job.ops)),
            #[cfg(target_os = "linux")]
            Queue::Direct(file) => directs.push((number, file, &mut job.ops)),
            #[cfg(target_os = "linux")]
            Queue::PageCache(file) => cached.push((number, file, &mut job.ops)),
            #[cfg(not(target_os = "linux"))]
            Queue::PageCache(_) => others.push((number, job)),
        }
    }
    // Requests to servers take longest. So they are sent first, and awaited last.
    let transfer = Transfer::begin(&mut remote, cx)?;
    #[cfg(target_os = "linux")]
    {
        read_direct(directs, cx)?;
        cold::read_files(cached, cx)?;
    }
    #[cfg(unix)]
    cache::read(&mut with_cache, cx)?;
    read_others(others, cx)?;
    transfer.finish(cx)
}

/// Threads that read storages far away. They mostly wait.
const READERS: usize = 16;

/// Reads storages that share no queue. Those that are far away are read in several threads.
fn read_others(jobs: Vec<(usize, &mut Fetch<'_, '_>)>, cx: &Cx<'_>) -> Result<(), Failed> {
    let (far, near): (Vec<_>, Vec<_>) =
        jobs.into_iter().partition(|(_, job)| job.storage.distance().is_far());
    for (number, job) in near {
        job.storage.read_many(&mut job.ops, cx).map_err(|error| (number, error))?;
    }
    let Some((first, _)) = far.first() else { return Ok(()) };
    // A forked child starts no short-lived threads, see `open`.
    let (first, threads) = (*first, if process::generation() > 0 { 1 } else { READERS });
    let far: Vec<_> = far.into_iter().map(|(number, job)| (number, Mutex::new(job))).collect();
    let read = parallel::for_each(&far, threads, cx, |(number, job), cx| {
        let mut job = job.lock().map_err(|_| Error::cancellation())?;
        let job = &mut **job;
        Ok(job.storage.read_many(&mut job.ops, cx).map_err(|error| (*number, error)))
    });
    read.map_err(|error| (first, error))?.into_iter().collect()
}

/// A job that is a local file.
#[cfg(target_os = "linux")]
pub type FileJob<'j, 's, 'o> = (usize, &'s LocalFile, &'j mut Vec<ReadOp<'o>>);

#[cfg(target_os = "linux")]
fn read_direct(mut jobs: Vec<FileJob<'_, '_, '_>>, cx: &Cx<'_>) -> Result<(), Failed> {
    let Some((_, file, _)) = jobs.first() else { return Ok(()) };
    // Files that are read together must be open at the same time.
    let wave = file.most_open();
    for jobs in jobs.chunks_mut(wave) {
        cx.check().map_err(|error| (jobs[0].0, error))?;
        let mut opened = Vec::with_capacity(jobs.len());
        for (number, file, _) in jobs.iter() {
            opened.push(file.open_direct().map_err(|error| (*number, error))?);
        }
        let mut wanted = Vec::new();
        jobs.iter().for_each(|(_, _, ops)| cx.budget.files().stats.read_all(ops));
        for (owner, (job, (file, direct))) in jobs.iter_mut().zip(&opened).enumerate() {
            wanted.extend(job.2.iter_mut().map(|op| {
                let op = ReadOp { at: op.at, out: &mut *op.out };
                direct::Wanted { owner, file: &file.file, direct: *direct, op }
            }));
        }
        direct::read_many(&mut wanted).map_err(|(owner, failure)| {
            let (number, file, _) = &jobs[owner];
            (*number, file.failed_direct(failure))
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::cx::for_tests;
    use crate::error::Kind;
    use crate::limits::Limits;
    use crate::storage::file::Io;
    use crate::storage::file_set::FileSet;
    use crate::storage::location::Location;
    use crate::storage::memory::Memory;
    use crate::storage::remote::open::FirstPart;
    use std::sync::Arc;

    fn content(seed: usize, length: usize) -> Vec<u8> {
        (0..length).map(|at| (at * 31 % 251) as u8 ^ seed as u8).collect()
    }

    /// Storages of three kinds in turn: O_DIRECT, page cache, memory.
    fn storages(
        folder: &std::path::Path,
        count: usize,
        limits: &Limits,
        files: &Arc<FileSet>,
    ) -> Vec<Arc<dyn Storage>> {
        let budget = Budget::new(limits, files);
        let make = |i: usize| -> Arc<dyn Storage> {
            let bytes = content(i, 20_000 + i);
            if i % 3 == 2 {
                return Arc::new(Memory::new(format!("memory {i}"), bytes));
            }
            let path = folder.join(i.to_string());
            std::fs::write(&path, bytes).unwrap();
            let io = if i.is_multiple_of(3) { Io::Direct } else { Io::Plain };
            Location::path(path).open(io, FirstPart::Beginning, &Cx::new(&budget)).unwrap().storage
        };
        (0..count).map(make).collect()
    }

    #[test]
    fn ranges_of_storages_of_all_kinds_come_together_within_the_bound_on_open_files() {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits { open_files: 5, ..Limits::default() };
        let files = FileSet::new(&limits);
        let storages = storages(folder.path(), 60, &limits, &files);
        let ranges = |i: usize| (0..i % 7).map(move |k| ((k * 2711) as u64, (k * 977) % 5000));
        let mut places: Vec<Vec<Vec<u8>>> =
            (0..60).map(|i| ranges(i).map(|(_, length)| vec![0; length]).collect()).collect();
        let mut jobs: Vec<_> = storages
            .iter()
            .zip(&mut places)
            .enumerate()
            .map(|(i, (storage, places))| {
                let ops = ranges(i).zip(places).map(|((at, _), out)| ReadOp { at, out }).collect();
                Fetch { storage: &**storage, ops }
            })
            .collect();
        fetch(&mut jobs, &for_tests(limits)).map_err(|(_, error)| error).unwrap();
        drop(jobs);
        for (i, places) in places.iter().enumerate() {
            for ((at, length), found) in ranges(i).zip(places) {
                assert!(*found == content(i, 20_000 + i)[at as usize..][..length], "storage {i}");
            }
        }
    }

    #[test]
    fn a_job_that_fails_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits::default();
        let files = FileSet::new(&limits);
        let storages = storages(folder.path(), 9, &limits, &files);
        for bad in 0..9 {
            let mut places = vec![[0; 10]; 9];
            let mut jobs: Vec<_> = storages
                .iter()
                .zip(&mut places)
                .enumerate()
                .map(|(i, (storage, out))| {
                    let at = if i == bad { storage.len() - 5 } else { 100 };
                    Fetch { storage: &**storage, ops: vec![ReadOp { at, out }] }
                })
                .collect();
            let (job, error) = fetch(&mut jobs, &for_tests(Limits::default())).unwrap_err();
            assert_eq!(job, bad);
            assert!(matches!(error.kind(), Kind::Truncated) && error.file().is_some(), "{error}");
        }
    }

    #[test]
    fn a_call_that_is_stopped_reads_no_further() {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits { open_files: 2, ..Limits::default() };
        let files = FileSet::new(&limits);
        let storages = storages(folder.path(), 30, &limits, &files);
        let mut places = vec![[0; 10]; 30];
        let mut jobs: Vec<_> = storages
            .iter()
            .zip(&mut places)
            .map(|(storage, out)| Fetch { storage: &**storage, ops: vec![ReadOp { at: 0, out }] })
            .collect();
        let stop = || Err(Error::closed("enough"));
        let cx = Cx { stop: &stop, ..for_tests(limits) };
        assert_eq!(fetch(&mut jobs, &cx).unwrap_err().1.what(), "enough");
    }
}
