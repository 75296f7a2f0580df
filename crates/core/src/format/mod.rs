//! What a format is: it says where the chunks are and how to decode one.
//!
//! A format never opens a file. It is given a [`Storage`](crate::storage::Storage) to read a table from,
//! and chunks of bytes to decode; everything else is the same for all formats and lives elsewhere.

pub mod array_record;
pub mod detect;
pub mod ffrecord;
pub mod options;
pub mod recordio;
pub mod riegeli;
pub mod side_index;
pub mod spare;
#[cfg(test)]
pub(crate) mod testing;
pub mod tfrecord;
pub mod walk;

use crate::bytes;
use crate::cache::Weight;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::storage::file::Io;
use crate::storage::{Storage, output::Output};
use options::WriteOptions;
use spare::Spare;
use std::ops::Range;
use std::sync::Arc;
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

/// One record file format.
pub trait Format: Send + Sync {
    /// The one spelling of its name.
    fn name(&self) -> &'static str;

    /// File name endings that choose it, with the dot.
    fn suffixes(&self) -> &'static [&'static str];

    /// Whether the bytes are of this format.
    fn probe(&self, storage: &dyn Storage, options: &ReadOptions, cx: &Cx<'_>) -> Result<Probe>;

    /// Reads the table of chunks.
    fn open(&self, storage: &dyn Storage, options: &ReadOptions, cx: &Cx<'_>) -> Result<Box<dyn Table>>;

    /// Whether finding the chunks takes long enough for a side index to be worth looking for.
    fn has_side_index(&self) -> bool {
        false
    }

    /// Reads the table from a side index that [`Table::index_bytes`] made, instead of finding the chunks again.
    ///
    /// None where the format has no such thing, and where the index does not fit the data: then
    /// [`open`](Format::open) tells what the data is like. An index is believed as far as it was looked at;
    /// what it says of a chunk is checked again when the chunk is read.
    fn open_indexed(
        &self,
        _storage: &dyn Storage,
        _index: &[u8],
        _options: &ReadOptions,
        _cx: &Cx<'_>,
    ) -> Result<Option<Box<dyn Table>>> {
        Ok(None)
    }

    /// Visits every byte of the file once, from the first to the last: see [`walk`]. This is the one place that knows the
    /// framing of the format.
    ///
    /// An error is returned only where reading failed, where `visit` returned one, and where the walk ends at damage.
    fn walk(&self, walk: &Walk<'_>, visit: &mut dyn FnMut(Span<'_>) -> Result<()>) -> Result<()>;

    /// A new encoder; refuses options that the format has not.
    fn encoder(&self, options: &WriteOptions) -> Result<Box<dyn Encoder>>;
}

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

    /// The table as bytes for [`Format::open_indexed`], where finding the chunks again would cost more than
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

/// Records gathered to be encoded together, in one chunk or in several: their bytes one after the other, and where
/// each ends.
#[derive(Debug, Default)]
pub struct Group {
    /// The records' bytes.
    pub bytes: Vec<u8>,
    /// Where each record ends in `bytes`.
    pub ends: Vec<usize>,
}

impl Group {
    /// None, in memory that is used again.
    pub fn in_spare(spare: &Spare) -> Self {
        Group { bytes: spare.take(), ends: Vec::new() }
    }

    /// Makes room for `bytes` more and for one more record, or fails where there is no memory for them.
    #[inline]
    pub fn reserve(&mut self, bytes: usize) -> Result<()> {
        if self.bytes.capacity() - self.bytes.len() < bytes || self.ends.len() == self.ends.capacity() {
            self.grow(bytes)?;
        }
        Ok(())
    }

    #[cold]
    fn grow(&mut self, bytes: usize) -> Result<()> {
        let no_memory = |_| bytes::no_memory("a record to be written", bytes as u64);
        self.bytes.try_reserve(bytes).map_err(no_memory)?;
        self.ends.try_reserve(1).map_err(no_memory)
    }

    /// Adds a record.
    #[inline]
    pub fn push(&mut self, record: &[u8]) -> Result<()> {
        self.reserve(record.len())?;
        self.bytes.extend_from_slice(record);
        self.ends.push(self.bytes.len());
        Ok(())
    }

    /// The records, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.all().iter()
    }

    /// All records as one run.
    pub fn all(&self) -> GroupSlice<'_> {
        GroupSlice { bytes: &self.bytes, ends: &self.ends, begin: 0 }
    }

    /// The records in runs of `count`, the last of which may have fewer.
    pub fn runs(&self, count: usize) -> impl Iterator<Item = GroupSlice<'_>> {
        let mut begin = 0;
        self.ends.chunks(count.max(1)).map(move |ends| {
            let end = ends[ends.len() - 1];
            let run = GroupSlice { bytes: &self.bytes[begin..end], ends, begin };
            begin = end;
            run
        })
    }
}

/// Some records of a group that follow each other.
#[derive(Clone, Copy, Debug)]
pub struct GroupSlice<'a> {
    /// The records' bytes.
    pub bytes: &'a [u8],
    /// Where each ends, counted as `begin` is.
    ends: &'a [usize],
    begin: usize,
}

impl<'a> GroupSlice<'a> {
    /// How many records there are.
    pub fn records(&self) -> u64 {
        self.ends.len() as u64
    }

    /// The records, in order.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.bytes;
        self.sizes().map(move |size| {
            let (record, later) = rest.split_at(size);
            rest = later;
            record
        })
    }

    /// Their sizes.
    pub fn sizes(self) -> impl Iterator<Item = usize> {
        let begins = std::iter::once(self.begin).chain(self.ends.iter().copied());
        begins.zip(self.ends).map(|(begin, &end)| end - begin)
    }
}

/// A group made ready to be written; only its own encoder knows what the parts mean.
#[derive(Debug, Default)]
pub struct Encoded {
    /// Small parts: prefixes, sizes, hashes of records.
    pub head: Vec<u8>,
    /// The large part.
    pub body: Vec<u8>,
    /// Hash of the data, where the format has one for the chunk.
    pub hash: u64,
    /// How many records it holds.
    pub records: u64,
    /// Their size before encoding.
    pub decoded_bytes: u64,
    /// Where each record or each part ends, for formats that need to know.
    pub ends: Vec<usize>,
}

/// The part of encoding that any thread may do: pure, and the same bytes whichever thread does it.
pub type EncodeJob = Arc<dyn Fn(Group) -> Result<Encoded> + Send + Sync>;

/// Turns records into a file, in four steps that the writer drives: group, encode, place, finish.
pub trait Encoder: Send {
    /// Called once, before anything else.
    fn start(&mut self, out: &mut dyn Output) -> Result<()>;

    /// Adds a record to the pending group; gives the group back when it is full.
    /// A record that the format cannot hold is refused and leaves the encoder as it was.
    fn push(&mut self, record: &[u8]) -> Result<Option<Group>>;

    /// Gives back what is pending, if anything is.
    fn flush(&mut self) -> Option<Group>;

    /// The function that encodes a group.
    fn job(&self) -> EncodeJob;

    /// Whether encoding is compressing, which other threads had better do.
    fn compresses(&self) -> bool;

    /// Whether a chunk of that many records, made by another encoder with the same options, can be placed next.
    /// What is pending is flushed before it is.
    fn takes_chunk(&self, _records: u64) -> bool {
        false
    }

    /// Writes an encoded group. Called in the order of the groups.
    fn place(&mut self, encoded: Encoded, out: &mut dyn Output) -> Result<()>;

    /// Writes what comes at the end; nothing is called after it.
    fn finish(&mut self, out: &mut dyn Output) -> Result<()>;
}
