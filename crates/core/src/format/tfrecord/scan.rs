//! All records in order, one in memory at a time.

use super::frame::{self, AROUND, HEADER};
use super::stream::{self, Stream};
use super::table;
use crate::cx::Cx;
use crate::error::Result;
use crate::format::ReadOptions;
use crate::storage::{Storage, window::Window};

pub(super) fn scan(
    storage: &dyn Storage,
    options: &ReadOptions,
    cx: &Cx<'_>,
    visit: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    if let (Some(wrapper), _) = stream::wrapper(storage, cx)? {
        return scan_stream(&mut Stream::new(storage, wrapper, cx), options, visit);
    }
    let size = storage.len();
    let mut window = Window::new(storage, cx);
    let (mut at, mut record) = (0, 0);
    while at < size {
        let head = window.get("record header", at, HEADER.min(size - at))?;
        let length = frame::length(head, at, options.checksums).map_err(|e| e.for_record(record))?;
        let end = frame::end(length, at, size).map_err(|e| e.for_record(record))?;
        let stored = window.get("record", at, end - at)?;
        visit(frame::data(stored, at, options.checksums).map_err(|e| e.for_record(record))?)?;
        (at, record) = (end, record + 1);
    }
    Ok(())
}

/// How many records there are, from their headers alone.
pub(super) fn count(storage: &dyn Storage, options: &ReadOptions, cx: &Cx<'_>) -> Result<u64> {
    let mut records = 0;
    if let (Some(wrapper), _) = stream::wrapper(storage, cx)? {
        scan_stream(&mut Stream::new(storage, wrapper, cx), options, &mut |_| {
            records += 1;
            Ok(())
        })?;
        return Ok(records);
    }
    let (mut window, mut at) = (Window::new(storage, cx), 0);
    while at < storage.len() {
        let end = table::read_end(&mut window, at, storage.len(), options.checksums);
        (at, records) = (end.map_err(|e| e.for_record(records))?, records + 1);
    }
    Ok(records)
}

fn scan_stream(
    stream: &mut Stream<'_>,
    options: &ReadOptions,
    visit: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut record = 0;
    while let Some(whole) = next(stream, options).map_err(|e| e.for_record(record))? {
        let at = stream.position();
        let stored = &stream.fill(whole as u64)?[..whole];
        let data = frame::data(stored, at, options.checksums);
        visit(data.map_err(|e| stream::unpacked(e).for_record(record))?)?;
        stream.take(whole);
        record += 1;
    }
    Ok(())
}

/// The size of the next record and all that is around it, filled; none at the end.
pub(super) fn next(stream: &mut Stream<'_>, options: &ReadOptions) -> Result<Option<usize>> {
    let limit = options.limits.decoded_chunk_bytes;
    let Some(length) = stream.next_length(options.checksums, limit)? else { return Ok(None) };
    let (at, whole) = (stream.position(), length + AROUND);
    let found = stream.fill(whole)?.len() as u64;
    if found < whole { Err(stream::cut(at, length, found)) } else { Ok(Some(whole as usize)) }
}
