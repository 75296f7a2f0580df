//! Makes a set of files appear whole or not at all, even if it replaces an older set.
//!
//! At the beginning, every new file is complete under a temporary name. Then
//!
//! 1. the [`journal`] appears, which lists all renames that follow;
//! 2. the old files are renamed to hidden names;
//! 3. the new files are renamed to their final names;
//! 4. the journal is renamed: now the set is published;
//! 5. the old files are deleted, and the renamed journal.
//!
//! The visible files never belong to both sets at once. After an error the renames are undone. After a kill, the names
//! in the journal that exist tell which steps were made, and [`recover`] finishes or undoes them. A kill after step 4
//! leaves only hidden files. The next process that publishes the set deletes them.

use super::disk::{Disk, LocalDisk};
use super::journal::{self, Journal, Lock, Member, Stamp};
use super::publish::{Sealed, exists, folder_of, found, not_durable, publish_failed};
use super::temporary::{Name, Owner};
use crate::error::{Error, Result};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

mod steps;
#[cfg(test)]
mod tests;

use steps::Transaction;

/// How long to wait for a running process that publishes the same set.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);

/// The files to publish together.
pub struct NewSet<'a> {
    /// The files, and the name of each. All names are in the folder of the journal.
    pub files: Vec<(Sealed, PathBuf)>,
    /// Where the journal goes.
    pub journal: &'a Path,
    /// Whether to replace the old set. If not, an existing old set is an error.
    pub overwrite: bool,
    /// Finds the files of the old set, which may have another number of shards.
    pub find_old: &'a mut dyn FnMut() -> Result<Vec<PathBuf>>,
    /// Called while this waits for another process. An error from it stops the publishing.
    pub step: &'a mut dyn FnMut() -> Result<()>,
}

/// Which set to keep when an interrupted publish is recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Undo the publish.
    Old,
    /// Finish the publish.
    New,
}

/// Publishes a set of files. After an error, the old set is unchanged, or the error says that it could not be restored
/// and how to recover, or that the new set is visible and may not survive a power cut.
///
/// Returns an error that occurred after everything was published, such as an old file that could not be deleted.
pub fn publish(set: NewSet<'_>) -> Result<Option<Error>> {
    let durable = set.files.iter().any(|(sealed, _)| sealed.is_durable());
    publish_on(&LocalDisk { durable }, set)
}

pub(super) fn publish_on(disk: &dyn Disk, mut set: NewSet<'_>) -> Result<Option<Error>> {
    if set.files.is_empty() {
        return Ok(None);
    }
    let mut names = Vec::with_capacity(set.files.len());
    let mut temps = Vec::with_capacity(set.files.len());
    // Their locks are held until everything is published.
    let mut owners: Vec<Arc<Owner>> = Vec::new();
    for (sealed, name) in std::mem::take(&mut set.files) {
        refuse_other_folder(sealed.path(), set.journal)?;
        refuse_other_folder(&name, set.journal)?;
        let (temp, owner) = sealed.take_temp();
        temps.extend(temp);
        if owners.last().is_none_or(|last| !Arc::ptr_eq(last, &owner)) {
            owners.push(owner);
        }
        names.push(name);
    }
    let hidden: Vec<&Path> = temps.iter().map(|temp| &**temp).collect();
    let begun = begin(disk, set.journal, &mut set, &names, &hidden)?;
    let Err(error) = begun.advance() else {
        disk.sync(folder_of(set.journal)).map_err(|e| not_durable(&journal::target_of(set.journal), e))?;
        return Ok(begun.delete_old().err());
    };
    match begun.restore() {
        Ok(()) => {
            // A file that could not be deleted is hidden. The error that stopped the publishing is the one to report.
            let _ = begun.sync().and_then(|()| begun.delete_new());
            Err(error)
        }
        Err(second) => {
            for temp in temps {
                // `recover` needs the file, so it must not be deleted with the object.
                let _ = temp.keep();
            }
            let target = journal::target_of(set.journal);
            Err(Error::publish(format!(
                "publishing failed ({error}), and restoring the old files failed too ({second})"
            ))
            .in_file(&set.journal.to_string_lossy())
            .hint(format!(
                "remove the cause, then call anyrecord.recover({:?}, keep=\"new\") to finish, \
                     or keep=\"old\" to go back",
                target.to_string_lossy()
            )))
        }
    }
}

/// Makes the journal appear. No visible file has changed then. Waits for a running process that publishes the same set.
fn begin<'a>(
    disk: &'a dyn Disk,
    path: &'a Path,
    set: &mut NewSet<'_>,
    names: &[PathBuf],
    temps: &[&Path],
) -> Result<Transaction<'a>> {
    let target = journal::target_of(path);
    let failed = |e| Error::io("cannot publish", e).in_file(&target.to_string_lossy());
    let deadline = Instant::now() + PATIENCE;
    loop {
        (set.step)()?;
        if is_busy(path)? || !delete_leftovers(disk, path)? {
            if Instant::now() > deadline {
                return Err(held(path));
            }
            std::thread::sleep(POLL);
            continue;
        }
        let old = (set.find_old)()?;
        if let (Some(first), false) = (old.first(), set.overwrite) {
            return Err(exists(first));
        }
        copy_permissions(names, temps, &old).map_err(failed)?;
        let (mut file, temp, _) = Owner::default().create(path).map_err(failed)?;
        let journal = Journal::new(&file).map_err(failed)?;
        let journal = plan(journal, &temp, names, temps, &old)?;
        file.write_all(&journal.encode()?).map_err(failed)?;
        disk.sync_file(&file).map_err(failed)?;
        // A journal that survives a power cut is of use only if the new files that it names survive too.
        disk.sync(folder_of(path)).map_err(failed)?;
        // Without locks, other processes cannot know that this one is running. The error that they get when they find
        // the journal says so.
        let _ = file.try_lock();
        match disk.rename_new(&temp, path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
            renamed => renamed.map_err(failed)?,
        }
        let begun = Transaction { disk, path, journal, lock: file };
        // Another process may have published before the journal existed. From now on, other processes wait.
        match (set.find_old)().and_then(|now| refuse_obstacles(names, &now, set.overwrite).map(|()| now)) {
            Ok(now) if now == old => return Ok(begun),
            Ok(_) => disk.remove(path).map_err(failed)?,
            Err(error) => {
                disk.remove(path).map_err(failed)?;
                return Err(error);
            }
        }
    }
}

/// Whether a running process is publishing the set. An error if one was interrupted.
fn is_busy(path: &Path) -> Result<bool> {
    match journal::lock(path)? {
        Lock::Gone => Ok(false),
        Lock::Held => Ok(true),
        Lock::Ours(_) | Lock::Unknown(_) => Err(journal::unfinished(path)),
    }
}

/// Deletes the files of an earlier process that was killed after it had published. False if that process still runs and
/// deletes them itself.
fn delete_leftovers(disk: &dyn Disk, path: &Path) -> Result<bool> {
    let leftovers = journal::path_of_leftovers(path);
    match journal::lock(&leftovers)? {
        Lock::Gone => Ok(true),
        Lock::Held => Ok(false),
        Lock::Ours(file) | Lock::Unknown(file) => {
            // A damaged journal, or a file that cannot be deleted, does no harm here.
            if let Ok(journal) = Journal::from_file(&file, &leftovers) {
                let ended = Transaction { disk, path, journal, lock: file };
                let _ = ended.sync().and_then(|()| ended.delete_all());
            }
            Ok(true)
        }
    }
}

fn held(path: &Path) -> Error {
    let target = journal::target_of(path);
    Error::publish(format!("{} is being published by a running process", target.to_string_lossy()))
        .in_file(&path.to_string_lossy())
        .hint("wait until that process is done, or stop it")
}

/// Refuses a file that is in another folder than the journal, because a journal holds names without folders.
fn refuse_other_folder(path: &Path, journal: &Path) -> Result<()> {
    let (ours, there) = (folder_of(path), folder_of(journal));
    let same = |a: &Path, b: &Path| Some(a.canonicalize().ok()? == b.canonicalize().ok()?);
    if ours == there || same(ours, there) == Some(true) {
        return Ok(());
    }
    Err(Error::argument("files that are published together must be in one folder")
        .in_file(&path.to_string_lossy()))
}

/// Refuses to overwrite an old set that must not be replaced, or a file that is not part of the old set.
fn refuse_obstacles(names: &[PathBuf], old: &[PathBuf], overwrite: bool) -> Result<()> {
    if let (Some(first), false) = (old.first(), overwrite) {
        return Err(exists(first));
    }
    let old: HashSet<_> = old.iter().map(|path| path.file_name()).collect();
    for name in names {
        match found(name).map_err(|e| publish_failed(name, e))? {
            Some(metadata) if metadata.is_dir() || !old.contains(&name.file_name()) => {
                return Err(exists(name));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Each new file gets the permissions of the file that it replaces. A shard that replaces no file gets those of the
/// first old file.
fn copy_permissions(names: &[PathBuf], temps: &[&Path], old: &[PathBuf]) -> std::io::Result<()> {
    let of_name: HashMap<_, _> = old.iter().map(|path| (path.file_name(), path)).collect();
    for (name, temp) in names.iter().zip(temps) {
        let replaced = of_name.get(&name.file_name()).copied().or(old.first());
        if let Some(Ok(metadata)) = replaced.map(std::fs::metadata) {
            std::fs::set_permissions(temp, metadata.permissions())?;
        }
    }
    Ok(())
}

/// Writes into the journal that `temps` are renamed to `names`, and `old` to hidden names. No other process has the
/// path `unique`.
fn plan(
    mut journal: Journal,
    unique: &Path,
    names: &[PathBuf],
    temps: &[&Path],
    old: &[PathBuf],
) -> Result<Journal> {
    let file_name = |path: &Path| path.file_name().unwrap_or_default().to_owned();
    for (name, temp) in names.iter().zip(temps) {
        let metadata = std::fs::symlink_metadata(temp).map_err(|e| publish_failed(name, e))?;
        let member = Member { hidden: file_name(temp), name: file_name(name) };
        journal.new.push((member, Stamp::of(&metadata)));
    }
    let unique = Name::parse(&file_name(unique).to_string_lossy()).and_then(|name| name.mark);
    let unique = unique.map(|mark| mark.token).unwrap_or_default();
    for (number, path) in old.iter().enumerate() {
        let name = file_name(path);
        let short: String = name.to_string_lossy().chars().take(40).collect();
        journal.old.push(Member { hidden: OsString::from(format!(".{short}.{unique}-{number}.old")), name });
    }
    Ok(journal)
}

/// Finishes or undoes a publish that was interrupted. Returns the files that are visible now. None if nothing was
/// interrupted. After an error, everything is unchanged, or the call can be repeated. With no set to keep, an interrupted
/// publish is an error.
pub fn recover(path: &Path, keep: Option<Keep>) -> Result<Option<Vec<PathBuf>>> {
    recover_on(&LocalDisk { durable: true }, path, keep)
}

pub(super) fn recover_on(disk: &dyn Disk, path: &Path, keep: Option<Keep>) -> Result<Option<Vec<PathBuf>>> {
    let file = match journal::lock(path)? {
        Lock::Ours(file) | Lock::Unknown(file) => file,
        Lock::Held => return Err(held(path)),
        // No publish was interrupted, but perhaps the deletion after one.
        Lock::Gone => return delete_leftovers(disk, path).map(|_| None),
    };
    let Some(keep) = keep else { return Err(journal::unfinished(path)) };
    let journal = Journal::from_file(&file, path)?;
    let begun = Transaction { disk, path, journal, lock: file };
    begun.refuse_lost(keep)?;
    match keep {
        Keep::New => begun.advance()?,
        Keep::Old => begun.restore()?,
    }
    begun.sync()?;
    match keep {
        Keep::New => begun.delete_old()?,
        Keep::Old => begun.delete_new()?,
    }
    Ok(Some(begun.visible(keep)))
}
