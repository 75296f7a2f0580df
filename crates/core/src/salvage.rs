//! Saves what can still be read from a damaged, truncated or unfinished file.
//!
//! | module | what |
//! |---|---|
//! | [`kind`] | which format a damaged file is of |
//! | [`chunks`] | decodes the chunks of an intact table in several threads |
//! | [`report`] | what was saved and what was skipped |
//! | [`unreadable`] | a disk that fails to read some of its blocks |
//!
//! If the table of a file is intact, its chunks are decoded independently of each other. Otherwise the walk of the format
//! visits the file from front to back, and searches for the next chunk after damage.

pub mod chunks;
pub mod kind;
pub mod report;
pub mod unreadable;

use crate::convert::{Progress, Shards};
use crate::cx::Cx;
use crate::error::{Error, Kind, Result};
use crate::format::walk::{SoundChunk, Span, Walk};
use crate::format::{Format, ReadOptions, SalvageTable};
use crate::storage::Storage;
use crate::writer::Writer;
use report::{Account, Report};
use std::ops::Range;
use unreadable::Readable;

/// Where the records go, and how they are found. The same for all files of a call.
pub struct Salvage<'a> {
    /// Where the records go. None: they are only counted.
    pub writer: Option<&'a mut Writer>,
    /// How shards are balanced.
    pub shards: Shards,
    /// Leave out records that were found by search.
    pub strict: bool,
    /// How many threads decode.
    pub threads: usize,
    /// The progress callback, with the bytes of all files so far.
    pub progress: Progress<'a>,
    /// Records saved so far, of all files.
    pub saved: u64,
    /// The bytes of the files before this one.
    pub before: u64,
}

impl Salvage<'_> {
    /// Writes every record of a file that can be saved, in order. Damage is in the report. Returns an error only if the
    /// format is not known, the file cannot be read at all, or the output fails.
    pub fn file(
        &mut self,
        storage: &dyn Storage,
        format: Option<&str>,
        options: &ReadOptions,
        cx: &Cx<'_>,
    ) -> Result<Report> {
        let storage = Readable::new(storage);
        let saved = kind::find(format, &storage, options, cx).and_then(|format| {
            let account = Account::new(format, &storage, self.strict);
            let mut file = File { salvage: self, storage: &storage, account };
            file.save(format, options, cx)?;
            Ok(file.account.finish())
        });
        let mut report = saved.map_err(|e| e.in_file(storage.name()))?;
        report.unreadable_bytes = storage.unreadable_bytes();
        self.before += storage.len();
        (self.progress)(self.before)?;
        Ok(report)
    }
}

/// A file that is being salvaged.
struct File<'f, 's> {
    salvage: &'f mut Salvage<'s>,
    storage: &'f dyn Storage,
    account: Account<'f>,
}

impl File<'_, '_> {
    fn save(&mut self, format: &Format, options: &ReadOptions, cx: &Cx<'_>) -> Result<()> {
        if format.salvage.table != SalvageTable::Unused {
            match (format.open)(self.storage, options, cx) {
                Ok(table) => return self.save_chunks(format, &*table, options, cx),
                Err(error) if error.is_from_outside() => return Err(error),
                Err(_) => {}
            }
        }
        self.save_by_walk(format, self.storage, (0, 0), options, cx)
    }

    /// Walks through a storage. `base` is the place of its first byte in the file, and the number of its first record.
    fn save_by_walk(
        &mut self,
        format: &Format,
        storage: &dyn Storage,
        base: (u64, u64),
        options: &ReadOptions,
        cx: &Cx<'_>,
    ) -> Result<()> {
        let mut pace = cx.pace();
        let walk = Walk::salvaging(storage, options, cx);
        (format.salvage.walk)(&walk, &mut |span| {
            pace.step(64)?;
            let range = span.range().start.saturating_add(base.0)..span.range().end.saturating_add(base.0);
            match span {
                Span::Records(chunk) => self.sound_chunk(&chunk, range.clone())?,
                Span::Damage(_, error) => {
                    let record = error.record().map(|record| record.saturating_add(base.1));
                    let mut error = error.moved_by(base.0);
                    if let Some(record) = record {
                        error = error.for_record(record);
                    }
                    self.account.skip(range.clone(), error);
                }
                _ => {}
            }
            self.progress(range.end)
        })
    }

    fn sound_chunk(&mut self, chunk: &SoundChunk<'_>, range: Range<u64>) -> Result<()> {
        let Some(content) = chunk.content else { return Ok(()) };
        let reached = range.end;
        if !self.account.sound(range, chunk.records, self.salvage.saved, chunk.found_by_search) {
            return Ok(());
        }
        content.rows(&mut |record| self.record(record, reached))
    }

    fn record(&mut self, record: &[u8], reached: u64) -> Result<()> {
        let Salvage { writer, shards, saved, .. } = &mut *self.salvage;
        if let Some(writer) = writer {
            shards.turn(*saved, writer)?;
            writer.write(record).map_err(|e| match e.kind() {
                // The output format cannot store this record.
                Kind::Argument => e.for_record(*saved),
                _ => e,
            })?;
        }
        *saved += 1;
        self.progress(reached)
    }

    fn progress(&mut self, reached: u64) -> Result<()> {
        (self.salvage.progress)(self.salvage.before + reached.min(self.storage.len()))
    }

    /// Counts damage that no walk has found.
    fn skip(&mut self, range: Range<u64>, error: Error) -> Result<()> {
        let reached = range.end;
        self.account.skip(range, error);
        self.progress(reached)
    }
}
