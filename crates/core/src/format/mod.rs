//! What a format is: it says where the chunks are and how to decode one.
//!
//! A format never opens a file. It is given a [`Storage`](crate::storage::Storage) to read a table from,
//! and chunks of bytes to decode; everything else is the same for all formats and lives elsewhere.

pub mod array_record;
pub mod detect;
pub mod encode;
pub mod ffrecord;
pub mod options;
pub mod recordio;
pub mod riegeli;
mod search;
pub mod side_index;
pub mod spare;
#[cfg(test)]
pub(crate) mod testing;
pub mod tfrecord;
pub mod walk;

use crate::cache::Weight;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::storage::Storage;
use crate::storage::file::Io;
use encode::AnyEncoder;
use options::WriteOptions;
use std::ops::Range;
use walk::{Span, Walk};

/// How sure a format is that a file is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Probe {
    /// Certainly not, or nothing speaks for it.
    No,
    /// It could be, but so could something else: the format has no magic number.
    Plausible,
    /// A magic number or a hash says so.
    Yes,
}

/// Where a table of chunks is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableHome {
    /// In memory, at most 16 bytes a chunk.
    #[default]
    Memory,
    /// In an unlinked temporary file; a lookup is one small read of it.
    Disk,
}

/// How to read a file.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// Verify every hash that the format has, of tables as well as of data.
    pub checksums: bool,
    /// Where the table of chunks is kept.
    pub table: TableHome,
    /// How local files are read.
    pub io: Io,
    /// Caps on what the file may claim.
    pub limits: Limits,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions { checksums: true, table: TableHome::Memory, io: Io::Auto, limits: Limits::default() }
    }
}

/// One record file format: its names, and the functions that read and write its files. A format is a constant.
pub struct Format {
    /// The one spelling of its name.
    pub name: &'static str,
    /// File name endings that choose it, with the dot.
    pub suffixes: &'static [&'static str],
    /// Whether the bytes are of this format.
    pub probe: fn(&dyn Storage, &ReadOptions, &Cx<'_>) -> Result<Probe>,
    /// Reads the table of chunks.
    pub open: Open,
    /// Reads the table from a side index that [`Table::index_bytes`] made. Only for formats without a table in the
    /// file, where finding the chunks takes long.
    pub open_indexed: Option<OpenIndexed>,
    /// Visits every byte of a file once, from the first to the last: see [`walk`].
    pub walk: WalkFile,
    /// A new encoder. Options that the format does not have are refused.
    pub encoder: fn(&WriteOptions) -> Result<Box<dyn AnyEncoder>>,
}

/// Reads the table of chunks of a file.
pub type Open = fn(&dyn Storage, &ReadOptions, &Cx<'_>) -> Result<Box<dyn Table>>;

/// Reads a table from a side index, the second argument. Returns None where the index does not fit the data: then
/// [`Format::open`] reports what the data is like. The index is checked against the data only in part. What it says of
/// a chunk is checked again when the chunk is read.
pub type OpenIndexed = fn(&dyn Storage, &[u8], &ReadOptions, &Cx<'_>) -> Result<Option<Box<dyn Table>>>;

/// Walks through a file and calls the visitor with each span. This is the one place that knows the framing of the
/// format. An error is returned only where reading failed, where the visitor returned one, and where the walk ends at
/// damage.
pub type WalkFile = fn(&Walk<'_>, &mut dyn FnMut(Span<'_>) -> Result<()>) -> Result<()>;

/// One chunk of a file: where it is stored and which records it holds. Made on demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its number in the file.
    pub index: u64,
    /// The bytes to fetch in order to decode it.
    pub stored: Range<u64>,
    /// Number of its first record in the file.
    pub first_record: u64,
    /// How many records it holds.
    pub records: u64,
}

/// The shortest way to a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// These bytes of the file are the record. They are read straight into their final place and then shown to
    /// [`Table::check`].
    Plain(Range<u64>),
    /// These bytes of the file hold the record alone, and its size is known. [`Table::decode_into`] puts the record
    /// into its final place.
    Alone {
        /// The bytes to fetch.
        stored: Range<u64>,
        /// The size of the record.
        size: usize,
    },
    /// The record shares the chunk with others. [`Table::decode`] unpacks the whole chunk, which is kept for its
    /// neighbours.
    Shared(Chunk, u64),
}

/// What [`Table::describe`] tells about a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Name of the compression, where one is known for the whole file.
    pub codec: Option<String>,
    /// Bytes of the file that hold records, as they are stored.
    pub record_bytes: u64,
    /// Bytes of the file that no reader looks at. What is neither these nor records is structure.
    pub unused_bytes: u64,
    /// Bytes of all records, decoded, where the table knows them.
    pub decoded_bytes: Option<u64>,
    /// The options that the writer left in the file.
    pub options: Option<String>,
}

/// Where the chunks of one file are, and how to decode one. At most 16 bytes a chunk in memory.
pub trait Table: Send + Sync {
    /// How many records the file has.
    fn records(&self) -> u64;

    /// How many chunks the file has.
    fn chunks(&self) -> u64;

    /// The chunk that holds a record, and the record's row in it. `record` is below [`records`](Table::records). The
    /// answer never depends on what was read before.
    fn locate(&self, record: u64) -> Result<(Chunk, u64)>;

    /// The shortest way to a record that is known now. It may be shorter after its chunk was read once.
    fn way(&self, record: u64) -> Result<Way>;

    /// The number of the chunk that a record shares with others, and its row in it: what [`locate`](Table::locate)
    /// says, at less cost. None where every chunk holds one record. A reader that has the chunk unpacked already takes
    /// the record from there.
    fn shared_chunk(&self, _record: u64) -> Option<(u64, u64)> {
        None
    }

    /// The size of a record, where the table knows it without reading the chunk.
    fn size(&self, record: u64) -> Result<Option<u64>>;

    /// Tells that a record will be asked for soon, so that what the table has on it comes into the processor's cache.
    fn prefetch(&self, _record: u64) {}

    /// Verifies a record that was read by [`Way::Plain`].
    fn check(&self, _record: u64, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    /// Where a record of `size` bytes lies in the stored bytes of its [`Way::Alone`], which begin at `at` in the file,
    /// if it lies there in one piece as it is. Hashes are not looked at.
    fn in_place(&self, _at: u64, _stored: &[u8], _size: usize) -> Option<usize> {
        None
    }

    /// Decodes the stored bytes of a [`Way::Alone`], which begin at `at` in the file, into `out`, which has the
    /// record's size.
    fn decode_into(&self, record: u64, at: u64, stored: &[u8], out: &mut [u8], cx: &Cx<'_>) -> Result<()>;

    /// Decodes a whole chunk. The result has exactly `chunk.records` rows.
    fn decode(&self, chunk: &Chunk, stored: &[u8], cx: &Cx<'_>) -> Result<Decoded>;

    /// What there is to tell about the file.
    fn describe(&self) -> Description;

    /// The table as bytes for [`OpenIndexed`], where finding the chunks again would cost more than
    /// reading them from a file of its own.
    fn index_bytes(&self) -> Option<Vec<u8>> {
        None
    }

    /// What the caller should be warned of, though the file can be read.
    fn warning(&self) -> Option<&'static str> {
        None
    }
}

/// Copies a record into its place, which must have its size. `at` is where it is stored.
pub fn copy_record(record: &[u8], out: &mut [u8], at: u64) -> Result<()> {
    if record.len() == out.len() {
        out.copy_from_slice(record);
        return Ok(());
    }
    Err(Error::format("record size differs from the table's")
        .at(at)
        .expected(format_args!("{} bytes", out.len()))
        .found(record.len()))
}

/// The records of one chunk, unpacked.
#[derive(Debug, Default)]
pub struct Decoded {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Decoded {
    /// `bytes` cut at `ends`, which must not decrease and must end at `bytes.len()`.
    pub fn new(bytes: Vec<u8>, ends: Vec<usize>) -> Result<Self> {
        let ordered = ends.is_sorted() && ends.last().copied().unwrap_or(0) == bytes.len();
        ordered.then_some(Decoded { bytes, ends }).ok_or_else(|| Error::format("record sizes do not add up"))
    }

    /// How many records there are.
    pub fn rows(&self) -> usize {
        self.ends.len()
    }

    /// One record.
    pub fn row(&self, row: u64) -> Option<&[u8]> {
        let row = usize::try_from(row).ok()?;
        let end = *self.ends.get(row)?;
        let begin = if row == 0 { 0 } else { self.ends[row - 1] };
        Some(&self.bytes[begin..end])
    }

    /// What it takes in memory.
    pub fn memory(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }

    /// The bytes of all records together.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Weight for Decoded {
    fn weight(&self) -> usize {
        self.memory()
    }
}
