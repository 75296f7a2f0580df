//! From records to chunks: what a writer needs of a format.
//!
//! A writer drives an [`Encoder`] in four steps. Records are gathered into a [`Group`]. Any thread may encode a group.
//! Encoded groups are placed in the output, in order. What comes at the end of a file is written last.

use super::spare::Spare;
use crate::bytes;
use crate::error::{Error, Result};
use crate::storage::output::Output;
use std::any::Any;
use std::sync::Arc;

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

/// The step of encoding that any thread may do. It has no other effects, and returns the same bytes in every thread.
pub type EncodeJob<T> = Arc<dyn Fn(Group) -> Result<T> + Send + Sync>;

/// A whole chunk of another file of the same format. It is written without being decoded.
#[derive(Debug, Default)]
pub struct CarriedChunk {
    /// The chunk header, and for Riegeli the first part of the data.
    pub head: Vec<u8>,
    /// The rest of the chunk.
    pub body: Vec<u8>,
    /// How many records it holds.
    pub records: u64,
    /// The size of the records before encoding.
    pub decoded_bytes: u64,
}

/// Turns records into a file of one format: grouping, and what does not depend on how a group is encoded.
pub trait Encoder: Send {
    /// Called once, before anything else.
    fn start(&mut self, out: &mut dyn Output) -> Result<()>;

    /// Adds a record to the pending group. Returns the group when it is full.
    /// A record that the format cannot hold is refused and leaves the encoder unchanged.
    fn push(&mut self, record: &[u8]) -> Result<Option<Group>>;

    /// Returns the pending records, if there are any.
    fn flush(&mut self) -> Option<Group>;

    /// Whether encoding is compressing, which is worth other threads.
    fn compresses(&self) -> bool;

    /// Whether a chunk of that many records of another file can be placed next. Pending records are flushed first.
    fn takes_chunk(&self, _records: u64) -> bool {
        false
    }

    /// Writes a chunk of another file. Called only if [`takes_chunk`](Self::takes_chunk) returned true for it.
    fn place_chunk(&mut self, _chunk: CarriedChunk, _out: &mut dyn Output) -> Result<()> {
        Err(Error::argument("this format takes no chunks of other files"))
    }

    /// Writes what comes at the end. Nothing is called after it.
    fn finish(&mut self, out: &mut dyn Output) -> Result<()>;
}

/// How the groups of an [`Encoder`] are encoded and written.
pub trait GroupEncoder: Encoder {
    /// A group made ready to be written.
    type Encoded: Send + 'static;

    /// The function that encodes a group.
    fn job(&self) -> EncodeJob<Self::Encoded>;

    /// Writes an encoded group. Called in the order of the groups.
    fn place(&mut self, encoded: Self::Encoded, out: &mut dyn Output) -> Result<()>;
}

/// An encoded group of any encoder. Only the encoder that made it can place it.
pub type AnyEncoded = Box<dyn Any + Send>;

/// A [`GroupEncoder`] of any format, for a writer that knows no format.
pub trait AnyEncoder: Encoder {
    /// See [`GroupEncoder::job`].
    fn any_job(&self) -> EncodeJob<AnyEncoded>;

    /// See [`GroupEncoder::place`].
    fn place_any(&mut self, encoded: AnyEncoded, out: &mut dyn Output) -> Result<()>;
}

impl<E: GroupEncoder> AnyEncoder for E {
    fn any_job(&self) -> EncodeJob<AnyEncoded> {
        let job = self.job();
        Arc::new(move |group| Ok(Box::new(job(group)?)))
    }

    fn place_any(&mut self, encoded: AnyEncoded, out: &mut dyn Output) -> Result<()> {
        match encoded.downcast::<E::Encoded>() {
            Ok(encoded) => self.place(*encoded, out),
            Err(_) => Err(Error::argument("the group was encoded for another format")),
        }
    }
}
