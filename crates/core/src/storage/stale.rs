//! Finds the [temporary](super::temporary) files of writers that died, and removes them. Nothing of a living writer is
//! touched.
//!
//! A writer holds a lock on its leader, from its creation until all files of the writer are published or discarded.
//! Whoever gets that lock knows that the writer is dead. It removes the other files first and the leader last, while it
//! holds the lock. A file without a leader belongs to a writer that is discarding or publishing its files, or that died
//! while it did so. While files are published, the journal names them, and [`recover`](super::transaction::recover)
//! decides about them.
//!
//! A writer that has created its leader and not locked it yet can lose it to this. It notices that when it locks it, and
//! creates another.
//!
//! Where it is not certain that a writer is dead, its files are only reported: if locks do not work, or if the writer
//! ran on another machine and the file system is not a local one, because locks there may not reach other machines.

use super::journal::{self, Journal, is_at};
use super::publish::found;
use super::temporary::{Mark, Name, Targets, TryLock, open_to_lock, try_lock};
use crate::error::{Error, Result};
use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// How many writers are looked at together. Each takes a descriptor.
const BATCH: usize = 64;

/// What is known about the writer of a temporary file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is dead.
    Stale,
    /// It was dead, and the file is removed now.
    Removed,
    /// It is alive.
    Alive,
    /// A journal names the file: it is being published, or that was interrupted.
    Publishing,
    /// It may be alive. The text says why that is unknown.
    Unknown(&'static str),
}

/// A temporary file, or the temporary folder of an unpacked one.
#[derive(Clone, Debug)]
pub struct Temporary {
    /// Where it is.
    pub path: PathBuf,
    /// The name of its target. Long names are shortened.
    pub target: String,
    /// Its size. 0 for a folder.
    pub bytes: u64,
    /// What the files of one writer have in common. Empty if it is unknown.
    pub writer: String,
    /// Which file of the writer it is.
    pub number: u64,
    /// Whether it holds samples for the file with the same number, as TFRecord.
    pub is_samples: bool,
    /// Whether it can be removed.
    pub state: State,
}

/// What a search found.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// The temporary files, in the order of their writers and numbers.
    pub found: Vec<Temporary>,
    /// How many names the folder has.
    pub names: usize,
}

/// Which temporary files are meant.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Where they are.
    pub folder: &'a Path,
    /// The file names of their targets. None: of any target.
    pub targets: Option<&'a [OsString]>,
}

/// The temporary files, and what is known about their writers.
pub fn find(wanted: Wanted<'_>) -> Result<Search> {
    search(wanted, &|_| false, try_lock)
}

/// Removes those temporary files whose writer is dead and for which `chosen` is true. If one cannot be removed, the
/// others are removed before the error is returned.
pub fn remove(wanted: Wanted<'_>, chosen: &dyn Fn(&Path) -> bool) -> Result<Search> {
    search(wanted, chosen, try_lock)
}

/// A name in the folder that is one of a temporary file.
type Entry = (OsString, Name);

/// The names in a folder that matter here.
#[derive(Default)]
struct Listing {
    temporaries: Vec<Entry>,
    journals: Vec<PathBuf>,
    names: usize,
}

fn list(folder: &Path) -> Result<Listing> {
    let failed = |e| Error::io("cannot list the folder", e).in_file(&folder.to_string_lossy());
    let mut listing = Listing::default();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        listing.names += 1;
        if !name.as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if let Some(parsed) = Name::parse(&name.to_string_lossy()) {
            listing.temporaries.push((name, parsed));
        } else if journal::is_journal(&name) {
            listing.journals.push(folder.join(name));
        }
    }
    Ok(listing)
}

fn search(wanted: Wanted<'_>, chosen: &dyn Fn(&Path) -> bool, try_lock: TryLock) -> Result<Search> {
    let first = list(wanted.folder)?;
    let mut search = Search { found: Vec::new(), names: first.names };
    if first.temporaries.is_empty() {
        return Ok(search);
    }
    let targets = wanted.targets.map(Targets::new);
    let is_wanted = |(_, name): &Entry| targets.as_ref().is_none_or(|targets| targets.include(name));
    let members: Vec<Entry> = first.temporaries.into_iter().filter(is_wanted).collect();
    if members.is_empty() {
        return Ok(search);
    }
    // A leader is created before the other files of its writer. So this second list has the leader of every file in the
    // first list, unless that leader was published or removed meanwhile.
    let mut leaders = BTreeMap::new();
    for (name, parsed) in list(wanted.folder)?.temporaries {
        if let Some(mark) = parsed.mark.filter(Mark::leads) {
            leaders.insert(mark.token, wanted.folder.join(name));
        }
    }
    let mut writers: BTreeMap<&str, Vec<(&OsStr, &Name, &Mark)>> = BTreeMap::new();
    for (name, parsed) in &members {
        match &parsed.mark {
            Some(mark) => writers.entry(&mark.token).or_default().push((name, parsed, mark)),
            None => {
                let state = State::Unknown("an earlier version wrote it, which held no lock");
                search.found.extend(temporary(wanted.folder, name, parsed, state));
            }
        }
    }
    let mut failed = None;
    let mut writers: Vec<_> = writers.into_iter().collect();
    for batch in writers.chunks_mut(BATCH) {
        let mut verdicts = Vec::with_capacity(batch.len());
        for (token, files) in &mut *batch {
            files.sort_by_key(|(_, _, mark)| (mark.number, mark.is_samples));
            let leader = leaders.get(*token).map(PathBuf::as_path);
            verdicts.push(files.first().map(|(_, _, mark)| verdict(wanted.folder, leader, mark, try_lock)));
        }
        // A dead writer makes no journal any more, so those that are there now are all.
        let is_stale = verdicts.iter().flatten().any(|(verdict, _)| *verdict == State::Stale);
        let published = if is_stale { hidden_by_journals(wanted.folder)? } else { Some(HashSet::new()) };
        for ((_, files), (verdict, _lock)) in batch.iter().zip(verdicts.into_iter().flatten()) {
            let state_of = |name: &OsStr| match &published {
                _ if verdict != State::Stale => verdict,
                None => State::Unknown("a journal in the folder cannot be read"),
                Some(hidden) if hidden.contains(name) => State::Publishing,
                Some(_) => verdict,
            };
            let found = files
                .iter()
                .filter_map(|(name, parsed, _)| temporary(wanted.folder, name, parsed, state_of(name)));
            let mut found: Vec<Temporary> = found.collect();
            // The leader goes last: if this is killed, it still stands for the others.
            for file in found.iter_mut().rev().filter(|file| file.state == State::Stale && chosen(&file.path))
            {
                match remove_any(&file.path) {
                    Ok(()) => file.state = State::Removed,
                    Err(e) => {
                        failed = Some(Error::io("cannot remove", e).in_file(&file.path.to_string_lossy()));
                    }
                }
            }
            search.found.append(&mut found);
        }
    }
    failed.map_or(Ok(search), Err)
}

/// Whether the writer is dead, and the lock that it held. As long as this lock is held, no other process removes its
/// files.
fn verdict(folder: &Path, leader: Option<&Path>, mark: &Mark, try_lock: TryLock) -> (State, Option<File>) {
    if !mark.is_locked {
        return (State::Unknown("its writer could not lock it"), None);
    }
    let lock = match leader.map(|leader| (leader, open_to_lock(leader))) {
        Some((leader, Ok(file))) => match try_lock(&file) {
            Ok(()) if is_at(&file, leader) => Some(file),
            Ok(()) => None, // published or removed meanwhile
            Err(TryLockError::WouldBlock) => return (State::Alive, None),
            Err(TryLockError::Error(_)) => {
                return (State::Unknown("locks do not work on this file system"), None);
            }
        },
        Some((_, Err(e))) if e.kind() != ErrorKind::NotFound => {
            return (State::Unknown("it cannot be opened, so its lock cannot be seen"), None);
        }
        _ => None,
    };
    if mark.is_of_this_boot() || is_local(folder) {
        return (State::Stale, lock);
    }
    (State::Unknown("another machine wrote it, and locks on this file system may not reach this one"), None)
}

fn is_local(folder: &Path) -> bool {
    #[cfg(target_os = "linux")]
    return File::open(folder).is_ok_and(|folder| super::file::is_of_this_machine(&folder));
    #[cfg(not(target_os = "linux"))]
    {
        let _ = folder;
        false
    }
}

/// The names of temporary files that are being published. None if a journal cannot be read.
fn hidden_by_journals(folder: &Path) -> Result<Option<HashSet<OsString>>> {
    let mut hidden = HashSet::new();
    for path in list(folder)?.journals {
        match Journal::read(&path) {
            Ok(Some(journal)) => hidden.extend(journal.new.into_iter().map(|(member, _)| member.hidden)),
            Ok(None) => {} // gone, or another program's
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(hidden))
}

/// What there is to say about a file. None if it is gone, or if it is neither a file nor a folder.
fn temporary(folder: &Path, name: &OsStr, parsed: &Name, state: State) -> Option<Temporary> {
    let path = folder.join(name);
    let metadata = found(&path).ok()??;
    if !metadata.is_file() && !metadata.is_dir() {
        return None;
    }
    let mark = parsed.mark.as_ref();
    Some(Temporary {
        path,
        target: parsed.target.clone(),
        bytes: if metadata.is_file() { metadata.len() } else { 0 },
        writer: mark.map(|mark| mark.token.clone()).unwrap_or_default(),
        number: mark.map_or(0, |mark| mark.number),
        is_samples: mark.is_some_and(|mark| mark.is_samples),
        state,
    })
}

fn remove_any(path: &Path) -> std::io::Result<()> {
    let Some(metadata) = found(path)? else { return Ok(()) };
    let removed = if metadata.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    match removed {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests;
