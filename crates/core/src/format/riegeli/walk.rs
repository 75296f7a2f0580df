//! Visiting every byte of a file, from the first to the last, and finding the way again behind damage.

use super::block::{BLOCK, BLOCK_HEADER, BlockHeader, is_boundary, left_in_block};
use super::chunk::{CHUNK_HEADER, ChunkView, StoredChunk, fetch_header, kind, unknown};
use super::transpose_decode;
use crate::bytes;
use crate::error::{Error, Kind, Result};
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

    /// The number of the first record at or behind `at`, where that is known without counting.
    fn record_at(&mut self, _at: u64) -> Result<Option<u64>> {
        Ok(None)
    }

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
    visit: &mut dyn FnMut(Span) -> Result<()>,
) -> Result<()> {
    let (mut at, mut record) = (0, 0u64);
    // The last chunk of records, as long as nothing but filling has followed it.
    let mut chunk: Option<Span> = None;
    while at < storage.len() {
        let begin = at;
        let found = fetch_header(storage, at, storage.len(), options.checksums).and_then(|header| {
            let range = bytes::range("chunk", at, header.end(at)? - at, storage.len())?;
            // The header of a damaged chunk has a hash of its own, so that the records behind it keep their numbers.
            Ok((
                range,
                if matches!(header.kind, kind::SIMPLE | kind::TRANSPOSED) { header.records } else { 0 },
            ))
        });
        let first = guide.record_at(at)?.unwrap_or(record);
        let (seen, sound, records) = match found {
            Ok((range, records)) => (look(storage, options, guide, range.clone(), first), range.end, records),
            Err(error) => {
                let error = not_io(error)?;
                if guide.may_end(at) && zeros(storage, at)? {
                    chunk.take().map_or(Ok(()), &mut *visit)?;
                    return visit(Span::Unused(at..storage.len()));
                }
                let next = match guide.resume(at)? {
                    Some(next) => next,
                    None => next_by_blocks(storage, at, options.checksums)?,
                };
                (Err(error), next, 0)
            }
        };
        at = sound;
        if let (Ok(Seen::Filling(filling)), Some(Span::Records { range, .. })) = (&seen, &mut chunk) {
            range.end = filling.end;
            continue;
        }
        chunk.take().map_or(Ok(()), &mut *visit)?;
        record = first;
        match seen {
            Ok(Seen::Records(span)) => {
                record = first.saturating_add(records);
                chunk = Some(span);
            }
            Ok(Seen::Meta(range) | Seen::Filling(range)) => visit(Span::Meta(range))?,
            Err(error) => {
                record = first.saturating_add(records);
                guide.damaged();
                visit(Span::Damage(begin..at, not_io(error)?.at(begin).for_record(first)))?;
            }
        }
    }
    chunk.map_or(Ok(()), visit)
}

/// What a sound chunk is.
enum Seen {
    /// Records.
    Records(Span),
    /// Structure of its own.
    Meta(Range<u64>),
    /// Nothing: padding, and whatever else holds no records. Behind a chunk of records it belongs to that chunk, which goes
    /// up to the next one in every table.
    Filling(Range<u64>),
}

/// Lets pass what is wrong with the file, not what is wrong with reading it.
fn not_io(error: Error) -> Result<Error> {
    if matches!(error.kind(), Kind::Io(_) | Kind::External(_)) { Err(error) } else { Ok(error) }
}

/// Checks everything about one chunk.
fn look(
    storage: &dyn Storage,
    options: &ReadOptions,
    guide: &mut dyn Guide,
    range: Range<u64>,
    first: u64,
) -> Result<Seen> {
    let stored = StoredChunk::fetch(storage, range.start, range.end, options.checksums)?;
    let chunk = stored.view()?;
    chunk.verify()?;
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
        kind::PADDING if chunk.slice(0..header.data_size).iter().any(|&byte| byte != 0) => {
            return impossible("padding is not zero");
        }
        kind::PADDING => {}
        kind::METADATA if header.records != 0 => return impossible("file metadata holds records"),
        kind::METADATA => {
            let data = chunk.slice(0..header.data_size);
            transpose_decode::decode(&data, range.start, 1, header.decoded, &options.limits)?;
        }
        kind::SIMPLE | kind::TRANSPOSED => {
            let decoded = chunk.decode(&options.limits)?;
            let (records, bytes) = (header.records, header.decoded);
            return Ok(match guide.judge(&chunk, &decoded)? {
                _ if records == 0 => Seen::Filling(range),
                Verdict::Records => {
                    let meta = CHUNK_HEADER;
                    Seen::Records(Span::Records { range, meta, chunks: 1, first, records, bytes })
                }
                Verdict::Meta => Seen::Meta(range),
            });
        }
        other if header.records != 0 => return Err(unknown(other, range.start)),
        _ => {}
    }
    Ok(Seen::Filling(range))
}

/// Where the next chunk begins behind damage at `damage`, as far as block headers tell.
fn next_by_blocks(storage: &dyn Storage, damage: u64, checksums: bool) -> Result<u64> {
    let mut block = damage + left_in_block(damage + 1) + 1;
    while block + BLOCK_HEADER < storage.len() {
        let mut stored = [0; BLOCK_HEADER as usize];
        storage.read_at(block, &mut stored)?;
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

fn zeros(storage: &dyn Storage, begin: u64) -> Result<bool> {
    if storage.len() - begin > BLOCK {
        return Ok(false);
    }
    let mut rest = vec![0; (storage.len() - begin) as usize];
    storage.read_at(begin, &mut rest)?;
    Ok(rest.iter().all(|&byte| byte == 0))
}
