//! Makes a file appear whole or not at all. [`transaction`](super::transaction) does so for sets of files.
//!
//! 1. [`Staged::create`]: `.<name>.<random>.tmp` in the target's folder, exclusively, with ordinary permissions.
//! 2. The bytes go there; every write is checked.
//! 3. [`Staged::seal`]: flushed and, when durable, synced and closed.
//! 4. [`Sealed::publish`]: renamed over the target, or to a name that must not exist, and the folder synced.
//!
//! Dropping either stage removes the temporary file and leaves the target as it was.

use super::disk::{Disk, LocalDisk};
use super::output::{Output, Seekable};
use crate::error::{Error, Result};
use crate::process;
use std::fs::File;
use std::io::{BufWriter, ErrorKind};
use std::path::{Path, PathBuf};
use tempfile::TempPath;

/// Large enough that a write of a few hundred bytes rarely is a system call.
const BUFFER: usize = 256 << 10;

/// A file being written under a temporary name.
pub struct Staged {
    out: Seekable<BufWriter<File>>,
    temp: TempPath,
    target: Target,
}

/// Where a staged file goes, and how.
#[derive(Clone, Debug)]
struct Target {
    path: PathBuf,
    overwrite: bool,
    durable: bool,
}

impl Staged {
    /// Creates the temporary file in the folder of the target. A symlink is followed: its target is replaced.
    pub fn create(path: &Path, overwrite: bool, durable: bool) -> Result<Self> {
        let failed = |e| Error::io("cannot create", e).in_file(&path.to_string_lossy());
        let resolved = match found(path).map_err(failed)? {
            Some(metadata) if metadata.is_symlink() => follow(path).map_err(failed)?,
            _ => path.to_owned(),
        };
        let replaced = found(&resolved).map_err(failed)?;
        match &replaced {
            Some(metadata) if metadata.is_dir() => return Err(failed(ErrorKind::IsADirectory.into())),
            Some(_) if !overwrite => return Err(exists(path)),
            _ => {}
        }
        let staged = Self::stage(path, resolved, overwrite, durable)?;
        // A file that replaces another one keeps its permissions.
        if let Some(metadata) = replaced {
            staged.out.inner().get_ref().set_permissions(metadata.permissions()).map_err(failed)?;
        }
        Ok(staged)
    }

    /// Creates the temporary file of a shard of `path`. The final name is not known yet, only that it will be in the
    /// same folder. So no symlink is followed and nothing is replaced.
    pub fn create_shard(path: &Path, durable: bool) -> Result<Self> {
        Self::stage(path, path.to_owned(), false, durable)
    }

    fn stage(path: &Path, target: PathBuf, overwrite: bool, durable: bool) -> Result<Self> {
        let failed = |e| Error::io("cannot create", e).in_file(&path.to_string_lossy());
        let (file, temp) = temp_beside(&target).map_err(failed)?.into_parts();
        let out = Seekable::new(BufWriter::with_capacity(BUFFER, file))
            .map_err(|e| e.in_file(&path.to_string_lossy()))?;
        Ok(Staged { out, temp, target: Target { path: target, overwrite, durable } })
    }

    /// Where the file will appear.
    pub fn path(&self) -> &Path {
        &self.target.path
    }

    /// Call this when all bytes are written. It flushes, syncs when durable, and closes.
    pub fn seal(self) -> Result<Sealed> {
        let disk = LocalDisk { durable: self.target.durable };
        self.seal_on(&disk)
    }

    pub(super) fn seal_on(self, disk: &dyn Disk) -> Result<Sealed> {
        let name = self.target.path.to_string_lossy().into_owned();
        let failed = |e| Error::io("writing failed", e).in_file(&name);
        let file = self.out.into_inner().into_inner().map_err(|e| failed(e.into_error()))?;
        disk.sync_file(&file).map_err(failed)?;
        match close(file) {
            // An interrupted close does close the file, and its bytes are on disk already.
            Err(e) if self.target.durable && e.kind() == ErrorKind::Interrupted => {}
            closed => closed.map_err(failed)?,
        }
        Ok(Sealed { temp: Some(self.temp), target: self.target, generation: process::generation() })
    }
}

impl Output for Staged {
    fn position(&self) -> u64 {
        self.out.position()
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(|e| e.in_file(&self.target.path.to_string_lossy()))
    }

    fn can_patch(&self) -> bool {
        true
    }

    fn skip(&mut self, length: u64) -> Result<()> {
        self.out.skip(length).map_err(|e| e.in_file(&self.target.path.to_string_lossy()))
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        self.out.write_at(at, bytes).map_err(|e| e.in_file(&self.target.path.to_string_lossy()))
    }

    fn flush(&mut self) -> Result<()> {
        self.out.flush().map_err(|e| e.in_file(&self.target.path.to_string_lossy()))
    }

    fn spool_folder(&self) -> Option<&Path> {
        self.target.path.parent()
    }
}

/// A complete file, still under its temporary name.
pub struct Sealed {
    /// None once it is published.
    temp: Option<TempPath>,
    target: Target,
    generation: u64,
}

impl Drop for Sealed {
    fn drop(&mut self) {
        // In a forked child the file still belongs to the parent.
        if self.generation != process::generation() {
            std::mem::forget(self.temp.take());
        }
    }
}

impl Sealed {
    /// Where the file is now.
    pub fn temp_path(&self) -> &Path {
        self.temp.as_deref().unwrap_or(&self.target.path)
    }

    /// Where it will appear.
    pub fn path(&self) -> &Path {
        &self.target.path
    }

    /// Returns the temporary file, to be published as one of a set.
    pub(super) fn take_temp(mut self) -> Option<TempPath> {
        self.temp.take()
    }

    /// Whether the file was synced. If so, its new name must be synced too.
    pub fn is_durable(&self) -> bool {
        self.target.durable
    }

    /// Makes the file appear under its final name.
    pub fn publish(self) -> Result<()> {
        let disk = LocalDisk { durable: self.target.durable };
        self.publish_on(&disk)
    }

    pub(super) fn publish_on(mut self, disk: &dyn Disk) -> Result<()> {
        let Target { path, overwrite, .. } = self.target.clone();
        let Some(temp) = self.temp.take() else { return Ok(()) };
        disk.publish(temp, &path, overwrite).map_err(|e| publish_failed(&path, e))?;
        disk.sync(folder_of(&path)).map_err(|e| not_durable(&path, e))
    }
}

/// The error for files that have their final names, but may lose them in a power cut.
pub(super) fn not_durable(path: &Path, error: std::io::Error) -> Error {
    Error::io("published, but cannot sync the folder of", error)
        .in_file(&path.to_string_lossy())
        .hint("the new data can be lost in a power cut; write it again")
}

/// The error for a failed rename to `path`.
pub(super) fn publish_failed(path: &Path, error: std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::AlreadyExists => exists(path),
        // Windows does not rename a file that a program has mapped, or opened without sharing it.
        ErrorKind::PermissionDenied if cfg!(windows) => {
            let error = Error::io("cannot publish", error).in_file(&path.to_string_lossy());
            error.hint("close the readers of this file and write it again")
        }
        _ => Error::io("cannot publish", error).in_file(&path.to_string_lossy()),
    }
}

/// The metadata of `path`, without following a symlink. None if nothing has this name. An error for an invalid name.
pub(super) fn found(path: &Path) -> std::io::Result<Option<std::fs::Metadata>> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// The error for a file that already exists.
pub(super) fn exists(path: &Path) -> Error {
    Error::io("will not overwrite", ErrorKind::AlreadyExists.into())
        .in_file(&path.to_string_lossy())
        .hint("pass overwrite=True to replace it")
}

/// The folder that a file is in.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The path that a chain of symlinks ends at, whether or not it exists.
fn follow(path: &Path) -> std::io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..40 {
        match std::fs::read_link(&path) {
            Ok(link) => path = folder_of(&path).join(link),
            Err(_) => return Ok(path),
        }
    }
    #[cfg(unix)]
    return Err(rustix::io::Errno::LOOP.into());
    #[cfg(not(unix))]
    Err(std::io::Error::other("too many levels of symbolic links"))
}

/// A new file with a hidden name in the folder of `path`.
pub(super) fn temp_beside(path: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?.to_string_lossy();
    // The name is shortened, because a name near the system's limit leaves no room for our prefix and suffix.
    let name: String = name.chars().take(40).collect();
    let prefix = format!(".{name}.");
    // We open the file ourselves, because the crate's own function loses the error number of the system. The
    // permissions are those that any program would request, and the system applies the umask.
    tempfile::Builder::new().prefix(&prefix).suffix(".tmp").rand_bytes(8).make_in(folder_of(path), |path| {
        std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(path)
    })
}

/// Closes a file and returns the error, if any: a network file system may report a failed write only now.
fn close(file: File) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::fd::IntoRawFd;
        // SAFETY: `file` owned the descriptor and has just given it up, so nothing else closes or uses it.
        unsafe { rustix::io::try_close(file.into_raw_fd()) }?;
    }
    #[cfg(not(unix))]
    drop(file); // The standard library offers no close that can fail there.
    Ok(())
}

/// Makes a rename in a folder survive a power cut.
pub fn sync_folder(folder: &Path) -> std::io::Result<()> {
    #[cfg(unix)]
    match File::open(folder)?.sync_all() {
        // Some network file systems cannot sync folders and return these errors. An error of the disk has another kind.
        Err(e) if matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {}
        synced => synced?,
    }
    #[cfg(not(unix))]
    let _ = folder; // Folders cannot be synced there; the rename itself is journalled.
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn nothing_appears_before_publish_and_nothing_stays_after_a_drop() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("a.ffr");
        let mut staged = Staged::create(&target, false, true).unwrap();
        staged.write_all(b"half").unwrap();
        assert_eq!(names(dir.path()).len(), 1);
        assert!(!target.exists());
        drop(staged);
        assert!(names(dir.path()).is_empty());

        let mut staged = Staged::create(&target, false, true).unwrap();
        staged.write_all(b"whole").unwrap();
        let sealed = staged.seal().unwrap();
        assert!(!target.exists());
        sealed.publish().unwrap();
        assert_eq!(names(dir.path()), ["a.ffr"]);
        assert_eq!(std::fs::read(&target).unwrap(), b"whole");
    }

    #[test]
    fn a_file_that_appeared_meanwhile_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("a.ffr");
        let sealed = Staged::create(&target, false, false).unwrap().seal().unwrap();
        std::fs::write(&target, b"somebody else's").unwrap();
        assert!(sealed.publish().unwrap_err().to_string().contains("overwrite=True"));
        assert_eq!(names(dir.path()), ["a.ffr"]);
        assert_eq!(std::fs::read(&target).unwrap(), b"somebody else's");
    }

    #[cfg(unix)]
    #[test]
    fn a_symlink_is_followed_and_permissions_are_ordinary() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real.ffr"), dir.path().join("link.ffr"));
        std::os::unix::fs::symlink("real.ffr", &link).unwrap();
        Staged::create(&link, true, false).unwrap().seal().unwrap().publish().unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        let plain = dir.path().join("plain");
        std::fs::write(&plain, b"").unwrap();
        let mode = |p| std::fs::metadata(p).unwrap().permissions().mode();
        assert_eq!(mode(&real), mode(&plain));
    }
}
