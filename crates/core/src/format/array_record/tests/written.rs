//! Round trips with all options: the records that are read equal those that were written.

use super::*;
use crate::error::Kind;
use crate::format::TableHome;
use crate::format::options::WriteOptions;
use crate::format::riegeli::RIEGELI;
use crate::limits::Limits;

fn check(options: &WriteOptions, records: &[Vec<u8>]) {
    let file = write(options, records);
    assert!(file.len() >= 131_072 && file.len().is_multiple_of(65_536));
    for table in [TableHome::Memory, TableHome::Disk] {
        for checksums in [true, false] {
            let read_options = ReadOptions { table, checksums, ..ReadOptions::default() };
            assert!(read(&ARRAY_RECORD, &file, &read_options).unwrap() == records, "{options:?}");
        }
    }
    let walked = walk(&ARRAY_RECORD, &file);
    assert_eq!((walked.records, walked.unused), (records.len() as u64, 0));
    assert!(walked.damage.is_empty(), "{options:?}: {:?}", walked.damage);
    // The plain container also returns the records of the footer and the postscript.
    let plain = read(&RIEGELI, &file, &ReadOptions::default()).unwrap();
    assert!(plain[..records.len()] == *records && plain.len() > records.len() + 3);
}

#[test]
fn every_codec_group_and_layout_round_trips() {
    let sizes = [0, 1, 4096, 65_448, 65_472, 65_512, 65_536, 200_000];
    let odd: Vec<Vec<u8>> = (0..).zip(sizes).map(|(i, size)| vec![i; size]).collect();
    for codec in ["none", "brotli", "zstd", "snappy"] {
        for group in [1, 3, 1000] {
            for transpose in [false, true] {
                let options = options(codec, group).with_flag("transpose", transpose);
                for records in [&[][..], &[vec![]], &counter(20), &messages(40), &odd] {
                    check(&options, records);
                }
            }
        }
        check(&options(codec, 4).with_flag("pad_to_block_boundary", true), &counter(10));
    }
}

#[test]
fn windows_levels_and_buckets_round_trip() {
    let records = messages(100);
    for window in [10, 24, 25, 28] {
        for codec in ["brotli", "zstd"] {
            check(&options(codec, 50).with_int("window_log", window).with_int("level", 1), &records);
        }
    }
    for bucket in [1, 20, 10_000] {
        let options = options("zstd", 100).with_flag("transpose", true);
        check(&options.with_int("transpose_bucket_size", bucket), &records);
    }
}

#[test]
fn a_long_footer_is_read_record_by_record() {
    let records = counter(6_000);
    for codec in ["none", "brotli", "zstd", "snappy"] {
        let file = write(&options(codec, 1).with_int("num_records", 6_000), &records);
        assert!(read(&ARRAY_RECORD, &file, &ReadOptions::default()).unwrap() == records, "{codec}");
        assert!(walk(&ARRAY_RECORD, &file).damage.is_empty(), "{codec}");
    }
}

#[test]
fn more_records_than_bytes_are_padded() {
    let records = vec![Vec::new(); 70_000];
    let file = write(&options("zstd", 70_000), &records);
    assert_eq!(file.len(), 196_608);
    let walked = walk(&ARRAY_RECORD, &file);
    assert_eq!((walked.records, walked.damage.len()), (70_000, 0));
    let mut flipped = file.clone();
    flipped[50_000] ^= 1;
    assert_eq!(walk(&ARRAY_RECORD, &flipped).damage.len(), 1, "padding is verified");
}

#[test]
fn the_table_describes_the_file() {
    let table =
        open(&ARRAY_RECORD, &write(&options("brotli", 7), &counter(30)), &ReadOptions::default()).unwrap();
    let description = table.describe();
    assert_eq!(description.codec.as_deref(), Some("brotli"));
    assert_eq!(description.decoded_bytes, Some(390));
    assert!(description.options.unwrap().starts_with("group_size:7,"));
    assert_eq!((table.records(), table.chunks()), (30, 5));
}

#[test]
fn a_chunk_over_the_limit_is_refused_but_stored_bytes_are_not_limited() {
    let limits = Limits { decoded_chunk_bytes: 1_000, ..Limits::default() };
    let read_options = ReadOptions { limits, ..ReadOptions::default() };
    let records = vec![vec![0; 100_000]];
    for codec in ["zstd", "brotli", "snappy"] {
        let file = write(&options(codec, 1), &records);
        let error = read(&ARRAY_RECORD, &file, &read_options).unwrap_err();
        assert!(matches!(error.kind(), Kind::Limit), "{codec}: {error}");
    }
    assert!(read(&ARRAY_RECORD, &write(&options("none", 1), &records), &read_options).unwrap() == records);
}

#[test]
fn riegeli_is_not_written() {
    let error = (RIEGELI.encoder)(&WriteOptions::default()).err().unwrap();
    assert_eq!(error.to_string(), "riegeli is read only; write array_record");
}
