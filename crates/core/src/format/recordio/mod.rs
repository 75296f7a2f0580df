//! RecordIO: a sequence of chunks, each with a header of 20 bytes.
//!
//! | at byte | size | field |
//! |---|---|---|
//! | 0 | 4 | magic, `04 03 02 01` |
//! | 4 | 4 | CRC-32 of the stored payload |
//! | 8 | 4 | codec: 0 none, 1 snappy frames, 2 gzip |
//! | 12 | 4 | size of the payload |
//! | 16 | 4 | number of records |
//! | 20 | | payload: for each record its length (4 bytes) and its bytes, all compressed with the codec |
//!
//! All numbers are little-endian. A file of 0 bytes has no records. Files may be concatenated. There is no table:
//! opening a file reads the header of every chunk and skips the payloads. No hash covers a header, and no mark shows the
//! end of a file. So a file that was truncated exactly between two chunks looks complete. Pass the number of records
//! that you expect if that matters.

mod encoder;
mod header;
mod payload;
mod rows;
mod survey;
mod table;
#[cfg(test)]
mod tests;
mod walk;

use super::{Format, Probe, ReadOptions, Salvage, SalvageTable, Table};
use crate::cx::Cx;
use crate::error::Result;
use crate::storage::Storage;

/// The RecordIO format.
pub const RECORDIO: Format = Format {
    name: "recordio",
    suffixes: &[".recordio"],
    probe,
    has_table_at_end: false,
    open: |storage, options, cx| Ok(Box::new(table::Chunks::open(storage, options, cx)?)),
    open_indexed: Some(|storage, index, options, cx| {
        let table = table::Chunks::open_indexed(storage, index, options, cx)?;
        Ok(table.map(|table| Box::new(table) as Box<dyn Table>))
    }),
    walk: walk::walk,
    salvage: Salvage { walk: walk::walk, table: SalvageTable::UncheckedChunks },
    encoder: |options| Ok(Box::new(encoder::ChunkEncoder::new(options)?)),
};

fn probe(storage: &dyn Storage, _options: &ReadOptions, cx: &Cx<'_>) -> Result<Probe> {
    let mut head = [0; header::MAGIC.len()];
    if storage.len() < head.len() as u64 {
        return Ok(Probe::No);
    }
    storage.read_at(0, &mut head, cx)?;
    Ok(if head == header::MAGIC { Probe::Yes } else { Probe::No })
}
