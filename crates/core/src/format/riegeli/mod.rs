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

use super::options::WriteOptions;
use super::{Decoded, Description, Encoder, Format, Probe, ReadOptions, Span, Table};
use crate::bytes;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::storage::{Storage, window::Window};
use chunk::{ChunkView, HEADER_SPAN, Header, kind};
use listed::Entry;
use table::Builder;
use walk::{Guide, Verdict};

/// The plain container. It has no table of its own: opening a file goes from header to header.
pub struct Riegeli;

impl Format for Riegeli {
    fn name(&self) -> &'static str {
        "riegeli"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[]
    }

    /// Never by itself: an ArrayRecord file is a Riegeli file, too, and its footer would turn up as records.
    fn probe(&self, _storage: &dyn Storage, _options: &ReadOptions, _cx: &Cx<'_>) -> Result<Probe> {
        Ok(Probe::No)
    }

    fn open(&self, storage: &dyn Storage, options: &ReadOptions, cx: &Cx<'_>) -> Result<Box<dyn Table>> {
        let mut builder = Builder::new(options, cx);
        let mut window = Window::new(storage, cx);
        let mut at = 0;
        loop {
            if at == storage.len() && at > 0 {
                break;
            }
            let header =
                Header::read(at, window.get_up_to("chunk header", at, HEADER_SPAN)?, options.checksums)?;
            let range = bytes::range("chunk", at, header.end(at)? - at, storage.len())?;
            match header.kind {
                kind::SIGNATURE if at == 0 => {}
                _ if at == 0 => {
                    return Err(Error::format("file signature is missing: not a Riegeli file").at(0));
                }
                kind::SIMPLE | kind::TRANSPOSED if header.records > 0 => {
                    let entry = Entry { offset: at, records: header.records, decoded: Some(header.decoded) };
                    builder.push(entry).map_err(|e| e.at(at))?;
                }
                other if header.records > 0 => return Err(chunk::unknown(other, at)),
                _ => {}
            }
            at = range.end;
        }
        Ok(Box::new(builder.finish(storage.len(), Description::default())?))
    }

    fn walk(
        &self,
        storage: &dyn Storage,
        options: &ReadOptions,
        cx: &Cx<'_>,
        visit: &mut dyn FnMut(Span) -> Result<()>,
    ) -> Result<()> {
        if storage.is_empty() {
            return visit(Span::Damage(
                0..0,
                Error::truncated("file is empty: the signature is missing").at(0),
            ));
        }
        walk::walk(storage, options, &mut Plain, cx, visit)
    }

    fn encoder(&self, _options: &WriteOptions) -> Result<Box<dyn Encoder>> {
        Err(Error::argument("riegeli is read only; write array_record"))
    }
}

/// Knows nothing beyond the container.
struct Plain;

impl Guide for Plain {
    fn judge(&mut self, _chunk: &ChunkView<'_>, _decoded: &Decoded) -> Result<Verdict> {
        Ok(Verdict::Records)
    }

    fn resume(&mut self, _damage: u64) -> Result<Option<u64>> {
        Ok(None)
    }

    fn may_end(&self, _at: u64) -> bool {
        false
    }

    fn damaged(&mut self) {}
}
