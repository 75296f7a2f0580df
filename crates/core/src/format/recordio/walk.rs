//! Every byte of a file, in order. Behind damage, the next chunk is looked for.

use super::encoder::ChunkEncoder;
use super::header::{Codec, HEADER, Header, MAGIC, PREFIX};
use super::payload;
use crate::bytes;
use crate::error::Result;
use crate::format::encode::CarriedChunk;
use crate::format::walk::{Content, SoundChunk, Span, Walk};
use crate::storage::window::Window;
use std::borrow::Cow;

/// How much is searched for a header at once.
const PIECE: u64 = 1 << 20;
/// What a look at another place of the file costs, in bytes that could be hashed instead.
const LOOK: u64 = 1 << 10;

pub(super) fn walk(walk: &Walk<'_>, visit: &mut dyn FnMut(Span<'_>) -> Result<()>) -> Result<()> {
    let carried = carried(walk)?;
    let mut chunks = Chunks::new(walk);
    let (mut at, mut record, mut found_by_search) = (0, 0, false);
    while at < chunks.size {
        let header = match chunks.header(at) {
            Ok(header) => header,
            Err(error) => {
                let error = walk.damage(error.for_record(record))?;
                let end = chunks.search(at + 1)?;
                visit(Span::damage(at..end, error))?;
                (at, found_by_search) = (end, true);
                continue;
            }
        };
        let (range, records) = (at..at + header.stored(), u64::from(header.records));
        let sound = chunks.look(&header, at, record, carried).map(|found| {
            visit(Span::Records(SoundChunk {
                range: range.clone(),
                record_bytes: header.payload.into(),
                first_record: record,
                records,
                decoded_bytes: found.as_ref().and_then(Found::decoded_bytes),
                found_by_search,
                detail: 1 << header.codec.number(),
                content: found.as_ref().filter(|_| walk.wants_content()).map(|found| found as _),
            }))
        });
        match sound {
            Ok(visited) => visited?,
            Err(error) => {
                let error = walk.damage(error.for_record(record))?;
                // The header leads to another one or to the end: the damage is in this chunk alone.
                let leads_on = range.end == chunks.size || chunks.plausible(range.end)?.is_some();
                if !leads_on {
                    let end = chunks.search(at + 1)?;
                    visit(Span::damage(at..end, error))?;
                    (at, found_by_search) = (end, true);
                    continue;
                }
                visit(Span::damage(range.clone(), error))?;
            }
        }
        (at, record) = (range.end, record + records);
    }
    Ok(())
}

/// The codec of chunks that a writer takes as they are stored. None: it takes no chunk.
fn carried(walk: &Walk<'_>) -> Result<Option<Codec>> {
    // Where chunks are to be cut or packed in a certain way, a file does not tell whether its own are.
    let write = walk.carry_for().filter(|write| !write.has("chunk_bytes") && !write.has("level"));
    write.map(|write| ChunkEncoder::new(write).map(|encoder| encoder.codec())).transpose()
}

/// A sound chunk.
struct Found<'a> {
    walk: &'a Walk<'a>,
    header: Header,
    stored: &'a [u8],
    at: u64,
    record: u64,
    /// None where only the hash was looked at, because the chunk is to be carried as it is.
    unpacked: Option<Cow<'a, [u8]>>,
}

impl Found<'_> {
    fn decoded_bytes(&self) -> Option<u64> {
        let unpacked = self.unpacked.as_ref()?;
        Some(unpacked.len() as u64 - PREFIX as u64 * u64::from(self.header.records))
    }
}

impl Content for Found<'_> {
    fn rows(&self, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let later;
        let unpacked = match &self.unpacked {
            Some(unpacked) => unpacked,
            None => {
                later = unpack(self.walk, &self.header, self.stored, self.at)
                    .map_err(|e| e.for_record(self.record))?;
                &later
            }
        };
        payload::split(unpacked, self.header.records, self.at, self.walk.cx, |place| visit(&unpacked[place]))
    }

    fn carry(&self) -> Result<Option<CarriedChunk>> {
        if self.unpacked.is_some() {
            return Ok(None);
        }
        let (head, body) = self.stored.split_at(HEADER as usize);
        let body = bytes::copied("chunk", body, self.walk.cx)?;
        let head = head.to_vec();
        Ok(Some(CarriedChunk { head, body, records: self.header.records.into(), decoded_bytes: 0 }))
    }
}

/// The payload of a chunk, unpacked, if everything about it is right.
fn unpack<'a>(walk: &Walk<'_>, header: &Header, stored: &'a [u8], at: u64) -> Result<Cow<'a, [u8]>> {
    let mut held = walk.cx.budget.nothing();
    let unpacked = payload::unpack(header, stored, at, walk.options, &mut held, walk.cx)?;
    payload::split(&unpacked, header.records, at, walk.cx, |_| Ok(()))?;
    Ok(unpacked)
}

/// The chunks of a file, as their headers tell.
struct Chunks<'a> {
    walk: &'a Walk<'a>,
    window: Window<'a>,
    /// Where a header leads to. Looked at apart, so that the search goes on where it was.
    ahead: Window<'a>,
    size: u64,
    /// Work that may still be done to find out whether a header is one, in bytes. A file made of false headers would
    /// otherwise be read once for each of them.
    budget: u64,
}

impl<'a> Chunks<'a> {
    fn new(walk: &'a Walk<'a>) -> Self {
        let size = walk.storage.len();
        let window = || Window::new(walk.storage, walk.cx);
        Chunks { walk, window: window(), ahead: window(), size, budget: size.saturating_mul(4) }
    }

    fn header(&mut self, at: u64) -> Result<Header> {
        Header::parse(self.window.get("chunk header", at, HEADER.min(self.size - at))?, at, self.size)
    }

    /// The header at `at`, if it could be one.
    fn plausible(&mut self, at: u64) -> Result<Option<Header>> {
        let head = self.ahead.get("chunk header", at, HEADER.min(self.size - at))?;
        Ok(Header::plausible(head, at, self.size))
    }

    /// Looks at a chunk as closely as the walk does. None where only headers are looked at.
    fn look(
        &mut self,
        header: &Header,
        at: u64,
        record: u64,
        carried: Option<Codec>,
    ) -> Result<Option<Found<'_>>> {
        let walk = self.walk;
        if walk.is_headers_only() {
            return Ok(None);
        }
        let stored = self.window.get("chunk", at, header.stored())?;
        let unpacked = if carried == Some(header.codec) {
            payload::check(header, stored, at, walk.options, walk.cx)?;
            None
        } else {
            Some(unpack(walk, header, stored, at)?)
        };
        Ok(Some(Found { walk, header: *header, stored, at, record, unpacked }))
    }

    /// Where the next chunk begins, or else the end of the file.
    fn search(&mut self, mut from: u64) -> Result<u64> {
        let mut end = from;
        while self.size - from >= HEADER {
            if end - from < HEADER {
                end = self.size.min(from + PIECE);
            }
            let piece = self.window.get("damaged bytes", from, end - from)?;
            let Some((found, header)) = find(piece, from, self.size) else {
                // A header may lie across the end of the piece.
                from = end - (HEADER - 1);
                continue;
            };
            if self.is_chunk(found, &header)? {
                return Ok(found);
            }
            from = found + 1;
        }
        Ok(self.size)
    }

    /// Whether this is a chunk: its header leads to another one, or its payload has the right hash.
    fn is_chunk(&mut self, at: u64, header: &Header) -> Result<bool> {
        let end = at + header.stored();
        if end < self.size && self.spend(LOOK) && self.plausible(end)?.is_some() {
            return Ok(true);
        }
        if !self.spend(header.stored()) {
            return Ok(false);
        }
        let mut hash = crc32fast::Hasher::new();
        self.ahead.pieces("chunk", at + HEADER, header.payload.into(), |piece| hash.update(piece))?;
        Ok(hash.finalize() == header.checksum)
    }

    /// Whether so much work may still be done.
    fn spend(&mut self, bytes: u64) -> bool {
        let left = self.budget.checked_sub(bytes);
        self.budget = left.unwrap_or(self.budget);
        left.is_some()
    }
}

/// The first header in `piece`, which begins at `at`, that could be one.
fn find(piece: &[u8], at: u64, file_size: u64) -> Option<(u64, Header)> {
    let magic = u32::from_le_bytes(MAGIC);
    piece.windows(HEADER as usize).enumerate().find_map(|(i, head)| {
        if head.first_chunk().is_none_or(|four| u32::from_le_bytes(*four) != magic) {
            return None;
        }
        let at = at + i as u64;
        Header::plausible(head, at, file_size).map(|header| (at, header))
    })
}
