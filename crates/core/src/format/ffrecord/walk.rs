//! Every byte of a file, in order: the table, what lies unused behind it, and each sample.

use super::table::{Samples, mismatch};
use crate::cx::Cx;
use crate::error::Result;
use crate::format::{ReadOptions, Span};
use crate::storage::{Storage, window::Window};

pub(super) fn walk(
    storage: &dyn Storage,
    options: &ReadOptions,
    cx: &Cx<'_>,
    visit: &mut dyn FnMut(Span) -> Result<()>,
) -> Result<()> {
    let size = storage.len();
    let (samples, header) = match Samples::read(storage, options.checksums, cx) {
        Ok(read) => read,
        Err(error) => return visit(Span::Damage(0..size, error)),
    };
    let tables = 0..samples.data_begin();
    visit(match header {
        Ok(()) => Span::Meta(tables.clone()),
        Err(error) => Span::Damage(tables.clone(), error),
    })?;
    let data_begin = if samples.n() > 0 { samples.range(0).start } else { tables.end };
    if data_begin > tables.end {
        visit(Span::Unused(tables.end..data_begin))?;
    }
    let mut window = Window::new(storage, cx);
    for sample in 0..samples.n() {
        let range = samples.range(sample);
        let bytes = range.end - range.start;
        let mut hash = crc32fast::Hasher::new();
        window.pieces("sample", range.start, bytes, |piece| hash.update(piece))?;
        let (stored, computed) = (samples.checksum(sample), hash.finalize());
        visit(if stored == computed || !options.checksums {
            Span::Records { range, records: 1, bytes }
        } else {
            let at = range.start;
            Span::Damage(range, mismatch(at, stored, computed).for_record(sample))
        })?;
    }
    Ok(())
}
