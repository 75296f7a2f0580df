//! The changes that publishing makes to a folder. Tests replace them, to stop at any step or to cut the power.

use super::publish::{found, sync_folder};
use std::fs::File;
use std::io::{ErrorKind, Result};
use std::path::Path;
use tempfile::TempPath;

/// A folder that files are published in.
pub trait Disk {
    /// Gives a temporary file its name. With `overwrite` it replaces a file of that name, else that is an error.
    fn publish(&self, temp: TempPath, to: &Path, overwrite: bool) -> Result<()>;
    /// Renames a file. Replaces a file that has the new name.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Renames a file. An error if the new name exists.
    fn rename_new(&self, from: &Path, to: &Path) -> Result<()>;
    /// Deletes a file.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Makes the renames so far survive a power cut.
    fn sync(&self, folder: &Path) -> Result<()>;
    /// Makes the bytes of a file survive a power cut.
    fn sync_file(&self, file: &File) -> Result<()>;
}

/// The real folder.
pub struct LocalDisk {
    /// Whether to sync.
    pub durable: bool,
}

impl Disk for LocalDisk {
    fn publish(&self, temp: TempPath, to: &Path, overwrite: bool) -> Result<()> {
        if overwrite { replace(temp, to) } else { persist_new(temp, to) }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        uninterrupted(|| std::fs::rename(from, to))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
        let renamed = {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            uninterrupted(|| Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?))
        };
        #[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
        let renamed = Err(ErrorKind::Unsupported.into());
        renamed.or_else(|e| rename_if_free(from, to, e))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        uninterrupted(|| std::fs::remove_file(path))
    }

    fn sync(&self, folder: &Path) -> Result<()> {
        if self.durable { sync_folder(folder) } else { Ok(()) }
    }

    fn sync_file(&self, file: &File) -> Result<()> {
        if self.durable { file.sync_all() } else { Ok(()) }
    }
}

/// Repeats a call that a signal interrupted. The standard library does so for opening, writing and syncing only, but a
/// network file system can interrupt any call.
fn uninterrupted<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

fn replace(temp: TempPath, to: &Path) -> Result<()> {
    // On Windows, this rename also replaces a file that other processes have open.
    uninterrupted(|| std::fs::rename(&temp, to))?;
    // Nothing has the temporary name any more, so there is nothing to delete.
    #[cfg(unix)]
    let _ = temp.keep();
    Ok(())
}

fn persist_new(mut temp: TempPath, to: &Path) -> Result<()> {
    loop {
        match temp.persist_noclobber(to) {
            Ok(()) => return Ok(()),
            Err(e) if e.error.kind() == ErrorKind::Interrupted => temp = e.path,
            // Some file systems have neither hard links nor a rename that fails if the new name exists.
            Err(e) => return rename_if_free(&e.path, to, e.error),
        }
    }
}

/// Checks that the new name is free, then renames. Used after an atomic rename failed with `error`. Another process can
/// take the name in between.
fn rename_if_free(from: &Path, to: &Path, error: std::io::Error) -> Result<()> {
    // What a file system answers that does not know this kind of rename. Any other error is one of this rename.
    let unknown = [ErrorKind::InvalidInput, ErrorKind::Unsupported, ErrorKind::PermissionDenied];
    if !unknown.contains(&error.kind()) {
        return Err(error);
    }
    if found(to)?.is_some() {
        return Err(ErrorKind::AlreadyExists.into());
    }
    uninterrupted(|| std::fs::rename(from, to))
}
