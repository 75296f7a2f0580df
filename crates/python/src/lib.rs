//! `anyrecord._core`: the Rust core as a Python extension. Each function converts its arguments, releases the GIL,
//! calls the core, and converts the result or error.
//!
//! | file | what |
//! |---|---|
//! | `errors` | core errors as Python exceptions |
//! | `interrupts` | Ctrl-C: checks for signals while the core works |
//! | `indices` | converts indices to record numbers |
//! | `gil` | the only place where the interpreter's lock is released and acquired |
//! | `numbers` | whole numbers as arguments |
//! | `deliver` | the destinations of records: new objects, or one buffer of the user |
//! | `arrays` | numpy arrays as a destination of records |
//! | `opening` | paths and objects as a `Source` |
//! | `views` | shuffled, concatenated and mixed sources |
//! | `order` | `Permutation` |
//! | `records` | `Records`: the sequence |
//! | `packed` | `Packed`: many records in one block of memory |
//! | `iteration` | its iterator |
//! | `damage` | `on_error=`: reading on through damage |
//! | `writer`, `creating` | `Writer`, and its options |
//! | `object_sets` | sets of objects that appear together |
//! | `publishing` | sets of files that are published together |
//! | `owned` | a lock that does not deadlock after a fork or in a user's file object |
//! | `file_like` | Python file objects as storage and output |
//! | `files` | `verify` |
//! | `convert` | `convert` and `build_index` |
//! | `salvage` | `salvage` |
//! | `remote`, `stored` | URLs; objects that Python objects read |
//! | `attributes` | attributes of Python objects, and structures that are made of them |

mod arrays;
mod attributes;
mod convert;
mod creating;
mod damage;
mod deliver;
mod errors;
mod file_like;
mod files;
mod finished;
mod gil;
mod indices;
mod interrupts;
mod iteration;
mod numbers;
mod object_sets;
mod opening;
mod order;
mod owned;
mod packed;
mod publishing;
mod records;
mod remote;
mod salvage;
mod stored;
mod temporaries;
mod views;
mod waiters;
mod writer;

use pyo3::prelude::*;
use std::path::PathBuf;

/// Called in a forked child, through `os.register_at_fork`.
#[pyfunction]
fn after_fork() {
    anyrecord::process::forked();
    gil::forked();
}

/// Marks this process as a worker process.
#[pyfunction]
fn set_worker() {
    anyrecord::process::set_worker();
}

/// The names of all formats.
#[pyfunction]
fn formats() -> Vec<&'static str> {
    anyrecord::format::detect::FORMATS.iter().map(|f| f.name).collect()
}

/// The format that the suffix of a path chooses.
#[pyfunction]
fn format_of_suffix(path: PathBuf) -> Option<&'static str> {
    anyrecord::format::detect::by_suffix(&path.to_string_lossy()).map(|f| f.name)
}

/// Every suffix that chooses a format, with the name of the format.
#[pyfunction]
fn suffixes() -> Vec<(&'static str, &'static str)> {
    let formats = anyrecord::format::detect::FORMATS.iter();
    formats.flat_map(|f| f.suffixes.iter().map(|suffix| (*suffix, f.name))).collect()
}

/// The SHA-1 of bytes, in hexadecimal. Importing `hashlib` takes a tenth of the time that importing the package takes.
#[pyfunction]
fn sha1(bytes: &[u8]) -> String {
    anyrecord::hash::sha1::hex(bytes)
}

#[pymodule(gil_used = false)]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    anyrecord::process::prepare();
    #[cfg(unix)]
    anyrecord::storage::cache::set_warn(errors::warn);
    gil::install(m)?;
    // Create the types now, not in the first thread that uses them.
    m.py().get_type::<deliver::InPlace>();
    m.py().get_type::<packed::Part>();
    m.add("DEBUG_BUILD", cfg!(debug_assertions))?;
    m.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    m.add_class::<opening::Source>()?;
    m.add_class::<records::Records>()?;
    m.add_class::<packed::PackedContents>()?;
    m.add_class::<packed::Packed>()?;
    m.add_class::<iteration::RecordsIterator>()?;
    m.add_class::<iteration::ReadAhead>()?;
    m.add_class::<order::Permutation>()?;
    m.add_class::<writer::Writer>()?;
    m.add_function(wrap_pyfunction!(after_fork, m)?)?;
    m.add_function(wrap_pyfunction!(set_worker, m)?)?;
    m.add_function(wrap_pyfunction!(formats, m)?)?;
    m.add_function(wrap_pyfunction!(format_of_suffix, m)?)?;
    m.add_function(wrap_pyfunction!(suffixes, m)?)?;
    m.add_function(wrap_pyfunction!(sha1, m)?)?;
    m.add_function(wrap_pyfunction!(convert::build_index, m)?)?;
    m.add_function(wrap_pyfunction!(convert::count_records, m)?)?;
    m.add_function(wrap_pyfunction!(convert::pour, m)?)?;
    m.add_function(wrap_pyfunction!(opening::open_paths, m)?)?;
    m.add_function(wrap_pyfunction!(opening::open_object, m)?)?;
    m.add_function(wrap_pyfunction!(opening::open_bytes, m)?)?;
    m.add_function(wrap_pyfunction!(opening::restore, m)?)?;
    m.add_function(wrap_pyfunction!(object_sets::publish_objects, m)?)?;
    m.add_function(wrap_pyfunction!(object_sets::read_object_journal, m)?)?;
    m.add_function(wrap_pyfunction!(object_sets::parse_object_journal, m)?)?;
    m.add_function(wrap_pyfunction!(object_sets::recover_objects, m)?)?;
    m.add_function(wrap_pyfunction!(object_sets::delete_objects, m)?)?;
    m.add_function(wrap_pyfunction!(object_sets::read_object, m)?)?;
    m.add_function(wrap_pyfunction!(object_sets::abort_upload, m)?)?;
    m.add_function(wrap_pyfunction!(publishing::publish_set, m)?)?;
    m.add_function(wrap_pyfunction!(publishing::journal_path, m)?)?;
    m.add_function(wrap_pyfunction!(publishing::journal_names, m)?)?;
    m.add_function(wrap_pyfunction!(publishing::refuse_interrupted, m)?)?;
    m.add_function(wrap_pyfunction!(publishing::refuse_journal, m)?)?;
    m.add_function(wrap_pyfunction!(publishing::recover, m)?)?;
    m.add_class::<temporaries::FolderLock>()?;
    m.add_function(wrap_pyfunction!(temporaries::find_temporaries, m)?)?;
    m.add_function(wrap_pyfunction!(temporaries::remove_temporaries, m)?)?;
    m.add_function(wrap_pyfunction!(temporaries::create_temporary_folder, m)?)?;
    m.add_function(wrap_pyfunction!(salvage::salvage_paths, m)?)?;
    m.add_function(wrap_pyfunction!(salvage::salvage_object, m)?)?;
    m.add_function(wrap_pyfunction!(salvage::salvage_bytes, m)?)?;
    m.add_function(wrap_pyfunction!(remote::check_url, m)?)?;
    m.add_function(wrap_pyfunction!(remote::list_objects, m)?)?;
    m.add_function(wrap_pyfunction!(remote::object_sizes, m)?)?;
    m.add_function(wrap_pyfunction!(remote::object_identities, m)?)?;
    m.add_function(wrap_pyfunction!(remote::put_object, m)?)?;
    m.add_function(wrap_pyfunction!(views::order_of, m)?)?;
    m.add_function(wrap_pyfunction!(views::shuffle, m)?)?;
    m.add_function(wrap_pyfunction!(views::concat, m)?)?;
    m.add_function(wrap_pyfunction!(views::mix, m)?)?;
    m.add_function(wrap_pyfunction!(files::verify_paths, m)?)?;
    m.add_function(wrap_pyfunction!(files::verify_object, m)?)?;
    m.add_function(wrap_pyfunction!(files::verify_bytes, m)?)?;
    Ok(())
}
