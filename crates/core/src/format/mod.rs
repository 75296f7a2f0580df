//! The interface of a format. A format knows where the chunks of a file are and how to decode one.
//!
//! A format never opens a file. It gets a [`Storage`] to read a table from, and chunks of bytes to decode. Everything
//! else is the same for all formats and is in other modules.

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
pub mod verify_once;
pub mod walk;
pub mod whole;

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

/// How sure it is that a file is of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Probe {
    /// The file is of another format, or nothing indicates this one.
    No,
    /// The file may be of this format or of another one. The format has no magic number.
    Plausible,
    /// A magic number or a hash shows that the file is of this format.
    Yes,
}

/// Where a table of chunks is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableHome {
    /// In memory, at most 16 bytes a chunk.
    #[default]
    Memory,
    /// In an unlinked temporary file. Each lookup reads a few bytes of it.
    Disk,
}

/// How to read a file.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// Verify all hashes of the format, those of tables and those of data.
    pub checksums: bool,
    /// Verify the hashes of a chunk at its first read only. Needs `checksums`. See [`verify_once`].
    pub once: bool,
    /// Where the table of chunks is kept.
    pub table: TableHome,
    /// How local files are read.
    pub io: Io,
    /// Limits on sizes that the file may declare.
    pub limits: Limits,
    /// Opening checks tables only. The caller reads on if a record is damaged, with
    /// [`read_sound`](crate::Reader::read_sound).
    pub reads_on: bool,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions {
            checksums: true,
            once: false,
            table: TableHome::Memory,
            io: Io::Auto,
            limits: Limits::default(),
            reads_on: false,
        }
    }
}

/// One record file format: its names, and the functions that read and write its files. A format is a constant.
pub struct Format {
    /// The name of the format. [`detect::by_name`] accepts only this spelling.
    pub name: &'static str,
    /// File name suffixes of the format, with the dot.
    pub suffixes: &'static [&'static str],
    /// Whether the bytes are of this format.
    pub probe: fn(&dyn Storage, &ReadOptions, &Cx<'_>) -> Result<Probe>,
    /// Whether the table is at the end of a file.
    pub has_table_at_end: bool,
    /// Reads the table of chunks.
    pub open: OpenTable,
    /// Reads the table from a side index that [`Table::index_bytes`] made. Only for formats without a table in the
    /// file, where finding the chunks takes long.
    pub open_indexed: Option<OpenIndexed>,
    /// Visits every byte of a file once, from the first to the last: see [`walk`].
    pub walk: WalkFile,
    /// How a damaged file is salvaged.
    pub salvage: Salvage,
    /// Makes a new encoder. Rejects options that the format does not have.
    pub encoder: fn(&WriteOptions) -> Result<Box<dyn AnyEncoder>>,
}

/// How a damaged file is salvaged.
pub struct Salvage {
    /// Visits everything that can still be read, in order. The walk must be a [`Walk::salvaging`].
    pub walk: WalkFile,
    /// Whether the table is used instead, if it is intact.
    pub table: SalvageTable,
}

/// How salvage uses a table that is intact. Chunks are then decoded in several threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SalvageTable {
    /// Not at all. The walk is as fast, because records are not compressed, or not in chunks.
    Unused,
    /// A hash covers what the table says about a chunk.
    Chunks,
    /// No hash covers the sizes of chunks. What seems to be one damaged chunk may be several.
    UncheckedChunks,
}

/// Reads the table of chunks of a file.
pub type OpenTable = fn(&dyn Storage, &ReadOptions, &Cx<'_>) -> Result<Box<dyn Table>>;

/// Reads a table from a side index, which is the second argument. Returns None if the index does not match the data.
/// The caller then uses [`Format::open`], which also reports damage. The index is checked against the data only in
/// part. Each of its entries is checked when the chunk is read.
pub type OpenIndexed = fn(&dyn Storage, &[u8], &ReadOptions, &Cx<'_>) -> Result<Option<Box<dyn Table>>>;

/// Walks through a file and calls the visitor with each span. This is the only place that knows the framing of the
/// format. Returns an error only if reading failed, if the visitor returned one, or if the walk ends at damage.
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

/// The cheapest way to read a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// These bytes of the file are the record. They are read directly into their final place, and then verified with
    /// [`Table::check`].
    Plain {
        /// The bytes.
        stored: Range<u64>,
        /// Their checksum, if the table may no longer have it when they were read.
        checksum: Option<u32>,
    },
    /// These bytes of the file hold only this record, and its size is known. [`Table::decode_into`] writes the record
    /// to its final place.
    Alone {
        /// The bytes to fetch.
        stored: Range<u64>,
        /// The size of the record.
        size: usize,
    },
    /// The chunk holds several records. [`Table::decode`] decodes the whole chunk, which is kept for reads of the other
    /// records.
    Shared(Chunk, u64),
}

/// Facts about a file, from [`Table::describe`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Name of the compression, if one is known for the whole file.
    pub codec: Option<String>,
    /// Bytes of the file that hold records, in stored form.
    pub record_bytes: u64,
    /// Bytes of the file that no reader uses. The remaining bytes of the file are structure.
    pub unused_bytes: u64,
    /// Decoded size of all records, if the table knows it.
    pub decoded_bytes: Option<u64>,
    /// The options that the writer stored in the file.
    pub options: Option<String>,
}

/// Makes a table keep what [`Table::survey`] has found.
pub type Surveyed<'t> = Box<dyn FnOnce() + 't>;

/// The stored bytes of a [`Way::Alone`], and where to decode them.
pub struct Undecoded<'s, 'o> {
    /// The record.
    pub record: u64,
    /// Where the bytes begin in the file.
    pub at: u64,
    /// The stored bytes.
    pub bytes: &'s [u8],
    /// The record's destination, which has its size.
    pub out: &'o mut [u8],
}

/// Where the chunks of one file are, and how to decode one. At most 16 bytes a chunk in memory.
pub trait Table: Send + Sync {
    /// How many records the file has.
    fn records(&self) -> u64;

    /// How many chunks the file has.
    fn chunks(&self) -> u64;

    /// The chunk that holds a record, and the record's row in it. `record` is below [`records`](Table::records). The
    /// result never depends on what was read before.
    fn locate(&self, record: u64) -> Result<(Chunk, u64)>;

    /// The cheapest way to read a record that is known now. A cheaper one may be known after its chunk was read once.
    fn way(&self, record: u64) -> Result<Way>;

    /// The number of the chunk that holds a record, and its row in it. The same as [`locate`](Table::locate), but
    /// cheaper. None if every chunk holds one record. A reader that has the decoded chunk takes the record from it.
    fn shared_chunk(&self, _record: u64) -> Option<(u64, u64)> {
        None
    }

    /// The size of a record, if the table knows it without reading the chunk.
    fn size(&self, record: u64) -> Result<Option<u64>>;

    /// Announces that a record will be read soon, so that its table entry is loaded into the processor's cache.
    fn prefetch(&self, _record: u64) {}

    /// Verifies a record that was read by [`Way::Plain`], which has the checksum.
    fn check(&self, _record: u64, _checksum: Option<u32>, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    /// Copies a record that is read by [`Way::Plain`] to `out`, which has its size, and verifies the copy. The stored bytes
    /// may change meanwhile.
    fn copy_plain(&self, record: u64, checksum: Option<u32>, stored: &[u8], out: &mut [u8]) -> Result<()> {
        out.copy_from_slice(stored);
        self.check(record, checksum, out)
    }

    /// The position of a record of `size` bytes within the stored bytes of its [`Way::Alone`]. Those begin at `at` in
    /// the file. None if the record is encoded or not contiguous there. Hashes are not verified.
    fn in_place(&self, _at: u64, _stored: &[u8], _size: usize) -> Option<usize> {
        None
    }

    /// Decodes the stored bytes of a [`Way::Alone`] into `out`. The stored bytes begin at `at` in the file. `out` has the
    /// size of the record. If the file is not compressed, the bytes may change during the call, because they lie in a
    /// memory map. So the checksum of what is in `out` is verified, and not that of what was there before.
    fn decode_into(&self, record: u64, at: u64, stored: &[u8], out: &mut [u8], cx: &Cx<'_>) -> Result<()>;

    /// From what size on [`decode_two_into`](Table::decode_two_into) is faster than one record after the other. None: never.
    fn two_at_once_from(&self) -> Option<usize> {
        None
    }

    /// Does what [`decode_into`](Table::decode_into) does, for two records at once. Returns false if that is not possible,
    /// or if one of the records is damaged. What is in both `out` is then undefined. The only errors are those of the
    /// interruption check.
    fn decode_two_into(&self, _two: [Undecoded<'_, '_>; 2], _cx: &Cx<'_>) -> Result<bool> {
        Ok(false)
    }

    /// Whether [`survey`](Table::survey) is of use for a chunk, and how many bytes the table then keeps about it.
    fn survey_bytes(&self, _chunk: &Chunk) -> Option<u64> {
        None
    }

    /// Verifies a chunk and finds its records, without decoding it. The stored bytes may change meanwhile. If the caller
    /// knows that they were bytes of the file, it calls the result. Then [`way`](Table::way) knows a cheaper way to each of
    /// the records. None: that is not possible, or the chunk is damaged. [`decode`](Table::decode) says what is wrong.
    fn survey(&self, _chunk: &Chunk, _stored: &[u8], _cx: &Cx<'_>) -> Result<Option<Surveyed<'_>>> {
        Ok(None)
    }

    /// Decodes a whole chunk. The result has exactly `chunk.records` rows.
    fn decode(&self, chunk: &Chunk, stored: &[u8], cx: &Cx<'_>) -> Result<Decoded>;

    /// Like [`decode_into`](Table::decode_into), for a record whose hashes were verified before. They are not verified
    /// again, if that saves time.
    fn decode_verified_into(
        &self,
        record: u64,
        at: u64,
        stored: &[u8],
        out: &mut [u8],
        cx: &Cx<'_>,
    ) -> Result<()> {
        self.decode_into(record, at, stored, out, cx)
    }

    /// Like [`decode`](Table::decode), for a chunk whose hashes were verified before. They are not verified again, if
    /// that saves time.
    fn decode_verified(&self, chunk: &Chunk, stored: &[u8], cx: &Cx<'_>) -> Result<Decoded> {
        self.decode(chunk, stored, cx)
    }

    /// Describes the file.
    fn describe(&self) -> Description;

    /// The table as bytes of a side index for [`OpenIndexed`]. None if a side index would not make opening cheaper.
    fn index_bytes(&self) -> Option<Vec<u8>> {
        None
    }

    /// A warning to the caller about a file that can be read.
    fn warning(&self) -> Option<&'static str> {
        None
    }
}

/// Copies a record to `out`, which must have the same size. `at` is the offset of the stored record, for the error.
pub fn copy_record(record: &[u8], out: &mut [u8], at: u64) -> Result<()> {
    if record.len() == out.len() {
        out.copy_from_slice(record);
        return Ok(());
    }
    Err(Error::format("record size differs from the table")
        .at(at)
        .expected(format_args!("{} bytes", out.len()))
        .found(record.len()))
}

/// The decoded records of one chunk.
#[derive(Debug, Default)]
pub struct Decoded {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Decoded {
    /// Splits `bytes` into records at `ends`. The ends must not decrease, and the last one must be `bytes.len()`.
    pub fn new(bytes: Vec<u8>, ends: Vec<usize>) -> Result<Self> {
        let ordered = ends.is_sorted() && ends.last().copied().unwrap_or(0) == bytes.len();
        ordered.then_some(Decoded { bytes, ends }).ok_or_else(|| Error::format("record sizes do not add up"))
    }

    /// How many records there are.
    pub fn rows(&self) -> usize {
        self.ends.len()
    }

    /// One record. None if there is no such row.
    pub fn row(&self, row: u64) -> Option<&[u8]> {
        let row = usize::try_from(row).ok()?;
        let end = *self.ends.get(row)?;
        let begin = if row == 0 { 0 } else { self.ends[row - 1] };
        Some(&self.bytes[begin..end])
    }

    /// How many bytes of memory it takes.
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
