//! All chunks, or all records, in order. The footer is read as it goes, so that no table is kept.

use super::footer::{Footer, Place};
use super::settings::Settings;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::format::riegeli::chunk::{ChunkView, kind};
use crate::format::{Carried, Decoded, Encoded, ReadOptions};
use crate::storage::{Storage, window::Window};

/// Visits all records.
pub(super) fn scan(
    storage: &dyn Storage,
    options: &ReadOptions,
    cx: &Cx<'_>,
    visit: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let place = Place::find(storage, options, cx)?;
    let footer = Footer::open(storage, place, options, cx)?;
    each_chunk(storage, footer, place, options, cx, |chunk, record| {
        let decoded = decode(chunk, record, cx)?;
        (0..chunk.header.records).filter_map(|row| decoded.row(row)).try_for_each(&mut *visit)
    })
}

/// Visits all chunks as they are stored, if they were made with the same settings but for the padding between them.
pub(super) fn scan_chunks(
    storage: &dyn Storage,
    options: &ReadOptions,
    settings: &Settings,
    cx: &Cx<'_>,
    visit: &mut dyn FnMut(Carried<'_>) -> Result<()>,
) -> Result<bool> {
    let place = Place::find(storage, options, cx)?;
    let footer = Footer::open(storage, place, options, cx)?;
    if !footer.metadata.options.as_deref().is_some_and(|text| settings.encode_like(text)) {
        return Ok(false);
    }
    let wanted = if settings.transpose.is_some() { kind::TRANSPOSED } else { kind::SIMPLE };
    each_chunk(storage, footer, place, options, cx, |chunk, record| {
        let header = chunk.header;
        chunk.verify(cx).map_err(|e| e.for_record(record))?;
        let encode = || {
            let (head, body) = (header.to_bytes().to_vec(), chunk.copied(0..header.data_size, cx)?);
            let ends = vec![head.len(), body.len()];
            let (records, decoded_bytes) = (header.records, header.decoded);
            Ok(Encoded { head, body, ends, records, decoded_bytes, hash: 0 })
        };
        let encoded = (header.kind == wanted).then(encode).transpose()?;
        visit(Carried { encoded, records: header.records, decode: &|| decode(chunk, record, cx) })
    })?;
    Ok(true)
}

fn decode(chunk: &ChunkView<'_>, record: u64, cx: &Cx<'_>) -> Result<Decoded> {
    let decoded = chunk.decode(cx).map_err(|e| e.for_record(record))?;
    if decoded.rows() as u64 == chunk.header.records {
        return Ok(decoded);
    }
    Err(wrong_count(chunk, record, chunk.header.records, decoded.rows() as u64))
}

fn wrong_count(chunk: &ChunkView<'_>, record: u64, expected: u64, found: u64) -> Error {
    Error::format("chunk does not hold as many records as it should")
        .at(chunk.range.start)
        .for_record(record)
        .expected(expected)
        .found(found)
}

/// Calls `each` with every chunk and the number of its first record.
fn each_chunk(
    storage: &dyn Storage,
    mut footer: Footer<'_>,
    place: Place,
    options: &ReadOptions,
    cx: &Cx<'_>,
    mut each: impl FnMut(&ChunkView<'_>, u64) -> Result<()>,
) -> Result<()> {
    let mut window = Window::new(storage, cx);
    let (mut next, mut record) = (footer.next_entry()?, 0u64);
    while let Some(entry) = next {
        next = footer.next_entry()?;
        let end = next.as_ref().map_or(place.footer, |next| next.offset);
        let Some(stored) = end.checked_sub(entry.offset).filter(|&stored| stored > 0) else {
            return Err(Error::format("ArrayRecord footer is inconsistent: chunk offsets do not increase")
                .at(place.footer)
                .found(end));
        };
        let stored = window.get("chunk", entry.offset, stored)?;
        let chunk =
            ChunkView::read(entry.offset, stored, options.checksums).map_err(|e| e.for_record(record))?;
        if chunk.header.records != entry.records || entry.records == 0 {
            return Err(wrong_count(&chunk, record, entry.records, chunk.header.records));
        }
        each(&chunk, record)?;
        record = record.saturating_add(entry.records);
    }
    if record == footer.metadata.records {
        return Ok(());
    }
    Err(Error::format("ArrayRecord footer is inconsistent: chunks do not add up to the records")
        .at(place.footer)
        .expected(format_args!("{} records", footer.metadata.records))
        .found(record))
}
