//! Files written by the original library, and files crafted to mislead a reader.

use super::*;
use crate::error::Kind;
use crate::format::options::WriteOptions;
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/array_record"))
}

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(format!("{name}.array_record"))).unwrap()
}

/// The write options that an options string in a footer describes.
fn keywords(text: &str) -> WriteOptions {
    let mut options = WriteOptions::default();
    for option in text.split(',') {
        let (key, value) = option.split_once(':').unwrap_or((option, ""));
        options = match (key, value) {
            ("uncompressed", _) => options.with_text("codec", "none"),
            ("max_parallelism", _) => options,
            (_, "true" | "false") => options.with_flag(key, value == "true"),
            _ => options.with_int(key, value.parse::<i64>().unwrap()),
        };
    }
    options
}

#[test]
fn every_valid_golden_file_is_read_and_walked_and_stored_ones_are_written_to_the_byte() {
    let (mut files, mut reproduced) = (0, 0);
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let valid = !name.starts_with("corrupt_") && !name.starts_with("crafted_");
        if path.extension().is_none_or(|e| e != "array_record") || !valid {
            continue;
        }
        let file = std::fs::read(&path).unwrap();
        let table = open(&ARRAY_RECORD, &file, &ReadOptions::default()).unwrap();
        let records: Vec<Vec<u8>> =
            read_table(&*table, &file, Limits::default()).into_iter().collect::<Result<_>>().unwrap();
        let walked = walk(&ARRAY_RECORD, &file);
        assert_eq!(walked.records, records.len() as u64, "{name}");
        assert!(walked.damage.is_empty(), "{name}: {:?}", walked.damage);
        if name.starts_with("counter_") {
            assert!(records == counter(records.len()), "{name}");
        }
        files += 1;
        let text = table.describe().options.unwrap();
        if text.contains("uncompressed") {
            assert!(write(&keywords(&text), &records) == file, "{name} is not reproduced");
            reproduced += 1;
        }
    }
    assert!(files >= 30 && reproduced >= 10, "{files} files, {reproduced} reproduced");
}

#[test]
fn crafted_files_are_read_right_or_refused_by_name() {
    for name in ["crafted_file_metadata", "crafted_no_writer_options", "crafted_unequal_groups"] {
        let file = golden(name);
        let records = read(&ARRAY_RECORD, &file, &ReadOptions::default()).unwrap();
        assert_eq!(records.len(), 12, "{name}");
        assert!(walk(&ARRAY_RECORD, &file).damage.is_empty(), "{name}");
    }
    let refused = [
        ("crafted_bad_magic", "wrong magic number"),
        ("crafted_version2", "unknown version"),
        ("crafted_num_records_too_small", "do not add up"),
        ("crafted_num_records_too_big", "do not add up"),
        ("crafted_offset_past_end", "footer entry 1: offset 1000000000"),
    ];
    for (name, expected) in refused {
        let file = golden(name);
        let error = open(&ARRAY_RECORD, &file, &ReadOptions::default()).err().unwrap();
        assert!(matches!(error.kind(), Kind::Format), "{name}: {error}");
        assert!(error.to_string().contains(expected) && error.offset().is_some(), "{name}: {error}");
        assert!(!walk(&ARRAY_RECORD, &file).damage.is_empty(), "{name}");
    }
}

#[test]
fn cut_files_say_so() {
    for (name, left) in
        [("corrupt_trunc_300", 6), ("corrupt_trunc_data_only", 100), ("corrupt_trunc_no_postscript", 101)]
    {
        let file = golden(name);
        let error = open(&ARRAY_RECORD, &file, &ReadOptions::default()).err().unwrap();
        assert!(matches!(error.kind(), Kind::Truncated), "{name}: {error}");
        assert!(error.to_string().contains("never closed"), "{name}: {error}");
        let walked = walk(&ARRAY_RECORD, &file);
        assert_eq!((walked.records, walked.damage.len()), (left, 1), "{name}");
    }
}
