//! The fuzz targets. Each is a function from bytes to nothing, which panics if a rule is broken.
//!
//! The functions know nothing about the fuzzer: `fuzz_targets/` hands them to libFuzzer, and the test
//! `crates/core/tests/replay.rs` calls them with every stored input.
//!
//! | module | targets |
//! |---|---|
//! | [`formats`] | whole files of each format, built from the input so that all their hashes are right |
//! | [`chunks`] | a simple and a transposed chunk of Riegeli |
//! | [`footer`] | the footer and the postscript of an ArrayRecord file |
//! | [`side_index`] | a side index beside a file |
//! | [`codecs`] | decompression with a declared size |
//! | [`journal`] | the journal of a set of files that is being published |
//! | [`views`] | views from numbers in pickles and checkpoints |
//! | [`round_trip`] | records are written, read back, verified and converted |
//!
//! | module | what the targets share |
//! |---|---|
//! | [`input`] | numbers and slices from the input |
//! | [`build`] | chunks and compressed data, built without an encoder |
//! | [`repair`] | makes the hashes of a damaged file right |
//! | [`check`] | what must hold for every file, damaged or not |
//! | [`storages`] | storages that hold pieces, that cannot be mapped, that fail |

pub mod build;
pub mod check;
pub mod chunks;
pub mod codecs;
pub mod footer;
pub mod formats;
pub mod input;
pub mod journal;
pub mod repair;
pub mod round_trip;
pub mod side_index;
pub mod storages;
pub mod views;

/// A fuzz target: its name, and the function that it runs.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 20] = [
    ("array_record", formats::array_record),
    ("riegeli", formats::riegeli),
    ("recordio", formats::recordio),
    ("tfrecord", formats::tfrecord),
    ("ffrecord", formats::ffrecord),
    ("any_format", formats::any_format),
    ("simple_chunk", chunks::simple),
    ("transposed_chunk", chunks::transposed),
    ("transposed_states", chunks::transposed_states),
    ("footer", footer::footer),
    ("side_index", side_index::side_index),
    ("codec", codecs::codec),
    ("large_codec", codecs::large_codec),
    ("gzip", codecs::gzip),
    ("snappy_frames", codecs::snappy_frames),
    ("journal", journal::journal),
    ("view_numbers", views::view_numbers),
    ("round_trip", round_trip::round_trip),
    ("faulty_output", round_trip::faulty_output),
    ("write_options", round_trip::write_options),
];
