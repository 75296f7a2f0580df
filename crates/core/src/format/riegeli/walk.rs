//! Visits every byte of a file from the first to the last, and finds the next chunk after damage.

use super::block::BLOCK;
use super::chunk::{CHUNK_HEADER, ChunkView, HEADER_SPAN, Header, kind, unknown};
use super::resync::Resync;
use super::transpose_decode;
use crate::bytes;
use crate::cx::Cx;
use crate::error::{Error, Kind, Result};
use crate::format::Decoded;
use crate::format::encode::CarriedChunk;
use crate::format::walk::{Content, SoundChunk, Span, Walk};
use crate::storage::Storage;
use crate::storage::window::Window;
use std::ops::Range;

/// What the walk does at an offset of the file.
pub enum Next {
    /// Read the chunk there.
    Look,
    /// Skip everything up to this offset. No reader uses it.
    Pass(u64),
    /// Skip the rest: there are no more records.
    End,
    /// Assume a chunk of records without reading it: its range, the number of its first record, and how many records it
    /// holds.
    Trust(Range<u64>, u64, u64),
}

/// What a chunk of records holds.
pub enum Verdict {
    /// The user's records, and the number of the first.
    Records(u64),
    /// Records of the format itself.
    Meta,
}

/// What a format on top of the Riegeli container knows about the file.
pub trait Guide {
    /// What to do at `at`.
    fn next(&mut self, _at: u64) -> Result<Next> {
        Ok(Next::Look)
    }

    /// Checks a sound chunk of records, and returns what it holds. An error turns the chunk into damage. `decoded` is
    /// the content of the chunk. It is `None` if the chunk is copied to another file in its stored form, or if the walk
    /// reads only headers.
    fn check_chunk(&mut self, begin: u64, header: &Header, decoded: Option<&Decoded>) -> Result<Verdict>;

    /// Called for every damage, with the chunk header there if it is valid. Returns the number of the first lost
    /// record. If nothing shows what was there, that is the next record. If it was structure, returns `None`.
    fn damaged(&mut self, at: u64, header: Option<&Header>) -> Result<Option<u64>>;

    /// Where the next chunk begins after damage that begins at `damage`. `None` if that is unknown.
    fn resume(&mut self, damage: u64) -> Result<Option<u64>>;

    /// Whether the rest of the file, from `at` on, may consist of zeros.
    fn may_end(&self, _at: u64) -> bool {
        false
    }

    /// The kind of the chunks that are copied to another file in their stored form, if there are any.
    fn carried_kind(&self) -> Option<u8> {
        None
    }
}

/// Walks a file with the help of the guide.
pub fn walk(
    walk: &Walk<'_>,
    guide: &mut dyn Guide,
    visit: &mut dyn FnMut(Span<'_>) -> Result<()>,
) -> Result<()> {
    let size = walk.storage.len();
    let mut window = Window::new(walk.storage, walk.cx);
    let mut pace = walk.cx.pace();
    let mut resync = Resync::new(walk);
    // Filler after a chunk of records counts as part of it: a table knows only where the next chunk of records begins.
    let (mut at, mut after_records, mut found_by_search) = (0, false, false);
    let between = |range, after_records| if after_records { Span::Filler(range) } else { Span::Meta(range) };
    while at < size {
        pace.step(64)?;
        match guide.next(at)? {
            Next::Look => {}
            Next::End => return visit(Span::Meta(at..size)),
            Next::Pass(end) => {
                visit(between(at..end, after_records))?;
                at = end;
                continue;
            }
            Next::Trust(range, first_record, records) => {
                at = range.end;
                after_records = true;
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
                let next = if matches!(error.kind(), Kind::Truncated)
                    && !found_by_search
                    && is_cut(&mut window, at)?
                {
                    // The header is right, so everything up to the end belongs to a chunk that was cut off.
                    size
                } else {
                    resume(&mut resync, guide, at, &mut found_by_search)?
                };
                visit(Span::damage(at..next, error))?;
                at = next;
                continue;
            }
        };
        at = range.end;
        match look(walk, &mut window, guide, &header, range.clone()) {
            Ok((Found::Records(first_record), content)) => {
                after_records = true;
                found_by_search &= !content.as_ref().is_some_and(|content| content.chunk.has_block_header());
                visit(Span::Records(SoundChunk {
                    decoded_bytes: Some(header.decoded),
                    found_by_search,
                    content: content.as_ref().filter(|_| walk.wants_content()).map(|content| content as _),
                    ..chunk_of(range, first_record, header.records, None)
                }))?;
            }
            Ok((Found::Meta, _)) => {
                after_records = false;
                visit(Span::Meta(range))?;
            }
            Ok((Found::Filler, _)) => visit(between(range, after_records))?,
            Err(error) => {
                let error = damage(walk, guide, range.start, Some(&header), error)?;
                if found_by_search && resync.may_search_inside(&range) {
                    // The header may be part of a record, and may claim chunks that are sound.
                    at = resume(&mut resync, guide, range.start, &mut found_by_search)?;
                }
                visit(Span::damage(range.start..at, error))?;
            }
        }
    }
    Ok(())
}

/// Where the walk continues after damage at `damage`. Updates whether that place was found by search.
fn resume(
    resync: &mut Resync<'_>,
    guide: &mut dyn Guide,
    damage: u64,
    found_by_search: &mut bool,
) -> Result<u64> {
    if let Some(next) = guide.resume(damage)? {
        return Ok(next);
    }
    let next = resync.next_chunk(damage)?;
    *found_by_search = !next.is_certain;
    Ok(next.at)
}

/// Adds the offset and the first lost record to an error, for the walk to visit it as damage. Returns `Err` if the
/// error ends the walk.
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

/// A chunk without content. Its chunk header counts as structure. Block headers can lie anywhere in the rest, so they
/// count as records.
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

/// Whether there is a header with the right hash at `at`.
fn is_cut(window: &mut Window<'_>, at: u64) -> Result<bool> {
    Ok(Header::read(at, window.get_up_to("chunk header", at, HEADER_SPAN)?, true).is_ok())
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
    /// `None` if only the hash was checked, because the chunk is copied in its stored form.
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
    Err(Error::format("chunk does not hold as many records as its header says")
        .at(chunk.range.start)
        .expected(chunk.header.records)
        .found(decoded.rows()))
}

/// Reads and checks one chunk to the depth of the walk.
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
    if walk.salvages() && header.records == 0 && header.kind != kind::SIGNATURE {
        return Ok((Found::Filler, None));
    }
    if walk.is_headers_only() {
        let found = match header.kind {
            kind::SIGNATURE => Found::Meta,
            _ if header.records == 0 => Found::Filler,
            _ => verdict(guide.check_chunk(begin, header, None)?),
        };
        return Ok((found, None));
    }
    let stored = window.get("chunk", begin, range.end - begin)?;
    let chunk = ChunkView::read(begin, stored, walk.options.checksums)?;
    if walk.resumes {
        chunk.verify(walk.cx)?;
    }
    if walk.checks_unused {
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
            _ => verdict(guide.check_chunk(begin, header, decoded.as_ref())?),
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

/// Checks the header of a chunk against its kind and its offset.
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

fn zeros(storage: &dyn Storage, begin: u64, cx: &Cx<'_>) -> Result<bool> {
    if storage.len() - begin > BLOCK {
        return Ok(false);
    }
    let mut rest = vec![0; (storage.len() - begin) as usize];
    storage.read_at(begin, &mut rest, cx)?;
    Ok(rest.iter().all(|&byte| byte == 0))
}
