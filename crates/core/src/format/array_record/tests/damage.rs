//! One damaged byte anywhere in a file: a reader returns no wrong data, a walk reports the damage, and at most one
//! chunk is lost.

use super::*;
use crate::budget::Budget;
use crate::cx::Cx;
use crate::error::Kind;
use crate::format::TableHome;
use crate::format::options::WriteOptions;
use crate::format::riegeli::RIEGELI;
use crate::shard::RecordRange;
use crate::storage::file_set::FileSet;
use crate::verify::verify;

/// Small files of every layout.
fn files() -> Vec<(WriteOptions, Vec<Vec<u8>>)> {
    vec![
        (options("none", 2), counter(5)),
        (options("zstd", 1), counter(4)),
        (options("brotli", 3), messages(6)),
        (options("snappy", 2).with_flag("transpose", true), messages(5)),
        (options("none", 4).with_flag("transpose", true), messages(8)),
    ]
}

/// All bytes except the zeros of padding, and a sample of those zeros.
fn places(file: &[u8]) -> impl Iterator<Item = usize> {
    (0..file.len()).filter(|&at| {
        let nearby = &file[at.saturating_sub(40)..file.len().min(at + 40)];
        nearby.iter().any(|&byte| byte != 0) || at % 1511 == 0
    })
}

#[test]
fn a_flip_of_any_byte_gives_an_error_or_the_same_records() {
    for (options, records) in files() {
        let mut file = write(&options, &records);
        for at in places(&file).collect::<Vec<_>>() {
            for flip in [1 << (at % 8), 0xff] {
                file[at] ^= flip;
                match open(&ARRAY_RECORD, &file, &ReadOptions::default()) {
                    Err(error) => assert!(error.offset().is_some(), "{error}"),
                    Ok(table) => {
                        assert_eq!(table.records(), records.len() as u64);
                        for (found, expected) in
                            read_table(&*table, &file, Limits::default()).iter().zip(&records)
                        {
                            match found {
                                Ok(found) => assert_eq!(found, expected, "byte {at}"),
                                Err(error) => assert!(error.offset().is_some(), "{error}"),
                            }
                        }
                    }
                }
                file[at] ^= flip;
            }
        }
    }
}

#[test]
fn without_checksums_no_flip_panics() {
    let options_without = ReadOptions { checksums: false, ..ReadOptions::default() };
    for (options, records) in files() {
        let mut file = write(&options, &records);
        for at in places(&file).collect::<Vec<_>>() {
            file[at] ^= 1 << (at % 7);
            if let Ok(table) = open(&ARRAY_RECORD, &file, &options_without) {
                read_table(&*table, &file, Limits::default());
            }
            file[at] ^= 1 << (at % 7);
        }
    }
}

#[test]
fn a_walk_sees_every_flip_and_loses_one_chunk_at_most() {
    for (options, records) in files() {
        let mut file = write(&options, &records);
        let group = open(&ARRAY_RECORD, &file, &ReadOptions::default()).unwrap().locate(0).unwrap().0.records;
        for at in places(&file).collect::<Vec<_>>() {
            file[at] ^= 1 << (at % 8);
            let walked = walk(&ARRAY_RECORD, &file);
            assert!(!walked.damage.is_empty(), "a flip at {at} is not seen");
            assert!(
                walked.records + group >= records.len() as u64,
                "a flip at {at} loses {}",
                walked.records
            );
            assert!(walked.records <= records.len() as u64, "a flip at {at} adds records");
            file[at] ^= 1 << (at % 8);
        }
    }
}

#[test]
fn a_cut_anywhere_is_an_error_at_open_and_damage_in_a_walk() {
    let (options, records) = files().remove(0);
    let whole = write(&options, &records);
    let cuts = (0..1000).chain((1000..whole.len()).step_by(4099)).chain(whole.len() - 300..whole.len());
    for size in cuts.chain([65_535, 65_536, 65_537, 65_560, 65_561, 65_644]) {
        let file = &whole[..size];
        let error = open(&ARRAY_RECORD, file, &ReadOptions::default()).err().unwrap();
        assert!(matches!(error.kind(), Kind::Truncated), "cut at {size}: {error}");
        assert!(error.to_string().contains("postscript is missing"), "cut at {size}: {error}");
        let walked = walk(&ARRAY_RECORD, file);
        assert!(!walked.damage.is_empty() && walked.records <= records.len() as u64, "cut at {size}");
    }
}

#[test]
fn a_plain_walk_finds_the_way_by_block_headers() {
    let records = vec![vec![7; 30_000]; 20];
    let file = write(&options("none", 1), &records);
    let table = open(&ARRAY_RECORD, &file, &ReadOptions::default()).unwrap();
    for record in 0..records.len() as u64 {
        let mut file = file.clone();
        file[table.locate(record).unwrap().0.stored.start as usize + 30] ^= 1;
        let walked = walk(&RIEGELI, &file);
        assert_eq!(walked.damage.len(), 1);
        // At most the chunks that begin in one block are lost. Footer and postscript count as records here.
        assert!(walked.records >= 20 - 3 + 21 + 3, "{record}: {}", walked.records);
        let walked = walk(&ARRAY_RECORD, &file);
        assert_eq!((walked.records, walked.damage.len()), (19, 1), "the footer knows better");
    }
}

#[test]
fn a_plain_file_cut_inside_a_chunk_is_truncated() {
    let file = write(&options("none", 1), &counter(3));
    for size in [0, 10, 63, 70, 119, 130] {
        let error = open(&RIEGELI, &file[..size], &ReadOptions::default()).err().unwrap();
        assert!(matches!(error.kind(), Kind::Truncated), "{size}: {error}");
        assert_eq!(walk(&RIEGELI, &file[..size]).damage.len(), 1, "{size}");
    }
    assert_eq!(open(&RIEGELI, &file[..64], &ReadOptions::default()).unwrap().records(), 0);
}

#[test]
fn a_limit_of_temporary_files_is_no_damage() {
    let file = write(&options("none", 1), &counter(3000));
    let limits = Limits { spool_bytes: 1, ..Limits::default() };
    let options = ReadOptions { table: TableHome::Disk, limits, ..ReadOptions::default() };
    let opened = open(&ARRAY_RECORD, &file, &options);
    assert!(opened.is_err_and(|error| matches!(error.kind(), Kind::Limit)));
    let files = FileSet::new(&limits);
    let budget = Budget::new(&limits, &files);
    let storage = Memory::new("file", &file[..]);
    let report = verify(
        &storage,
        Some("array_record"),
        &[RecordRange::default()],
        &options,
        &Cx::new(&budget),
        &mut |_| Ok(()),
    )
    .unwrap();
    assert!(report.is_ok() && report.records == [3000], "{report:?}");
}
