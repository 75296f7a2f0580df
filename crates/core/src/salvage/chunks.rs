//! Decodes the chunks of an intact table in several threads, and writes their records in order.

use super::File;
use crate::budget::{Budget, Held};
use crate::bytes;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::format::{Chunk, Decoded, Format, ReadOptions, SalvageTable, Table};
use crate::parallel;
use crate::storage::window::Window;
use crate::storage::{Distance, Storage};
use std::ops::Range;

/// About how many decoded bytes each thread holds.
const BYTES_PER_THREAD: u64 = 4 << 20;
/// The most chunks that are decoded together.
const MOST_CHUNKS: usize = 1 << 12;
/// Less work than this is done in the calling thread.
const WORTH_THREADS: u64 = 256 << 10;
/// Chunks of more bytes are read alone. If nothing proves their size, the walk reads them: it needs no memory for a false
/// claim.
const LARGE: u64 = 16 << 20;

/// A chunk in its stored form.
struct Stored {
    chunk: Chunk,
    bytes: Result<Vec<u8>>,
}

/// A decoded chunk, and its memory in the budget. None if the stored chunk could not be read.
type Ready<'b> = Option<Result<(Decoded, Held<'b>)>>;

impl File<'_, '_> {
    /// Saves the records of all chunks in a table.
    pub(super) fn save_chunks(
        &mut self,
        format: &Format,
        table: &dyn Table,
        options: &ReadOptions,
        cx: &Cx<'_>,
    ) -> Result<()> {
        let threads = self.salvage.threads.max(1);
        let most_bytes = BYTES_PER_THREAD * threads as u64;
        let mut window = Window::new(self.storage, cx);
        // The first chunk is decoded alone, to learn how many bytes a stored byte becomes.
        let (mut record, mut room) = (0, 1);
        while record < table.records() {
            let (chunk, _) = table.locate(record)?;
            if size(&chunk) > LARGE && format.salvage.table == SalvageTable::UncheckedChunks {
                self.save_part(format, &chunk, options, cx)?;
                record = after(&chunk);
                continue;
            }
            let (batch, next) = read_batch(table, &mut window, record, room)?;
            let stored: u64 = batch.iter().map(|item| size(&item.chunk)).sum();
            let workers = if stored < WORTH_THREADS { 1 } else { threads };
            let budget = cx.budget;
            let decoded =
                parallel::for_each(&batch, workers, cx, |item, cx| decode(table, item, budget, cx))?;
            record = next;
            let mut memory = 0;
            let is_alone = batch.len() == 1;
            for (item, ready) in batch.into_iter().zip(decoded) {
                match ready
                    .unwrap_or_else(|| item.bytes.and_then(|_| Err(Error::format("chunk is not decoded"))))
                {
                    Ok((decoded, held)) => {
                        memory += decoded.memory() as u64;
                        self.save_chunk(&item.chunk, &decoded)?;
                        drop(held);
                    }
                    Err(error) if cx.budget.is_exhausted(&error) && !is_alone => {
                        // Again without the others.
                        (record, memory) = (item.chunk.first_record, u64::MAX / 2);
                        break;
                    }
                    Err(error) => self.skip_chunk(format, &item.chunk, error, options, cx)?,
                }
            }
            let ratio = (memory / stored.max(1)).max(1);
            room = most_bytes / ratio;
        }
        Ok(())
    }

    fn save_chunk(&mut self, chunk: &Chunk, decoded: &Decoded) -> Result<()> {
        let reached = chunk.stored.end;
        if !self.account.sound(chunk.stored.clone(), chunk.records, self.salvage.saved, false) {
            return Ok(());
        }
        (0..chunk.records)
            .filter_map(|row| decoded.row(row))
            .try_for_each(|record| self.record(record, reached))
    }

    /// Skips a damaged chunk. If nothing proves its size, looks for others inside it.
    fn skip_chunk(
        &mut self,
        format: &Format,
        chunk: &Chunk,
        error: Error,
        options: &ReadOptions,
        cx: &Cx<'_>,
    ) -> Result<()> {
        if format.salvage.table == SalvageTable::UncheckedChunks {
            return self.save_part(format, chunk, options, cx);
        }
        let range = chunk.stored.clone();
        let error = error.for_record(chunk.first_record).at(range.start);
        self.skip(range, error)
    }

    /// Walks through the bytes of one chunk.
    fn save_part(
        &mut self,
        format: &Format,
        chunk: &Chunk,
        options: &ReadOptions,
        cx: &Cx<'_>,
    ) -> Result<()> {
        let part = Part { storage: self.storage, range: chunk.stored.clone() };
        self.save_by_walk(format, &part, (chunk.stored.start, chunk.first_record), options, cx)
    }
}

fn size(chunk: &Chunk) -> u64 {
    chunk.stored.end.saturating_sub(chunk.stored.start)
}

/// The record after a chunk.
fn after(chunk: &Chunk) -> u64 {
    chunk.first_record + chunk.records.max(1)
}

/// Decodes one chunk. Damage is in the result. An error says nothing about the file.
fn decode<'b>(table: &dyn Table, item: &Stored, budget: &'b Budget<'b>, cx: &Cx<'_>) -> Result<Ready<'b>> {
    let Ok(stored) = &item.bytes else { return Ok(None) };
    let decoded = table.decode(&item.chunk, stored, cx).and_then(|decoded| {
        let held = budget.hold(decoded.memory() as u64)?;
        Ok((decoded, held))
    });
    match decoded {
        Err(error) if error.is_from_outside() => Err(error),
        decoded => Ok(Some(decoded)),
    }
}

/// Reads chunks from `record` on, until they have `room` bytes. Returns also the record after them.
fn read_batch(
    table: &dyn Table,
    window: &mut Window<'_>,
    mut record: u64,
    room: u64,
) -> Result<(Vec<Stored>, u64)> {
    let (mut batch, mut read) = (Vec::new(), 0);
    while record < table.records() && (batch.is_empty() || read < room && batch.len() < MOST_CHUNKS) {
        let (chunk, _) = table.locate(record)?;
        let size = size(&chunk);
        if size > LARGE && !batch.is_empty() {
            break;
        }
        let cx = window.cx();
        let stored = match window.get("chunk", chunk.stored.start, size) {
            Ok(stored) => Ok(bytes::copied("chunk", stored, cx)?),
            Err(error) if error.is_from_outside() => return Err(error),
            Err(error) => Err(error),
        };
        read += size;
        record = after(&chunk);
        batch.push(Stored { chunk, bytes: stored });
    }
    Ok((batch, record))
}

/// A part of a file, as if it were a whole one.
struct Part<'a> {
    storage: &'a dyn Storage,
    range: Range<u64>,
}

impl Storage for Part<'_> {
    fn name(&self) -> &str {
        self.storage.name()
    }

    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn read_at(&self, at: u64, out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
        self.storage.read_at(self.range.start + at, out, cx)
    }

    fn distance(&self) -> Distance {
        self.storage.distance()
    }

    fn will_need(&self, ranges: &mut dyn Iterator<Item = Range<u64>>) {
        let base = self.range.start;
        self.storage.will_need(&mut ranges.map(|range| base + range.start..base + range.end));
    }

    fn unchanged(&self) -> Result<()> {
        self.storage.unchanged()
    }
}
