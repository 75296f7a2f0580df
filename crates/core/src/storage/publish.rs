//! The one helper that makes a file appear whole or not at all.
//!
//! 1. [`Staged::create`]: `.<name>.<random>.tmp` in the target's folder, exclusively, with ordinary permissions.
//! 2. The bytes go there; every write is checked.
//! 3. [`Staged::seal`]: flushed and, when durable, synced and closed.
//! 4. [`Sealed::publish`]: renamed over the target (or linked, when it must not exist), and the folder synced.
//!
//! Dropping either stage removes the temporary file and leaves the target as it was.

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

/// What is to become of a staged file.
#[derive(Clone, Debug)]
struct Target {
    path: PathBuf,
    overwrite: bool,
    durable: bool,
}

impl Staged {
    /// Creates the temporary file beside `path`. A symlink is followed: its target is replaced.
    pub fn create(path: &Path, overwrite: bool, durable: bool) -> Result<Self> {
        let failed = |e| Error::io("cannot create", e).in_file(&path.to_string_lossy());
        let resolved = match std::fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_symlink() => follow(path).map_err(failed)?,
            _ => path.to_owned(),
        };
        match std::fs::metadata(&resolved) {
            Ok(metadata) if metadata.is_dir() => return Err(failed(ErrorKind::IsADirectory.into())),
            Ok(_) if !overwrite => return Err(exists(path)),
            _ => {}
        }
        let temp = temp_beside(&resolved).map_err(failed)?;
        // A file that replaces another is as private as that one was.
        if let Ok(metadata) = std::fs::metadata(&resolved) {
            temp.as_file().set_permissions(metadata.permissions()).map_err(failed)?;
        }
        let (file, temp) = temp.into_parts();
        let out = Seekable::new(BufWriter::with_capacity(BUFFER, file))
            .map_err(|e| e.in_file(&path.to_string_lossy()))?;
        Ok(Staged { out, temp, target: Target { path: resolved, overwrite, durable } })
    }

    /// Where the file will appear.
    pub fn path(&self) -> &Path {
        &self.target.path
    }

    /// All bytes are written: flushes, syncs when durable, and closes.
    pub fn seal(self) -> Result<Sealed> {
        let name = self.target.path.to_string_lossy().into_owned();
        let failed = |e| Error::io("writing failed", e).in_file(&name);
        let file = self.out.into_inner().into_inner().map_err(|e| failed(e.into_error()))?;
        if self.target.durable {
            file.sync_all().map_err(failed)?;
        }
        close(file).map_err(failed)?;
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

/// A file that is whole, still under its temporary name.
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

    /// Chooses another name for the file, in the same folder: a shard learns its number late.
    #[must_use]
    pub fn with_name(mut self, path: &Path) -> Self {
        self.target.path = path.to_owned();
        self
    }

    /// Will not replace an existing file, whatever it was created with.
    #[must_use]
    pub fn exclusive(mut self) -> Self {
        self.target.overwrite = false;
        self
    }

    /// Makes the file appear under its final name.
    pub fn publish(mut self) -> Result<()> {
        let Target { path, overwrite, durable } = self.target.clone();
        let Some(temp) = self.temp.take() else { return Ok(()) };
        let failed = |e: std::io::Error| match e.kind() {
            ErrorKind::AlreadyExists => exists(&path),
            _ => Error::io("cannot publish", e).in_file(&path.to_string_lossy()),
        };
        if overwrite {
            temp.persist(&path).map_err(|e| failed(e.error))?;
        } else {
            temp.persist_noclobber(&path).map_err(|e| failed(e.error))?;
        }
        if durable { sync_folder(folder_of(&path)).map_err(failed) } else { Ok(()) }
    }
}

fn exists(path: &Path) -> Error {
    Error::io("will not overwrite", ErrorKind::AlreadyExists.into())
        .in_file(&path.to_string_lossy())
        .hint("pass overwrite=True to replace it")
}

fn folder_of(path: &Path) -> &Path {
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

fn temp_beside(path: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?.to_string_lossy();
    // A name near the system's limit leaves no room for ours.
    let name: String = name.chars().take(40).collect();
    let prefix = format!(".{name}.");
    // Opened by ourselves, because the crate's own way loses the number of a system's error. Permissions are what
    // any program would create; the system takes the umask off.
    tempfile::Builder::new().prefix(&prefix).suffix(".tmp").rand_bytes(8).make_in(folder_of(path), |path| {
        std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(path)
    })
}

/// Closes a file and hears what the system says to it: a network file system may only now report a failure.
fn close(file: File) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::fd::IntoRawFd;
        // SAFETY: `file` owned the descriptor and has just given it up, so nobody else closes or uses it.
        unsafe { rustix::io::try_close(file.into_raw_fd()) }?;
    }
    #[cfg(not(unix))]
    drop(file); // The standard library offers no close that can fail there.
    Ok(())
}

/// Makes a rename in a folder survive a power cut.
pub fn sync_folder(folder: &Path) -> std::io::Result<()> {
    #[cfg(unix)]
    File::open(folder)?.sync_all()?;
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
