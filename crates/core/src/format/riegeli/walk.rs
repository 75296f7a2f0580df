//! Visiting every byte of a file, from the first to the last, and finding the way again behind damage.

use super::block::{BLOCK, BLOCK_HEADER, BlockHeader, is_boundary, left_in_block};
use super::chunk::{CHUNK_HEADER, ChunkView, HEADER_SPAN, Header, kind, unknown};
use super::transpose_decode;
use crate::bytes;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::format::Decoded;
use crate::format::encode::CarriedChunk;
use crate::format::walk::{Content, SoundChunk, Span, Walk};
use crate::storage::Storage;
use crate::storage::window::Window;
use std::ops::Range;

/// What to do at a place of the file.
pub enum Next {
    /// Look at the chunk there.
    Look,
    /// Pass over everything up to this place. No reader looks at it.
    Pass(u64),
    /// Pass over the rest: there are no more records.
    End,
    /// Believe that there is a chunk of records: its range, the number of its first record, and how many it holds.
    Believe(Range<u64>, u64, u64),
}

/// What a chunk of records is to the format.
pub enum Verdict {
    /// The user's records, and the number of the first.
    Records(u64),
    /// The format's own.
    Meta,
}

/// What a format on top of the container knows about the file.
pub trait Guide {
    /// What to do at `at`.
    fn next(&mut self, _at: u64) -> Result<Next> {
        Ok(Next::Look)
    }

    /// What a sound chunk of records is. An error makes it damage. `decoded` is what is in it, unless it is to be carried
    /// to another file as it is, or only headers are looked at.
    fn judge(&mut self, begin: u64, header: &Header, decoded: Option<&Decoded>) -> Result<Verdict>;

    /// Told of every damage, and of the header there if that is right. Tells the number of the first record that is lost.
    /// Where nothing tells what was there, that is the one that comes next; where it was structure, none.
    fn damaged(&mut self, at: u64, header: Option<&Header>) -> Result<Option<u64>>;

    /// Where the next chunk begins, after damage that begins at `damage`; none if unknown.
    fn resume(&mut self, damage: u64) -> Result<Option<u64>>;

    /// Whether nothing but zeros may follow from `at` on.
    fn may_end(&self, _at: u64) -> bool {
        false
    }

    /// The kind of the chunks that are carried to another file as they are, if any are.
    fn carried_kind(&self) -> Option<u8> {
        None
    }
}

/// Walks a file with what the guide knows about it.
pub fn walk(
    walk: &Walk<'_>,
    guide: &mut dyn Guide,
    visit: &mut dyn FnMut(Span<'_>) -> Result<()>,
) -> Result<()> {
    let size = walk.storage.len();
    let mut window = Window::new(walk.storage, walk.cx);
    let mut pace = walk.cx.pace();
    // Filler behind records counts with them: a table tells only where the next chunk of records begins.
    let (mut at, mut behind_records, mut found_by_search) = (0, false, false);
    let between =
        |range, behind_records| if behind_records { Span::Filler(range) } else { Span::Meta(range) };
    while at < size {
        pace.step(64)?;
        match guide.next(at)? {
            Next::Look => {}
            Next::End => return visit(Span::Meta(at..size)),
            Next::Pass(end) => {
                visit(between(at..end, behind_records))?;
                at = end;
                continue;
            }
            Next::Believe(range, first_record, records) => {
                at = range.end;
                behind_records = true;
                visit(Span::Records(chunk_of(range, first_record, records, None)))?;
                continue;
            }
        }
        let (header, range) = match read_header(walk, &mut window, at) {
            Ok(found) => found,
            Err(error) => {
                if !error.is_from_outside() && guide.may_end(at) && zeros(walk.storage, at, walk.cx)? {
                    return visit(Span::Unused(at..size));
                }
                let error = damage(walk, guide, at, None, error)?;
                let next = match guide.resume(at)? {
                    Some(next) => next,
                    None => {
                        found_by_search = true;
                        next_by_blocks(walk, at)?
                    }
                };
                visit(Span::damage(at..next, error))?;
                at = next;
                continue;
            }
        };
        at = range.end;
        match look(walk, &mut window, guide, &header, range.clone()) {
            Ok((Found::Records(first_record), content)) => {
                behind_records = true;
                visit(Span::Records(SoundChunk {
                    decoded_bytes: Some(header.decoded),
                    found_by_search,
                    content: content.as_ref().filter(|_| walk.wants_content()).map(|content| content as _),
                    ..chunk_of(range, first_record, header.records, None)
                }))?;
            }
            Ok((Found::Meta, _)) => {
                behind_records = false;
                visit(Span::Meta(range))?;
            }
            Ok((Found::Filler, _)) => visit(between(range, behind_records))?,
            Err(error) => {
                let error = damage(walk, guide, range.start, Some(&header), error)?;
                visit(Span::damage(range, error))?;
            }
        }
    }
    Ok(())
}

/// The error as the walk visits it, with its place. It is returned instead where it ends the walk.
fn damage(
    walk: &Walk<'_>,
    guide: &mut dyn Guide,
    at: u64,
    header: Option<&Header>,
    error: Error,
) -> Result<Error> {
    if error.is_from_outside() {
        return Err(error);
    }
    let lost = guide.damaged(at, header)?;
    let error = match error.record().or(lost) {
        Some(record) => error.at(at).for_record(record),
        None => error.at(at),
    };
    walk.damage(error)
}

/// The header of a chunk is structure. Block headers lie anywhere in the rest, so they count as records.
fn chunk_of(
    range: Range<u64>,
    first_record: u64,
    records: u64,
    decoded_bytes: Option<u64>,
) -> SoundChunk<'static> {
    SoundChunk {
        record_bytes: (range.end - range.start).saturating_sub(CHUNK_HEADER),
        range,
        first_record,
        records,
        decoded_bytes,
        found_by_search: false,
        detail: 0,
        content: None,
    }
}

/// The header at `at` and the bytes of its chunk.
fn read_header(walk: &Walk<'_>, window: &mut Window<'_>, at: u64) -> Result<(Header, Range<u64>)> {
    let head = window.get_up_to("chunk header", at, HEADER_SPAN)?;
    let header = Header::read(at, head, walk.options.checksums)?;
    let range = bytes::range("chunk", at, header.end(at)? - at, walk.storage.len())?;
    Ok((header, range))
}

enum Found {
    Records(u64),
    Meta,
    Filler,
}

/// A sound chunk of records.
struct ChunkContent<'a> {
    walk: &'a Walk<'a>,
    chunk: ChunkView<'a>,
    first_record: u64,
    /// None where only the hash was looked at, because the chunk is to be carried as it is.
    decoded: Option<Decoded>,
}

impl Content for ChunkContent<'_> {
    fn rows(&self, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let later;
        let decoded = match &self.decoded {
            Some(decoded) => decoded,
            None => {
                later = decode(&self.chunk, self.walk.cx).map_err(|e| e.for_record(self.first_record))?;
                &later
            }
        };
        (0..self.chunk.header.records).filter_map(|row| decoded.row(row)).try_for_each(visit)
    }

    fn carry(&self) -> Result<Option<CarriedChunk>> {
        if self.decoded.is_some() {
            return Ok(None);
        }
        let header = self.chunk.header;
        let (head, body) =
            (header.to_bytes().to_vec(), self.chunk.slice(0..header.data_size, self.walk.cx)?.into_owned());
        Ok(Some(CarriedChunk { head, body, records: header.records, decoded_bytes: header.decoded }))
    }
}

fn decode(chunk: &ChunkView<'_>, cx: &Cx<'_>) -> Result<Decoded> {
    let decoded = chunk.decode(cx)?;
    if decoded.rows() as u64 == chunk.header.records {
        return Ok(decoded);
    }
    Err(Error::format("chunk does not hold as many records as it should")
        .at(chunk.range.start)
        .expected(chunk.header.records)
        .found(decoded.rows()))
}

/// Looks at one chunk as closely as the walk does.
fn look<'a>(
    walk: &'a Walk<'a>,
    window: &'a mut Window<'_>,
    guide: &mut dyn Guide,
    header: &Header,
    range: Range<u64>,
) -> Result<(Found, Option<ChunkContent<'a>>)> {
    let begin = range.start;
    check_kind(header, begin)?;
    let holds_records = matches!(header.kind, kind::SIMPLE | kind::TRANSPOSED);
    if walk.is_headers_only() {
        let found = match header.kind {
            kind::SIGNATURE => Found::Meta,
            _ if header.records == 0 => Found::Filler,
            _ => verdict(guide.judge(begin, header, None)?),
        };
        return Ok((found, None));
    }
    let stored = window.get("chunk", begin, range.end - begin)?;
    let chunk = ChunkView::read(begin, stored, walk.options.checksums)?;
    if walk.resumes {
        chunk.verify(walk.cx)?;
        chunk.verify_padding()?;
    }
    if holds_records {
        let decoded = if guide.carried_kind() == Some(header.kind) {
            chunk.verify(walk.cx)?;
            None
        } else {
            Some(decode(&chunk, walk.cx)?)
        };
        let found = match header.records {
            0 => Found::Filler,
            _ => verdict(guide.judge(begin, header, decoded.as_ref())?),
        };
        let first_record = if let Found::Records(first) = found { first } else { 0 };
        return Ok((found, Some(ChunkContent { walk, chunk, first_record, decoded })));
    }
    let data = || chunk.slice(0..header.data_size, walk.cx);
    match header.kind {
        kind::PADDING if data()?.iter().any(|&byte| byte != 0) => {
            return Err(Error::format("padding is not zero").at(begin));
        }
        kind::METADATA => drop(transpose_decode::decode(&data()?, begin, 1, header.decoded, walk.cx)?),
        _ => {}
    }
    Ok((if header.kind == kind::SIGNATURE { Found::Meta } else { Found::Filler }, None))
}

fn verdict(verdict: Verdict) -> Found {
    match verdict {
        Verdict::Records(first) => Found::Records(first),
        Verdict::Meta => Found::Meta,
    }
}

/// What the header of a chunk must be for its kind and its place.
fn check_kind(header: &Header, begin: u64) -> Result<()> {
    let is_first = begin == 0;
    let impossible = |what: &'static str| Err(Error::format(what).at(begin));
    match header.kind {
        kind::SIGNATURE if !is_first => impossible("file signature is not at the beginning"),
        kind::SIGNATURE if (header.data_size, header.records, header.decoded) != (0, 0, 0) => {
            impossible("file signature is not empty")
        }
        kind::SIGNATURE => Ok(()),
        _ if is_first => impossible("file signature is missing: not a Riegeli file"),
        kind::PADDING if (header.records, header.decoded) != (0, 0) => impossible("padding holds records"),
        kind::METADATA if header.records != 0 => impossible("file metadata holds records"),
        kind::PADDING | kind::METADATA | kind::SIMPLE | kind::TRANSPOSED => Ok(()),
        other if header.records != 0 => Err(unknown(other, begin)),
        _ => Ok(()),
    }
}

/// Where the next chunk begins behind damage at `damage`, as far as block headers tell.
fn next_by_blocks(walk: &Walk<'_>, damage: u64) -> Result<u64> {
    let storage = walk.storage;
    let mut pace = walk.cx.pace();
    let mut block = damage + left_in_block(damage + 1) + 1;
    while block + BLOCK_HEADER < storage.len() {
        // A read costs about as much as a few kilobytes of other work.
        pace.step(1 << 12)?;
        let mut stored = [0; BLOCK_HEADER as usize];
        storage.read_at(block, &mut stored, walk.cx)?;
        if let Some(header) = BlockHeader::plausible(&stored, walk.options.checksums) {
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
