//! Visits every byte of a file in order. After damage, the next chunk is searched for.

use super::encoder::ChunkEncoder;
use super::header::{Codec, HEADER, Header, MAGIC, PREFIX};
use super::payload;
use crate::bytes;
use crate::error::Result;
use crate::format::encode::CarriedChunk;
use crate::format::search::{FindHeader, Search};
use crate::format::walk::{Content, SoundChunk, Span, Walk};
use std::borrow::Cow;

pub(super) fn walk(walk: &Walk<'_>, visit: &mut dyn FnMut(Span<'_>) -> Result<()>) -> Result<()> {
    let carried = carried(walk)?;
    let mut file = Search::new(walk);
    let (mut at, mut record, mut found_by_search) = (0, 0, false);
    while at < file.size {
        let header = match header(&mut file, at) {
            Ok(header) => header,
            Err(error) => {
                let error = walk.damage(error.for_record(record))?;
                let end = file.find(at + 1, &mut Headers)?;
                visit(Span::damage(at..end, error))?;
                (at, found_by_search) = (end, true);
                continue;
            }
        };
        let (range, records) = (at..at + header.stored(), u64::from(header.records));
        let sound = look(&mut file, &header, at, record, carried).map(|found| {
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
                let proved = if walk.is_headers_only() { None } else { proved_end(&mut file, at, &header)? };
                let end = match proved {
                    // Only the size in the header is wrong. No other chunk is lost.
                    Some(end) => end,
                    // If the header points to another header or to the end, the damage is in this chunk alone. A header
                    // that was found by search may be part of a record.
                    None if !found_by_search && points_to_chunk(&mut file, range.end)? => range.end,
                    None => {
                        found_by_search = true;
                        file.find(at + 1, &mut Headers)?
                    }
                };
                visit(Span::damage(at..end, error))?;
                (at, record) = (end, if found_by_search { record } else { record + records });
                continue;
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

fn header(file: &mut Search<'_>, at: u64) -> Result<Header> {
    let size = file.size;
    Header::parse(file.window.get("chunk header", at, HEADER.min(size - at))?, at, size)
}

/// The header at `at`, if it could be one.
fn plausible(file: &mut Search<'_>, at: u64) -> Result<Option<Header>> {
    let size = file.size;
    Ok(Header::plausible(file.ahead.get("chunk header", at, HEADER.min(size - at))?, at, size))
}

/// Whether another chunk begins at `at`, or the file ends there.
fn points_to_chunk(file: &mut Search<'_>, at: u64) -> Result<bool> {
    Ok(at == file.size || plausible(file, at)?.is_some())
}

/// Where the damaged chunk at `at` ends, if the size in its header is too large: inside it another chunk begins, and the
/// bytes before that have the checksum of this one.
fn proved_end(file: &mut Search<'_>, at: u64, header: &Header) -> Result<Option<u64>> {
    let begin = at + HEADER;
    let mut ends = Ends { checksum: header.checksum, hash: crc32fast::Hasher::new(), hashed: begin };
    file.find_before(begin, at + header.stored(), &mut ends)
}

/// Places where a chunk could end: another one begins there.
struct Ends {
    checksum: u32,
    hash: crc32fast::Hasher,
    /// How far the file was hashed.
    hashed: u64,
}

impl FindHeader for Ends {
    const HEADER: u64 = HEADER;
    const SMALLEST: u64 = HEADER;
    type Header = Header;

    fn find(&mut self, piece: &[u8], at: u64, file_size: u64) -> Option<(u64, Header)> {
        Headers.find(piece, at, file_size)
    }

    fn is_chunk(&mut self, at: u64, _: &Header, file: &mut Search<'_>) -> Result<bool> {
        file.ahead.pieces("chunk", self.hashed, at - self.hashed, |piece| self.hash.update(piece))?;
        self.hashed = at;
        Ok(self.hash.clone().finalize() == self.checksum)
    }
}

/// Chunks of more bytes are hashed before they are read as a whole. A header may claim 4 GiB.
const LARGE: u64 = 16 << 20;

/// Looks at a chunk as closely as the walk does. None if the walk looks only at headers.
fn look<'f>(
    file: &'f mut Search<'_>,
    header: &Header,
    at: u64,
    record: u64,
    carried: Option<Codec>,
) -> Result<Option<Found<'f>>> {
    let walk = file.walk;
    if walk.is_headers_only() {
        return Ok(None);
    }
    if walk.options.checksums && header.stored() > LARGE {
        payload::compare(header, stored_hash(file, header, at)?, at)?;
    }
    let stored = file.window.get("chunk", at, header.stored())?;
    let unpacked = if carried == Some(header.codec) {
        payload::check(header, stored, at, walk.options, walk.cx)?;
        None
    } else {
        Some(unpack(walk, header, stored, at)?)
    };
    Ok(Some(Found { walk, header: *header, stored, at, record, unpacked }))
}

/// The checksum that the payload of a chunk has, computed in pieces.
fn stored_hash(file: &mut Search<'_>, header: &Header, at: u64) -> Result<u32> {
    let mut hash = crc32fast::Hasher::new();
    file.ahead.pieces("chunk", at + HEADER, header.payload.into(), |piece| hash.update(piece))?;
    Ok(hash.finalize())
}

/// The headers of chunks.
struct Headers;

impl FindHeader for Headers {
    const HEADER: u64 = HEADER;
    const SMALLEST: u64 = HEADER;
    type Header = Header;

    fn find(&mut self, piece: &[u8], at: u64, file_size: u64) -> Option<(u64, Header)> {
        let magic = u32::from_le_bytes(MAGIC);
        piece.windows(HEADER as usize).enumerate().find_map(|(i, head)| {
            if head.first_chunk().is_none_or(|four| u32::from_le_bytes(*four) != magic) {
                return None;
            }
            let at = at + i as u64;
            Header::plausible(head, at, file_size).map(|header| (at, header))
        })
    }

    fn is_chunk(&mut self, at: u64, header: &Header, file: &mut Search<'_>) -> Result<bool> {
        if !file.may_hash(header.stored()) {
            return Ok(false);
        }
        Ok(stored_hash(file, header, at)? == header.checksum)
    }
}
