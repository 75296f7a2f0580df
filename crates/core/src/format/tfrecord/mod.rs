//! TFRecord: a sequence of records.
//!
//! | at byte | size | field |
//! |---|---|---|
//! | 0 | 8 | length of the data |
//! | 8 | 4 | masked CRC-32C of the length |
//! | 12 | length | data |
//! | 12 + length | 4 | masked CRC-32C of the data |
//!
//! All numbers are little-endian. A file of 0 bytes has no records. There is no table: opening a file reads the 12 bytes
//! before each record and skips the data. No mark shows the end of a file. So a file that was truncated exactly between
//! two records looks complete. Pass the number of records that you expect if that matters.
//!
//! # Compressed files
//!
//! The whole file may be one gzip or zlib stream. Such a stream can only be read from its beginning. So opening it for
//! access by record number decompresses all of it once, into an unlinked temporary file. That takes the time of
//! decompression. While the file is open, it also takes temporary disk space for the decompressed data. It takes no more
//! memory than an uncompressed file. Reading the records in order ([`scan`](super::walk::scan)) needs no temporary file.

mod encoder;
pub(super) mod frame;
mod stream;
mod stream_walk;
mod table;
#[cfg(test)]
mod tests;
mod walk;

use super::{Format, Probe, ReadOptions, Salvage, SalvageTable, Table};
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
    has_table_at_end: false,
    open: |storage, options, cx| Ok(Box::new(table::Records::open(storage, options, cx)?)),
    open_indexed: Some(|storage, index, options, cx| {
        let table = table::Records::open_indexed(storage, index, options, cx)?;
        Ok(table.map(|table| Box::new(table) as Box<dyn Table>))
    }),
    walk: walk::walk,
    salvage: Salvage { walk: walk::walk, table: SalvageTable::Unused },
    encoder: |options| Ok(Box::new(encoder::RecordEncoder::new(options)?)),
};

fn probe(storage: &dyn Storage, _options: &ReadOptions, cx: &Cx<'_>) -> Result<Probe> {
    let (_, begins_well) = stream::wrapper(storage, cx)?;
    Ok(if begins_well { Probe::Yes } else { Probe::No })
}
