//! One file of a data set, or a range of its records. Opened when it is needed, the same file for ever after.

use crate::error::{Error, Result};
use crate::format::{Format, ReadOptions, Table, detect};
use crate::index_file;
use crate::storage::Storage;
use crate::storage::file::LocalFile;
use crate::storage::handles::Handles;
use once_cell::race::OnceBox;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Acquire},
};

/// An open file: its bytes, its format and its table.
pub struct Source {
    /// The bytes.
    pub storage: Arc<dyn Storage>,
    /// The format.
    pub format: &'static dyn Format,
    /// Where the chunks are.
    pub table: Box<dyn Table>,
    /// Whether chunks have to be decompressed, as far as the table knows.
    pub is_packed: bool,
}

impl Source {
    /// Detects the format, unless it is given, and reads the table.
    ///
    /// `path`: where a side index may lie beside the data; it is used if it fits.
    pub fn open(
        storage: Arc<dyn Storage>,
        path: Option<&Path>,
        format: Option<&str>,
        options: &ReadOptions,
    ) -> Result<Self> {
        let asked = format.map(detect::by_name).transpose()?;
        let open = || {
            let format = match asked {
                Some(format) => format,
                None => detect::detect(&*storage)?,
            };
            let indexed = path.filter(|_| format.has_side_index());
            if let Some(path) = indexed
                && let Some(table) = index_file::open(path, &*storage, format, options)?
            {
                return Ok((format, table));
            }
            Ok((format, format.open(&*storage, options)?))
        };
        let (format, table) = open().map_err(|error: Error| {
            let error = match asked {
                Some(asked) => detect::name_other_format(error, asked, &*storage),
                None => error,
            };
            error.in_file(storage.name())
        })?;
        let is_packed = table.describe().codec.is_none_or(|codec| codec != "none");
        Ok(Source { storage, format, table, is_packed })
    }
}

/// Where a shard's bytes come from.
#[derive(Clone)]
enum Origin {
    /// A local path, opened when needed.
    Path {
        /// As it was given: what errors and listings show.
        path: PathBuf,
        /// What it meant then, whatever the working directory is by now.
        absolute: PathBuf,
        handles: Arc<Handles>,
    },
    /// Something that was handed over open and cannot be opened again.
    Handed(Arc<dyn Storage>),
}

impl Origin {
    fn path(path: PathBuf, handles: Arc<Handles>) -> Self {
        let absolute = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
        Origin::Path { path, absolute, handles }
    }
}

/// A range of the records of one file.
pub struct Shard {
    origin: Origin,
    format: Option<String>,
    options: ReadOptions,
    first: u64,
    records: u64,
    /// Not a lock that runs an initialiser: a fork in the middle of one would hang the child. Two threads may
    /// both open the file; one result is dropped.
    opened: OnceBox<Source>,
    /// Readers that have it and are not closed.
    users: AtomicUsize,
}

/// Which records of a file are meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordRange {
    /// The first record.
    pub start: u64,
    /// The record after the last; none: to the end of the file.
    pub stop: Option<u64>,
}

impl RecordRange {
    /// The record numbers that are meant in a file of `total` records.
    pub fn within(self, total: u64) -> Result<Range<u64>> {
        let (start, stop) = (self.start, self.stop.unwrap_or(total));
        if start > stop || stop > total {
            let text = format!("records {start}..{stop} are not in the file, which has {total}");
            return Err(Error::argument(text));
        }
        Ok(start..stop)
    }
}

impl Shard {
    /// Opens a local file now.
    pub fn open(
        path: PathBuf,
        range: RecordRange,
        format: Option<&str>,
        options: ReadOptions,
        handles: Arc<Handles>,
    ) -> Result<Self> {
        Self::opened(Origin::path(path, handles), range, format, options)
    }

    /// Takes a storage that is already open.
    pub fn over(
        storage: Arc<dyn Storage>,
        range: RecordRange,
        format: Option<&str>,
        options: ReadOptions,
    ) -> Result<Self> {
        Self::opened(Origin::Handed(storage), range, format, options)
    }

    /// A local file whose format and number of records are known: opened at the first read.
    pub fn later(
        path: PathBuf,
        first: u64,
        records: u64,
        format: &str,
        options: ReadOptions,
        handles: Arc<Handles>,
    ) -> Self {
        let origin = Origin::path(path, handles);
        let format = Some(format.to_owned());
        let (opened, users) = (OnceBox::new(), AtomicUsize::new(0));
        Shard { origin, format, options, first, records, opened, users }
    }

    fn opened(
        origin: Origin,
        range: RecordRange,
        format: Option<&str>,
        options: ReadOptions,
    ) -> Result<Self> {
        let source = open_origin(&origin, format, &options)?;
        let range = range.within(source.table.records()).map_err(|e| e.in_file(source.storage.name()))?;
        Ok(Shard {
            origin,
            format: Some(source.format.name().to_owned()),
            options,
            first: range.start,
            records: range.end - range.start,
            opened: OnceBox::with_value(Box::new(source)),
            users: AtomicUsize::new(0),
        })
    }

    /// How many records belong to it.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The number, in its file, of its first record.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Its format's name, as detected or as given.
    pub fn format(&self) -> &str {
        self.format.as_deref().unwrap_or_default()
    }

    /// The path, if it is a local file.
    pub fn path(&self) -> Option<&Path> {
        match &self.origin {
            Origin::Path { path, .. } => Some(path),
            Origin::Handed(_) => None,
        }
    }

    /// The path from the root, if it is a local file.
    pub fn absolute(&self) -> Option<&Path> {
        match &self.origin {
            Origin::Path { absolute, .. } => Some(absolute),
            Origin::Handed(_) => None,
        }
    }

    /// What errors and listings call it.
    pub fn name(&self) -> String {
        match &self.origin {
            Origin::Path { path, .. } => path.to_string_lossy().into_owned(),
            Origin::Handed(storage) => storage.name().to_owned(),
        }
    }

    /// The file, if it is open already.
    #[inline]
    pub fn opened_source(&self) -> Option<&Source> {
        self.opened.get()
    }

    /// The open file.
    pub fn source(&self) -> Result<&Source> {
        if let Some(source) = self.opened.get() {
            return Ok(source);
        }
        let source = open_origin(&self.origin, self.format.as_deref(), &self.options)?;
        let total = source.table.records();
        if total < self.first + self.records {
            return Err(Error::format("file changed: it has fewer records than it had")
                .in_file(source.storage.name())
                .expected(format_args!("at least {}", self.first + self.records))
                .found(total));
        }
        let source = Box::new(source);
        // If somebody else was faster, theirs is as good.
        let _ = self.opened.set(source);
        Ok(self.opened.get().expect("it was set just now"))
    }

    /// Whether every reader that had it is closed.
    pub fn is_unused(&self) -> bool {
        self.users.load(Acquire) == 0
    }

    /// One more reader has it.
    pub fn retain(&self) {
        self.users.fetch_add(1, AcqRel);
    }

    /// One reader less has it. With the last one go its descriptor and its map.
    pub fn release(&self) {
        if self.users.fetch_sub(1, AcqRel) == 1
            && let Some(source) = self.opened.get()
        {
            source.storage.release();
        }
    }
}

fn open_origin(origin: &Origin, format: Option<&str>, options: &ReadOptions) -> Result<Source> {
    let (storage, path): (Arc<dyn Storage>, _) = match origin {
        Origin::Path { path, absolute, handles } => {
            let name = path.to_string_lossy().into_owned();
            let file = LocalFile::open_as(name, absolute, handles, options.io, options.checksums)?;
            (Arc::new(file), Some(&**absolute))
        }
        Origin::Handed(storage) => (storage.clone(), None),
    };
    Source::open(storage, path, format, options)
}
