//! TFRecord: records one after the other and nothing else.
//!
//! | at byte | size | field |
//! |---|---|---|
//! | 0 | 8 | length of the data |
//! | 8 | 4 | masked CRC-32C of the length |
//! | 12 | length | data |
//! | 12 + length | 4 | masked CRC-32C of the data |
//!
//! All numbers are little-endian. A file of 0 bytes has no records. There is no table: opening reads the 12 bytes
//! before each record and skips the data. Nothing tells the end of a file, so a file cut exactly between two
//! records looks whole; say how many records you expect if that matters.
//!
//! # Compressed files
//!
//! The whole file may be one gzip or zlib stream. Such a stream can only be read from its beginning, so opening one
//! for access by number unpacks all of it once, into a temporary file without a name: that takes the time of
//! unpacking and, while the file is open, as much space for temporary files as the data has unpacked. It takes no
//! more memory than a plain file. Going through the records in order ([`scan`](super::walk::scan)) needs none of this.

mod encoder;
mod frame;
mod stream;
mod stream_walk;
mod table;
#[cfg(test)]
mod tests;
mod walk;

use super::{Format, Probe, ReadOptions, Table};
use crate::cx::Cx;
use crate::error::Result;
use crate::storage::Storage;

/// The TFRecord format.
pub const TFRECORD: Format = Format {
    name: "tfrecord",
    suffixes: &[
        ".tfrecord",
        ".tfrecord.gz",
        ".tfrecord.zlib",
        ".tfrecords",
        ".tfrecords.gz",
        ".tfrecords.zlib",
    ],
    probe,
    open: |storage, options, cx| Ok(Box::new(table::Records::open(storage, options, cx)?)),
    open_indexed: Some(|storage, index, options, cx| {
        let table = table::Records::open_indexed(storage, index, options, cx)?;
        Ok(table.map(|table| Box::new(table) as Box<dyn Table>))
    }),
    walk: walk::walk,
    encoder: |options| Ok(Box::new(encoder::RecordEncoder::new(options)?)),
};

fn probe(storage: &dyn Storage, _options: &ReadOptions, cx: &Cx<'_>) -> Result<Probe> {
    let (_, begins_well) = stream::wrapper(storage, cx)?;
    Ok(if begins_well { Probe::Yes } else { Probe::No })
}
