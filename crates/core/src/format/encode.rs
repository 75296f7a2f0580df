//! Turns records into chunks. This is the interface between a writer and a format.
//!
//! A writer uses an [`Encoder`] in four steps. It gathers records into a [`Group`]. It encodes the group, in any thread.
//! It writes the encoded groups to the output, in order. It writes the end of the file.

use super::spare::Spare;
use crate::bytes;
use crate::error::{Error, Result};
use crate::storage::output::Output;
use std::any::Any;
use std::sync::Arc;

/// Records that are encoded together, in one chunk or in several. Their bytes follow each other.
#[derive(Debug, Default)]
pub struct Group {
    /// The records' bytes.
    pub bytes: Vec<u8>,
    /// Where each record ends in `bytes`.
    pub ends: Vec<usize>,
}

impl Group {
    /// An empty group that reuses memory.
    pub fn in_spare(spare: &Spare) -> Self {
        Group { bytes: spare.take(), ends: Vec::new() }
    }

    /// Reserves memory for one more record of that many bytes. Fails if there is not enough memory.
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
        bytes::reserve(&mut self.bytes, bytes).map_err(no_memory)?;
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

    /// The records in runs of `count`. The last run may have fewer.
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

/// Consecutive records of a group.
#[derive(Clone, Copy, Debug)]
pub struct GroupSlice<'a> {
    /// The records' bytes.
    pub bytes: &'a [u8],
    /// Where each record ends in the bytes of the group.
    ends: &'a [usize],
    /// Where the first record begins in the bytes of the group.
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

/// Encodes a group, in any thread. It has no side effects, and returns the same bytes in every thread.
pub type EncodeJob<T> = Arc<dyn Fn(Group) -> Result<T> + Send + Sync>;

/// A whole chunk of another file of the same format. It is written without being decoded.
#[derive(Debug)]
pub struct CarriedChunk {
    /// The chunk header.
    pub head: Vec<u8>,
    /// The stored data, without block headers.
    pub body: Vec<u8>,
    /// How many records it holds.
    pub records: u64,
    /// The size of the records before encoding. 0 for RecordIO, whose chunk headers do not store it.
    pub decoded_bytes: u64,
}

/// Turns records into a file of one format. This trait has the parts that do not depend on the type of an encoded
/// group.
pub trait Encoder: Send {
    /// Writes what comes at the beginning of the file. Called once, before anything else.
    fn start(&mut self, out: &mut dyn Output) -> Result<()>;

    /// Adds a record to the pending group. Returns the group when it is full.
    /// A record that the format cannot hold is rejected and leaves the encoder unchanged.
    fn push(&mut self, record: &[u8]) -> Result<Option<Group>>;

    /// Returns the pending records, if there are any.
    fn flush(&mut self) -> Option<Group>;

    /// Whether encoding compresses. Only then are encoding threads started automatically.
    fn compresses(&self) -> bool;

    /// Whether a chunk of that many records from another file can be written next. Pending records are flushed first.
    fn takes_chunk(&self, _records: u64) -> bool {
        false
    }

    /// Writes a chunk of another file. Called only if [`takes_chunk`](Self::takes_chunk) returned true for it.
    fn place_chunk(&mut self, _chunk: CarriedChunk, _out: &mut dyn Output) -> Result<()> {
        Err(Error::argument("this format cannot copy chunks from other files"))
    }

    /// Writes what comes at the end of the file. Called last.
    fn finish(&mut self, out: &mut dyn Output) -> Result<()>;
}

/// How the groups of an [`Encoder`] are encoded and written.
pub trait GroupEncoder: Encoder {
    /// An encoded group, ready to be written.
    type Encoded: Send + 'static;

    /// The function that encodes a group.
    fn job(&self) -> EncodeJob<Self::Encoded>;

    /// Writes an encoded group. Called in the order of the groups.
    fn place(&mut self, encoded: Self::Encoded, out: &mut dyn Output) -> Result<()>;
}

/// An encoded group of any encoder. Only the encoder that made it can place it.
pub type AnyEncoded = Box<dyn Any + Send>;

/// A [`GroupEncoder`] of any format, for a writer that does not depend on the format.
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
