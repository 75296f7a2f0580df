//! The hot paths alone, without Python: reads records of a file in one way after the other.
//!
//! ```text
//! hot_paths FILE WARM COUNT single|batch|order...
//! ```
//!
//! For each way WARM records are read, then COUNT more between two calls of [`mark`]. `python -m benches instructions`
//! runs it under callgrind with `--dump-before=*hot_paths::mark*`, so that every other part is what COUNT reads cost. Prints
//! a sum over all records, so that nothing is optimized away.

use anyrecord::format::ReadOptions;
use anyrecord::open::open_files;
use anyrecord::shard::RecordRange;
use anyrecord::storage::file_set::FileSet;
use anyrecord::storage::location::Location;
use anyrecord::{Budget, Cx, Error, Limits, Reader, Result};
use std::hint::black_box;
use std::ops::Range;
use std::path::PathBuf;

const BATCH: usize = 256;
/// As Python has it unless told otherwise.
const CACHE_BYTES: usize = 64 << 20;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, warm, count, ways @ ..] = arguments.as_slice() else {
        return Err(Error::argument("usage: hot_paths FILE WARM COUNT single|batch|order..."));
    };
    let number =
        |text: &String| text.parse::<u64>().map_err(|_| Error::argument("WARM and COUNT are numbers"));
    let (warm, count) = (number(warm)?, number(count)?);
    let files = vec![(Location::path(PathBuf::from(path)), RecordRange::default())];
    let (limits, shared) = (Limits::default(), FileSet::new(&Limits::default()));
    let budget = Budget::new(&limits, &shared);
    let shards = open_files(files, None, ReadOptions::default(), &Cx::new(&budget))?;
    let reader = Reader::new(shards, CACHE_BYTES, Some(1))?;
    let mut sum = 0;
    for way in ways {
        sum += read(&reader, way, 0..warm)?;
        mark();
        sum += read(&reader, way, warm..warm + count)?;
        mark();
    }
    println!("{sum}");
    Ok(())
}

/// Where callgrind is told to write down what it has counted so far.
#[inline(never)]
fn mark() {
    black_box(());
}

fn read(reader: &Reader, way: &str, positions: Range<u64>) -> Result<u64> {
    let length = reader.len();
    match way {
        "single" => singles(reader, positions.map(|position| scattered(position, length))),
        "batch" => batches(reader, positions.map(|position| scattered(position, length))),
        "order" => batches(reader, positions.map(|position| position % length)),
        _ => Err(Error::argument("a way is single, batch or order")),
    }
}

/// The same record numbers in every run, all over the file: multiples of a fraction that no short cycle is near.
fn scattered(position: u64, length: u64) -> u64 {
    let spread = (position + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((u128::from(spread) * u128::from(length)) >> 64) as u64
}

fn singles(reader: &Reader, mut indices: impl Iterator<Item = u64>) -> Result<u64> {
    indices.try_fold(0, |sum, index| Ok(sum + weight(&reader.read(index)?)))
}

fn batches(reader: &Reader, indices: impl Iterator<Item = u64>) -> Result<u64> {
    let indices: Vec<u64> = indices.collect();
    let mut sum = 0;
    for batch in indices.chunks(BATCH) {
        let mut records: Vec<Vec<u8>> = Vec::new();
        reader.read_batch(batch, &mut records, &Cx::new(&reader.budget()))?;
        sum += records.iter().map(|record| weight(record)).sum::<u64>();
    }
    Ok(sum)
}

fn weight(record: &[u8]) -> u64 {
    record.len() as u64 + record.last().copied().map_or(0, u64::from)
}
