//! The bytes of any file, for copying it. It is no format of files: what it reads as records are pieces of a file, and
//! what it writes are these pieces, one after the other.

use super::encode::{EncodeJob, Encoder, Group, GroupEncoder};
use super::walk::{OneRecord, SoundChunk, Span, Walk};
use super::{Format, Probe, Salvage, SalvageTable};
use crate::error::{Error, Result};
use crate::storage::output::Output;
use crate::storage::window::Window;
use std::sync::Arc;

/// The size of a piece. It fits into the processor's cache.
const PIECE: u64 = 1 << 20;

/// Files as they are. [`detect`](super::detect) finds it only by its name, which is no name for users.
pub const WHOLE: Format = Format {
    name: "_whole",
    suffixes: &[],
    probe: |_, _, _| Ok(Probe::No),
    has_table_at_end: false,
    open: |_, _, _| Err(Error::argument("a file that is only copied has no records")),
    open_indexed: None,
    walk,
    salvage: Salvage { walk, table: SalvageTable::Unused },
    encoder: |_| Ok(Box::new(Whole)),
};

fn walk(walk: &Walk<'_>, visit: &mut dyn FnMut(Span<'_>) -> Result<()>) -> Result<()> {
    let mut window = Window::new(walk.storage, walk.cx);
    for (number, begin) in (0..window.size()).step_by(PIECE as usize).enumerate() {
        let piece = window.get_up_to("piece", begin, PIECE)?;
        let size = piece.len() as u64;
        visit(Span::Records(SoundChunk {
            range: begin..begin + size,
            record_bytes: size,
            first_record: number as u64,
            records: 1,
            decoded_bytes: Some(size),
            found_by_search: false,
            detail: 0,
            content: Some(&OneRecord(piece)),
        }))?;
    }
    // A local file that was changed meanwhile would be a mixture.
    walk.storage.unchanged()
}

struct Whole;

impl Encoder for Whole {
    fn start(&mut self, _out: &mut dyn Output) -> Result<()> {
        Ok(())
    }

    fn push(&mut self, piece: &[u8]) -> Result<Option<Group>> {
        let mut group = Group::default();
        group.push(piece)?;
        Ok(Some(group))
    }

    fn flush(&mut self) -> Option<Group> {
        None
    }

    fn compresses(&self) -> bool {
        false
    }

    fn finish(&mut self, _out: &mut dyn Output) -> Result<()> {
        Ok(())
    }
}

impl GroupEncoder for Whole {
    type Encoded = Vec<u8>;

    fn job(&self) -> EncodeJob<Vec<u8>> {
        Arc::new(|group| Ok(group.bytes))
    }

    fn place(&mut self, piece: Vec<u8>, out: &mut dyn Output) -> Result<()> {
        out.write_all(&piece)
    }
}
