//! Visiting every byte of a file, from the first to the last, and finding the way again behind damage.

use super::block::{BLOCK, BLOCK_HEADER, BlockHeader, is_boundary, left_in_block};
use super::chunk::{ChunkView, StoredChunk, fetch_header, kind, unknown};
use super::transpose_decode;
use crate::bytes;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::format::{Decoded, ReadOptions, Span};
use crate::storage::Storage;
use std::ops::Range;

/// What a chunk of records is to the format.
pub enum Verdict {
    /// The user's records.
    Records,
    /// The format's own.
    Meta,
}

/// What a format on top of the container knows about the file.
pub trait Guide {
    /// What a sound chunk of records is. An error makes it damage.
    fn judge(&mut self, chunk: &ChunkView<'_>, decoded: &Decoded) -> Result<Verdict>;

    /// Where the next chunk begins, after damage that begins at `damage`; none if unknown.
    fn resume(&mut self, damage: u64) -> Result<Option<u64>>;

    /// Whether nothing but zeros may follow from `at` on.
    fn may_end(&self, at: u64) -> bool;

    /// Told of every damaged range.
    fn damaged(&mut self);
}

/// Walks a file with what the guide knows about it.
pub fn walk(
    storage: &dyn Storage,
    options: &ReadOptions,
    guide: &mut dyn Guide,
    cx: &Cx<'_>,
    visit: &mut dyn FnMut(Span) -> Result<()>,
) -> Result<()> {
    let mut at = 0;
    while at < storage.len() {
        let found = fetch_header(storage, at, storage.len(), options.checksums, cx)
            .and_then(|header| header.end(at))
            .and_then(|end| bytes::range("chunk", at, end - at, storage.len()));
        let (span, sound) = match found {
            Ok(range) => (look(storage, options, guide, range.clone(), cx), range.end),
            Err(error) => {
                let error = not_io(error)?;
                if guide.may_end(at) && zeros(storage, at, cx)? {
                    return visit(Span::Unused(at..storage.len()));
                }
                let next = match guide.resume(at)? {
                    Some(next) => next,
                    None => next_by_blocks(storage, at, options.checksums, cx)?,
                };
                (Err(error), next)
            }
        };
        match span {
            Ok(span) => visit(span)?,
            Err(error) => {
                guide.damaged();
                visit(Span::Damage(at..sound, not_io(error)?.at(at)))?;
            }
        }
        at = sound;
    }
    Ok(())
}

/// Lets pass what is wrong with the file, not what is wrong with reading it.
fn not_io(error: Error) -> Result<Error> {
    if error.is_from_outside() { Err(error) } else { Ok(error) }
}

/// Checks everything about one chunk.
fn look(
    storage: &dyn Storage,
    options: &ReadOptions,
    guide: &mut dyn Guide,
    range: Range<u64>,
    cx: &Cx<'_>,
) -> Result<Span> {
    let stored = StoredChunk::fetch(storage, range.start, range.end, options.checksums, cx)?;
    let chunk = stored.view()?;
    chunk.verify(cx)?;
    chunk.verify_padding()?;
    let header = &chunk.header;
    let impossible = |what: &'static str| Err(Error::format(what).at(range.start));
    if range.start == 0 && header.kind != kind::SIGNATURE {
        return impossible("file signature is missing");
    }
    match header.kind {
        kind::SIGNATURE if range.start != 0 => return impossible("file signature is not at the beginning"),
        kind::SIGNATURE if (header.data_size, header.records, header.decoded) != (0, 0, 0) => {
            return impossible("file signature is not empty");
        }
        kind::PADDING if (header.records, header.decoded) != (0, 0) => {
            return impossible("padding holds records");
        }
        kind::PADDING if chunk.slice(0..header.data_size, cx)?.iter().any(|&byte| byte != 0) => {
            return impossible("padding is not zero");
        }
        kind::PADDING => {}
        kind::METADATA if header.records != 0 => return impossible("file metadata holds records"),
        kind::METADATA => {
            let data = chunk.slice(0..header.data_size, cx)?;
            transpose_decode::decode(&data, range.start, 1, header.decoded, cx)?;
        }
        kind::SIMPLE | kind::TRANSPOSED => {
            let decoded = chunk.decode(cx)?;
            let (records, bytes) = (header.records, header.decoded);
            return Ok(match guide.judge(&chunk, &decoded)? {
                Verdict::Records => Span::Records { range, records, bytes },
                Verdict::Meta => Span::Meta(range),
            });
        }
        other if header.records != 0 => return Err(unknown(other, range.start)),
        _ => {}
    }
    Ok(Span::Meta(range))
}

/// Where the next chunk begins behind damage at `damage`, as far as block headers tell.
fn next_by_blocks(storage: &dyn Storage, damage: u64, checksums: bool, cx: &Cx<'_>) -> Result<u64> {
    let mut block = damage + left_in_block(damage + 1) + 1;
    while block + BLOCK_HEADER < storage.len() {
        let mut stored = [0; BLOCK_HEADER as usize];
        storage.read_at(block, &mut stored, cx)?;
        if let Ok(header) = BlockHeader::read(&stored, block, checksums) {
            if header.previous == 0 {
                return Ok(block);
            }
            let next = block.checked_add(header.next).filter(|&next| next > block);
            if let Some(next) = next.filter(|&next| next <= storage.len() && is_boundary(next)) {
                return Ok(next);
            }
        }
        block += BLOCK;
    }
    Ok(storage.len())
}

fn zeros(storage: &dyn Storage, begin: u64, cx: &Cx<'_>) -> Result<bool> {
    if storage.len() - begin > BLOCK {
        return Ok(false);
    }
    let mut rest = vec![0; (storage.len() - begin) as usize];
    storage.read_at(begin, &mut rest, cx)?;
    Ok(rest.iter().all(|&byte| byte == 0))
}
