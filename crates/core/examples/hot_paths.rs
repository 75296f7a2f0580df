//! The hot paths alone, without Python: reads records of a file in one or more ways, or writes them again.
//!
//! ```text
//! hot_paths FILE WARM COUNT single|batch|order|write... [OPTION=VALUE...]
//! ```
//!
//! For each way, WARM records are read or written, then COUNT more between two calls of [`mark`].
//! `benches/instructions.py` runs it under callgrind with `--dump-before=*hot_paths::mark*`, so that every other dump
//! shows the cost of COUNT records. The options are those of the format, for `write`. Prints a sum over all records, so
//! that nothing is optimized away. Exits with [`DISTURBED`] if the reader changed its prediction of whether the file is
//! cold while it was counted.

#[path = "hot_paths/heap.rs"]
mod heap;

use anyrecord::format::options::WriteOptions;
use anyrecord::format::{ReadOptions, detect};
use anyrecord::open::open_files;
use anyrecord::shard::RecordRange;
use anyrecord::storage::file_set::FileSet;
use anyrecord::storage::location::Location;
use anyrecord::writer::{CreateOptions, SealedSet, Writer};
use anyrecord::{Budget, Cx, Error, Limits, Reader, Result};
use std::hint::black_box;
use std::ops::Range;
use std::path::{Path, PathBuf};

#[global_allocator]
static HEAP: heap::Heap = heap::Heap::new();

const BATCH: usize = 256;
/// The default in Python.
const CACHE_BYTES: usize = 64 << 20;
/// The exit status if the count must not be used.
const DISTURBED: i32 = 3;
/// Rounds of reading after which a reader expects a file to be warm, even if it expected a cold one before.
const ROUNDS: u64 = 20;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, warm, count, rest @ ..] = arguments.as_slice() else {
        return Err(Error::argument(
            "usage: hot_paths FILE WARM COUNT single|batch|order|write... [OPTION=VALUE...]",
        ));
    };
    let number =
        |text: &String| text.parse::<u64>().map_err(|_| Error::argument("WARM and COUNT are numbers"));
    let (warm, count) = (number(warm)?, number(count)?);
    let path = PathBuf::from(path);
    let files = vec![(Location::path(path.clone()), RecordRange::default())];
    let (limits, shared) = (Limits::default(), FileSet::new(&Limits::default()));
    let budget = Budget::new(&limits, &shared);
    let shards = open_files(files, None, ReadOptions::default(), &Cx::new(&budget))?;
    let reader = Reader::new(shards, CACHE_BYTES, Some(1))?;
    let options = options(rest);
    let mut sum = 0;
    for way in rest.iter().filter(|word| !word.contains('=')) {
        sum += match way.as_str() {
            "write" => write(&reader, &path, &options, 0..warm, warm..warm + count)?,
            _ => counted_read(&reader, way, 0..warm, warm..warm + count)?,
        };
    }
    println!("{sum}");
    Ok(())
}

/// Callgrind writes down its counts so far when this is called.
#[inline(never)]
fn mark() {
    black_box(());
}

/// Reads `warm` until the reader has settled, then `counted` between two marks.
fn counted_read(reader: &Reader, way: &str, warm: Range<u64>, counted: Range<u64>) -> Result<u64> {
    let mut sum = read(reader, way, warm.clone())?;
    for _ in 1..ROUNDS {
        if reader.is_warm() {
            break;
        }
        sum += read(reader, way, warm.clone())?;
    }
    let was_warm = reader.is_warm();
    mark();
    sum += read(reader, way, counted)?;
    mark();
    if reader.is_warm() != was_warm {
        std::process::exit(DISTURBED);
    }
    Ok(sum)
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

/// The same record numbers in every run, spread over the whole file: multiples of the golden ratio, which avoid short
/// cycles.
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

/// Writes records `warm` to one file and `counted` to another, the second between two marks. Creating and
/// publishing are not counted: they cost the same for any number of records.
fn write(
    reader: &Reader,
    path: &Path,
    options: &WriteOptions,
    warm: Range<u64>,
    counted: Range<u64>,
) -> Result<u64> {
    let records = |positions: Range<u64>| -> Result<Vec<Vec<u8>>> {
        positions.map(|position| reader.read(position % reader.len())).collect()
    };
    let (warm, counted) = (records(warm)?, records(counted)?);
    fill(create(path, options)?, &warm)?;
    let writer = create(path, options)?;
    mark();
    let sealed = fill(writer, &counted)?;
    mark();
    Ok(sealed.len() as u64)
}

fn create(path: &Path, options: &WriteOptions) -> Result<Writer> {
    let format = detect::by_suffix(&path.to_string_lossy())
        .ok_or_else(|| Error::argument("the name of the file does not tell its format"))?;
    let options = CreateOptions {
        durable: false,
        threads: Some(1),
        format_options: options.clone(),
        ..CreateOptions::default()
    };
    Writer::create(&path.with_extension("written"), format, options)
}

/// Writes a whole file, its index included.
fn fill(mut writer: Writer, records: &[Vec<u8>]) -> Result<SealedSet> {
    records.iter().try_for_each(|record| writer.write(record))?;
    writer.seal()
}

fn options(words: &[String]) -> WriteOptions {
    words.iter().filter_map(|word| word.split_once('=')).fold(
        WriteOptions::default(),
        |options, (key, value)| match value.parse::<i64>() {
            Ok(number) => options.with_int(key, number),
            Err(_) => options.with_text(key, value),
        },
    )
}
