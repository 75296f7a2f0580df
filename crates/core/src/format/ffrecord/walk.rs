//! Visits every byte of a file in order: the table, unused bytes after it, and each sample.

use super::table::Samples;
use crate::error::{Error, Result};
use crate::format::walk::{OneRecord, SoundChunk, Span, Walk};
use crate::storage::window::Window;
use std::ops::Range;

pub(super) fn walk(walk: &Walk<'_>, visit: &mut dyn FnMut(Span<'_>) -> Result<()>) -> Result<()> {
    let size = walk.storage.len();
    let (samples, header) = match Samples::read(walk.storage, walk.options.checksums, walk.cx) {
        Ok(read) => read,
        Err(error) => return visit(Span::damage(0..size, walk.damage(error)?)),
    };
    let tables = 0..samples.data_begin();
    visit_tables(walk, &samples, tables, header, visit)?;
    visit_samples(walk, &samples, samples.n(), visit)
}

/// Visits the samples where the tables say that they are. Those from `found` on were found by search.
pub(super) fn visit_samples(
    walk: &Walk<'_>,
    samples: &Samples,
    found: u64,
    visit: &mut dyn FnMut(Span<'_>) -> Result<()>,
) -> Result<()> {
    let size = walk.storage.len();
    let mut window = Window::new(walk.storage, walk.cx);
    let mut pace = walk.cx.pace();
    let (mut reached, mut lost) = (samples.data_begin(), None::<Error>);
    for sample in 0..samples.n() {
        pace.step(64)?;
        let range = match samples.range_after(sample, reached) {
            Ok(range) => range,
            Err(error) => {
                lost.get_or_insert(error);
                continue;
            }
        };
        let before = reached..range.start;
        match lost.take() {
            Some(error) => visit(Span::damage(before, error))?,
            // The format allows the samples to begin anywhere after the table.
            None if !before.is_empty() => visit(Span::Unused(before))?,
            None => {}
        }
        reached = range.end;
        visit_sample(walk, samples, &mut window, sample, range, sample >= found, visit)?;
    }
    lost.map_or(Ok(()), |error| visit(Span::damage(reached..size, error)))
}

/// Visits the tables. Damage in them belongs to no sample. The walk finds the lost samples later, when it visits each
/// sample.
fn visit_tables(
    walk: &Walk<'_>,
    samples: &Samples,
    tables: Range<u64>,
    header: Result<()>,
    visit: &mut dyn FnMut(Span<'_>) -> Result<()>,
) -> Result<()> {
    if let Err(error) = header {
        return visit(Span::damage(tables, walk.damage(error)?));
    }
    let Err(error) = samples.check_offsets(walk.cx) else { return visit(Span::Meta(tables)) };
    let error = walk.damage(error)?;
    // The bytes of the table are unchanged since they were written. Either they hold a wrong offset, or the file was
    // cut.
    let entry = error.offset().unwrap_or(tables.end).min(tables.end);
    visit(Span::Meta(0..entry))?;
    visit(Span::damage(entry..entry, error))?;
    visit(Span::Meta(entry..tables.end))
}

pub(super) fn visit_sample(
    walk: &Walk<'_>,
    samples: &Samples,
    window: &mut Window<'_>,
    sample: u64,
    range: Range<u64>,
    found_by_search: bool,
    visit: &mut dyn FnMut(Span<'_>) -> Result<()>,
) -> Result<()> {
    let bytes = range.end - range.start;
    let mut hash = crc32fast::Hasher::new();
    let mut whole = None;
    if walk.wants_content() {
        let sample = window.get("sample", range.start, bytes)?;
        hash.update(sample);
        whole = Some(OneRecord(sample));
    } else if !walk.is_headers_only() {
        window.pieces("sample", range.start, bytes, |piece| hash.update(piece))?;
    }
    if !walk.is_headers_only()
        && let Err(error) = samples.check_hash(sample, hash.finalize())
    {
        return visit(Span::damage(range, walk.damage(error.for_record(sample))?));
    }
    visit(Span::Records(SoundChunk {
        range,
        record_bytes: bytes,
        first_record: sample,
        records: 1,
        decoded_bytes: Some(bytes),
        found_by_search,
        detail: 0,
        content: whole.as_ref().map(|record| record as _),
    }))
}
