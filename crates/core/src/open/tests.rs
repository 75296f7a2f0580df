//! PendingFile many files together has the same results as opening each one separately.

use super::*;
use crate::budget::Budget;
use crate::error::Kind;
use crate::format::options::WriteOptions;
use crate::format::testing;
use crate::limits::Limits;
use crate::storage::file::Io;
use crate::storage::file_set::FileSet;
use std::path::Path;

const IOS: [Io; 3] = [Io::Auto, Io::Plain, Io::Direct];

/// A file with `count` records, and its location.
fn file(folder: &Path, number: usize, format: &str, count: usize) -> (Location, RecordRange) {
    let records: Vec<_> = (0..count).map(|i| format!("{number} {i}").into_bytes()).collect();
    let bytes = testing::write(detect::by_name(format).unwrap(), &WriteOptions::default(), &records);
    let path = folder.join(format!("{number}.{format}"));
    std::fs::write(&path, bytes).unwrap();
    (Location::path(path), RecordRange::default())
}

fn with_cx<T>(limits: Limits, act: impl FnOnce(&Cx<'_>) -> T) -> T {
    act(&Cx::new(&Budget::new(&limits, &FileSet::new(&limits))))
}

#[cfg(target_os = "linux")]
#[test]
fn small_tables_are_read_together_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    // The table of the last file in `alone` is too large to be fetched together with others.
    let kinds =
        [("ffrecord", 0), ("ffrecord", 3), ("ffrecord", 5000), ("array_record", 3), ("array_record", 2000)];
    let alone = [("recordio", 3), ("tfrecord", 3), ("ffrecord", 100_000)];
    for io in IOS {
        let files = kinds.into_iter().chain(alone).enumerate();
        let files: Vec<_> = files.map(|(i, (format, count))| file(folder.path(), i, format, count)).collect();
        let files: Vec<_> = files.iter().map(|(location, _)| (location, None)).collect();
        let opener = Opener { options: ReadOptions { io, ..ReadOptions::default() } };
        with_cx(Limits::default(), |cx| {
            let mut opening = opener.start(&files, 1, cx).unwrap();
            opener.read_tables(&mut opening, 1, cx).unwrap();
            for (file, (format, count)) in opening.iter().zip(kinds) {
                let TableState::Done(found, table) = &file.state else {
                    panic!("{format} of {count} records")
                };
                assert_eq!((found.name, table.records()), (format, count as u64));
            }
            assert!(opening[kinds.len()..].iter().all(|file| matches!(file.state, TableState::Alone)));
        });
    }
}

#[test]
fn files_of_all_formats_and_sizes_are_opened_in_order_with_few_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    let formats = ["ffrecord", "array_record", "recordio", "tfrecord"];
    let files: Vec<_> = (0..40).map(|i| file(folder.path(), i, formats[i % 4], i * i)).collect();
    for io in IOS {
        for open_files in [1, 3, 256] {
            let options = ReadOptions { io, ..ReadOptions::default() };
            let limits = Limits { open_files, ..Limits::default() };
            let shards = with_cx(limits, |cx| open_files_of(&files, options, cx)).unwrap();
            let found: Vec<_> = shards.iter().map(|s| (s.format().to_owned(), s.records())).collect();
            let expected: Vec<_> = (0..40).map(|i| (formats[i % 4].to_owned(), (i * i) as u64)).collect();
            assert_eq!(found, expected);
        }
    }
}

fn open_files_of(
    files: &[(Location, RecordRange)],
    options: ReadOptions,
    cx: &Cx<'_>,
) -> Result<Vec<Arc<Shard>>> {
    open_files(files.to_vec(), None, options, cx)
}

#[test]
fn the_error_of_one_of_many_files_is_the_one_it_has_alone() {
    let folder = tempfile::tempdir().unwrap();
    let formats = ["ffrecord", "array_record", "recordio", "tfrecord"];
    let mut checked = 0;
    for (bad, format) in formats.into_iter().enumerate() {
        let files: Vec<_> = (0..9).map(|i| file(folder.path(), i, formats[i % 4], 50)).collect();
        let path = folder.path().join(format!("{bad}.{format}"));
        let whole = std::fs::read(&path).unwrap();
        for cut in [0, 1, 13, 100, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            with_cx(Limits::default(), |cx| {
                let options = ReadOptions::default();
                let (location, range) = files[bad].clone();
                let Err(alone) = Shard::open(location, range, None, options, cx) else { return };
                let error = open_files_of(&files, options, cx).err().expect("it is damaged");
                assert_eq!(error.to_string(), alone.to_string(), "{format} cut at {cut}");
                checked += 1;
            });
        }
        std::fs::remove_file(&path).unwrap();
        let missing = with_cx(Limits::default(), |cx| open_files_of(&files, ReadOptions::default(), cx));
        assert!(matches!(missing.err().unwrap().kind(), Kind::Io(_)));
    }
    assert!(checked > 15, "{checked}");
}

#[test]
fn an_interrupt_ends_the_opening_of_many_files() {
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<_> = (0..30).map(|i| file(folder.path(), i, "ffrecord", 5)).collect();
    let limits = Limits::default();
    let set = FileSet::new(&limits);
    let budget = Budget::new(&limits, &set);
    for checks in 0..100 {
        let left = std::cell::Cell::new(checks);
        let stop = || match left.get() {
            0 => Err(Error::closed("interrupt")),
            n => {
                left.set(n - 1);
                Ok(())
            }
        };
        match open_files_of(&files, ReadOptions::default(), &Cx { budget: &budget, stop: &stop }) {
            Ok(_) => assert!(checks > 0, "it never asked"),
            Err(error) => assert_eq!(error.what(), "interrupt"),
        }
    }
}
