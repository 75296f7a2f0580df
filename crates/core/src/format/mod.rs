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
pub mod tfrecord;

use crate::bytes;
use crate::cache::Weight;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::storage::file::Io;
use crate::storage::{Storage, output::Output, window::Window};
use options::WriteOptions;
use spare::Spare;
use std::ops::Range;
use std::sync::Arc;

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
    fn probe(&self, storage: &dyn Storage) -> Result<Probe>;

    /// Reads the table of chunks.
    fn open(&self, storage: &dyn Storage, options: &ReadOptions) -> Result<Box<dyn Table>>;

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
    ) -> Result<Option<Box<dyn Table>>> {
        Ok(None)
    }

    /// Visits all records in order, with everything verified that can be. Holds about one chunk at a time.
    ///
    /// Formats without a stored table do it without making one.
    fn scan(
        &self,
        storage: &dyn Storage,
        options: &ReadOptions,
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let table = self.open(storage, options)?;
        scan_table(&*table, storage, 0..table.records(), visit)
    }

    /// Visits all chunks in order, as they are stored, for a writer of this format with the options `write`.
    ///
    /// False, with nothing visited, where every chunk would have to be encoded anew anyway.
    fn scan_chunks(
        &self,
        _storage: &dyn Storage,
        _options: &ReadOptions,
        _write: &WriteOptions,
        _visit: &mut dyn FnMut(Carried<'_>) -> Result<()>,
    ) -> Result<bool> {
        Ok(false)
    }

    /// How many records there are, found out as cheaply as the format allows and without keeping a table.
    fn count(&self, storage: &dyn Storage, options: &ReadOptions) -> Result<u64> {
        Ok(self.open(storage, options)?.records())
    }

    /// Visits every byte of the file once, from the first to the last, verifying all that can be.
    /// Damage is visited as a [`Span`]; an error is returned only where reading itself failed.
    fn walk(
        &self,
        storage: &dyn Storage,
        options: &ReadOptions,
        visit: &mut dyn FnMut(Span) -> Result<()>,
    ) -> Result<()>;

    /// A new encoder; refuses options that the format has not.
    fn encoder(&self, options: &WriteOptions) -> Result<Box<dyn Encoder>>;
}

/// Visits the records of that range, in order. Holds one chunk at a time.
pub fn scan_table(
    table: &dyn Table,
    storage: &dyn Storage,
    range: Range<u64>,
    visit: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut window = Window::new(storage);
    let mut record = range.start;
    while record < range.end {
        let (chunk, row) = table.locate(record)?;
        let stored = chunk.stored.end.saturating_sub(chunk.stored.start);
        let decoded = window
            .get("chunk", chunk.stored.start, stored)
            .and_then(|stored| table.decode(&chunk, stored))
            .map_err(|e| e.for_record(record))?;
        for row in row..chunk.records.min(row + (range.end - record)) {
            visit(decoded.row(row).ok_or_else(|| {
                Error::format("chunk holds fewer records than the table says")
                    .at(chunk.stored.start)
                    .for_record(record)
                    .expected(chunk.records)
                    .found(decoded.rows())
            })?)?;
            record += 1;
        }
    }
    Ok(())
}

/// A stretch of a file, as [`Format::walk`] sees it.
#[derive(Debug)]
pub enum Span {
    /// Structure: headers, tables, padding, with the hashes it has verified.
    Meta(Range<u64>),
    /// Records.
    Records {
        /// The bytes of the file that hold them. Where each chunk has a place in a [`Table`], those that the table has.
        range: Range<u64>,
        /// How many bytes of the range are structure: headers, checksums and the like around the records.
        meta: u64,
        /// How many chunks there are.
        chunks: u64,
        /// The number of the first record.
        first: u64,
        /// How many there are.
        records: u64,
        /// Their size, decoded.
        bytes: u64,
    },
    /// Bytes that no reader looks at and no hash covers, though the format allows them.
    Unused(Range<u64>),
    /// Bytes that are not as they should be.
    Damage(Range<u64>, Error),
}

impl Span {
    /// The bytes of the file that the span covers.
    pub fn range(&self) -> &Range<u64> {
        match self {
            Span::Meta(range) | Span::Unused(range) | Span::Damage(range, _) => range,
            Span::Records { range, .. } => range,
        }
    }
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
    /// These bytes are the record.
    Direct(Range<u64>),
    /// The chunk holds this one record, whose size is known.
    Alone(Chunk, usize),
    /// The chunk has to be unpacked to get at the row.
    Among(Chunk, u64),
}

/// What [`Table::describe`] tells about a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Name of the compression, where one is known for the whole file.
    pub codec: Option<String>,
    /// Bytes of the file that hold records: what a [`walk`](Format::walk) finds in ranges of records less the structure
    /// in them.
    pub record_bytes: u64,
    /// Bytes of all records, decoded, where the table knows them.
    pub decoded_bytes: Option<u64>,
    /// The options that the writer left in the file.
    pub options: Option<String>,
}

/// Where the chunks of one file are, and how to decode one. At most 16 bytes a chunk in memory.
///
/// There are three ways to a record, and a table chooses by what it answers:
///
/// 1. [`direct`](Table::direct) gives a range: those bytes *are* the record. They are read straight into
///    their final place and then shown to [`check`](Table::check).
/// 2. The chunk holds this one record and [`size`](Table::size) knows how long it is: the stored bytes
///    are fetched and [`decode_into`](Table::decode_into) puts the record into its final place.
/// 3. Otherwise [`decode`](Table::decode) unpacks the whole chunk, which is kept for its neighbours.
pub trait Table: Send + Sync {
    /// How many records the file has.
    fn records(&self) -> u64;

    /// How many chunks the file has.
    fn chunks(&self) -> u64;

    /// The chunk that holds a record, and the record's row in it. `record` is below [`records`](Table::records).
    fn locate(&self, record: u64) -> Result<(Chunk, u64)>;

    /// The size of a record, where the table knows it without reading the chunk.
    fn size(&self, record: u64) -> Result<Option<u64>>;

    /// The bytes of the file that are the record itself, where it is stored in one piece as it is.
    fn direct(&self, _record: u64) -> Result<Option<Range<u64>>> {
        Ok(None)
    }

    /// Which of the three ways leads to a record.
    fn way(&self, record: u64) -> Result<Way> {
        if let Some(range) = self.direct(record)? {
            return Ok(Way::Direct(range));
        }
        let (chunk, row) = self.locate(record)?;
        match self.size(record)? {
            Some(size) if chunk.records == 1 => Ok(Way::Alone(chunk, bytes::in_memory("record", size)?)),
            _ => Ok(Way::Among(chunk, row)),
        }
    }

    /// Tells that a record will be asked for soon, so that what the table has on it comes into the processor's cache.
    fn prefetch(&self, _record: u64) {}

    /// Verifies a record that was read by its [`direct`](Table::direct) range.
    fn check(&self, _record: u64, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    /// The number of the chunk that a record shares with others, and its row in it, where
    /// [`direct`](Table::direct) or [`locate`](Table::locate) may know a way around unpacking that chunk.
    /// A reader that has unpacked it already takes the record from there.
    fn shared(&self, _record: u64) -> Option<(u64, u64)> {
        None
    }

    /// Where in the stored bytes of its chunk a record of `size` bytes lies, if it lies there in one piece as it is.
    /// Hashes are not looked at.
    fn in_place(&self, _chunk: &Chunk, _stored: &[u8], _size: usize) -> Option<usize> {
        None
    }

    /// Decodes a chunk of one record, whose size is `out.len()`, into `out`.
    fn decode_into(&self, chunk: &Chunk, stored: &[u8], out: &mut [u8]) -> Result<()> {
        let decoded = self.decode(chunk, stored)?;
        match decoded.row(0) {
            Some(record) if record.len() == out.len() => {
                out.copy_from_slice(record);
                Ok(())
            }
            record => Err(Error::format("record size differs from the table's")
                .at(chunk.stored.start)
                .expected(format_args!("{} bytes", out.len()))
                .found(record.map_or(0, <[u8]>::len))),
        }
    }

    /// Decodes a whole chunk. The result has exactly `chunk.records` rows.
    fn decode(&self, chunk: &Chunk, stored: &[u8]) -> Result<Decoded>;

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

    /// Adds a record.
    pub fn push(&mut self, record: &[u8]) {
        self.bytes.extend_from_slice(record);
        self.ends.push(self.bytes.len());
    }

    /// The records, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.all().iter()
    }

    /// All records as one run.
    pub fn all(&self) -> Run<'_> {
        Run { bytes: &self.bytes, ends: &self.ends, begin: 0 }
    }

    /// The records in runs of `count`, the last of which may have fewer.
    pub fn runs(&self, count: usize) -> impl Iterator<Item = Run<'_>> {
        let mut begin = 0;
        self.ends.chunks(count.max(1)).map(move |ends| {
            let end = ends[ends.len() - 1];
            let run = Run { bytes: &self.bytes[begin..end], ends, begin };
            begin = end;
            run
        })
    }
}

/// Some records of a group that follow each other.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The records' bytes.
    pub bytes: &'a [u8],
    /// Where each ends, counted as `begin` is.
    ends: &'a [usize],
    begin: usize,
}

impl<'a> Run<'a> {
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

/// A chunk on its way from one file to another of the same format, as [`Format::scan_chunks`] visits it.
pub struct Carried<'a> {
    /// What to place, verified by its hash; none where this chunk has to be encoded anew.
    pub encoded: Option<Encoded>,
    /// How many records it holds.
    pub records: u64,
    /// Unpacks it.
    pub decode: &'a dyn Fn() -> Result<Decoded>,
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
