//! Whether a file that is opened again is still the same file.

#[cfg(target_os = "linux")]
use super::direct::Direct;
use super::file::Io;
use crate::error::{Error, Result};
use crate::process;
use std::fs::{File, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

/// What identifies a file. Compared when the file is opened again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its size in bytes.
    pub size: u64,
    modified: Option<SystemTime>,
    device_and_inode: Option<(u64, u64)>,
}

impl Identity {
    /// The identity of an open file.
    pub fn of(metadata: &Metadata) -> Self {
        #[cfg(unix)]
        let device_and_inode = {
            use std::os::unix::fs::MetadataExt;
            Some((metadata.dev(), metadata.ino()))
        };
        #[cfg(not(unix))]
        let device_and_inode = None;
        Identity { size: metadata.len(), modified: metadata.modified().ok(), device_and_inode }
    }

    /// Whether both are the same file, even if its content has changed.
    pub fn is_file_of(&self, other: &Self) -> bool {
        self.device_and_inode == other.device_and_inode
    }
}

/// A number that differs between two states of a file, except by an unlikely coincidence. It covers the file's size and
/// times, so that writing to the file changes it.
pub fn change_mark(metadata: &Metadata) -> u64 {
    let mut hasher = DefaultHasher::new();
    let identity = Identity::of(metadata);
    (identity.size, identity.modified, identity.device_and_inode).hash(&mut hasher);
    // Unlike the time of modification, no program can set it.
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        (metadata.ctime(), metadata.ctime_nsec()).hash(&mut hasher);
    }
    hasher.finish()
}

/// A file while it is open.
pub struct OpenFile {
    /// The descriptor.
    pub file: ManuallyDrop<File>,
    /// The fork generation in which this descriptor is known to be valid. The kernel copies descriptors to a forked
    /// child a moment before it copies memory. If a thread opens or closes files in between, descriptor numbers in the
    /// child may refer to other files.
    generation: AtomicU64,
    /// How it is read with O_DIRECT, if it is.
    #[cfg(target_os = "linux")]
    pub direct: Option<Direct>,
}

impl OpenFile {
    /// A file that was just opened in this process.
    pub fn new(file: File, io: Io) -> Self {
        #[cfg(target_os = "linux")]
        let direct = if io == Io::Direct { Direct::switch(&file) } else { None };
        #[cfg(not(target_os = "linux"))]
        let _ = io;
        OpenFile {
            file: ManuallyDrop::new(file),
            generation: AtomicU64::new(process::generation()),
            #[cfg(target_os = "linux")]
            direct,
        }
    }

    /// Whether the descriptor is valid in this process. Checked once in each process.
    pub fn is_right(&self, identity: &Identity) -> bool {
        let generation = process::generation();
        if self.generation.load(Relaxed) == generation {
            return true;
        }
        // A file that was truncated meanwhile is still the same file. The next read reports the truncation.
        let is_right =
            self.file.metadata().is_ok_and(|metadata| Identity::of(&metadata).is_file_of(identity));
        if is_right {
            self.generation.store(generation, Relaxed);
        }
        is_right
    }

    /// Whether it is read with O_DIRECT.
    pub fn is_direct(&self) -> bool {
        #[cfg(target_os = "linux")]
        return self.direct.is_some();
        #[cfg(not(target_os = "linux"))]
        return false;
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // In a forked child, this number may refer to another file, which we must not close.
        if self.generation.load(Relaxed) == process::generation() {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

/// Opens a regular file. Errors call it `name`.
pub fn open(path: &Path, name: &str) -> Result<(File, Metadata)> {
    let failed = |e| Error::io("cannot open", e).in_file(name);
    // Checked before the file is opened, because opening a pipe that has no writer would wait forever.
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if metadata.is_dir() {
        return Err(Error::io("cannot open", std::io::ErrorKind::IsADirectory.into()).in_file(name));
    }
    if !metadata.is_file() {
        return Err(Error::argument("not a regular file, so its records cannot be read by number")
            .in_file(name)
            .hint("copy it to a file first"));
    }
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    Ok((file, metadata))
}
