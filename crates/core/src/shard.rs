//! One file of a data set, or a range of its records. The file is opened on first use. If it has fewer records by then
//! than expected, that is an error.

use crate::budget::Budget;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::format::verify_once::VerifyOnce;
use crate::format::{Format, ReadOptions, Table, TableHome, detect};
use crate::index_file;
use crate::storage::buffered::Buffered;
use crate::storage::file_set::FileSet;
use crate::storage::location::{Location, Opened};
use crate::storage::remote::open::FirstPart;
use crate::storage::{Mapped, Storage};
use once_cell::race::OnceBox;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{AcqRel, Acquire},
};

/// An open file: its bytes, its format and its table.
pub struct Source {
    opened: Opened,
    /// The format of the file.
    pub format: &'static Format,
    /// Where the chunks are.
    pub table: Box<dyn Table>,
    /// Whether chunks have to be decompressed. True if the table does not know.
    pub is_packed: bool,
    /// Whether a lookup in the table does no I/O.
    pub has_table_in_memory: bool,
    /// Whether checksums of the bytes are verified at every read.
    pub is_verified: bool,
    /// Records of at least this many bytes are decoded two at once, if they are in place.
    pub two_at_once_from: usize,
}

impl Source {
    /// Opens a location, detects the format unless it is given, and reads the table.
    ///
    /// If the same folder has a side index that matches the data, the table is read from it.
    pub fn open(
        location: &Location,
        format: Option<&str>,
        options: &ReadOptions,
        cx: &Cx<'_>,
    ) -> Result<Self> {
        let opened = location.open(options.io, first_part(location, format), cx)?;
        let (format, table) = Source::read_table(&Buffered::of(&opened), location, format, options, cx)?;
        Source::new(opened, format, table, options)
    }

    /// Detects the format unless it is given, and reads the table.
    pub fn read_table(
        storage: &dyn Storage,
        location: &Location,
        format: Option<&str>,
        options: &ReadOptions,
        cx: &Cx<'_>,
    ) -> Result<(&'static Format, Box<dyn Table>)> {
        let asked = format.map(detect::by_name).transpose()?;
        // The bytes that prove the format of a remote object cost a request. They are needed only if the name is wrong.
        let named = detect::by_suffix(&location.name()).filter(|_| storage.distance().is_far());
        if let (None, Some(format)) = (asked, named)
            && let Ok(table) = index_file::open_table(location, storage, format, options, cx)
        {
            return Ok((format, table));
        }
        let open = || {
            let format = match asked {
                Some(format) => format,
                None => detect::detect(storage, options, cx)?,
            };
            Ok((format, index_file::open_table(location, storage, format, options, cx)?))
        };
        open().map_err(|error: Error| {
            let error = match asked {
                Some(asked) => detect::name_other_format(error, asked, storage, options, cx),
                None => error,
            };
            error.in_file(storage.name())
        })
    }

    /// A source from an open storage and its table.
    pub fn new(
        opened: Opened,
        format: &'static Format,
        table: Box<dyn Table>,
        options: &ReadOptions,
    ) -> Result<Self> {
        // The table is read, so these bytes are not needed any more.
        let opened = opened.without_part();
        let is_packed = table.describe().codec.is_none_or(|codec| codec != "none");
        let has_table_in_memory = options.table == TableHome::Memory;
        let once = options.checksums && options.once;
        let table = if once { VerifyOnce::of(table, opened.storage.clone())? } else { table };
        let is_verified = options.checksums && !once;
        let two_at_once_from = table.two_at_once_from().filter(|_| !is_packed).unwrap_or(usize::MAX);
        Ok(Source { opened, format, table, is_packed, has_table_in_memory, is_verified, two_at_once_from })
    }

    /// The bytes.
    #[inline]
    pub fn storage(&self) -> &dyn Storage {
        &*self.opened.storage
    }

    /// Access to the bytes in place. None if they have to be read.
    #[inline]
    pub fn mapped(&self) -> Option<&dyn Mapped> {
        self.opened.mapped()
    }

    /// Whether a range can be accessed in place now. False after an access to the memory map has failed.
    #[inline]
    pub fn is_mapped(&self, range: impl FnOnce() -> Range<u64>) -> bool {
        self.opened.is_mapped(range)
    }

    /// A warning to the caller about how the file is read: `"read ..."`.
    pub fn warning(&self) -> Option<&'static str> {
        self.opened.warning
    }

    /// Closes the descriptor and releases the memory map.
    pub fn release(&self) {
        self.opened.release();
    }
}

/// The part of a remote object that its table is in.
pub fn first_part(location: &Location, format: Option<&str>) -> FirstPart {
    let format = match format {
        Some(name) => detect::by_name(name).ok(),
        None => detect::by_suffix(&location.name()),
    };
    match format {
        Some(format) if format.has_table_at_end => FirstPart::End,
        _ => FirstPart::Beginning,
    }
}

/// A range of the records of one file.
pub struct Shard {
    location: Location,
    files: Arc<FileSet>,
    format: Option<String>,
    options: ReadOptions,
    first: u64,
    records: u64,
    /// This is not a lock that runs an initialiser: a fork during the initialiser would hang the child. Two threads may
    /// both open the file. Then one of the results is dropped.
    opened: OnceBox<Source>,
    /// How many readers use this shard and are not closed.
    users: AtomicUsize,
}

/// A range of the records of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordRange {
    /// The first record.
    pub start: u64,
    /// The record after the last one. None for the end of the file.
    pub stop: Option<u64>,
}

impl RecordRange {
    /// The record numbers of this range in a file of `total` records.
    pub fn within(self, total: u64) -> Result<Range<u64>> {
        let (start, stop) = (self.start, self.stop.unwrap_or(total));
        if start > stop || stop > total {
            let text = format!("records {start}..{stop} are not in the file, which has {total} records");
            return Err(Error::argument(text));
        }
        Ok(start..stop)
    }
}

impl Shard {
    /// Opens a file now.
    pub fn open(
        location: Location,
        range: RecordRange,
        format: Option<&str>,
        options: ReadOptions,
        cx: &Cx<'_>,
    ) -> Result<Self> {
        let source = Source::open(&location, format, &options, cx)?;
        Shard::of_source(location, range, source, options, cx.budget.files().clone())
    }

    /// A shard from a file that is open.
    pub fn of_source(
        location: Location,
        range: RecordRange,
        source: Source,
        options: ReadOptions,
        files: Arc<FileSet>,
    ) -> Result<Self> {
        let range = range.within(source.table.records()).map_err(|e| e.in_file(source.storage().name()))?;
        Ok(Shard {
            location,
            files,
            format: Some(source.format.name.to_owned()),
            options,
            first: range.start,
            records: range.end - range.start,
            opened: OnceBox::with_value(Box::new(source)),
            users: AtomicUsize::new(0),
        })
    }

    /// A shard of a file whose format and number of records are known. The file is opened at the first read.
    pub fn later(
        location: Location,
        first: u64,
        records: u64,
        format: &str,
        options: ReadOptions,
        files: Arc<FileSet>,
    ) -> Self {
        let format = Some(format.to_owned());
        let (opened, users) = (OnceBox::new(), AtomicUsize::new(0));
        Shard { location, files, format, options, first, records, opened, users }
    }

    /// How the file is read.
    pub fn options(&self) -> &ReadOptions {
        &self.options
    }

    /// What this file shares with the other files of its data set.
    pub fn files(&self) -> &Arc<FileSet> {
        &self.files
    }

    /// How many records this shard has.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The number that the first record of this shard has in the file.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The name of the format, detected or given.
    pub fn format(&self) -> &str {
        self.format.as_deref().unwrap_or_default()
    }

    /// The path as it was given, if it is a local file.
    pub fn path(&self) -> Option<&Path> {
        self.location.as_path()
    }

    /// Where the file is.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// The path from the root, if it is a local file.
    pub fn absolute(&self) -> Option<&Path> {
        self.location.absolute()
    }

    /// The name that errors and listings show.
    pub fn name(&self) -> String {
        self.location.name()
    }

    /// The file, if it is open already.
    #[inline]
    pub fn opened_source(&self) -> Option<&Source> {
        self.opened.get()
    }

    /// The open file. Opens it if it is not open yet.
    pub fn source(&self, cx: &Cx<'_>) -> Result<&Source> {
        if let Some(source) = self.opened.get() {
            return Ok(source);
        }
        // The descriptor and the temporary bytes of the file count towards its own data set, even if a call on another
        // data set opens it.
        let budget = Budget::new(&self.options.limits, &self.files);
        let cx = Cx { budget: &budget, stop: cx.stop };
        self.set_source(Source::open(&self.location, self.format.as_deref(), &self.options, &cx)?)?;
        self.opened.get().ok_or_else(Error::cancellation)
    }

    /// Takes the open file. It must have the records of this shard.
    pub fn set_source(&self, source: Source) -> Result<()> {
        let total = source.table.records();
        if total < self.first + self.records {
            return Err(Error::format("file changed: it has fewer records than before")
                .in_file(source.storage().name())
                .expected(format_args!("at least {}", self.first + self.records))
                .found(total)
                .as_change());
        }
        // If another thread was faster, its result is kept and this one is dropped.
        let _ = self.opened.set(Box::new(source));
        Ok(())
    }

    /// Whether no open reader uses this shard.
    pub fn is_unused(&self) -> bool {
        self.users.load(Acquire) == 0
    }

    /// Counts one more reader.
    pub fn retain(&self) {
        self.users.fetch_add(1, AcqRel);
    }

    /// Counts one reader less. After the last one, closes the descriptor and releases the memory map.
    pub fn release(&self) {
        if self.users.fetch_sub(1, AcqRel) == 1
            && let Some(source) = self.opened.get()
        {
            source.release();
        }
    }
}
