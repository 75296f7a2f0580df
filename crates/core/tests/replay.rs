//! Runs every stored input of every fuzz target: the corpora, and the inputs that once broke a rule.
//!
//! The targets are those of `fuzz/`. They are compiled here without a fuzzer, so a stable compiler is enough. A corpus
//! is one FFRecord file, of which each record is an input. Other inputs are files.

use anyrecord::format::ffrecord::FFRECORD;
use anyrecord::format::{ReadOptions, walk};
use anyrecord::storage::file_set::FileSet;
use anyrecord::storage::memory::Memory;
use anyrecord::{Budget, Cx, Limits};
use std::path::{Path, PathBuf};

#[path = "../../../fuzz/src/lib.rs"]
#[allow(dead_code, reason = "some functions only make inputs")]
mod targets;

fn folder(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(kind)
}

/// The files in a folder, in order. None if there is no such folder.
fn files(folder: &Path) -> Option<Vec<PathBuf>> {
    let mut paths: Vec<_> = std::fs::read_dir(folder).ok()?.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    Some(paths)
}

/// The inputs of a corpus.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let path = folder("corpus").join(name).with_extension("ffr");
    let file = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let limits = Limits::default();
    let files = FileSet::new(&limits);
    let budget = Budget::new(&limits, &files);
    let mut inputs = Vec::new();
    let storage = Memory::new("corpus", file);
    walk::scan(&FFRECORD, &storage, &ReadOptions::default(), &Cx::new(&budget), &mut |input| {
        inputs.push(input.to_vec());
        Ok(())
    })
    .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    inputs
}

/// Names the input if a rule is broken.
struct Running<'a>(&'a str);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input is {}", self.0);
        }
    }
}

fn replay(name: &str) {
    let (_, target) = targets::TARGETS.iter().find(|(n, _)| *n == name).expect("a target of that name");
    let corpus = corpus(name);
    assert!(!corpus.is_empty(), "the corpus of {name} is empty");
    for (i, input) in corpus.iter().enumerate() {
        let _running = Running(&format!("record {i} of fuzz/corpus/{name}.ffr"));
        target(input);
    }
    for path in files(&folder("regressions").join(name)).unwrap_or_default() {
        let _running = Running(&path.display().to_string());
        target(&std::fs::read(&path).unwrap());
    }
}

macro_rules! targets {
    ($($name:ident)*) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            fn $name() {
                replay(stringify!($name));
            }
        )*
    };
}

targets! {
    array_record riegeli recordio tfrecord ffrecord any_format salvage simple_chunk transposed_chunk transposed_states footer
    side_index codec large_codec gzip snappy_frames journal view_numbers round_trip faulty_output
    write_options
}

#[test]
fn every_target_is_replayed_and_every_regression_belongs_to_a_target() {
    let names: Vec<_> = targets::TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(NAMES, names);
    for kind in ["corpus", "regressions"] {
        for path in files(&folder(kind)).unwrap_or_default() {
            let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
            // The packed listing is parsed in Python, and replayed there.
            assert!(names.contains(&name) || name == "listing", "{} belongs to no target", path.display());
        }
    }
}
