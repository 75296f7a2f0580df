//! The walk through a compressed file. Spans count bytes of the compressed file. The span of a record holds the bytes
//! that were unpacked to reach it. Records that were unpacked along with an earlier record have an empty span.

use super::frame::{self, AROUND};
use super::stream::{self, UnpackedStream};
use crate::codec::gzip::Wrapper;
use crate::error::{Error, Result};
use crate::format::walk::{OneRecord, SoundChunk, Span, Walk};
use std::ops::Range;

pub(super) fn walk(
    walk: &Walk<'_>,
    wrapper: Wrapper,
    mut stream: UnpackedStream<'_>,
    visit: &mut dyn FnMut(Span<'_>) -> Result<()>,
) -> Result<()> {
    let (size, packed) = (walk.storage.len(), packed(wrapper, walk.storage.len()));
    let mut pace = walk.cx.pace();
    visit(Span::Meta(0..packed.start))?;
    let (mut covered, mut record, mut records) = (packed.start, 0, 0u64);
    loop {
        pace.step(64)?;
        let whole = match next(&mut stream, walk) {
            Ok(Some(whole)) => whole,
            Ok(None) => break,
            // The walk cannot continue after damage in the stream, nor after a wrong length.
            Err(error) => return visit(Span::Damage(covered..size, walk.damage(error.for_record(record))?)),
        };
        let reached = stream.consumed().clamp(covered, packed.end);
        match data(&mut stream, whole, walk) {
            Ok(content) => {
                visit(Span::Records(SoundChunk {
                    range: covered..reached,
                    record_bytes: reached - covered,
                    first_record: record,
                    records: 1,
                    decoded_bytes: Some(whole - AROUND),
                    found_by_search: false,
                    detail: 0,
                    content: content.as_ref().map(|record| record as _),
                }))?;
                records += 1;
            }
            Err(error) => {
                let error: Error = stream::unpacked(error).for_record(record);
                visit(Span::Damage(covered..reached, walk.damage(error)?))?;
            }
        }
        if !walk.is_headers_only() {
            stream.take(whole as usize);
        }
        (covered, record) = (reached, record + 1);
    }
    let rest = covered..packed.end;
    visit(if records > 0 { Span::Filler(rest) } else { Span::Meta(rest) })?;
    visit(Span::Meta(packed.end..size))
}

/// The bytes of a file of `size` bytes that hold records: all except the header and the trailer of the stream.
pub(super) fn packed(wrapper: Wrapper, size: u64) -> Range<u64> {
    let (head, tail) = match wrapper {
        Wrapper::Gzip => (10, 8),
        Wrapper::Zlib => (2, 4),
    };
    let begin = size.min(head);
    begin..size.saturating_sub(tail).max(begin)
}

/// The size of the next record with its framing. `None` at the end. If the walk reads only headers, the record is taken
/// from the stream. Otherwise it stays in the buffer of the stream.
fn next(stream: &mut UnpackedStream<'_>, walk: &Walk<'_>) -> Result<Option<u64>> {
    let limit = walk.options.limits.decoded_chunk_bytes;
    let Some(length) = stream.next_length(walk.options.checksums, limit)? else { return Ok(None) };
    let (at, whole) = (stream.position(), length + AROUND);
    if walk.is_headers_only() {
        return stream::take_record(stream, length, |_| Ok(())).map(|()| Some(whole));
    }
    let found = stream.fill(whole)?.len() as u64;
    if found < whole { Err(stream::cut(at, length, found)) } else { Ok(Some(whole)) }
}

/// Verifies the record that [`next`] left in the buffer. Returns its data if the walk wants content.
fn data<'a>(
    stream: &'a mut UnpackedStream<'_>,
    whole: u64,
    walk: &Walk<'_>,
) -> Result<Option<OneRecord<'a>>> {
    if walk.is_headers_only() {
        return Ok(None);
    }
    let at = stream.position();
    let stored = stream.fill(whole)?;
    let stored = &stored[..stored.len().min(whole as usize)];
    let data = frame::data(stored, at, walk.options.checksums)?;
    Ok(walk.wants_content().then_some(OneRecord(data)))
}
