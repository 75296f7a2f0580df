//! All chunks, or all records, in order: one chunk in memory at a time.

use super::header::{Codec, HEADER, Header};
use super::payload;
use crate::bytes;
use crate::cx::Cx;
use crate::error::Result;
use crate::format::{Carried, Encoded, ReadOptions};
use crate::storage::{Storage, window::Window};

pub(super) fn scan(
    storage: &dyn Storage,
    options: &ReadOptions,
    cx: &Cx<'_>,
    visit: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    each_chunk(storage, cx, |at, header, stored, record| {
        let mut held = cx.budget.nothing();
        let unpacked =
            payload::unpack(header, stored, at, options, &mut held, cx).map_err(|e| e.for_record(record))?;
        // Nothing of a chunk is handed on before all of it is known to be right.
        payload::split(&unpacked, header.records, at, cx, |_| Ok(())).map_err(|e| e.for_record(record))?;
        payload::split(&unpacked, header.records, at, cx, |place| visit(&unpacked[place]))
    })
}

/// Visits the chunks as they are stored; those of another codec than `codec` come without their stored bytes.
pub(super) fn scan_chunks(
    storage: &dyn Storage,
    options: &ReadOptions,
    codec: Codec,
    cx: &Cx<'_>,
    visit: &mut dyn FnMut(Carried<'_>) -> Result<()>,
) -> Result<()> {
    each_chunk(storage, cx, |at, header, stored, record| {
        let same = header.codec == codec;
        if same {
            payload::check(header, stored, at, options, cx).map_err(|e| e.for_record(record))?;
        }
        let (head, body) = stored.split_at(HEADER as usize);
        let body = if same { bytes::copied("chunk", body, cx)? } else { Vec::new() };
        let encoded = same.then(|| Encoded {
            head: head.to_vec(),
            body,
            records: header.records.into(),
            ..Encoded::default()
        });
        let decode = || {
            let decoded = payload::decode(header, stored, at, options, cx);
            decoded.map_err(|e| e.for_record(record))
        };
        visit(Carried { encoded, records: header.records.into(), decode: &decode })
    })
}

/// Calls `each` with where a chunk begins, its header, all of its bytes, and the number of its first record.
fn each_chunk(
    storage: &dyn Storage,
    cx: &Cx<'_>,
    mut each: impl FnMut(u64, &Header, &[u8], u64) -> Result<()>,
) -> Result<()> {
    let size = storage.len();
    let mut window = Window::new(storage, cx);
    let (mut at, mut record) = (0, 0u64);
    while at < size {
        let head = window.get("chunk header", at, HEADER.min(size - at))?;
        let header = Header::parse(head, at, size).map_err(|e| e.for_record(record))?;
        each(at, &header, window.get("chunk", at, header.stored())?, record)?;
        record += u64::from(header.records);
        at += header.stored();
    }
    Ok(())
}
