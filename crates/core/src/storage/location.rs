//! Opens locations as storages. This is the only place that opens files for reading.

#[cfg(unix)]
use super::cache::file::CachedFile;
use super::file::{Io, LocalFile};
use super::handles::Handle;
use super::partial::FetchedRange;
use super::remote::file::RemoteFile;
use super::remote::open::{self as objects, FirstPart, OpenedObject};
use super::remote::options::StorageOptions;
use super::remote::url::RemoteUrl;
use super::{Mapped, Storage};
use crate::cx::Cx;
use crate::error::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Acquire};

/// Where bytes are.
#[derive(Clone)]
pub enum Location {
    /// A local file, opened when needed.
    Path {
        /// The path as it was given. Errors and listings show it.
        path: PathBuf,
        /// The absolute path at that time. It stays valid if the working directory changes.
        absolute: PathBuf,
    },
    /// An object in a store, opened when needed.
    Url {
        /// Where it is.
        url: RemoteUrl,
        /// The options of the store.
        options: Arc<StorageOptions>,
    },
    /// A storage that the caller passed already open. It cannot be opened again.
    Handed(Arc<dyn Storage>),
}

impl Location {
    /// A local file.
    pub fn path(path: PathBuf) -> Self {
        let absolute = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
        Location::Path { path, absolute }
    }

    /// The name that errors and listings show.
    pub fn name(&self) -> String {
        match self {
            Location::Path { path, .. } => path.to_string_lossy().into_owned(),
            Location::Url { url, .. } => url.shown().to_owned(),
            Location::Handed(storage) => storage.name().to_owned(),
        }
    }

    /// The path as it was given, if it is a local file.
    pub fn as_path(&self) -> Option<&Path> {
        match self {
            Location::Path { path, .. } => Some(path),
            Location::Url { .. } | Location::Handed(_) => None,
        }
    }

    /// The absolute path, if it is a local file.
    pub fn absolute(&self) -> Option<&Path> {
        match self {
            Location::Path { absolute, .. } => Some(absolute),
            Location::Url { .. } | Location::Handed(_) => None,
        }
    }

    /// The URL, if it is an object in a store.
    pub fn as_url(&self) -> Option<&RemoteUrl> {
        match self {
            Location::Url { url, .. } => Some(url),
            _ => None,
        }
    }

    /// The location of a file in the same folder. `name` makes its file name from the name of this file. None if this
    /// location has no file name, or is not in a folder.
    pub fn beside(&self, name: impl Fn(&OsStr) -> OsString) -> Option<Self> {
        match self {
            Location::Path { path, absolute } => {
                let renamed = |path: &Path| Some(path.with_file_name(name(path.file_name()?)));
                Some(Location::Path { path: renamed(path)?, absolute: renamed(absolute)? })
            }
            Location::Url { url, options } => {
                Some(Location::Url { url: url.beside(&name)?, options: options.clone() })
            }
            Location::Handed(storage) => storage.beside(&name).map(Location::Handed),
        }
    }

    /// Opens the location, within the limits of its data set. `part` is the part of an object to fetch, with the same
    /// request if possible.
    pub fn open(&self, io: Io, part: FirstPart, cx: &Cx<'_>) -> Result<Opened> {
        let files = cx.budget.files();
        match self {
            Location::Url { .. } => {
                let opened = Self::open_objects(&[(self, part)], cx)?.pop();
                opened.unwrap_or_else(|| Err(Error::cancellation()))
            }
            Location::Path { absolute, .. } => {
                let file = LocalFile::open_as(self.name(), absolute, &files.handles, io)?;
                let (handle, warning) = (Some(file.handle().clone()), file.warning());
                let file = Arc::new(file);
                let (map_flag, mapped) = (file.map_flag(), file.clone().into_mapped());
                Ok(Opened { mapped, map_flag, handle, warning, ..Opened::new(file) })
            }
            Location::Handed(storage) => Opened::with_part(storage.clone(), part, cx),
        }
    }

    /// Opens remote objects together, each with a part of it. Other locations are left out.
    pub fn open_objects(locations: &[(&Location, FirstPart)], cx: &Cx<'_>) -> Result<Vec<Result<Opened>>> {
        let object = |(location, part): &(&Location, FirstPart)| match location {
            Location::Url { url, options } => Some((url.clone(), options.clone(), *part)),
            _ => None,
        };
        let opened = objects::open(locations.iter().filter_map(object).collect(), cx.budget.files(), cx)?;
        let make = |(file, part): OpenedObject| {
            let mut opened = Opened::object(file, cx);
            opened.part = Some(Arc::new(part));
            opened
        };
        Ok(opened.into_iter().map(|opened| opened.map(make)).collect())
    }
}

/// An open storage.
#[derive(Clone)]
pub struct Opened {
    /// The bytes.
    pub storage: Arc<dyn Storage>,
    /// The same storage, if it is a mapped file. It is kept here because every read of a record needs it.
    mapped: Option<Arc<dyn Mapped>>,
    /// For a mapped file: 0 as long as it can be read from its memory map. After a fault, the file is read with plain
    /// reads.
    map_flag: Option<&'static AtomicU8>,
    /// The handle of its descriptor, if it has one.
    handle: Option<Arc<Handle>>,
    /// A warning to the caller about how the file is read: `"read ..."`.
    pub warning: Option<&'static str>,
    /// Bytes that came with opening, until its table is read.
    pub part: Option<Arc<FetchedRange>>,
}

impl Opened {
    /// A storage that is always read.
    fn new(storage: Arc<dyn Storage>) -> Self {
        Opened { storage, mapped: None, map_flag: None, handle: None, warning: None, part: None }
    }

    /// An object, with the cache of its data set if there is one.
    fn object(file: RemoteFile, cx: &Cx<'_>) -> Self {
        #[cfg(unix)]
        let file = match &cx.budget.files().cache {
            None => file,
            Some(cache) => match CachedFile::new(file, cache) {
                Ok(file) => {
                    let file = Arc::new(file);
                    #[cfg(target_os = "linux")]
                    let mapped = Some(file.clone() as Arc<dyn Mapped>);
                    #[cfg(not(target_os = "linux"))]
                    let mapped = None;
                    return Opened { mapped, ..Opened::new(file) };
                }
                Err(file) => file,
            },
        };
        #[cfg(not(unix))]
        let _ = cx;
        Opened::new(Arc::new(file))
    }

    /// A storage of the caller. If it is far away, a part of it is read now.
    fn with_part(storage: Arc<dyn Storage>, part: FirstPart, cx: &Cx<'_>) -> Result<Self> {
        let mut opened = Self::new(storage);
        let size = opened.storage.len();
        if opened.storage.distance().is_far() && size > 0 {
            let length = size.min(objects::PART);
            let at = if part == FirstPart::End { size - length } else { 0 };
            let mut fetched = FetchedRange::empty(at..at + length)?;
            opened.storage.read_at(at, &mut fetched.bytes, cx)?;
            opened.part = Some(Arc::new(fetched));
        }
        Ok(opened)
    }

    /// Frees the bytes that came with opening.
    #[must_use]
    pub fn without_part(mut self) -> Self {
        self.part = None;
        self
    }

    /// Access to the bytes in place. None if they have to be read.
    #[inline]
    pub fn mapped(&self) -> Option<&dyn Mapped> {
        match &self.mapped {
            Some(mapped) => Some(&**mapped),
            None => self.storage.mapped(),
        }
    }

    /// Whether a range can be accessed in place now.
    #[inline]
    pub fn is_mapped(&self, range: impl FnOnce() -> Range<u64>) -> bool {
        match self.map_flag {
            Some(flag) => flag.load(Acquire) == 0,
            None => self.mapped().is_some_and(|mapped| mapped.holds(range())),
        }
    }

    /// Closes the descriptor and releases the memory map. A later read opens the file again.
    pub fn release(&self) {
        if let Some(handle) = &self.handle {
            handle.close();
        }
        if let Some(mapped) = self.mapped() {
            mapped.retire();
        }
    }
}
