//! Riegeli/records: the container format of ArrayRecord files. It is also a format in its own right.
//!
//! | module | content |
//! |---|---|
//! | [`block`] | block headers: their positions and fields |
//! | [`chunk`] | chunk headers, and a chunk in memory without block headers |
//! | [`simple`] | simple chunks: records one after the other |
//! | [`single`] | a fast path for a chunk of one uncompressed record |
//! | [`transpose_decode`] | reads transposed chunks: records split by field |
//! | [`transpose_encode`], [`state_machine`], [`message`] | write transposed chunks |
//! | [`stream`] | reads simple chunks record by record |
//! | [`entries`] | checks entries for chunks from a footer or a scan |
//! | [`table`], [`compact`], [`words`] | the table of chunks of a file |
//! | [`walk`], `resync` | visits every byte of a file; finds the next chunk after damage |
//! | [`encode`], [`writer`] | encode and write chunks |

pub mod block;
pub mod chunk;
pub mod compact;
pub mod encode;
pub mod entries;
pub mod message;
mod resync;
pub mod simple;
pub mod single;
pub mod state_machine;
pub mod stream;
pub mod table;
pub mod transpose_decode;
pub mod transpose_encode;
mod two;
pub mod walk;
pub mod words;
pub mod writer;

use super::walk::{Depth, Span, Walk};
use super::{Decoded, Description, Format, Probe, ReadOptions, Salvage, SalvageTable, Table};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::storage::Storage;
use chunk::Header;
use entries::Entry;
use table::Builder;
use walk::{Guide, Verdict};

/// The plain container. It has no table: opening a file reads the header of every chunk.
pub const RIEGELI: Format = Format {
    name: "riegeli",
    suffixes: &[],
    // Never detected. An ArrayRecord file is also a Riegeli file, and its footer would be read as records.
    probe: |_, _, _| Ok(Probe::No),
    has_table_at_end: false,
    open,
    open_indexed: None,
    walk: walk_plain,
    salvage: Salvage { walk: walk_plain, table: SalvageTable::Chunks },
    encoder: |_| Err(Error::argument("riegeli is read only; write array_record")),
};

fn open(storage: &dyn Storage, options: &ReadOptions, cx: &Cx<'_>) -> Result<Box<dyn Table>> {
    let mut builder = Builder::new(options, cx);
    walk_plain(&Walk::strict(storage, options, Depth::Headers, cx), &mut |span| {
        let Span::Records(chunk) = span else { return Ok(()) };
        let offset = chunk.range.start;
        let entry = Entry { offset, records: chunk.records, decoded: chunk.decoded_bytes };
        builder.push(entry).map_err(|e| e.at(offset))
    })?;
    Ok(Box::new(builder.finish(storage.len(), Description::default())?))
}

fn walk_plain(walk: &Walk<'_>, visit: &mut dyn FnMut(Span<'_>) -> Result<()>) -> Result<()> {
    if walk.storage.is_empty() {
        let empty = Error::truncated("file is empty: the signature is missing").at(0);
        return visit(Span::Damage(0..0, walk.damage(empty)?));
    }
    walk::walk(walk, &mut Plain::default(), visit)
}

/// A guide for files without a footer. It uses only the chunk headers.
#[derive(Default)]
pub struct Plain {
    /// Records so far. Includes lost records, if the header of their chunk could be read.
    records: u64,
}

impl Plain {
    /// Counts the records of a chunk. Returns the number of its first record.
    fn count_chunk(&mut self, header: &Header) -> u64 {
        let first = self.records;
        self.records = first.saturating_add(header.records);
        first
    }
}

impl Guide for Plain {
    fn check_chunk(&mut self, _begin: u64, header: &Header, _decoded: Option<&Decoded>) -> Result<Verdict> {
        Ok(Verdict::Records(self.count_chunk(header)))
    }

    fn damaged(&mut self, _at: u64, header: Option<&Header>) -> Result<Option<u64>> {
        Ok(Some(header.map_or(self.records, |header| self.count_chunk(header))))
    }

    fn resume(&mut self, _damage: u64) -> Result<Option<u64>> {
        Ok(None)
    }
}
