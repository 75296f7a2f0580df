//! Makes a file appear whole or not at all. [`transaction`](super::transaction) does so for sets of files.
//!
//! 1. [`Staged::create`]: a [temporary](super::temporary) file in the target's folder, exclusively, with ordinary
//!    permissions. Its owner holds a lock, so that other processes know that it is alive.
//! 2. The bytes go there; every write is checked. When durable, the disk begins to write them
//!    ([`write_back`](super::write_back)).
//! 3. [`Staged::seal`]: flushed and, when durable, synced and closed.
//! 4. [`Sealed::publish`]: renamed over the target, or to a name that must not exist, and the folder synced.
//!
//! Dropping either stage removes the temporary file and leaves the target as it was.

use super::block_writer::BlockWriter;
use super::disk::{Disk, LocalDisk};
use super::output::{Output, Seekable};
use super::temporary::Owner;
use super::write_back::{self, WriteBack};
use crate::error::{Error, Result};
use crate::process;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempPath;

/// A file being written under a temporary name.
pub struct Staged {
    out: Seekable<BlockWriter>,
    /// None if the file is not durable.
    write_back: Option<WriteBack>,
    temp: TempPath,
    target: Target,
    owner: Arc<Owner>,
    /// Which file of the owner this is.
    number: u64,
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
    pub fn create(path: &Path, overwrite: bool, durable: bool, owner: &Arc<Owner>) -> Result<Self> {
        let failed = |e| Error::io("cannot create", e).in_file(&path.to_string_lossy());
        let resolved = resolved(path).map_err(failed)?;
        let replaced = found(&resolved).map_err(failed)?;
        match &replaced {
            Some(metadata) if metadata.is_dir() => return Err(failed(ErrorKind::IsADirectory.into())),
            Some(_) if !overwrite => return Err(exists(path)),
            _ => {}
        }
        let staged = Self::stage(path, resolved, overwrite, durable, owner)?;
        // A file that replaces another one keeps its permissions.
        if let Some(metadata) = replaced {
            let file = staged.out.inner().file().map_err(failed)?;
            file.set_permissions(metadata.permissions()).map_err(failed)?;
        }
        Ok(staged)
    }

    /// Creates the temporary file of a shard of `path`. The final name is not known yet, only that it will be in the
    /// same folder. So no symlink is followed and nothing is replaced.
    pub fn create_shard(path: &Path, durable: bool, owner: &Arc<Owner>) -> Result<Self> {
        Self::stage(path, path.to_owned(), false, durable, owner)
    }

    fn stage(
        path: &Path,
        target: PathBuf,
        overwrite: bool,
        durable: bool,
        owner: &Arc<Owner>,
    ) -> Result<Self> {
        let failed = |e| Error::io("cannot create", e).in_file(&path.to_string_lossy());
        // A link can lead to another folder.
        let owner = if owner.takes(&target) { owner.clone() } else { Arc::default() };
        let (file, temp, number) = owner.create(&target).map_err(failed)?;
        let out = BlockWriter::new(file).map_err(failed)?;
        let out = Seekable::new(out).map_err(|e| e.in_file(&path.to_string_lossy()))?;
        let write_back = durable.then(|| WriteBack::new(write_back::start));
        let target = Target { path: target, overwrite, durable };
        Ok(Staged { out, write_back, temp, target, owner, number })
    }

    /// Where the file will appear.
    pub fn path(&self) -> &Path {
        &self.target.path
    }

    /// Whether [`seal`](Self::seal) waits for the disk.
    pub fn is_durable(&self) -> bool {
        self.target.durable
    }

    /// Call this when all bytes are written, if the file is sealed later. When durable, the disk begins to write the rest.
    pub fn finish(&mut self) -> Result<()> {
        self.flush()?;
        let length = self.out.position();
        self.write_early(|write_back, file, _| write_back.finish(file, length))
    }

    /// Calls `write` with the file, and with how many of its bytes the system has. Does nothing if the file is not
    /// durable.
    fn write_early(
        &mut self,
        write: impl FnOnce(&mut WriteBack, &File, u64) -> std::io::Result<()>,
    ) -> Result<()> {
        let Some(write_back) = &mut self.write_back else { return Ok(()) };
        let buffered = self.out.inner();
        let written = self.out.position() - buffered.buffered() as u64;
        buffered.file().and_then(|file| write(write_back, file, written)).map_err(|e| {
            Error::io("writing failed", e).in_file(&self.target.path.to_string_lossy()).at(written)
        })
    }

    /// Takes a complete file of the same folder instead of what was written. It gets the temporary name. It is synced
    /// when durable, because whoever wrote it may not have done so.
    pub fn adopt(self, complete: &Path) -> Result<Sealed> {
        let disk = LocalDisk { durable: self.target.durable };
        self.adopt_on(complete, &disk)
    }

    fn adopt_on(mut self, complete: &Path, disk: &dyn Disk) -> Result<Sealed> {
        let failed = |e| Error::io("cannot take over", e).in_file(&complete.to_string_lossy());
        let file = self.owner.adopt(complete, &self.temp, self.number).map_err(failed)?;
        self.out = Seekable::new(BlockWriter::new(file).map_err(failed)?)?;
        self.seal_on(disk)
    }

    /// Call this when all bytes are written. It flushes, syncs when durable, and closes.
    pub fn seal(self) -> Result<Sealed> {
        let disk = LocalDisk { durable: self.target.durable };
        self.seal_on(&disk)
    }

    pub(super) fn seal_on(self, disk: &dyn Disk) -> Result<Sealed> {
        let name = self.target.path.to_string_lossy().into_owned();
        let failed = |e| Error::io("writing failed", e).in_file(&name);
        let file = self.out.into_inner().into_file().map_err(failed)?;
        disk.sync_file(&file).map_err(failed)?;
        match close(file) {
            // An interrupted close does close the file, and its bytes are on disk already.
            Err(e) if self.target.durable && e.kind() == ErrorKind::Interrupted => {}
            closed => closed.map_err(failed)?,
        }
        Ok(Sealed {
            temp: Some(self.temp),
            target: self.target,
            owner: self.owner,
            generation: process::generation(),
        })
    }
}

impl Output for Staged {
    fn position(&self) -> u64 {
        self.out.position()
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        // A large record is written in pieces, so that the disk begins with the first of them.
        for piece in bytes.chunks(write_back::PIECE) {
            self.out.write_all(piece).map_err(|e| e.in_file(&self.target.path.to_string_lossy()))?;
            self.write_early(WriteBack::advance)?;
        }
        Ok(())
    }

    fn can_patch(&self) -> bool {
        true
    }

    fn skip(&mut self, length: u64) -> Result<()> {
        self.out.skip(length).map_err(|e| e.in_file(&self.target.path.to_string_lossy()))?;
        if let Some(write_back) = &mut self.write_back {
            write_back.skip_to(self.out.position());
        }
        Ok(())
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let failed = |e: Error| e.in_file(&self.target.path.to_string_lossy());
        match self.out.inner().overwrite(at, bytes) {
            Ok(true) => Ok(()),
            Ok(false) => self.out.write_at(at, bytes).map_err(failed),
            Err(error) => Err(failed(Error::io("writing failed", error).at(at))),
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.out.flush().map_err(|e| e.in_file(&self.target.path.to_string_lossy()))
    }

    fn create_spool(&self) -> std::io::Result<(File, Option<TempPath>)> {
        let (file, temp) = self.owner.create_samples(&self.target.path, self.number)?;
        Ok((file, Some(temp)))
    }
}

/// A complete file, still under its temporary name.
pub struct Sealed {
    /// None once it is published.
    temp: Option<TempPath>,
    target: Target,
    /// Holds the lock until the file is published.
    owner: Arc<Owner>,
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

    /// Returns the temporary file, to be published as one of a set, and its owner, to be kept until then.
    pub(super) fn take_temp(mut self) -> (Option<TempPath>, Arc<Owner>) {
        (self.temp.take(), self.owner.clone())
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

/// The path that is written to: the end of a chain of symlinks, or the path itself.
pub fn resolved(path: &Path) -> std::io::Result<PathBuf> {
    match found(path)? {
        Some(metadata) if metadata.is_symlink() => follow(path),
        _ => Ok(path.to_owned()),
    }
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
    use super::super::write_back::tests::{note, noted};
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[cfg(unix)]
    fn inode(path: &Path) -> u64 {
        std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap())
    }

    /// Notes what is synced.
    #[cfg(unix)]
    #[derive(Default)]
    struct Synced {
        inodes: std::cell::RefCell<Vec<u64>>,
    }

    #[cfg(unix)]
    impl Disk for Synced {
        fn publish(&self, temp: TempPath, to: &Path, overwrite: bool) -> std::io::Result<()> {
            LocalDisk { durable: false }.publish(temp, to, overwrite)
        }

        fn rename(&self, _: &Path, _: &Path) -> std::io::Result<()> {
            unreachable!("one file is published");
        }

        fn rename_new(&self, _: &Path, _: &Path) -> std::io::Result<()> {
            unreachable!("one file is published");
        }

        fn remove(&self, _: &Path) -> std::io::Result<()> {
            unreachable!("one file is published");
        }

        fn sync(&self, folder: &Path) -> std::io::Result<()> {
            self.inodes.borrow_mut().push(inode(folder));
            Ok(())
        }

        fn sync_file(&self, file: &File) -> std::io::Result<()> {
            self.inodes.borrow_mut().push(std::os::unix::fs::MetadataExt::ino(&file.metadata()?));
            Ok(())
        }
    }

    #[test]
    fn nothing_appears_before_publish_and_nothing_stays_after_a_drop() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("a.ffr");
        let mut staged = Staged::create(&target, false, true, &Arc::default()).unwrap();
        staged.write_all(b"half").unwrap();
        assert_eq!(names(dir.path()).len(), 1);
        assert!(!target.exists());
        drop(staged);
        assert!(names(dir.path()).is_empty());

        let mut staged = Staged::create(&target, false, true, &Arc::default()).unwrap();
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
        let sealed = Staged::create(&target, false, false, &Arc::default()).unwrap().seal().unwrap();
        std::fs::write(&target, b"somebody else's").unwrap();
        assert!(sealed.publish().unwrap_err().to_string().contains("overwrite=True"));
        assert_eq!(names(dir.path()), ["a.ffr"]);
        assert_eq!(std::fs::read(&target).unwrap(), b"somebody else's");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_is_taken_over_is_synced_like_one_that_was_written() {
        for number in 0..3 {
            let dir = tempfile::tempdir().unwrap();
            let owner = Arc::default();
            let _before: Vec<_> = (0..number)
                .map(|at| Staged::create(&dir.path().join(format!("{at}.ffr")), false, true, &owner).unwrap())
                .collect();
            let (complete, target) = (dir.path().join("left"), dir.path().join("a.ffr"));
            std::fs::write(&complete, b"whole").unwrap();
            let mut staged = Staged::create(&target, false, true, &owner).unwrap();
            staged.write_all(b"half").unwrap();
            let disk = Synced::default();
            staged.adopt_on(&complete, &disk).unwrap().publish_on(&disk).unwrap();
            assert_eq!(std::fs::read(&target).unwrap(), b"whole");
            assert_eq!(*disk.inodes.borrow(), [inode(&target), inode(dir.path())]);
            assert!(!complete.exists());
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_symlink_is_followed_and_permissions_are_ordinary() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real.ffr"), dir.path().join("link.ffr"));
        std::os::unix::fs::symlink("real.ffr", &link).unwrap();
        Staged::create(&link, true, false, &Arc::default()).unwrap().seal().unwrap().publish().unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        let plain = dir.path().join("plain");
        std::fs::write(&plain, b"").unwrap();
        let mode = |p| std::fs::metadata(p).unwrap().permissions().mode();
        assert_eq!(mode(&real), mode(&plain));
    }

    const P: u64 = write_back::PIECE as u64;

    /// Notes the range. The system must have its bytes by then: what is in a buffer cannot be written to the disk.
    fn note_written(file: &File, range: std::ops::Range<u64>) -> std::io::Result<()> {
        assert!(range.end <= file.metadata()?.len());
        note(file, range)
    }

    fn durable(target: &Path) -> Staged {
        let mut staged = Staged::create(target, false, true, &Arc::default()).unwrap();
        staged.write_back = Some(WriteBack::new(note_written));
        staged
    }

    #[test]
    fn the_disk_gets_each_complete_piece_once_and_in_order() {
        let dir = tempfile::tempdir().unwrap();
        // Small records wait in the buffer, large ones do not.
        for (size, count) in [(1_003, 25_000), (1_000_003, 25)] {
            let mut staged = durable(&dir.path().join("many"));
            for _ in 0..count {
                staged.write_all(&vec![7; size]).unwrap();
            }
            assert_eq!(noted(), [(0, P), (P, 2 * P)]);
            staged.finish().unwrap();
            assert_eq!(noted(), [(0, size as u64 * count)]);
        }
        let record = vec![7; 1_000_003];
        let mut staged = durable(&dir.path().join("a"));
        staged.write_all(&record).unwrap();
        staged.seal().unwrap().publish().unwrap();
        assert!(noted().is_empty());

        // The table at the beginning is left to the sync. Overwriting starts nothing.
        let mut staged = durable(&dir.path().join("b"));
        staged.skip(100).unwrap();
        for _ in 0..25 {
            staged.write_all(&record).unwrap();
            staged.write_at(4, b"entry").unwrap();
        }
        assert_eq!(noted(), [(P, 2 * P)]);

        // The disk begins before the end of a large record.
        let mut staged = durable(&dir.path().join("c"));
        staged.write_all(&vec![7; 3 * P as usize + 1]).unwrap();
        assert_eq!(noted(), [(0, P), (P, 2 * P), (2 * P, 3 * P)]);
    }

    #[test]
    fn small_files_and_files_that_are_not_durable_are_not_started_early() {
        let dir = tempfile::tempdir().unwrap();
        let mut staged = durable(&dir.path().join("a"));
        staged.write_all(&vec![7; P as usize - 1]).unwrap();
        staged.seal().unwrap();
        assert!(noted().is_empty());
        assert!(
            Staged::create(&dir.path().join("b"), false, false, &Arc::default())
                .unwrap()
                .write_back
                .is_none()
        );
        assert!(
            Staged::create_shard(&dir.path().join("b"), false, &Arc::default()).unwrap().write_back.is_none()
        );
        assert!(
            Staged::create_shard(&dir.path().join("b"), true, &Arc::default()).unwrap().write_back.is_some()
        );
    }
}
