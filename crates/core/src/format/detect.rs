//! Finds the format of a file: from its bytes, otherwise from its name. The caller may also name the format.

use super::array_record::ARRAY_RECORD;
use super::ffrecord::FFRECORD;
use super::recordio::RECORDIO;
use super::riegeli::RIEGELI;
use super::tfrecord::TFRECORD;
use super::whole::WHOLE;
use super::{Format, Probe, ReadOptions};
use crate::cx::Cx;
use crate::error::{Error, Kind, Result};
use crate::storage::Storage;

/// All formats, in the order in which they are probed.
pub const FORMATS: &[&Format] = &[&ARRAY_RECORD, &RECORDIO, &TFRECORD, &FFRECORD, &RIEGELI];

/// The format of that name.
pub fn by_name(name: &str) -> Result<&'static Format> {
    FORMATS.iter().chain(&[&WHOLE]).find(|f| f.name == name).copied().ok_or_else(|| {
        let names: Vec<_> = FORMATS.iter().map(|f| f.name).collect();
        Error::argument(format!("unknown format '{name}'; known formats: {}", names.join(", ")))
    })
}

/// The format whose suffix the file name has, if any. The suffix of `x.ffr-00000-of-00003` is `.ffr`.
pub fn by_suffix(path: &str) -> Option<&'static Format> {
    let path = without_shard(path);
    FORMATS.iter().find(|f| f.suffixes.iter().any(|s| path.ends_with(s))).copied()
}

/// The path without a shard number after its suffix.
fn without_shard(path: &str) -> &str {
    let digits = |s: &str| s.len() >= 5 && s.bytes().all(|b| b.is_ascii_digit());
    match path.rsplit_once("-of-") {
        Some((head, count)) if digits(count) => match head.rsplit_once('-') {
            Some((stem, index)) if digits(index) => stem,
            _ => path,
        },
        _ => path,
    }
}

/// The format of a file: the named one, or the detected one if none is named.
pub fn named_or_detected(
    name: Option<&str>,
    storage: &dyn Storage,
    options: &ReadOptions,
    cx: &Cx<'_>,
) -> Result<&'static Format> {
    match name {
        Some(name) => by_name(name),
        None => detect(storage, options, cx),
    }
}

/// All formats, in the order in which a storage is probed. If it is far away, the one that its name indicates comes
/// first: others read other parts of it.
pub fn in_order(storage: &dyn Storage) -> impl Iterator<Item = &'static Format> {
    let first = by_suffix(storage.name()).filter(|_| storage.distance().is_far());
    let others = FORMATS.iter().copied().filter(move |f| first.is_none_or(|first| first.name != f.name));
    first.into_iter().chain(others)
}

/// Detects the format of a file from its bytes. If no format recognises the bytes, uses the format that the file name
/// indicates. Opening the file then returns the error of that format.
pub fn detect(storage: &dyn Storage, options: &ReadOptions, cx: &Cx<'_>) -> Result<&'static Format> {
    let named = by_suffix(storage.name());
    if storage.is_empty() {
        return named.ok_or_else(|| {
            Error::truncated("the file is empty")
                .expected("a record file")
                .found("0 bytes")
                .hint("pass format= if an empty file is valid")
        });
    }
    let by_name = |f: &&Format| named.is_some_and(|n| n.name == f.name);
    let is_far = storage.distance().is_far();
    let mut plausible = Vec::new();
    for format in in_order(storage) {
        match (format.probe)(storage, options, cx)? {
            Probe::Yes => return Ok(format),
            Probe::Plausible if is_far && by_name(&format) => return Ok(format),
            Probe::Plausible => plausible.push(format),
            Probe::No => {}
        }
    }
    let chosen = plausible.iter().find(|f| by_name(f)).or(plausible.first()).copied().or(named);
    chosen.ok_or_else(|| {
        let names: Vec<_> = FORMATS.iter().map(|f| f.name).collect();
        Error::format("no format recognises the file")
            .at(0)
            .expected(format_args!("one of {}", names.join(", ")))
            .found(format_args!("{} bytes of unknown content", storage.len()))
            .hint("pass format= to see the error of that format")
    })
}

/// Improves the error of a file that was opened as format `asked`. If the file is of another format, the error says so.
pub fn name_other_format(
    error: Error,
    asked: &Format,
    storage: &dyn Storage,
    options: &ReadOptions,
    cx: &Cx<'_>,
) -> Error {
    if !matches!(error.kind(), Kind::Format | Kind::Truncated | Kind::Checksum | Kind::Limit) {
        return error;
    }
    match other_format(asked, storage, options, cx) {
        Some(other) => Error::format("wrong format")
            .expected(asked.name)
            .found(other.name)
            .hint("read it with anyrecord.open(path), or convert it with anyrecord.convert"),
        None => error,
    }
}

fn other_format(
    asked: &Format,
    storage: &dyn Storage,
    options: &ReadOptions,
    cx: &Cx<'_>,
) -> Option<&'static Format> {
    if !matches!((asked.probe)(storage, options, cx), Ok(Probe::No)) {
        return None;
    }
    let named = by_suffix(storage.name()).map(|f| f.name);
    let is_of = |f: &Format| match (f.probe)(storage, options, cx) {
        // Riegeli recognises nothing itself, and ArrayRecord recognises every Riegeli file.
        Ok(Probe::Yes) => !(asked.name == RIEGELI.name && f.name == ARRAY_RECORD.name),
        Ok(Probe::Plausible) => named == Some(f.name) || (f.open)(storage, options, cx).is_ok(),
        Ok(Probe::No) | Err(_) => false,
    };
    FORMATS.iter().copied().filter(|f| f.name != asked.name).find(|f| is_of(f))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cx::for_tests;
    use crate::limits::Limits;
    use crate::storage::memory::Memory;

    #[test]
    fn a_suffix_is_found_behind_and_before_a_shard_number() {
        for path in ["a.ffr", "a-00000-of-00002.ffr", "a.ffr-00000-of-00002", "x/y.ffr-00000-of-100000"] {
            assert_eq!(by_suffix(path).map(|f| f.name), Some("ffrecord"), "{path}");
        }
        for path in ["a.ffr2", "ffr", "a.ffr-0-of-2", "a.ffr-00000-of-00002.txt"] {
            assert!(by_suffix(path).is_none(), "{path}");
        }
    }

    fn opened_as(asked: &Format, name: &str, bytes: &[u8]) -> String {
        let storage = Memory::new(name, bytes.to_vec());
        let (options, cx) = (ReadOptions::default(), for_tests(Limits::default()));
        let error = (asked.open)(&storage, &options, &cx).err().expect("it is none");
        name_other_format(error, asked, &storage, &options, &cx).to_string()
    }

    #[test]
    fn an_error_names_the_format_that_the_file_is_of() {
        let recordio = b"\x04\x03\x02\x01 and more bytes than any header has";
        let asked: [&Format; 4] = [&ARRAY_RECORD, &FFRECORD, &TFRECORD, &RIEGELI];
        for asked in asked {
            let text = opened_as(asked, "file", recordio);
            let expected = format!("wrong format: expected {}, found recordio; ", asked.name);
            assert!(text.starts_with(&expected), "{text}");
        }
    }

    #[test]
    fn an_error_of_the_format_itself_stays_what_it_is() {
        let cases: [(&Format, &[u8]); 4] = [
            (&RECORDIO, b"\x04\x03\x02\x01"),
            (&FFRECORD, &[0; 100]),
            (&ARRAY_RECORD, b"no format has this at its beginning"),
            (&TFRECORD, b"no format has this at its beginning"),
        ];
        for (asked, bytes) in cases {
            let text = opened_as(asked, "file.ffr", bytes);
            assert!(!text.contains("wrong format"), "{}: {text}", asked.name);
        }
    }
}
