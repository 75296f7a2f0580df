//! Riegeli/records: the container that ArrayRecord files are made of, and a format of its own.
//!
//! | file | what |
//! |---|---|
//! | [`block`] | block headers: where they are, what they say |
//! | [`chunk`] | chunk headers, and a chunk in memory with the block headers taken out |
//! | [`simple`] | chunks of records one after the other |
//! | [`lone`] | the short way through a chunk of one uncompressed record |
//! | [`transpose_decode`] | chunks of records taken apart by field, read |
//! | [`transpose_encode`], [`state_machine`], [`message`] | the same, written |
//! | [`stream`] | simple chunks read record by record |
//! | [`listed`] | what is told about chunks, checked entry by entry |
//! | [`table`], [`compact`], [`words`] | where the chunks of a file are |
//! | [`walk`] | every byte of a file visited |
//! | [`encode`], [`writer`] | chunks made, and written |

pub mod block;
pub mod chunk;
pub mod compact;
pub mod encode;
pub mod listed;
pub mod lone;
pub mod message;
pub mod simple;
pub mod state_machine;
pub mod stream;
pub mod table;
pub mod transpose_decode;
pub mod transpose_encode;
pub mod walk;
pub mod words;
pub mod writer;

use super::walk::{Depth, Span, Walk};
use super::{Decoded, Description, Format, Probe, ReadOptions, Table};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::storage::Storage;
use chunk::Header;
use listed::Entry;
use table::Builder;
use walk::{Guide, Verdict};

/// The plain container. It has no table of its own: opening a file goes from header to header.
pub const RIEGELI: Format = Format {
    name: "riegeli",
    suffixes: &[],
    // Never detected: an ArrayRecord file is a Riegeli file, too, and its footer would turn up as records.
    probe: |_, _, _| Ok(Probe::No),
    open,
    open_indexed: None,
    walk: walk_plain,
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

/// Knows nothing beyond the container.
#[derive(Default)]
pub struct Plain {
    /// Records so far, and those that are lost as far as headers tell.
    records: u64,
}

impl Plain {
    fn pass(&mut self, header: &Header) -> u64 {
        let first = self.records;
        self.records = first.saturating_add(header.records);
        first
    }
}

impl Guide for Plain {
    fn check_chunk(&mut self, _begin: u64, header: &Header, _decoded: Option<&Decoded>) -> Result<Verdict> {
        Ok(Verdict::Records(self.pass(header)))
    }

    fn damaged(&mut self, _at: u64, header: Option<&Header>) -> Result<Option<u64>> {
        Ok(Some(header.map_or(self.records, |header| self.pass(header))))
    }

    fn resume(&mut self, _damage: u64) -> Result<Option<u64>> {
        Ok(None)
    }
}
