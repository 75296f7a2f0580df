//! All records in order, one chunk in memory at a time.

use super::header::{HEADER, Header};
use super::payload;
use crate::error::Result;
use crate::format::ReadOptions;
use crate::storage::{Storage, window::Window};

pub(super) fn scan(
    storage: &dyn Storage,
    options: &ReadOptions,
    visit: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let size = storage.len();
    let mut window = Window::new(storage);
    let (mut at, mut record) = (0, 0u64);
    while at < size {
        let head = window.get("chunk header", at, HEADER.min(size - at))?;
        let header = Header::parse(head, at, size).map_err(|e| e.for_record(record))?;
        let stored = window.get("chunk", at, header.stored())?;
        let unpacked = payload::unpack(&header, stored, at, options).map_err(|e| e.for_record(record))?;
        // Nothing of a chunk is handed on before all of it is known to be right.
        payload::split(&unpacked, header.records, at, |_| Ok(())).map_err(|e| e.for_record(record))?;
        payload::split(&unpacked, header.records, at, |place| visit(&unpacked[place]))?;
        record += u64::from(header.records);
        at += header.stored();
    }
    Ok(())
}
