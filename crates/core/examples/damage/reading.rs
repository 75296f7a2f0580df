//! One byte is changed: reading gives an error or the same records.

use crate::calls;
use crate::patched::Patched;
use crate::whole::{Unit, Whole};
use anyrecord::storage::Storage;
use anyrecord::storage::memory::Memory;
use anyrecord::{Error, Reader};
use std::sync::Arc;

/// Of the records of a damaged chunk, this many are read one by one.
const SINGLES: usize = 8;
/// Of the records of a chunk, this many are read first. Mostly that is an error, and then there is no need to read all.
const FIRST: usize = 64;
/// If every byte is changed, and a chunk of more records can be read all the same, all of them are read for one change in
/// [`IN_TURN`]. Otherwise the check would take hours.
const MANY: usize = 1000;
const IN_TURN: u64 = 16;

/// Reads one file, over and over, with one byte changed.
pub struct ReadCheck<'w> {
    whole: &'w Whole,
    /// Whether every byte is changed, and not only some.
    is_all: bool,
    storage: Arc<Patched>,
    /// A reader that was opened before the byte is changed.
    reader: Option<Reader>,
    /// How many changes moved the numbers of RecordIO records, which no reader can see before the chunk is read.
    pub renumbered: u64,
}

impl<'w> ReadCheck<'w> {
    /// Opens the whole file.
    pub fn new(whole: &'w Whole, is_all: bool) -> Self {
        let storage = Arc::new(whole.patched());
        let reader = whole
            .units
            .as_ref()
            .and_then(|_| whole.formats.iter().find_map(|&format| calls::open(storage.clone(), format).ok()));
        ReadCheck { whole, is_all, storage, reader, renumbered: 0 }
    }

    /// What is wrong with reading the file while the byte at `at` is `byte`.
    pub fn violation(&mut self, at: u64, byte: u8) -> Option<String> {
        self.storage.change(at, byte);
        if !self.whole.matters_to_open(at) {
            let reader = self.reader.as_ref()?;
            return self.whole.units_at(at).find_map(|unit| self.wrong_in(reader, unit, at));
        }
        let formats = self.whole.formats.clone();
        for (turn, format) in formats.into_iter().enumerate() {
            // A small file is opened in each way, from memory and by reads. A large one in turns, byte by byte.
            let found = match self.whole.is_small() {
                true if turn == 0 => self.reopened(self.memory(at, byte), format, at),
                true => self.reopened(self.storage.clone(), format, at),
                false if self.whole.formats.len() > 1 && (at + u64::from(byte)) % 2 != turn as u64 => None,
                false => self.reopened(self.storage.clone(), format, at),
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn memory(&self, at: u64, byte: u8) -> Arc<dyn Storage> {
        let mut bytes = Vec::clone(&self.whole.bytes);
        bytes[at as usize] = byte;
        Arc::new(Memory::new(self.whole.name.clone(), bytes))
    }

    /// Opens the changed file and reads it.
    fn reopened(&mut self, storage: Arc<dyn Storage>, format: Option<&str>, at: u64) -> Option<String> {
        let reader = match calls::open(storage, format) {
            Ok(reader) => reader,
            Err(error) => return self.silence(&error, None),
        };
        if self.whole.units.is_none() {
            return self.wrong_error(&reader);
        }
        if reader.len() == self.whole.records.len() as u64 {
            return self
                .whole
                .units_to_read(at)
                .into_iter()
                .find_map(|unit| self.wrong_in(&reader, unit, at));
        }
        // No checksum covers the number of records in the header of a RecordIO chunk. Whoever reads the records in
        // order gets the right ones, up to an error at that chunk.
        self.renumbered += 1;
        match (0..reader.len()).find_map(|index| match calls::read(&reader, index) {
            Err(error) => Some(self.silence(&error, Some(index))),
            Ok(record) => self.wrong_record(index, &record).map(Some),
        }) {
            Some(violation) if reader.shards()[0].format() == "recordio" => violation,
            None if self.was_damaged() => None,
            _ => Some(format!("{} records and no error", reader.len())),
        }
    }

    /// A file that could not be opened before it was changed has no records to compare with.
    fn wrong_error(&self, reader: &Reader) -> Option<String> {
        (0..reader.len().min(300)).find_map(|index| match calls::read(reader, index) {
            Ok(_) => None,
            Err(error) => self.silence(&error, Some(index)),
        })
    }

    /// Reads the records of a unit: together, and one by one if there is an error. All of them, if the unit has the
    /// changed byte and can be read all the same.
    fn wrong_in(&self, reader: &Reader, unit: &Unit, at: u64) -> Option<String> {
        let all: Vec<u64> = unit.records.clone().collect();
        let some: Vec<u64> = all.iter().copied().step_by(all.len().div_ceil(FIRST)).collect();
        let Ok(records) = calls::read_together(reader, &some) else {
            return some.iter().step_by(some.len().div_ceil(SINGLES)).find_map(|&index| {
                match calls::read(reader, index) {
                    Ok(record) => self.wrong_record(index, &record),
                    Err(error) => self.silence(&error, Some(index)),
                }
            });
        };
        self.wrong_records(&some, &records).or_else(|| {
            let is_its_turn = !self.is_all || all.len() <= MANY || at.is_multiple_of(IN_TURN);
            if some.len() == all.len() || !unit.stored.contains(&at) || !is_its_turn {
                return None;
            }
            match calls::read_together(reader, &all) {
                Ok(records) => self.wrong_records(&all, &records),
                Err(error) => Some(format!("an error for some records of a chunk only: {error}")),
            }
        })
    }

    /// Whether a record could not be read before the file was changed. A change can repair such a file.
    fn was_damaged(&self) -> bool {
        self.whole.records.iter().any(Option::is_none)
    }

    fn wrong_records(&self, indices: &[u64], records: &[Vec<u8>]) -> Option<String> {
        indices.iter().zip(records).find_map(|(&index, record)| self.wrong_record(index, record))
    }

    fn wrong_record(&self, index: u64, found: &[u8]) -> Option<String> {
        match self.whole.records.get(index as usize) {
            Some(Some(record)) if record != found => Some(format!("record {index} is another one")),
            Some(_) => None,
            None if self.was_damaged() => None,
            None => Some(format!("record {index} does not exist")),
        }
    }

    /// What the error does not say.
    fn silence(&self, error: &Error, record: Option<u64>) -> Option<String> {
        calls::due(error, &self.whole.name, record).map(|missing| format!("an error {missing}: {error}"))
    }
}
