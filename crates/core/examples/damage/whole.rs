//! A file before it is damaged: its records, and which bytes each of them is read from.

use crate::calls;
use crate::patched::Patched;
use anyrecord::format::{Way, detect};
use anyrecord::{Reader, Result};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A file of at most this many bytes is opened again after each change, and all of it is read.
const SMALL: usize = 4096;
/// A file of at most this many records and decoded bytes is read whole when it was opened again.
const FEW_RECORDS: u64 = 300;
const FEW_BYTES: usize = 64 << 10;

/// The file.
pub struct Whole {
    pub name: String,
    pub bytes: Arc<Vec<u8>>,
    /// The formats that it is opened as. None: the one that is detected.
    pub formats: Vec<Option<&'static str>>,
    /// The records. None for one that cannot be read.
    pub records: Vec<Option<Vec<u8>>>,
    /// None if the file cannot be opened.
    pub units: Option<Vec<Unit>>,
    /// For each byte, whether opening the file reads it.
    opened: Vec<bool>,
}

/// Records that are stored together.
pub struct Unit {
    pub stored: Range<u64>,
    pub records: Range<u64>,
}

impl Whole {
    /// Reads a file. `format` is its format, if it is not the one that its name tells.
    pub fn new(path: &Path, format: Option<&'static str>) -> std::io::Result<Self> {
        let name = path.to_string_lossy().into_owned();
        let bytes = Arc::new(std::fs::read(path)?);
        let formats = match format {
            Some(format) => vec![Some(format)],
            None => {
                let suffix = detect::by_suffix(&name.replace(".gz", "").replace(".zlib", ""));
                vec![None, suffix.map(|format| format.name)]
            }
        };
        let mut opened = vec![false; bytes.len()];
        let mut whole = Whole { name, bytes, formats, records: Vec::new(), units: None, opened: Vec::new() };
        for format in whole.formats.clone() {
            let storage = Arc::new(whole.patched());
            let (reader, read) = storage.noting(|| calls::open(storage.clone(), format));
            read.iter().for_each(|read| opened[read.start as usize..read.end as usize].fill(true));
            if let Ok(reader) = reader {
                let units = whole.units_of(&reader, &storage);
                whole.records = records_of(&reader, &units);
                if reader.shards()[0].format() == "recordio" {
                    whole.forget_moved_records();
                }
                whole.units = Some(units);
            }
        }
        whole.opened = opened;
        Ok(whole)
    }

    /// Forgets the records behind the first one that cannot be read. The count in the header of its chunk may be the
    /// damage. Then the records behind it have wrong numbers, and right ones after a change that repairs the count.
    fn forget_moved_records(&mut self) {
        let readable = self.records.iter().take_while(|record| record.is_some()).count();
        self.records[readable..].fill(None);
    }

    /// Its bytes, to be changed.
    pub fn patched(&self) -> Patched {
        Patched::new(&self.name, self.bytes.clone())
    }

    /// The length of the file.
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether everything is tried with each change.
    pub fn is_small(&self) -> bool {
        self.bytes.len() <= SMALL
    }

    /// Whether a change of this byte can change what opening the file gives. Opening is a function of the bytes it
    /// reads, so a byte that it does not read cannot matter.
    pub fn matters_to_open(&self, at: u64) -> bool {
        self.is_small() || self.units.is_none() || self.opened[at as usize]
    }

    /// The units that are read from this byte.
    pub fn units_at(&self, at: u64) -> impl Iterator<Item = &Unit> {
        self.units.iter().flatten().filter(move |unit| unit.stored.contains(&at))
    }

    /// The units to read after the changed file was opened: all if they are few, else those of the changed byte, and
    /// another one in turn. The table was read from changed bytes and passed its checks, so any record may be another one.
    pub fn units_to_read(&self, at: u64) -> Vec<&Unit> {
        let units = self.units.as_deref().unwrap_or_default();
        let bytes: usize = self.records.iter().flatten().map(Vec::len).sum();
        if self.is_small() || self.records.len() as u64 <= FEW_RECORDS && bytes <= FEW_BYTES {
            return units.iter().collect();
        }
        let other = units.get(at as usize % units.len().max(1));
        self.units_at(at).chain(other).collect()
    }

    /// Which records are stored together, and where. Reading a record reads no byte outside its unit: that is checked.
    fn units_of(&self, reader: &Reader, storage: &Patched) -> Vec<Unit> {
        let table = &reader.shards()[0].opened_source().expect("it was opened just now").table;
        let mut units = Vec::new();
        let mut record = 0;
        while record < reader.len() {
            let Ok(way) = table.way(record) else { break };
            // A compressed stream is unpacked when it is opened, and not read again. Each record depends on all of it.
            let is_unpacked = matches!(&way, Way::Alone { stored, .. } if stored.is_empty());
            let unit = match way {
                _ if is_unpacked => Unit { stored: 0..self.len(), records: record..record + 1 },
                Way::Plain { stored, .. } | Way::Alone { stored, .. } => {
                    Unit { stored, records: record..record + 1 }
                }
                Way::Shared(chunk, _) => {
                    Unit { stored: chunk.stored, records: record..record + chunk.records }
                }
            };
            record = unit.records.end.max(record + 1);
            let (_, read) = storage.noting(|| calls::read(reader, unit.records.start));
            let is_inside =
                |read: &Range<u64>| unit.stored.start <= read.start && read.end <= unit.stored.end;
            assert!(read.iter().all(is_inside), "{}: {read:?} is outside {:?}", self.name, unit.stored);
            units.push(unit);
        }
        units
    }
}

fn records_of(reader: &Reader, units: &[Unit]) -> Vec<Option<Vec<u8>>> {
    units.iter().flat_map(|unit| read_unit(reader, unit)).map(Result::ok).collect()
}

/// The records of a unit: together, or one by one if that fails.
pub fn read_unit(reader: &Reader, unit: &Unit) -> Vec<Result<Vec<u8>>> {
    let indices: Vec<u64> = unit.records.clone().collect();
    match calls::read_together(reader, &indices) {
        Ok(records) => records.into_iter().map(Ok).collect(),
        Err(_) => indices.iter().map(|&index| calls::read(reader, index)).collect(),
    }
}
