//! Runs every stored input of every fuzz target: the corpora, and the inputs that once broke a rule.
//!
//! The targets are those of `fuzz/`. They are compiled here without a fuzzer, so a stable compiler is enough.

use std::path::{Path, PathBuf};

#[path = "../../../fuzz/src/lib.rs"]
#[allow(dead_code, reason = "some functions only make inputs")]
mod targets;

fn folder(kind: &str, target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(kind).join(target)
}

/// The inputs in a folder, in order. None if there is no such folder.
fn inputs(folder: &Path) -> Option<Vec<PathBuf>> {
    let mut paths: Vec<_> = std::fs::read_dir(folder).ok()?.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    Some(paths)
}

/// Names the input if a rule is broken.
struct Running<'a>(&'a Path);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input is {}", self.0.display());
        }
    }
}

fn replay(name: &str) {
    let (_, target) = targets::TARGETS.iter().find(|(n, _)| *n == name).expect("a target of that name");
    let corpus = inputs(&folder("corpus", name)).expect("every target has a corpus");
    assert!(!corpus.is_empty(), "the corpus of {name} is empty");
    for path in corpus.into_iter().chain(inputs(&folder("regressions", name)).unwrap_or_default()) {
        let input = std::fs::read(&path).unwrap();
        let _running = Running(&path);
        target(&input);
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
    array_record riegeli recordio tfrecord ffrecord any_format simple_chunk transposed_chunk transposed_states footer
    side_index codec large_codec gzip snappy_frames journal view_numbers round_trip faulty_output
    write_options
}

#[test]
fn every_target_is_replayed_and_every_regression_belongs_to_a_target() {
    let names: Vec<_> = targets::TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(NAMES, names);
    for kind in ["corpus", "regressions"] {
        for path in inputs(&folder(kind, "")).unwrap_or_default() {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            assert!(names.contains(&name) || name == "listing", "{} belongs to no target", path.display());
        }
    }
}
