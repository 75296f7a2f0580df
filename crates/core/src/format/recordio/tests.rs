//! Tests with whole files: files written by the original, round trips, and files crafted to break a reader.

use super::RECORDIO;
use crate::cx::for_tests;
use crate::error::{Kind, Result};
use crate::format::options::WriteOptions;
use crate::format::testing;
use crate::format::{Probe, ReadOptions, Table, Way, detect, walk};
use crate::shard::Shard;
use crate::storage::{location::Location, memory::Memory};
use crate::{Limits, Reader};
use proptest::prelude::*;
use std::sync::Arc;

fn write(options: &WriteOptions, records: &[Vec<u8>]) -> Vec<u8> {
    testing::write(&RECORDIO, options, records)
}

fn options(codec: &str, chunk_bytes: u64) -> WriteOptions {
    WriteOptions::default().with_text("codec", codec).with_int("chunk_bytes", chunk_bytes)
}

fn reader(file: &[u8], cache: usize) -> Result<Reader> {
    let storage = Arc::new(Memory::new("test.recordio", file.to_vec()));
    let shard = Shard::open(
        Location::Handed(storage),
        Default::default(),
        Some("recordio"),
        ReadOptions::default(),
        &for_tests(Limits::default()),
    )?;
    Reader::new(vec![Arc::new(shard)], cache, None)
}

/// Reads all records by number, twice. The second pass uses the positions that the first one cached.
fn read(file: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut passes = Vec::new();
    for cache in [0, 1 << 20] {
        let reader = reader(file, cache)?;
        for _ in 0..2 {
            passes.push((0..reader.len()).map(|i| reader.read(i)).collect::<Result<Vec<_>>>()?);
        }
        let mut batch: Vec<Vec<u8>> = Vec::new();
        reader.read_batch(
            &(0..reader.len()).collect::<Vec<_>>(),
            &mut batch,
            &for_tests(Limits::default()),
        )?;
        passes.push(batch);
    }
    assert!(passes.windows(2).all(|two| two[0] == two[1]), "two ways to a record differ");
    Ok(passes.remove(0))
}

fn scan(file: &[u8]) -> Result<Vec<Vec<u8>>> {
    testing::scan(&RECORDIO, file)
}

fn walked(file: &[u8]) -> (u64, u64) {
    testing::verified(&RECORDIO, file)
}

fn probe(file: &[u8]) -> Probe {
    (RECORDIO.probe)(&Memory::new("a", file), &ReadOptions::default(), &for_tests(Limits::default())).unwrap()
}

fn golden(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/recordio/");
    std::fs::read(format!("{folder}{name}.recordio")).unwrap()
}

fn records(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

#[test]
fn the_originals_files_are_read_and_written_to_the_byte() {
    for (name, n, codec, chunk_bytes) in [
        ("none_default", 40, "none", 32 << 20),
        ("none_chunk200", 40, "none", 200),
        ("none_all_empty", 9, "none", 10),
        ("none_big", 3, "none", 200_001),
        ("snappy_default", 40, "snappy", 32 << 20),
        ("snappy_chunk200", 40, "snappy", 200),
        ("snappy_all_empty", 9, "snappy", 10),
        ("snappy_big", 5, "snappy", 32 << 20),
        ("snappy_many", 3000, "snappy", 1000),
        ("snappy_exact", 66, "snappy", 32 << 20),
        ("cut_rule", 8, "none", 10),
        ("empty", 0, "snappy", 32 << 20),
    ] {
        let file = golden(name);
        let found = read(&file).unwrap();
        assert_eq!(found.len(), n, "{name}");
        assert_eq!(scan(&file).unwrap(), found, "{name}");
        assert_eq!(walked(&file), (n as u64, 0), "{name}");
        assert!(write(&options(codec, chunk_bytes), &found) == file, "{name} is written differently");
    }
}

#[test]
fn gzip_old_frames_padding_and_joined_files_are_read() {
    let plain = read(&golden("none_default")).unwrap();
    for name in ["gzip_default", "gzip_chunk200", "old_snappy"] {
        assert_eq!(read(&golden(name)).unwrap(), plain, "{name}");
        assert_eq!(scan(&golden(name)).unwrap(), plain, "{name}");
    }
    assert_eq!(read(&golden("old_snappy_big")).unwrap().len(), 3);
    assert_eq!(read(&golden("snappy_padding_mid")).unwrap().len(), 1);
    let joined: Vec<_> = [&records(&["x", "x"])[..], &plain].concat();
    assert_eq!(read(&golden("concat_mixed")).unwrap(), joined);
}

#[test]
fn an_empty_file_has_no_records_by_name_or_by_suffix() {
    assert_eq!(reader(b"", 0).unwrap().len(), 0);
    assert_eq!(
        detect::detect(
            &Memory::new("a.recordio", b""),
            &ReadOptions::default(),
            &for_tests(Limits::default())
        )
        .unwrap()
        .name,
        "recordio"
    );
    assert_eq!(probe(b""), Probe::No);
    assert_eq!(probe(&golden("none_one")), Probe::Yes);
}

#[test]
fn damage_is_a_named_error_at_its_place_and_costs_one_chunk() {
    // Chunk 1 of the six begins at byte 193 of the uncompressed files, at 331 of the others, and has 11 of the 40
    // records.
    for (name, kind, offset, whole) in [
        ("none_bad_crc", Kind::Checksum, 193, 29),
        ("none_bad_payload", Kind::Checksum, 193, 29),
        ("none_bad_magic_mid", Kind::Format, 193, 29),
        ("none_bad_compressor", Kind::Format, 201, 29),
        ("none_numrec_zero", Kind::Format, 209, 29),
        ("none_numrec_plus1", Kind::Format, 193, 29),
        ("none_numrec_minus1", Kind::Format, 193, 29),
        ("none_size_max", Kind::Truncated, 213, 29),
        ("none_trunc_header_2", Kind::Truncated, 991, 36),
        ("none_trunc_header_17", Kind::Truncated, 991, 36),
        ("none_trunc_payload", Kind::Truncated, 1011, 36),
        ("none_trailing", Kind::Format, 1137, 40),
        ("none_reclen_past_end", Kind::Format, 0, 0),
        ("none_extra_payload", Kind::Format, 0, 0),
        ("snappy_bad_payload", Kind::Checksum, 331, 29),
        ("snappy_inner_crc", Kind::Checksum, 361, 29),
        ("snappy_padding_tail", Kind::Format, 53, 0),
    ] {
        let file = golden(name);
        for error in [read(&file).unwrap_err(), scan(&file).unwrap_err()] {
            assert_eq!(format!("{:?}", error.kind()), format!("{kind:?}"), "{name}: {error}");
            assert_eq!(error.offset(), Some(offset), "{name}: {error}");
            assert!(error.found_text().is_some() && error.expected_text().is_some(), "{name}: {error}");
        }
        assert_eq!(walked(&file), (whole, 1), "{name}");
    }
}

#[test]
fn a_wrong_payload_size_is_seen_by_every_way_of_reading() {
    // Opening looks for the next header one byte too far and does not find it. A scan sees that the checksum does not
    // match the payload.
    let file = golden("none_size_plus1");
    let (opened, scanned) = (read(&file).unwrap_err(), scan(&file).unwrap_err());
    assert!(matches!(opened.kind(), Kind::Format) && opened.offset() == Some(451), "{opened}");
    assert!(matches!(scanned.kind(), Kind::Checksum) && scanned.offset() == Some(193), "{scanned}");
    assert_eq!(walked(&file), (29, 1));
}

#[test]
fn a_record_as_large_as_a_chunk_is_refused_and_the_rest_is_written() {
    let mut encoder = (RECORDIO.encoder)(&options("none", 10)).unwrap();
    assert!(encoder.push(b"123456789").unwrap().is_none());
    let error = encoder.push(b"1234567890").unwrap_err();
    assert!(matches!(error.kind(), Kind::Argument));
    assert!(error.to_string().contains("the largest has 9"), "{error}");
    assert!(encoder.push(b"1").unwrap().is_none(), "10 bytes fill a chunk and do not begin another");
    assert_eq!(encoder.push(b"2").unwrap().map(|group| group.ends), Some(vec![4 + 9, 4 + 9 + 4 + 1]));
}

#[test]
fn options_are_refused_by_name() {
    let refused = |options: WriteOptions| (RECORDIO.encoder)(&options).err().unwrap().to_string();
    let default = WriteOptions::default;
    assert!(refused(default().with_text("codec", "zstd")).contains("one of none, snappy, gzip"));
    assert!(refused(default().with_int("level", 3)).contains("level= is for codec='gzip'"));
    assert!(refused(options("gzip", 100).with_int("level", 10)).contains("from 0 to 9"));
    assert!(refused(default().with_int("chunk_bytes", 0)).contains("from 1 to 2147483648"));
    assert!(refused(default().with_int("group_size", 1)).contains("chunk_bytes"));
}

#[test]
fn later_reads_fetch_the_record_alone() {
    let written: Vec<Vec<u8>> = (0..100u8).map(|i| vec![i; 50 + usize::from(i)]).collect();
    for (codec, per_record) in [("none", 0), ("snappy", 20)] {
        let file = write(&options(codec, 1 << 20), &written);
        let table = (RECORDIO.open)(
            &Memory::new("test", &file),
            &ReadOptions::default(),
            &for_tests(Limits::default()),
        )
        .unwrap();
        assert_eq!(table.size(7).unwrap(), None);
        let (chunk, row) = table.locate(7).unwrap();
        assert_eq!((chunk.records, row), (100, 7));
        table.decode(&chunk, &file, &for_tests(Limits::default())).unwrap();
        assert_eq!(table.size(7).unwrap(), Some(57));
        let (Way::Plain { stored: range, .. } | Way::Alone { stored: range, .. }) = table.way(7).unwrap()
        else {
            panic!("{codec}: the whole chunk is read again")
        };
        assert_eq!(table.locate(7).unwrap(), (chunk, row), "one question, one answer");
        assert!(range.end - range.start <= 57 + per_record, "{codec}: {range:?}");
    }
}

#[test]
fn what_changes_under_a_reader_is_seen_by_later_reads_too() {
    let written = records(&["first record", "second record", "third record"]);
    for codec in ["none", "snappy"] {
        let mut file = write(&options(codec, 1 << 20), &written);
        let table = (RECORDIO.open)(
            &Memory::new("test", &file),
            &ReadOptions::default(),
            &for_tests(Limits::default()),
        )
        .unwrap();
        table.decode(&table.locate(0).unwrap().0, &file, &for_tests(Limits::default())).unwrap();
        let last = file.len() - 1;
        file[last] ^= 1;
        let mut out = vec![0; 12];
        let error = match table.way(2).unwrap() {
            Way::Plain { stored, checksum } => {
                table.check(2, checksum, &file[stored.start as usize..stored.end as usize])
            }
            Way::Alone { stored, .. } => {
                let bytes = &file[stored.start as usize..stored.end as usize];
                table.decode_into(2, stored.start, bytes, &mut out, &for_tests(Limits::default()))
            }
            Way::Shared(..) => panic!("{codec}: the whole chunk is read again"),
        };
        assert!(matches!(error.unwrap_err().kind(), Kind::Checksum), "{codec}");
    }
}

#[test]
fn rows_never_come_from_bytes_that_were_not_verified() {
    let written = records(&["first record", "second record", "third record"]);
    let (cx, file) = (for_tests(Limits::default()), write(&options("none", 1 << 20), &written));
    let open = || (RECORDIO.open)(&Memory::new("test", &file), &ReadOptions::default(), &cx).unwrap();
    let mut damaged = file.clone();
    *damaged.last_mut().unwrap() ^= 1;

    let without_rows = open();
    let chunk = without_rows.locate(2).unwrap().0;
    let error = without_rows.decode_verified(&chunk, &damaged, &cx).unwrap_err();
    assert!(matches!(error.kind(), Kind::Checksum), "{error}");
    assert_eq!(without_rows.size(2).unwrap(), None);

    let with_rows = open();
    with_rows.decode(&chunk, &file, &cx).unwrap();
    with_rows.decode_verified(&chunk, &damaged, &cx).unwrap();
    let Way::Plain { checksum, .. } = with_rows.way(2).unwrap() else { panic!("there are no rows") };
    // The table that checks the record may have forgotten its rows meanwhile.
    for table in [&with_rows, &without_rows] {
        table.check(2, checksum, b"third record").unwrap();
        assert!(
            table.check(2, checksum, &damaged[damaged.len() - 12..]).is_err(),
            "the rows are those of the damaged chunk, or nothing is checked"
        );
    }
}

#[test]
fn what_a_survey_found_counts_only_if_the_caller_says_so() {
    let written = records(&["first record", "second record", "third record"]);
    for checksums in [true, false] {
        let (cx, file) = (for_tests(Limits::default()), write(&options("none", 1 << 20), &written));
        let options = ReadOptions { checksums, ..ReadOptions::default() };
        let table = (RECORDIO.open)(&Memory::new("test", &file), &options, &cx).unwrap();
        let chunk = table.locate(2).unwrap().0;
        assert!(table.survey_bytes(&chunk).is_some());
        let found = table.survey(&chunk, &file, &cx).unwrap().expect("nothing is wrong with the chunk");
        assert_eq!(table.size(2).unwrap(), None);
        found();
        let Way::Plain { stored, checksum } = table.way(2).unwrap() else { panic!("no rows were kept") };
        assert_eq!(&file[stored.start as usize..stored.end as usize], b"third record");
        assert_eq!(checksum, checksums.then(|| crc32fast::hash(b"third record")));
    }
    let file = write(&options("snappy", 1 << 20), &written);
    let (memory, cx) = (Memory::new("test", &file), for_tests(Limits::default()));
    let table = (RECORDIO.open)(&memory, &ReadOptions::default(), &cx).unwrap();
    assert_eq!(table.survey_bytes(&table.locate(2).unwrap().0), None, "it has to be decompressed");
}

#[test]
fn a_chunk_that_unpacks_to_more_than_the_limit_is_refused() {
    for codec in ["snappy", "gzip"] {
        let file = write(&options(codec, 1 << 20), &[vec![0; 100_000]]);
        let limits = Limits { decoded_chunk_bytes: 50_000, ..Limits::default() };
        let options = ReadOptions { limits, ..ReadOptions::default() };
        let error =
            walk::scan(&RECORDIO, &Memory::new("test", file), &options, &for_tests(limits), &mut |_| Ok(()))
                .unwrap_err();
        assert!(matches!(error.kind(), Kind::Limit), "{error}");
    }
}

#[test]
fn a_side_index_gives_the_same_table_and_a_wrong_one_is_ignored() {
    let file = golden("snappy_many");
    let (memory, options) = (Memory::new("test", &file), ReadOptions::default());
    let opened = (RECORDIO.open)(&memory, &options, &for_tests(Limits::default())).unwrap();
    let index = opened.index_bytes().unwrap();
    assert!((index.len() as u64) < 50 + 6 * opened.chunks(), "{} bytes", index.len());
    let indexed = RECORDIO.open_indexed.unwrap()(&memory, &index, &options, &for_tests(Limits::default()))
        .unwrap()
        .unwrap();
    let table = |table: &dyn Table| {
        let places: Vec<_> = (0..table.records()).map(|i| table.locate(i).unwrap()).collect();
        (table.describe(), places)
    };
    assert!(table(&*opened) == table(&*indexed));
    let mut other = golden("snappy_many");
    other.swap(0, 1);
    assert!(
        RECORDIO.open_indexed.unwrap()(
            &Memory::new("test", &other),
            &index,
            &options,
            &for_tests(Limits::default())
        )
        .unwrap()
        .is_none()
    );
    let shorter = Memory::new("test", &file[..file.len() - 1]);
    assert!(
        RECORDIO.open_indexed.unwrap()(&shorter, &index, &options, &for_tests(Limits::default()))
            .unwrap()
            .is_none()
    );
}

fn codecs() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("none"), Just("snappy"), Just("gzip")]
}

fn some_records() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(0u8..5, 0..40), 0..30)
}

proptest! {
    #[test]
    fn records_round_trip(written in some_records(), codec in codecs(), chunk_bytes in 41u64..300) {
        let file = write(&options(codec, chunk_bytes), &written);
        prop_assert_eq!(read(&file).unwrap(), written.clone());
        prop_assert_eq!(scan(&file).unwrap(), written.clone());
        prop_assert_eq!(walked(&file), (written.len() as u64, 0));
        // Only the bytes of the records decide where a chunk ends.
        let table = (RECORDIO.open)(&Memory::new("test", file), &ReadOptions::default(), &for_tests(Limits::default())).unwrap();
        let (mut chunks, mut pending) = (u64::from(!written.is_empty()), 0);
        for record in &written {
            if pending + record.len() as u64 > chunk_bytes {
                (chunks, pending) = (chunks + 1, 0);
            }
            pending += record.len() as u64;
        }
        prop_assert_eq!(table.chunks(), chunks);
    }

    #[test]
    fn a_flipped_bit_is_a_named_error_or_changes_nothing(written in some_records(), codec in codecs(), at: prop::sample::Index, bit in 0u8..8) {
        let mut file = write(&options(codec, 100), &written);
        prop_assume!(!file.is_empty());
        let at = at.index(file.len());
        file[at] ^= 1 << bit;
        match read(&file) {
            Ok(found) => prop_assert_eq!(found, written.clone()),
            Err(error) => prop_assert!(error.offset().is_some(), "{}", error),
        }
        prop_assert!(scan(&file).is_err());
        prop_assert!(walked(&file).1 > 0, "a walk sees every flip");
    }

    #[test]
    fn a_cut_is_a_truncation_unless_it_is_between_chunks(written in some_records(), codec in codecs(), at: prop::sample::Index) {
        let file = write(&options(codec, 100), &written);
        prop_assume!(!file.is_empty());
        let cut = &file[..at.index(file.len())];
        match (read(cut), scan(cut)) {
            (Ok(found), Ok(scanned)) => {
                prop_assert_eq!(&found, &scanned);
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
    fn no_bytes_make_it_panic(mut file: Vec<u8>, begun: bool) {
        if begun {
            file.splice(0..0, [4, 3, 2, 1]);
        }
        let _ = read(&file);
        let _ = scan(&file);
        let _ = walked(&file);
        let _ = RECORDIO.open_indexed.unwrap()(&Memory::new("test", &file), &file, &ReadOptions::default(), &for_tests(Limits::default()));
    }
}
