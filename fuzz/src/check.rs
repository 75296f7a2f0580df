//! What must hold for every file, damaged or not:
//!
//! - Opening, reading, walking and counting end, with records or with an error.
//! - A file is read the same in place and by calls, from its table, by a scan, and through a side index.
//! - A record that is read with checksums is read without them too, with the same bytes.
//! - A resuming walk visits every byte once. If it finds no damage, every record can be read.
//! - A failed read is an error of the read, never damage of the file.
//! - A table that is used with other bytes than those it was made from gives records or errors.
//! - Nothing is held when a call returns.

use super::storages::{Failing, Shared, mapped, plain};
use anyrecord::format::walk::{self, Depth, Span, Walk};
use anyrecord::format::{Format, ReadOptions, Table, Way};
use anyrecord::hash::crc32c;
use anyrecord::shard::{RecordRange, Shard};
use anyrecord::storage::file_set::FileSet;
use anyrecord::storage::location::Location;
use anyrecord::storage::memory::Memory;
use anyrecord::storage::{Storage, file::Io, read_vec};
use anyrecord::{Budget, Cx, Error, Kind, Limits, Reader, Result};
use std::sync::Arc;

/// Limits under which an input costs little time and no file.
pub const SMALL: Limits =
    Limits { decoded_chunk_bytes: 64 << 10, decoded_bytes: 256 << 10, spool_bytes: 4 << 10, open_files: 4 };
/// Limits for the code that handles large data.
pub const LARGE: Limits =
    Limits { decoded_chunk_bytes: 16 << 20, decoded_bytes: 32 << 20, spool_bytes: 1 << 20, open_files: 4 };

/// Records that are read of a file with more.
const MOST_READ: u64 = 16;
/// Records of a scan that are compared.
const MOST_SCANNED: u64 = 4096;

/// How a file is checked.
#[derive(Clone, Copy)]
pub struct Checks {
    /// How it is read.
    pub options: ReadOptions,
    /// If set, the file is also read from a storage that fails after so many reads.
    pub good_reads: Option<u64>,
}

/// Options with these limits.
pub fn options(limits: Limits) -> ReadOptions {
    ReadOptions { io: Io::Auto, limits, ..ReadOptions::default() }
}

/// Whether an input is also read in the ways that are compared with the usual one. They take most of the time, so one
/// input in four is.
pub fn is_compared(data: &[u8]) -> bool {
    data.len().is_multiple_of(4)
}

/// Calls `act` with a context, and checks that it holds nothing afterwards.
pub fn with_cx<T>(limits: &Limits, act: impl FnOnce(&Cx<'_>) -> T) -> T {
    let files = FileSet::new(limits);
    let budget = Budget::new(limits, &files);
    let result = act(&Cx::new(&budget));
    assert_eq!(budget.held(), 0, "bytes are held after the call");
    result
}

/// A record, reduced to its size and checksum, or the error of reading it.
type Seen = std::result::Result<(usize, u32), String>;

fn seen(record: &[u8]) -> (usize, u32) {
    (record.len(), crc32c::append(0, record))
}

/// Checks everything that must hold for a file that is read as `format`.
pub fn check_file(format: &'static Format, file: Vec<u8>, checks: Checks) {
    let strict = checks.options;
    let shared = Shared(Arc::new(file));
    let file: &[u8] = &shared.0;

    let in_place = read_all(format, mapped(&shared), &strict);
    let by_calls = read_all(format, plain(&shared), &strict);
    assert_eq!(in_place, by_calls, "in place and by calls");
    let whole = walk_all(format, file, &strict);
    match &in_place {
        Ok(records) => {
            let damaged = records.iter().any(Seen::is_err);
            assert!(!(whole.is_sound && damaged), "the walk finds no damage, but a record is damaged");
        }
        // A limit of a reader need not be one of a walk.
        Err(error) => assert!(!whole.is_sound || error.is_limit, "the walk finds no damage: {}", error.text),
    }
    if is_compared(file) {
        let lenient = ReadOptions { checksums: false, ..strict };
        check_lenient(&in_place, &read_all(format, mapped(&shared), &lenient));
        check_scan(format, file, &strict, &in_place);
        check_index(format, file, &strict, &in_place);
        check_ways(format, file, &strict, &in_place);
    }
    if let Some(good) = checks.good_reads {
        check_failing(format, file, &strict, good);
    }
}

/// The error of opening a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused {
    text: String,
    is_limit: bool,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Refused { is_limit: matches!(error.kind(), Kind::Limit), text: error.to_string() }
    }
}

type Opened = std::result::Result<Vec<Seen>, Refused>;

/// The records of a file with few records; some of the records of a larger one.
fn read_all(format: &'static Format, storage: Arc<dyn Storage>, options: &ReadOptions) -> Opened {
    let location = Location::Handed(storage);
    let shard = with_cx(&options.limits, |cx| {
        Shard::open(location, RecordRange::default(), Some(format.name), *options, cx)
    })?;
    let reader = Reader::new(vec![Arc::new(shard)], 1 << 16, Some(1))?;
    let wanted = sample(reader.len());
    let one_by_one: Vec<Seen> = wanted
        .iter()
        .map(|&i| match reader.read(i) {
            Ok(record) => Ok(seen(&record)),
            Err(error) => {
                assert!(!matches!(error.kind(), Kind::Memory), "{error}");
                Err(error.to_string())
            }
        })
        .collect();
    let budget = reader.budget();
    let mut together: Vec<Vec<u8>> = Vec::new();
    let read = reader.read_batch(&wanted, &mut together, &Cx::new(&budget));
    assert_eq!(budget.held(), 0, "bytes are held after the batch");
    match read {
        Ok(()) => {
            let together: Vec<Seen> = together.iter().map(|record| Ok(seen(record))).collect();
            assert_eq!(one_by_one, together, "one by one and together");
        }
        // The records of a batch are held together, so it may hit a limit that no single record hits.
        Err(error) if matches!(error.kind(), Kind::Limit) => {}
        Err(error) => assert!(one_by_one.iter().any(Seen::is_err), "only the batch fails: {error}"),
    }
    Ok(one_by_one)
}

/// The numbers of the records that are read: all, or as many of both ends.
fn sample(records: u64) -> Vec<u64> {
    if records <= MOST_READ {
        return (0..records).collect();
    }
    (0..MOST_READ / 2).chain(records - MOST_READ / 2..records).collect()
}

/// Where checksums find nothing wrong, reading without them gives the same.
fn check_lenient(strict: &Opened, lenient: &Opened) {
    let Ok(strict) = strict else { return };
    let Ok(lenient) = lenient else {
        panic!("only the reader without checksums refuses the file: {lenient:?}")
    };
    assert_eq!(strict.len(), lenient.len());
    for (i, (strict, lenient)) in strict.iter().zip(lenient).enumerate() {
        assert!(
            strict.is_err() || strict == lenient,
            "record {i}: {strict:?} and without checksums {lenient:?}"
        );
    }
}

/// What a resuming walk found.
pub struct Walked {
    /// Whether it found no damage.
    pub is_sound: bool,
}

/// Walks through a file at every depth. Checks that the spans cover every byte.
pub fn walk_all(format: &Format, file: &[u8], options: &ReadOptions) -> Walked {
    let storage = Memory::new("file", file);
    let sound = [Depth::Headers, Depth::Checked, Depth::Content { carry_for: None }].map(|depth| {
        with_cx(&options.limits, |cx| {
            let (mut reached, mut is_sound) = (0, true);
            let walked = (format.walk)(&Walk::resuming(&storage, options, depth, cx), &mut |span| {
                let range = span.range().clone();
                assert!(range.start == reached && range.end >= reached, "{range:?} follows {reached}");
                reached = range.end;
                match span {
                    Span::Damage(_, error) => {
                        assert!(!error.is_from_outside(), "{error}");
                        let Some(offset) = error.offset() else { panic!("damage at no offset: {error}") };
                        // Damage of an empty range is something that is missing: the error says where it was looked for.
                        // Offsets in a compressed TFRecord file count unpacked bytes.
                        let is_inside = (range.start..=range.end).contains(&offset)
                            || range.is_empty()
                            || format.name == "tfrecord";
                        assert!(is_inside, "{error} is not in {range:?}");
                        is_sound = false;
                    }
                    Span::Records(chunk) => {
                        let mut rows = 0;
                        if let Some(content) = chunk.content {
                            content.rows(&mut |_| {
                                rows += 1;
                                Ok(())
                            })?;
                            assert_eq!(rows, chunk.records);
                        }
                    }
                    _ => {}
                }
                Ok(())
            });
            if let Err(error) = walked {
                panic!("a resuming walk ends with an error: {error}");
            }
            assert_eq!(reached, file.len() as u64, "the walk ends early");
            is_sound
        })
    });
    let [_, checked, content] = sound;
    assert_eq!(checked, content, "damage depends on the depth");
    Walked { is_sound: checked }
}

/// A scan visits the records that the table lists.
fn check_scan(format: &Format, file: &[u8], options: &ReadOptions, read: &Opened) {
    let storage = Memory::new("file", file);
    let mut scanned: Vec<Seen> = Vec::new();
    let mut count = 0u64;
    let result = with_cx(&options.limits, |cx| {
        walk::scan(format, &storage, options, cx, &mut |record| {
            count += 1;
            if count <= MOST_SCANNED {
                scanned.push(Ok(seen(record)));
            }
            Ok(())
        })
    });
    let counted = with_cx(&options.limits, |cx| walk::count(format, &storage, options, cx));
    let Ok(()) = result else { return };
    if let Ok(counted) = counted {
        assert_eq!(counted, count, "the count and the scan");
    }
    if let Ok(read) = read
        && read.iter().all(Seen::is_ok)
        && count <= MOST_SCANNED
    {
        let wanted = sample(count);
        assert_eq!(read.len(), wanted.len(), "the table and the scan");
        for (&record, read) in wanted.iter().zip(read) {
            assert_eq!(read, &scanned[record as usize], "record {record} of the table and the scan");
        }
    }
}

/// A failed read is reported as such.
fn check_failing(format: &Format, file: &[u8], options: &ReadOptions, good: u64) {
    let outside = |storage: &Failing<'_>, result: Result<()>, what: &str| match result {
        Ok(()) => assert!(!storage.has_failed(), "{what} ignores a failed read"),
        Err(error) => {
            assert!(
                error.is_from_outside() || !storage.has_failed(),
                "{what} takes a failed read for damage: {error}"
            );
        }
    };
    let storage = Failing::new(file, good);
    let result = with_cx(&options.limits, |cx| (format.open)(&storage, options, cx).map(drop));
    outside(&storage, result, "opening");
    for resumes in [true, false] {
        let storage = Failing::new(file, good);
        let result = with_cx(&options.limits, |cx| {
            let walk = if resumes { Walk::resuming } else { Walk::strict };
            let walk = walk(&storage, options, Depth::Checked, cx);
            (format.walk)(&walk, &mut |_| Ok(()))
        });
        outside(&storage, result, "a walk");
    }
    let storage = Failing::new(file, good);
    let result = with_cx(&options.limits, |cx| (format.probe)(&storage, options, cx).map(drop));
    outside(&storage, result, "the probe");
}

/// Every way that a table knows to a record gives the record, also the shorter ways that it learns.
fn check_ways(format: &Format, file: &[u8], options: &ReadOptions, read: &Opened) {
    let Ok(read) = read else { return };
    let storage = Memory::new("file", file);
    with_cx(&options.limits, |cx| {
        let Ok(table) = (format.open)(&storage, options, cx) else { panic!("it was opened before") };
        assert!(table.chunks() <= table.records());
        for _ in 0..2 {
            for (&record, read) in sample(table.records()).iter().zip(read) {
                let Ok(record) = by_way(&*table, &storage, record, cx) else { continue };
                assert!(
                    read.as_ref().is_ok_and(|&read| read == record) || read.is_err(),
                    "{read:?} {record:?}"
                );
            }
        }
        check_scan_of_table(&*table, &storage, read, cx);
        check_swapped(&*table, &storage, cx);
        let description = table.describe();
        assert!(description.record_bytes + description.unused_bytes <= file.len() as u64, "{description:?}");
        assert!(table.warning().is_none_or(|warning| !warning.is_empty()));
    });
}

/// A scan by the table visits the records of the table.
fn check_scan_of_table(table: &dyn Table, storage: &dyn Storage, read: &[Seen], cx: &Cx<'_>) {
    let wanted = sample(table.records()).len() as u64;
    let range = 0..table.records().min(wanted / 2);
    let mut scanned: Vec<Seen> = Vec::new();
    let result = walk::scan_table(table, storage, range, cx, &mut |record| {
        scanned.push(Ok(seen(record)));
        Ok(())
    });
    for (read, scanned) in read.iter().zip(&scanned) {
        assert!(read == scanned || read.is_err(), "{read:?} and by a scan {scanned:?}");
    }
    if let Err(error) = result {
        assert!(!matches!(error.kind(), Kind::Memory) && !error.is_from_outside(), "{error}");
    }
}

/// The bytes of another record, and too few bytes, as if the file had changed after it was opened.
fn check_swapped(table: &dyn Table, storage: &dyn Storage, cx: &Cx<'_>) {
    let records = table.records();
    for record in 0..records.min(3) {
        table.prefetch(record);
        let (Ok((here, _)), Ok((there, _))) = (table.locate(record), table.locate(records - 1)) else {
            continue;
        };
        let stored = there.stored.end - there.stored.start;
        let Ok(mut other) = read_vec(storage, "chunk", there.stored.start, stored, cx) else { continue };
        for _ in 0..2 {
            if let Ok(decoded) = table.decode(&here, &other, cx) {
                assert_eq!(decoded.rows() as u64, here.records);
            }
            let size = table.size(record).ok().flatten().filter(|&size| size <= storage.len());
            let mut out = vec![0; size.unwrap_or(7) as usize];
            let _ = table.decode_into(record, here.stored.start, &other, &mut out, cx);
            let _ = table.check(record, Some(7), &other);
            let _ = table.survey(&here, &other, cx);
            other.pop();
        }
    }
}

fn by_way(table: &dyn Table, storage: &dyn Storage, record: u64, cx: &Cx<'_>) -> Result<(usize, u32)> {
    let way = table.way(record)?;
    let range = match &way {
        Way::Plain { stored, .. } | Way::Alone { stored, .. } => stored.clone(),
        Way::Shared(chunk, _) => chunk.stored.clone(),
    };
    let (located, row) = table.locate(record)?;
    assert!(row < located.records && located.first_record + row == record);
    let stored = read_vec(storage, "chunk", range.start, range.end - range.start, cx)?;
    match way {
        Way::Plain { checksum, .. } => {
            table.check(record, checksum, &stored)?;
            Ok(seen(&stored))
        }
        Way::Alone { size, .. } => {
            assert!(size as u64 <= cx.budget.limits().decoded_chunk_bytes || size as u64 <= storage.len());
            let mut out = vec![0; size];
            table.decode_into(record, range.start, &stored, &mut out, cx)?;
            if let Some(begin) = table.in_place(range.start, &stored, size) {
                assert_eq!(stored.get(begin..begin + size), Some(&*out));
            }
            Ok(seen(&out))
        }
        Way::Shared(chunk, row) => {
            let surveyed = table.survey(&chunk, &stored, cx)?.map(|keep| keep()).is_some();
            let decoded = table.decode(&chunk, &stored, cx)?;
            assert_eq!(decoded.rows() as u64, chunk.records);
            let found = decoded.row(row).unwrap_or_default();
            assert!(
                !surveyed || table.size(record)? == Some(found.len() as u64),
                "surveys find other records"
            );
            Ok(seen(found))
        }
    }
}

/// A table from a side index reads as the table from the file.
fn check_index(format: &Format, file: &[u8], options: &ReadOptions, read: &Opened) {
    let (Some(open_indexed), Ok(read)) = (format.open_indexed, read) else { return };
    let storage = Memory::new("file", file);
    with_cx(&options.limits, |cx| {
        let Ok(table) = (format.open)(&storage, options, cx) else { return };
        let Some(index) = table.index_bytes() else { return };
        let indexed = open_indexed(&storage, &index, options, cx);
        let Ok(Some(indexed)) = indexed else { panic!("the index of a file does not fit it") };
        assert_eq!(indexed.records(), table.records());
        for (&record, read) in sample(table.records()).iter().zip(read) {
            let (here, there) = (table.locate(record), indexed.locate(record));
            assert_eq!(here.ok(), there.ok(), "record {record} is elsewhere in the index ({read:?})");
        }
        assert_eq!(indexed.index_bytes(), Some(index));
    });
}
