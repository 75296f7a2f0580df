//! Properties of the walk of every format, for any file: the spans tile the file, the sums add up, and every damage has
//! an offset.

use super::*;
use crate::Limits;
use crate::budget::Budget;
use crate::cx::{Stop, for_tests};
use crate::error::Kind;
use crate::format::{detect, testing};
use crate::shard::RecordRange;
use crate::storage::file_set::FileSet;
use crate::storage::memory::Memory;
use crate::verify::{Report, verify};
use proptest::prelude::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One way to write a file.
#[derive(Clone, Debug)]
struct Way {
    format: &'static str,
    options: WriteOptions,
    /// Whether the records are in one compressed stream. Offsets then count the bytes of that stream, and a cut loses
    /// all records after it.
    is_stream: bool,
}

fn ways() -> Vec<Way> {
    let way = |format, options| Way { format, options, is_stream: false };
    let codec = |name: &str| WriteOptions::default().with_text("codec", name);
    let mut ways = vec![way("ffrecord", WriteOptions::default()), way("tfrecord", codec("none"))];
    ways.extend(["gzip", "zlib"].map(|name| Way { is_stream: true, ..way("tfrecord", codec(name)) }));
    ways.extend(
        ["none", "snappy", "gzip"].map(|name| way("recordio", codec(name).with_int("chunk_bytes", 40))),
    );
    ways.extend(
        ["none", "zstd", "brotli", "snappy"]
            .map(|name| way("array_record", codec(name).with_int("group_size", 3))),
    );
    ways.push(way("array_record", codec("none").with_int("group_size", 1)));
    ways.push(way("array_record", codec("zstd").with_int("group_size", 2).with_flag("transpose", true)));
    ways.push(way(
        "array_record",
        codec("none").with_int("group_size", 4).with_flag("pad_to_block_boundary", true),
    ));
    ways
}

fn format_of(name: &str) -> &'static Format {
    detect::by_name(name).unwrap()
}

fn write(way: &Way, records: &[Vec<u8>]) -> Vec<u8> {
    testing::write(format_of(way.format), &way.options, records)
}

fn numbered(count: u8) -> Vec<Vec<u8>> {
    (0..count).map(|i| vec![b'a' + i % 26; usize::from(i) * 7 % 23]).collect()
}

/// The report of `verify`, after a check of its sums.
fn report(format: &str, file: &[u8]) -> Report {
    let (memory, options) = (Memory::new("test", file), ReadOptions::default());
    let cx = for_tests(Limits::default());
    let parts = [RecordRange::default()];
    let report = verify(&memory, Some(format), &parts, &options, &cx, &mut |_| Ok(())).unwrap();
    let sum = report.record_bytes + report.meta_bytes + report.unused_bytes + report.damaged_bytes;
    assert_eq!((sum, report.file_bytes), (file.len() as u64, file.len() as u64), "{report:?}");
    let unaccounted = |e: &&Error| e.what().contains("accounts for");
    assert!(report.problems.iter().find(unaccounted).is_none(), "{report:?}");
    report
}

/// The sound chunks of a file (number of the first record, and the records), and the damage between them.
#[derive(Debug, Default)]
struct Walked {
    sound: Vec<(u64, Vec<Vec<u8>>)>,
    damage: Vec<(Range<u64>, Error)>,
}

impl Walked {
    fn rows(&self) -> Vec<Vec<u8>> {
        self.sound.iter().flat_map(|(_, rows)| rows.clone()).collect()
    }
}

fn salvage(format: &str, file: &[u8]) -> Walked {
    let (memory, options, cx) =
        (Memory::new("test", file), ReadOptions::default(), for_tests(Limits::default()));
    let (mut walked, mut reached) = (Walked::default(), 0);
    let depth = Depth::Content { carry_for: None };
    (format_of(format).walk)(&Walk::resuming(&memory, &options, depth, &cx), &mut |span| {
        assert_eq!(span.range().start, reached, "spans tile the file");
        reached = span.range().end;
        match span {
            Span::Records(chunk) => {
                let mut rows = Vec::new();
                chunk.content.unwrap().rows(&mut |row| {
                    rows.push(row.to_vec());
                    Ok(())
                })?;
                assert_eq!(rows.len() as u64, chunk.records);
                walked.sound.push((chunk.first_record, rows));
            }
            Span::Damage(range, error) => walked.damage.push((range, error)),
            _ => {}
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(reached, file.len() as u64, "spans tile the file");
    walked
}

fn scanned(format: &str, file: &[u8]) -> Result<Vec<Vec<u8>>> {
    let (memory, options, cx) =
        (Memory::new("test", file), ReadOptions::default(), for_tests(Limits::default()));
    let mut rows = Vec::new();
    scan(format_of(format), &memory, &options, &cx, &mut |row| {
        rows.push(row.to_vec());
        Ok(())
    })
    .map(|()| rows)
}

/// Checks what must be true for any file.
fn check_any(way: &Way, file: &[u8]) {
    let (report, walked) = (report(way.format, file), salvage(way.format, file));
    assert_eq!(report.records[0], walked.rows().len() as u64, "verify counts what can be salvaged");
    assert_eq!(report.problem_count, walked.damage.len() as u64);
    assert_eq!(report.is_ok(), walked.damage.is_empty());
    for (range, error) in &walked.damage {
        let offset = error.offset().expect("damage has an offset");
        if way.format == "array_record" && *range == (file.len() as u64..file.len() as u64) {
            continue; // The end is missing. The error says where it should be.
        }
        assert!(way.is_stream || (range.start..=range.end).contains(&offset), "{range:?}: {error}");
    }
    let (memory, options, cx) =
        (Memory::new("test", file), ReadOptions::default(), for_tests(Limits::default()));
    let opened = (format_of(way.format).open)(&memory, &options, &cx);
    let counted = count(format_of(way.format), &memory, &options, &cx);
    match (opened, counted) {
        (Ok(table), Ok(counted)) => {
            assert_eq!(table.records(), counted);
            if report.is_ok() {
                let about = table.describe();
                assert_eq!(about.record_bytes, report.record_bytes, "info and verify agree");
                assert_eq!(about.unused_bytes, report.unused_bytes);
                assert_eq!((table.records(), table.chunks()), (report.records[0], report.chunks[0]));
                assert!(about.decoded_bytes.is_none_or(|bytes| bytes == report.decoded_bytes));
                assert_eq!(scanned(way.format, file).unwrap(), walked.rows());
            }
        }
        (Err(opened), Err(counted)) => assert_eq!(opened.to_string(), counted.to_string()),
        // Opening an FFRecord file also verifies its last sample.
        (Err(opened), Ok(_)) => assert!(way.format == "ffrecord" && matches!(opened.kind(), Kind::Checksum)),
        (Ok(_), Err(counted)) => panic!("opened, but not counted: {counted}"),
    }
}

#[test]
fn whole_files_add_up_and_every_consumer_sees_the_same_records() {
    for way in ways() {
        for records in [vec![], numbered(1), numbered(11)] {
            let file = write(&way, &records);
            check_any(&way, &file);
            assert_eq!(scanned(way.format, &file).unwrap(), records, "{way:?}");
            let report = report(way.format, &file);
            assert!(report.is_ok(), "{way:?}: {report:?}");
            assert!(report.meta_bytes > 0 || records.is_empty(), "{way:?}");
            assert_eq!(report.decoded_bytes, records.iter().map(|record| record.len() as u64).sum::<u64>());
        }
    }
}

/// Every byte of a small file. The smallest ArrayRecord file has 128 KiB. Of larger files, the bytes that hold most of
/// the structure, and a sample of the others.
fn places(size: usize) -> Vec<usize> {
    let near = |at: usize, from: usize, length: usize| (from..from + length).contains(&at);
    let end = size.saturating_sub(65_536);
    let chosen = |at: &usize| match size {
        ..2000 => true,
        _ => {
            near(*at, 0, 64)
                || near(*at, end, 30)
                || (*at < 1000 && at.is_multiple_of(5))
                || at.is_multiple_of(6007)
        }
    };
    (0..size).filter(chosen).collect()
}

#[test]
fn a_flip_names_the_first_record_that_it_costs() {
    for way in ways().into_iter().filter(|way| !way.is_stream) {
        let records = numbered(11);
        let mut file = write(&way, &records);
        for at in places(file.len()) {
            file[at] ^= 1 << (at % 8);
            let walked = salvage(way.format, &file);
            let rows = walked.rows();
            // Rows keep their order, so the first row that differs is the first lost record.
            let first = (0..records.len()).find(|&i| rows.get(i) != Some(&records[i]));
            // Without the number of samples, no sample can be found.
            let is_count = way.format == "ffrecord" && (4..12).contains(&at);
            if let Some(first) = first.filter(|_| !is_count) {
                let named: Vec<_> = walked.damage.iter().filter_map(|(_, error)| error.record()).collect();
                assert!(named.contains(&(first as u64)), "{way:?}, byte {at}: {first} is not in {named:?}");
            }
            assert!(!walked.damage.is_empty(), "{way:?}: a flip at {at} is not seen");
            file[at] ^= 1 << (at % 8);
        }
    }
}

#[test]
fn a_cut_anywhere_leaves_the_records_before_it() {
    for way in ways().into_iter().filter(|way| !way.is_stream) {
        let records = numbered(7);
        let file = write(&way, &records);
        // For each chunk of records: where it ends, and the number of records up to there.
        let (mut ends, mut count) = (Vec::new(), 0);
        let (memory, options, cx) =
            (Memory::new("test", &file), ReadOptions::default(), for_tests(Limits::default()));
        let walk = Walk::resuming(&memory, &options, Depth::Checked, &cx);
        (format_of(way.format).walk)(&walk, &mut |span| {
            if let Span::Records(chunk) = span {
                count += chunk.records;
                ends.push((chunk.range.end, count));
            }
            Ok(())
        })
        .unwrap();
        for cut in places(file.len()) {
            let expected =
                ends.iter().rev().find(|(end, _)| *end <= cut as u64).map_or(0, |(_, count)| *count);
            // Samples after a cut table cannot be found. A cut cannot remove an empty last sample.
            let found = report(way.format, &file[..cut]).records[0];
            let is_cut_table = way.format == "ffrecord" && cut < 12 + 12 * records.len();
            assert_eq!(found, if is_cut_table { 0 } else { expected }, "{way:?} cut at {cut}");
            check_any(&way, &file[..cut]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn random_damage_never_upsets_the_sums(
        way in 0usize..ways().len(),
        records in prop::collection::vec(prop::collection::vec(0u8..4, 0..39), 0..20),
        kind in 0u8..5,
        at: prop::sample::Index,
        length in 1usize..100,
        garbage in prop::collection::vec(any::<u8>(), 1..100),
    ) {
        let way = &ways()[way];
        let mut file = write(way, &records);
        check_any(way, &file);
        if !file.is_empty() {
            let at = at.index(file.len());
            let end = file.len().min(at + length);
            match kind {
                0 => file[at] ^= garbage[0] | 1,
                1 => file.truncate(at),
                2 => drop(file.drain(at..end)),
                3 => drop(file.splice(at..at, garbage)),
                _ => {
                    let again = file.clone();
                    file.splice(at..end, again);
                }
            }
        } else {
            file = garbage;
        }
        check_any(way, &file);
    }

    #[test]
    fn no_bytes_upset_the_sums(way in 0usize..ways().len(), file: Vec<u8>) {
        check_any(&ways()[way], &file);
    }
}

/// Counts the reads and the bytes read.
struct Counted {
    bytes: Vec<u8>,
    read: AtomicU64,
    reads: AtomicU64,
}

impl Storage for Counted {
    fn name(&self) -> &str {
        "counted"
    }
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }
    fn read_at(&self, at: u64, out: &mut [u8], _cx: &Cx<'_>) -> Result<()> {
        self.read.fetch_add(out.len() as u64, Relaxed);
        self.reads.fetch_add(1, Relaxed);
        out.copy_from_slice(&self.bytes[at as usize..at as usize + out.len()]);
        Ok(())
    }
}

/// Files of `size` bytes that are slow to search. Most of them repeat a short pattern.
fn garbage(size: usize) -> Vec<(&'static str, Vec<u8>)> {
    let repeated = |part: &[u8]| part.iter().copied().cycle().take(size).collect::<Vec<u8>>();
    let chunk = |payload: u32| {
        [&[4, 3, 2, 1, 9, 9, 9, 9, 0, 0, 0, 0][..], &payload.to_le_bytes(), &1u32.to_le_bytes()].concat()
    };
    let record = |length: u64| {
        let length = length.to_le_bytes();
        [&length[..], &crate::hash::crc32c::masked(&length).to_le_bytes()].concat()
    };
    let mut state = 1u64;
    let random = (0..size).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    vec![
        ("random", random.collect()),
        ("zeros", vec![0; size]),
        ("ones", vec![0xff; size]),
        ("magic", repeated(&[4, 3, 2, 1])),
        ("small numbers", repeated(&[1, 0, 0, 0, 0, 0, 0, 0])),
        ("false chunks", repeated(&chunk(size as u32 / 2))),
        ("false records", repeated(&record(size as u64 / 2))),
        ("sound headers of chunks", repeated(&[chunk(4), vec![7; 4]].concat())),
        ("sound headers of records", repeated(&[record(4), vec![7; 8]].concat())),
    ]
}

#[test]
fn searching_garbage_reads_it_a_few_times_at_most() {
    let size = 3 << 20;
    for (kind, bytes) in garbage(size) {
        for format in ["tfrecord", "recordio", "riegeli", "array_record", "ffrecord"] {
            let storage = Counted { bytes: bytes.clone(), read: AtomicU64::new(0), reads: AtomicU64::new(0) };
            let (options, cx) = (ReadOptions::default(), for_tests(Limits::default()));
            let parts = [RecordRange::default()];
            let report = verify(&storage, Some(format), &parts, &options, &cx, &mut |_| Ok(())).unwrap();
            assert!(!report.is_ok(), "{kind} as {format}");
            let (read, reads) = (storage.read.into_inner(), storage.reads.into_inner());
            assert!(read <= 8 * size as u64, "{kind} as {format}: {read} bytes in {reads} reads");
            assert!(reads <= 20_000, "{kind} as {format}: {read} bytes in {reads} reads");
        }
    }
}

#[test]
fn a_walk_checks_often_for_interruption_and_stops() {
    let size = 2 << 20;
    let small = vec![vec![1; 30]; 30_000];
    let mut files = garbage(size);
    for way in ["ffrecord", "tfrecord", "recordio", "array_record"] {
        let way = ways().into_iter().find(|other| other.format == way).unwrap();
        files.push((way.format, write(&way, &small)));
    }
    for (kind, bytes) in files {
        for format in ["tfrecord", "recordio", "riegeli", "array_record", "ffrecord"] {
            let memory = Memory::new("test", &bytes);
            for most in [0, 3] {
                let asked = Cell::new(0);
                let stop = || {
                    asked.set(asked.get() + 1);
                    if asked.get() <= most { Ok(()) } else { Err(Error::closed("told to stop")) }
                };
                let options = ReadOptions::default();
                let files = FileSet::new(&options.limits);
                let budget = Budget::new(&options.limits, &files);
                let cx = Cx { budget: &budget, stop: &stop as &dyn Stop };
                let parts = [RecordRange::default()];
                let verified = verify(&memory, Some(format), &parts, &options, &cx, &mut |_| Ok(()));
                match verified {
                    Err(error) => assert_eq!(error.what(), "told to stop", "{kind} as {format}"),
                    // For some files, the first few bytes show that they are not in this format.
                    Ok(report) => {
                        assert!(asked.get() <= most && report.problem_count <= 1, "{kind} as {format}")
                    }
                }
            }
        }
    }
}

#[test]
fn a_chunk_after_a_search_is_marked() {
    for way in
        ways().into_iter().filter(|way| ["tfrecord", "recordio"].contains(&way.format) && !way.is_stream)
    {
        let mut file = write(&way, &numbered(11));
        file.splice(0..0, [9; 40]);
        let (memory, options, cx) =
            (Memory::new("test", &file), ReadOptions::default(), for_tests(Limits::default()));
        let mut marks = Vec::new();
        (format_of(way.format).walk)(&Walk::resuming(&memory, &options, Depth::Checked, &cx), &mut |span| {
            if let Span::Records(chunk) = span {
                marks.push(chunk.found_by_search);
            }
            Ok(())
        })
        .unwrap();
        assert!(!marks.is_empty() && marks.iter().all(|marked| *marked), "{way:?}: {marks:?}");
    }
}
