//! Tests with whole files: files written by TensorFlow, round trips, and files crafted to break a reader.

use super::TFRECORD;
use crate::codec::gzip::{self, Wrapper};
use crate::cx::{Cx, for_tests};
use crate::error::{Kind, Result};
use crate::format::options::WriteOptions;
use crate::format::testing;
use crate::format::{Probe, ReadOptions, detect, walk};
use crate::hash::crc32c;
use crate::shard::Shard;
use crate::storage::{Storage, location::Location, memory::Memory};
use crate::{Limits, Reader};
use proptest::prelude::*;
use std::sync::Arc;

fn packed(wrapper: Wrapper, file: &[u8], level: u32) -> Vec<u8> {
    gzip::compress(wrapper, file, level).unwrap()
}

fn write(options: &WriteOptions, records: &[Vec<u8>]) -> Vec<u8> {
    testing::write_in_groups(&TFRECORD, options, records, 7)
}

fn codec(name: &str) -> WriteOptions {
    WriteOptions::default().with_text("codec", name)
}

fn read_with(file: &[u8], options: ReadOptions) -> Result<Vec<Vec<u8>>> {
    let storage = Arc::new(Memory::new("test.tfrecord", file.to_vec()));
    let shard = Shard::open(
        Location::Handed(storage),
        Default::default(),
        Some("tfrecord"),
        options,
        &for_tests(options.limits),
    )?;
    let reader = Reader::new(vec![Arc::new(shard)], 1 << 20, None)?;
    let one_by_one = (0..reader.len()).map(|i| reader.read(i)).collect::<Result<Vec<_>>>()?;
    let mut batch: Vec<Vec<u8>> = Vec::new();
    reader.read_batch(&(0..reader.len()).collect::<Vec<_>>(), &mut batch, &for_tests(Limits::default()))?;
    assert_eq!(one_by_one, batch);
    Ok(batch)
}

fn read(file: &[u8]) -> Result<Vec<Vec<u8>>> {
    read_with(file, ReadOptions::default())
}

fn scan(file: &[u8]) -> Result<Vec<Vec<u8>>> {
    testing::scan(&TFRECORD, file)
}

fn walked(file: &[u8]) -> (u64, u64) {
    testing::verified(&TFRECORD, file)
}

fn golden(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/tfrecord/");
    std::fs::read(format!("{folder}{name}")).unwrap()
}

#[test]
fn tensorflows_files_are_read_and_plain_ones_written_to_the_byte() {
    for (name, n) in [("empty", 0), ("one_empty", 1), ("mixed", 63), ("examples", 23)] {
        let plain = golden(&format!("{name}.tfrecord"));
        let records = read(&plain).unwrap();
        assert_eq!(records.len(), n);
        assert!(write(&codec("none"), &records) == plain, "{name}");
        for suffix in ["", ".gz", ".zlib"] {
            let file = golden(&format!("{name}.tfrecord{suffix}"));
            assert!(read(&file).unwrap() == records, "{name}{suffix}");
            assert!(scan(&file).unwrap() == records, "{name}{suffix}");
            assert_eq!(walked(&file), (n as u64, 0), "{name}{suffix}");
            let probe = (TFRECORD.probe)(
                &Memory::new("nameless", &file),
                &ReadOptions::default(),
                &for_tests(Limits::default()),
            )
            .unwrap();
            assert_eq!(probe, if n == 0 { Probe::No } else { Probe::Yes }, "{name}{suffix}");
            let named = Memory::new(format!("a.tfrecord{suffix}"), &file);
            assert_eq!(
                detect::detect(&named, &ReadOptions::default(), &for_tests(Limits::default())).unwrap().name,
                "tfrecord"
            );
        }
    }
    assert_eq!(read(&golden("big.tfrecord")).unwrap().len(), 3);
}

#[test]
fn damage_is_a_named_error_at_its_place_and_costs_one_record() {
    for (name, kind, offset, whole) in [
        ("bad_length", Kind::Checksum, 0, 62),
        ("bad_length_crc", Kind::Checksum, 0, 62),
        ("bad_data", Kind::Checksum, 12, 62),
        ("bad_data_crc", Kind::Checksum, 12, 62),
        ("cut_in_data", Kind::Truncated, 0, 0),
        ("cut_in_header", Kind::Truncated, 0, 0),
        ("cut_last_byte", Kind::Truncated, 47_522, 62),
        ("trailing_zeros", Kind::Checksum, 47_638, 63),
        ("huge_length", Kind::Checksum, 0, 62),
    ] {
        let file = golden(&format!("{name}.tfrecord"));
        for error in [read(&file).unwrap_err(), scan(&file).unwrap_err()] {
            assert_eq!(format!("{:?}", error.kind()), format!("{kind:?}"), "{name}: {error}");
            assert_eq!(error.offset(), Some(offset), "{name}: {error}");
            assert!(error.found_text().is_some() && error.expected_text().is_some(), "{name}: {error}");
        }
        assert_eq!(walked(&file), (whole, 1), "{name}");
    }
}

/// A record header with a right checksum, for any length.
fn header(length: u64) -> Vec<u8> {
    let length = length.to_le_bytes();
    [&length[..], &crc32c::masked(&length).to_le_bytes()].concat()
}

#[test]
fn a_length_that_nothing_can_hold_is_refused_before_anything_is_allocated() {
    for length in [1 << 40, 1 << 60, u64::MAX - 15, u64::MAX] {
        let file = [header(length), vec![0; 100]].concat();
        for file in [file.clone(), packed(Wrapper::Gzip, &file, 6), packed(Wrapper::Zlib, &file, 6)] {
            assert!(read(&file).is_err() && scan(&file).is_err());
            assert_eq!(walked(&file).0, 0);
        }
    }
}

#[test]
fn a_length_that_looks_like_zlib_is_still_a_length() {
    // 0x0178 bytes: a header that begins with 78 01, as a zlib stream may.
    let written = vec![vec![7; 0x0178], b"next".to_vec()];
    let mut file = write(&codec("none"), &written);
    assert!(Wrapper::Zlib.begins(&file));
    assert_eq!(read(&file).unwrap(), written);
    file[5] ^= 1;
    let error = read(&file).unwrap_err();
    assert!(error.what().contains("record length checksum"), "{error}");
}

#[test]
fn several_gzip_members_are_one_file() {
    let written: Vec<Vec<u8>> = (0..10u8).map(|i| vec![i; 10]).collect();
    let joined = [write(&codec("gzip"), &written[..4]), write(&codec("gzip"), &written[4..])].concat();
    assert_eq!(read(&joined).unwrap(), written);
    assert_eq!(scan(&joined).unwrap(), written);
}

#[test]
fn damage_inside_a_sound_stream_costs_one_record() {
    let written: Vec<Vec<u8>> = (0..10u8).map(|i| vec![i; 10]).collect();
    let mut plain = write(&codec("none"), &written);
    plain[26 * 4 + 12] ^= 1;
    for wrapper in [Wrapper::Gzip, Wrapper::Zlib] {
        let file = packed(wrapper, &plain, 6);
        let error = scan(&file).unwrap_err();
        assert_eq!((error.record(), error.offset()), (Some(4), Some(26 * 4 + 12)), "{error}");
        assert!(error.to_string().contains("decompressed stream"), "{error}");
        assert_eq!(walked(&file), (9, 1));
    }
}

#[test]
fn without_checksums_damaged_data_is_read_as_it_is() {
    let written = vec![b"abc".to_vec(), b"def".to_vec()];
    let mut file = write(&codec("none"), &written);
    file[12] = b'x';
    let options = ReadOptions { checksums: false, ..ReadOptions::default() };
    assert_eq!(read_with(&file, options).unwrap(), [b"xbc", b"def"]);
}

#[test]
fn a_record_of_a_compressed_file_over_the_limit_is_refused() {
    let file = write(&codec("gzip"), &[vec![0; 100_000]]);
    let limits = Limits { decoded_chunk_bytes: 50_000, ..Limits::default() };
    let options = ReadOptions { limits, ..ReadOptions::default() };
    let memory = Memory::new("test", file.clone());
    let scanned = walk::scan(&TFRECORD, &memory, &options, &for_tests(limits), &mut |_| Ok(())).unwrap_err();
    for error in [scanned, read_with(&file, options).unwrap_err()] {
        assert!(matches!(error.kind(), Kind::Limit), "{error}");
    }
}

#[test]
fn options_are_refused_by_name() {
    let refused = |options: WriteOptions| (TFRECORD.encoder)(&options).err().unwrap().to_string();
    assert!(refused(codec("snappy")).contains("one of none, gzip, zlib"));
    assert!(refused(codec("none").with_int("level", 3)).contains("level= is for codec='gzip'"));
    assert!(refused(codec("zlib").with_int("level", 10)).contains("from 0 to 9"));
    assert!(refused(codec("zlib").with_int("chunk_bytes", 10)).contains("codec, level"));
}

#[test]
fn a_side_index_gives_the_same_table_and_a_wrong_one_is_ignored() {
    let file = golden("mixed.tfrecord");
    let (memory, options) = (Memory::new("test", &file), ReadOptions::default());
    let opened = (TFRECORD.open)(&memory, &options, &for_tests(Limits::default())).unwrap();
    let index = opened.index_bytes().unwrap();
    let indexed = TFRECORD.open_indexed.unwrap()(&memory, &index, &options, &for_tests(Limits::default()))
        .unwrap()
        .unwrap();
    assert_eq!((opened.records(), opened.describe()), (indexed.records(), indexed.describe()));
    for record in 0..opened.records() {
        assert_eq!(opened.locate(record).unwrap(), indexed.locate(record).unwrap());
    }
    let mut other = file.clone();
    other[0] ^= 1;
    assert!(
        TFRECORD.open_indexed.unwrap()(
            &Memory::new("test", &other),
            &index,
            &options,
            &for_tests(Limits::default())
        )
        .unwrap()
        .is_none()
    );
    let wrapped = golden("mixed.tfrecord.gz");
    assert!(
        (TFRECORD.open)(&Memory::new("test", &wrapped), &options, &for_tests(Limits::default()))
            .unwrap()
            .index_bytes()
            .is_none()
    );
    assert!(
        TFRECORD.open_indexed.unwrap()(
            &Memory::new("test", &wrapped),
            &index,
            &options,
            &for_tests(Limits::default())
        )
        .unwrap()
        .is_none()
    );
}

#[test]
fn a_file_is_read_with_large_reads_where_records_are_small() {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    struct Counted(Vec<u8>, AtomicU64);
    impl Storage for Counted {
        fn name(&self) -> &str {
            "counted"
        }
        fn len(&self) -> u64 {
            self.0.len() as u64
        }
        fn read_at(&self, at: u64, out: &mut [u8], _cx: &Cx<'_>) -> Result<()> {
            self.1.fetch_add(1, Relaxed);
            out.copy_from_slice(&self.0[at as usize..at as usize + out.len()]);
            Ok(())
        }
    }
    let storage = Counted(write(&codec("none"), &vec![vec![1; 100]; 10_000]), AtomicU64::new(0));
    let table = (TFRECORD.open)(&storage, &ReadOptions::default(), &for_tests(Limits::default())).unwrap();
    assert_eq!(table.records(), 10_000);
    assert!(storage.1.load(Relaxed) < 10, "{} reads", storage.1.load(Relaxed));
}

fn codecs() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("none"), Just("gzip"), Just("zlib")]
}

fn some_records() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(0u8..5, 0..40), 0..30)
}

proptest! {
    #[test]
    fn records_round_trip(written in some_records(), name in codecs(), level in 0u32..10) {
        let options = if name == "none" { codec(name) } else { codec(name).with_int("level", level) };
        let file = write(&options, &written);
        prop_assert_eq!(read(&file).unwrap(), written.clone());
        prop_assert_eq!(scan(&file).unwrap(), written.clone());
        prop_assert_eq!(walked(&file), (written.len() as u64, 0));
    }

    #[test]
    fn a_flipped_bit_is_a_named_error_or_changes_nothing(written in some_records(), name in codecs(), at: prop::sample::Index, bit in 0u8..8) {
        let mut file = write(&codec(name), &written);
        prop_assume!(!file.is_empty());
        let at = at.index(file.len());
        file[at] ^= 1 << bit;
        for found in [read(&file), scan(&file)] {
            match found {
                // Deflate has bits without meaning (up to the next whole byte). A gzip header has whole fields without
                // meaning.
                Ok(found) => prop_assert_eq!(&found, &written),
                Err(error) => prop_assert!(error.offset().is_some(), "{}", error),
            }
        }
        let seen = walked(&file).1 > 0;
        prop_assert!(seen || name != "none", "a walk sees every flip in a plain file");
        prop_assert!(seen || read(&file).unwrap() == written, "a walk sees every flip that matters");
    }

    #[test]
    fn a_cut_is_a_truncation_unless_it_is_between_records(written in some_records(), name in codecs(), at: prop::sample::Index) {
        let file = write(&codec(name), &written);
        prop_assume!(!file.is_empty());
        let cut = &file[..at.index(file.len())];
        match (read(cut), scan(cut)) {
            (Ok(found), Ok(scanned)) => {
                prop_assert_eq!(&found, &scanned);
                prop_assert!(cut.is_empty() || name == "none");
                prop_assert!(written.starts_with(&found));
            }
            (Err(opened), Err(scanned)) => {
                prop_assert!(matches!(opened.kind(), Kind::Truncated), "{}", opened);
                prop_assert!(matches!(scanned.kind(), Kind::Truncated), "{}", scanned);
            }
            _ => prop_assert!(false, "opening and scanning disagree"),
        }
    }

    #[test]
    fn no_bytes_make_it_panic(mut file: Vec<u8>, kind in 0usize..4) {
        let begin = [vec![], vec![0x1f, 0x8b, 8, 0], vec![0x78, 0x9c], header(20)][kind].clone();
        file.splice(0..0, begin);
        let _ = read(&file);
        let _ = scan(&file);
        let _ = walked(&file);
        let _ = TFRECORD.open_indexed.unwrap()(&Memory::new("test", &file), &file, &ReadOptions::default(), &for_tests(Limits::default()));
    }
}
