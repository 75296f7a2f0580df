//! Reading on through damage: a batch without its damaged records, and the neighbour that can take the place of one.
//!
//! A batch is read in the usual way first, so damage costs nothing where there is none. If that fails, the batch is
//! halved until the damaged parts are found. What is damaged is remembered, and not read again.

use super::batch::BLOCK;
use super::row::row_of;
use super::{Deliver, PlannedRead, Reader};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::format::{Chunk, Way};
use crate::process::PerProcess;
use crate::ranges::RangeSet;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// How many errors are remembered. The records of further damage are read, and fail, each time they are wanted.
const ERRORS_KEPT: usize = 10_000;

/// Records that cannot be read, for one reason: the records of a chunk, or one record.
#[derive(Debug)]
pub struct Damage {
    /// Their numbers in the reader.
    pub records: Range<u64>,
    /// The error of one of them.
    pub error: Error,
}

/// A record of a batch that cannot be read.
#[derive(Clone, Debug)]
pub struct Lost {
    /// Its position in the batch.
    pub position: usize,
    /// Its number in the reader.
    pub record: u64,
    /// What is damaged.
    pub damage: Arc<Damage>,
}

impl Lost {
    /// The error of this record.
    pub fn error(&self) -> Error {
        self.damage.error.copy_for_record(self.record)
    }
}

/// The damage that reads have met so far.
#[derive(Default)]
pub(super) struct KnownDamage {
    /// Whether there is any.
    is_any: AtomicBool,
    found: PerProcess<Found>,
}

#[derive(Default)]
struct Found {
    /// By the first record. They do not overlap.
    errors: BTreeMap<u64, Arc<Damage>>,
    /// All damaged records.
    records: RangeSet,
}

impl Found {
    fn of(&self, record: u64) -> Option<Arc<Damage>> {
        let (_, damage) = self.errors.range(..=record).next_back()?;
        damage.records.contains(&record).then(|| damage.clone())
    }
}

impl KnownDamage {
    fn of(&self, record: u64) -> Option<Arc<Damage>> {
        self.found.with(|found| found.of(record))
    }

    fn end_of_run(&self, record: u64) -> Option<u64> {
        self.found.with(|found| found.records.end_of(record))
    }

    fn note(&self, records: Range<u64>, error: Error) -> Arc<Damage> {
        let damage = Arc::new(Damage { records, error });
        self.found.with(|found| {
            found.records.insert(damage.records.clone());
            if found.errors.len() < ERRORS_KEPT {
                found.errors.insert(damage.records.start, damage.clone());
            }
        });
        self.is_any.store(true, Relaxed);
        damage
    }
}

/// A batch that is read in parts.
struct Parts<'a> {
    indices: &'a [u64],
    out: &'a mut dyn Deliver,
    lost: Vec<Lost>,
}

impl Parts<'_> {
    fn lose(&mut self, position: usize, damage: &Arc<Damage>) {
        self.lost.push(Lost { position, record: self.indices[position], damage: damage.clone() });
    }
}

/// Delivers a part of a batch to its positions in the batch.
struct Moved<'a> {
    out: &'a mut dyn Deliver,
    positions: &'a [usize],
}

impl Deliver for Moved<'_> {
    fn reserve(&mut self, wanted: &[(usize, usize)]) -> Result<Vec<&mut [u8]>> {
        let moved: Vec<_> = wanted.iter().map(|&(position, size)| (self.positions[position], size)).collect();
        self.out.reserve(&moved)
    }

    fn forget(&mut self, position: usize) {
        self.out.forget(self.positions[position]);
    }
}

/// Records that are stored together, and their positions in a batch: `(records of the chunk, position)`, sorted.
type Unit<'a> = &'a [(Range<u64>, usize)];

impl Reader {
    /// Reads like [`read_batch`](Self::read_batch), and goes on at damage. Returns the records that could not be read,
    /// in the order of the batch. All others are delivered.
    ///
    /// Damage is an error of [`Error::is_damage`] in a record. Other errors are returned: the reader is closed, memory
    /// ran out, the file changed while it was open, a file that was not open yet cannot be opened.
    pub fn read_sound(&self, indices: &[u64], out: &mut dyn Deliver, cx: &Cx<'_>) -> Result<Vec<Lost>> {
        if !self.damage.is_any.load(Relaxed) {
            match self.read_batch(indices, out, cx) {
                Err(error) if error.is_damage() => {}
                read => return read.map(|()| Vec::new()),
            }
        }
        self.check_open()?;
        let mut parts = Parts { indices, out, lost: Vec::new() };
        for begin in (0..indices.len()).step_by(BLOCK) {
            cx.check()?;
            let mut rest = Vec::new();
            self.damage.found.with(|found| {
                for (position, &index) in indices.iter().enumerate().skip(begin).take(BLOCK) {
                    match found.of(index) {
                        Some(damage) => parts.lose(position, &damage),
                        None => rest.push(position),
                    }
                }
            });
            self.read_in_parts(&rest, &mut parts, cx)?;
        }
        let Parts { out, mut lost, .. } = parts;
        lost.iter().for_each(|lost| out.forget(lost.position));
        lost.sort_by_key(|lost| lost.position);
        Ok(lost)
    }

    /// Reads the first record after `record` that can be read, in a range of records whose beginning follows its end.
    /// None if no other record of the range can be read.
    pub fn read_neighbour(&self, record: u64, within: &Range<u64>, cx: &Cx<'_>) -> Result<Option<Vec<u8>>> {
        let mut untried = within.end.saturating_sub(within.start).saturating_sub(1);
        let mut at = record;
        while untried > 0 {
            cx.check()?;
            at = if at + 1 >= within.end { within.start } else { at + 1 };
            if let Some(end) = self.damage.end_of_run(at) {
                let run = end.min(within.end) - at;
                (untried, at) = (untried.saturating_sub(run), at + run - 1);
                continue;
            }
            let mut read = Vec::new();
            if self.read_sound(&[at], &mut read, cx)?.is_empty() {
                return Ok(read.pop());
            }
            untried -= 1;
        }
        Ok(None)
    }

    /// Whether a record was found to be damaged.
    pub fn is_known_damaged(&self, record: u64) -> bool {
        self.damage.is_any.load(Relaxed) && self.damage.end_of_run(record).is_some()
    }

    /// Reads some positions of a batch, of which a few are expected to be damaged.
    fn read_in_parts(&self, positions: &[usize], parts: &mut Parts<'_>, cx: &Cx<'_>) -> Result<()> {
        match self.read_part(positions, parts, cx) {
            Err(error) if error.is_damage() => {}
            read => return read,
        }
        let mut stored = Vec::with_capacity(positions.len());
        for &position in positions {
            stored.push((self.stored_together(parts.indices[position], cx)?, position));
        }
        stored.sort_by_key(|(records, position)| (records.start, *position));
        let units: Vec<Unit<'_>> = stored.chunk_by(|a, b| a.0 == b.0).collect();
        // The whole has failed, so its halves are tried first.
        let (first, second) = units.split_at(units.len() / 2);
        let mut untried = vec![second, first];
        while let Some(part) = untried.pop() {
            cx.check()?;
            match part {
                [] => continue,
                [unit] => {
                    self.read_unit(unit, parts, cx)?;
                    continue;
                }
                _ => {}
            }
            let positions: Vec<usize> = part.iter().flat_map(|unit| unit.iter().map(|(_, at)| *at)).collect();
            match self.read_part(&positions, parts, cx) {
                Err(error) if error.is_damage() => {
                    let (first, second) = part.split_at(part.len() / 2);
                    untried.extend([second, first]);
                }
                read => read?,
            }
        }
        Ok(())
    }

    fn read_part(&self, positions: &[usize], parts: &mut Parts<'_>, cx: &Cx<'_>) -> Result<()> {
        let indices: Vec<u64> = positions.iter().map(|&position| parts.indices[position]).collect();
        self.read_batch(&indices, &mut Moved { out: parts.out, positions }, cx)
    }

    /// The records that are decoded together with a record, as far as this reader has them. Opens the file: an error in
    /// its table is not damage of one record.
    fn stored_together(&self, index: u64, cx: &Cx<'_>) -> Result<Range<u64>> {
        let (shard, record) = self.shard_of(index)?;
        match self.shards[shard].source(cx)?.table.way(record) {
            Ok(Way::Shared(chunk, _)) => Ok(self.records_of(shard, &chunk)),
            _ => Ok(index..index + 1),
        }
    }

    /// The records of a chunk, as numbers in the reader.
    fn records_of(&self, shard: usize, chunk: &Chunk) -> Range<u64> {
        let end = self.ends[shard];
        let (first, records) = (self.shards[shard].first(), self.shards[shard].records());
        let to_reader = |record: u64| end - records + record.clamp(first, first + records) - first;
        to_reader(chunk.first_record)..to_reader(chunk.first_record.saturating_add(chunk.records))
    }

    /// Reads records that are stored together.
    fn read_unit(&self, unit: Unit<'_>, parts: &mut Parts<'_>, cx: &Cx<'_>) -> Result<()> {
        if let [(records, first), ..] = unit
            && records.end - records.start > 1
        {
            let index = parts.indices[*first];
            match self.read_chunk(unit, parts, cx) {
                Err(error) if error.is_damage() => {
                    let damage = self.note_damage(records.clone(), index, error, cx)?;
                    unit.iter().for_each(|(_, position)| parts.lose(*position, &damage));
                }
                read => return read,
            }
            return Ok(());
        }
        for (_, position) in unit {
            self.read_alone(*position, parts, cx)?;
        }
        Ok(())
    }

    fn read_alone(&self, position: usize, parts: &mut Parts<'_>, cx: &Cx<'_>) -> Result<()> {
        let index = parts.indices[position];
        if let Some(damage) = self.damage.of(index) {
            parts.lose(position, &damage);
            return Ok(());
        }
        match self.read_part(&[position], parts, cx) {
            Err(error) if error.is_damage() => {
                let damage = self.note_damage(index..index + 1, index, error, cx)?;
                parts.lose(position, &damage);
                Ok(())
            }
            read => read,
        }
    }

    /// Decodes a chunk once, and delivers the wanted rows that it has. An error if it cannot be decoded.
    fn read_chunk(&self, unit: Unit<'_>, parts: &mut Parts<'_>, cx: &Cx<'_>) -> Result<()> {
        let mut decoded = None;
        for (_, position) in unit {
            let index = parts.indices[*position];
            let plan = self.plan(index, cx)?;
            let row = match &plan.place {
                PlannedRead::Kept(row) => Ok(row.clone()),
                PlannedRead::Stored(Way::Shared(chunk, row)) => {
                    let decoded = match &decoded {
                        Some(decoded) => decoded,
                        None => decoded.insert(self.decode_chunk(&plan, chunk, cx)?),
                    };
                    row_of(&plan, chunk, decoded.clone(), *row)
                }
                // Another thread has read the chunk meanwhile, and the table knows a shorter way now.
                PlannedRead::Stored(_) => {
                    self.read_alone(*position, parts, cx)?;
                    continue;
                }
            };
            match row {
                Ok(row) => {
                    let bytes = row.as_ref();
                    for place in parts.out.reserve(&[(*position, bytes.len())])? {
                        place.copy_from_slice(bytes);
                    }
                }
                Err(error) => {
                    let damage = self.note_damage(index..index + 1, index, error, cx)?;
                    parts.lose(*position, &damage);
                }
            }
        }
        Ok(())
    }

    /// Remembers damage. Returns the error instead if the file changed while it was open.
    fn note_damage(&self, records: Range<u64>, index: u64, error: Error, cx: &Cx<'_>) -> Result<Arc<Damage>> {
        if !error.is_damage() {
            return Err(error);
        }
        let (shard, _) = self.shard_of(index)?;
        let storage = self.shards[shard].source(cx)?.storage();
        storage.unchanged()?;
        Ok(self.damage.note(records, error.in_file(storage.name()).copy_for_record(index)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cx::for_tests;
    use crate::format::options::WriteOptions;
    use crate::format::{ReadOptions, detect, testing};
    use crate::limits::Limits;
    use crate::shard::{RecordRange, Shard};
    use crate::storage::location::Location;
    use crate::storage::memory::Memory;

    const N: usize = 20;
    const GROUP: usize = 5;

    /// Two RecordIO files with 4 chunks each. Chunk 1 of the first and chunk 0 of the second are damaged.
    fn reader(cache_bytes: usize) -> (Vec<Vec<u8>>, Reader) {
        let format = detect::by_name("recordio").unwrap();
        let records: Vec<Vec<u8>> = (0..2 * N).map(|i| format!("record {i:04}").into_bytes()).collect();
        let options = WriteOptions::default().with_text("codec", "none");
        let cx = for_tests(Limits::default());
        let shards = records.chunks(N).zip(["record 0007", "record 0020"]).map(|(records, damaged)| {
            let mut file = testing::write_in_groups(format, &options, records, GROUP);
            let at = file.windows(damaged.len()).position(|bytes| bytes == damaged.as_bytes()).unwrap();
            file[at + 8] ^= 1;
            let location = Location::Handed(Arc::new(Memory::new("test", file)));
            let (range, reading) = (RecordRange::default(), ReadOptions::default());
            Arc::new(Shard::open(location, range, Some("recordio"), reading, &cx).unwrap())
        });
        (records.clone(), Reader::new(shards.collect(), cache_bytes, None).unwrap())
    }

    #[test]
    fn everything_but_the_damaged_chunks_is_delivered_in_any_order() {
        let cx = for_tests(Limits::default());
        for cache_bytes in [0, 1 << 20] {
            let (records, reader) = reader(cache_bytes);
            for _ in 0..2 {
                for step in [1, 3, 7, 39] {
                    let indices: Vec<u64> = (0..100).map(|i| (i * step % (2 * N)) as u64).collect();
                    let mut out = Vec::new();
                    let lost = reader.read_sound(&indices, &mut out, &cx).unwrap();
                    let is_lost = |index: u64| (5..10).contains(&index) || (20..25).contains(&index);
                    let expected: Vec<_> = (0..100).filter(|&at| is_lost(indices[at])).collect();
                    assert_eq!(lost.iter().map(|lost| lost.position).collect::<Vec<_>>(), expected);
                    for (at, &index) in indices.iter().enumerate().filter(|(_, index)| !is_lost(**index)) {
                        assert_eq!(out[at], records[index as usize]);
                    }
                    for lost in lost {
                        assert_eq!(lost.record, indices[lost.position]);
                        assert!(out[lost.position].is_empty());
                        assert_eq!(lost.error().record(), Some(lost.record));
                        assert_eq!(lost.damage.records, if lost.record < 20 { 5..10 } else { 20..25 });
                    }
                }
            }
            assert!(reader.is_known_damaged(9) && !reader.is_known_damaged(10));
        }
    }

    #[test]
    fn a_neighbour_is_the_next_sound_record_of_the_range_and_its_end_is_followed_by_its_beginning() {
        let (cx, (records, reader)) = (for_tests(Limits::default()), reader(1 << 20));
        let cases = [
            (5, 0..40, Some(10)),
            (9, 0..40, Some(10)),
            (24, 0..40, Some(25)),
            (22, 20..25, None),
            (8, 5..11, Some(10)),
            (22, 18..25, Some(18)),
            (6, 6..7, None),
            (19, 5..20, Some(10)),
        ];
        for _ in 0..2 {
            for (record, within, expected) in cases.clone() {
                let found = reader.read_neighbour(record, &within, &cx).unwrap();
                assert_eq!(found, expected.map(|at: usize| records[at].clone()), "{record} in {within:?}");
            }
        }
    }

    #[test]
    fn errors_that_are_not_damage_are_returned() {
        let (cx, (_, reader)) = (for_tests(Limits::default()), reader(0));
        let mut out = Vec::new();
        assert_eq!(reader.read_sound(&[3, 7], &mut out, &cx).unwrap().len(), 1);
        assert!(reader.read_sound(&[3, 40], &mut out, &cx).is_err());
        reader.close();
        assert!(reader.read_sound(&[3], &mut out, &cx).is_err());
        assert!(reader.read_sound(&[7], &mut out, &cx).is_err());
    }
}
