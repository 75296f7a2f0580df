//! From a location to a storage: the one place that opens anything to read.

use super::file::{Io, LocalFile};
use super::file_set::FileSet;
use super::handles::Handle;
use super::{Mapped, Storage};
use crate::error::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Acquire};

/// Where bytes are.
#[derive(Clone)]
pub enum Location {
    /// A local file, opened when needed.
    Path {
        /// As it was given: what errors and listings show.
        path: PathBuf,
        /// What it meant then, whatever the working directory is by now.
        absolute: PathBuf,
    },
    /// Something that was handed over open and cannot be opened again.
    Handed(Arc<dyn Storage>),
}

impl Location {
    /// A local file.
    pub fn path(path: PathBuf) -> Self {
        let absolute = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
        Location::Path { path, absolute }
    }

    /// What errors and listings call it.
    pub fn name(&self) -> String {
        match self {
            Location::Path { path, .. } => path.to_string_lossy().into_owned(),
            Location::Handed(storage) => storage.name().to_owned(),
        }
    }

    /// The path as it was given, if it is a local file.
    pub fn as_path(&self) -> Option<&Path> {
        match self {
            Location::Path { path, .. } => Some(path),
            Location::Handed(_) => None,
        }
    }

    /// The path from the root, if it is a local file.
    pub fn absolute(&self) -> Option<&Path> {
        match self {
            Location::Path { absolute, .. } => Some(absolute),
            Location::Handed(_) => None,
        }
    }

    /// The location of a file beside this one, whose name is made from this one's. None where there is no beside.
    pub fn beside(&self, name: impl Fn(&std::ffi::OsStr) -> std::ffi::OsString) -> Option<Self> {
        let Location::Path { path, absolute } = self else { return None };
        let renamed = |path: &Path| Some(path.with_file_name(name(path.file_name()?)));
        Some(Location::Path { path: renamed(path)?, absolute: renamed(absolute)? })
    }

    /// Opens it. `files` bounds the descriptors of the data set that it belongs to.
    pub fn open(&self, io: Io, files: &FileSet) -> Result<Opened> {
        match self {
            Location::Path { absolute, .. } => {
                let file = LocalFile::open_as(self.name(), absolute, &files.handles, io)?;
                let (handle, warning) = (Some(file.handle().clone()), file.warning());
                let file = Arc::new(file);
                let (map_flag, mapped) = (file.map_flag(), file.clone().into_mapped());
                Ok(Opened { mapped, map_flag, storage: file, handle, warning })
            }
            Location::Handed(storage) => Ok(Opened {
                storage: storage.clone(),
                mapped: None,
                map_flag: None,
                handle: None,
                warning: None,
            }),
        }
    }
}

/// A storage that was opened.
#[derive(Clone)]
pub struct Opened {
    /// The bytes.
    pub storage: Arc<dyn Storage>,
    /// The same, where it is a mapped file: at hand, because every read of a record asks for it.
    mapped: Option<Arc<dyn Mapped>>,
    /// Of a mapped file: 0 as long as its map can be read from. After a fault it is read like any other file.
    map_flag: Option<&'static AtomicU8>,
    /// The place of its descriptor, if it has one.
    handle: Option<Arc<Handle>>,
    /// What whoever opened it should know about the way it is read: `"read ..."`.
    pub warning: Option<&'static str>,
}

impl Opened {
    /// What can be done with bytes that are in memory already.
    #[inline]
    pub fn mapped(&self) -> Option<&dyn Mapped> {
        match &self.mapped {
            Some(mapped) => Some(&**mapped),
            None => self.storage.mapped(),
        }
    }

    /// Whether bytes can be looked at in place, now.
    #[inline]
    pub fn is_mapped(&self) -> bool {
        match self.map_flag {
            Some(flag) => flag.load(Acquire) == 0,
            None => self.mapped().is_some(),
        }
    }

    /// Gives descriptor and memory map back. Both are opened again if somebody reads after all.
    pub fn release(&self) {
        if let Some(handle) = &self.handle {
            handle.close();
        }
        if let Some(mapped) = self.mapped() {
            mapped.retire();
        }
    }
}
