//! Whether a file that is opened again is still the same file.

#[cfg(target_os = "linux")]
use super::direct::Direct;
use super::file::Io;
use crate::error::{Error, Result};
use crate::process;
use std::fs::{File, Metadata};
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

/// What makes a file the same file: compared when it is opened again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its size in bytes.
    pub size: u64,
    modified: Option<SystemTime>,
    device_and_inode: Option<(u64, u64)>,
}

impl Identity {
    /// Of a file that is open.
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

    /// Whether both are the same file, whatever was done to it.
    pub fn is_file_of(&self, other: &Self) -> bool {
        self.device_and_inode == other.device_and_inode
    }
}

/// A file while it is open.
pub struct OpenFile {
    /// The descriptor.
    pub file: ManuallyDrop<File>,
    /// The process that this descriptor is known to be right in. The kernel copies descriptors to a forked child a
    /// moment before it copies memory, so that a thread that opens or closes files in between leaves the child with
    /// numbers that mean other files.
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

    /// Whether the descriptor is right in this process: looked at once in each.
    pub fn is_right(&self, identity: &Identity) -> bool {
        let generation = process::generation();
        if self.generation.load(Relaxed) == generation {
            return true;
        }
        // A file that was truncated meanwhile is still the file; whoever reads it finds that out.
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
        // A number that may mean another file here is not ours to close.
        if self.generation.load(Relaxed) == process::generation() {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

/// Opens a regular file; errors call it `name`.
pub fn open(path: &Path, name: &str) -> Result<(File, Metadata)> {
    let failed = |e| Error::io("cannot open", e).in_file(name);
    // Looked at before it is opened: opening a pipe that nobody writes to would wait for ever.
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
