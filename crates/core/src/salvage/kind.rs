//! Finds the format of a damaged file: from its bytes, else from its name, else by a search for records.

use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::format::tfrecord::TFRECORD;
use crate::format::walk::{Span, Walk};
use crate::format::{Format, Probe, ReadOptions, detect};
use crate::storage::Storage;
use crate::storage::temporary::Name;
use std::path::Path;

/// Ends a walk that has found a record.
const FOUND: &str = "a record was found";

/// The format of a file that may be damaged. The name counts more than bytes that several formats can have: damage can
/// make a file look like one of another format.
pub fn find(
    name: Option<&str>,
    storage: &dyn Storage,
    options: &ReadOptions,
    cx: &Cx<'_>,
) -> Result<&'static Format> {
    if let Some(name) = name {
        return detect::by_name(name);
    }
    let mut plausible = None;
    for format in detect::in_order(storage) {
        match (format.probe)(storage, options, cx)? {
            Probe::Yes => return Ok(format),
            Probe::Plausible => plausible = plausible.or(Some(format)),
            Probe::No => {}
        }
    }
    let named = detect::by_suffix(storage.name()).or_else(|| of_temporary(storage.name()));
    if let Some(format) = named {
        return Ok(format);
    }
    if let Some(format) = plausible
        && has_records(format, storage, options, cx)?
    {
        return Ok(format);
    }
    let mut found = Vec::new();
    for format in detect::FORMATS {
        if has_records(format, storage, options, cx)? {
            found.push(*format);
        }
    }
    // A search finds the chunks of an ArrayRecord file as those of a Riegeli file too.
    match found[..] {
        [format] => Ok(format),
        [format, riegeli] if (format.name, riegeli.name) == ("array_record", "riegeli") => Ok(format),
        // Zeros at the beginning look like an unfinished FFRecord file. So do damaged files of other formats.
        [] => plausible.ok_or_else(|| unknown(storage, &found)),
        _ => Err(unknown(storage, &found)),
    }
}

/// The format of the file that a temporary file was to become. Samples of an FFRecord file wait as TFRecord.
fn of_temporary(path: &str) -> Option<&'static Format> {
    let name = Name::parse(Path::new(path).file_name()?.to_str()?)?;
    if name.mark.is_some_and(|mark| mark.is_samples) {
        return Some(&TFRECORD);
    }
    detect::by_suffix(&name.target)
}

/// Whether a walk in search of records finds any.
fn has_records(format: &Format, storage: &dyn Storage, options: &ReadOptions, cx: &Cx<'_>) -> Result<bool> {
    let walk = Walk::salvaging(storage, options, cx);
    let walked = (format.salvage.walk)(&walk, &mut |span| match span {
        Span::Records(_) => Err(Error::closed(FOUND)),
        _ => Ok(()),
    });
    match walked {
        Ok(()) => Ok(false),
        Err(error) if error.what() == FOUND => Ok(true),
        Err(error) => Err(error),
    }
}

fn unknown(storage: &dyn Storage, found: &[&Format]) -> Error {
    let names: Vec<_> = detect::FORMATS.iter().map(|format| format.name).collect();
    let error = if storage.is_empty() {
        Error::truncated("the file is empty")
    } else {
        Error::format("no format recognises the damaged file")
    };
    let found: Vec<_> = found.iter().map(|format| format.name).collect();
    let what = match found[..] {
        [] => format!("{} bytes without a record of any format", storage.len()),
        _ => format!("what could be records of {}", found.join(", ")),
    };
    error.at(0).expected(format_args!("one of {}", names.join(", "))).found(what).hint("pass source_format=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_temporary_file_holds_the_name_of_its_target() {
        let of = |path: &str| of_temporary(path).map(|format| format.name);
        assert_eq!(of("/data/.train.ffr.1a2b3c4d.tmp"), Some("ffrecord"));
        assert_eq!(of(".a-00000-of-00002.array_record.1a2b3c4d.tmp"), Some("array_record"));
        assert_eq!(of(".train.tfrecord.gz.1a2b3c4d.tmp"), Some("tfrecord"));
        let mark = "1f0c93a77b52de04_5ab0c9d1e03f9aa07c42_0";
        assert_eq!(of(&format!(".train.recordio.{mark}.tmp")), Some("recordio"));
        assert_eq!(of(&format!(".train.ffr.samples.tfrecord.{mark}s.tmp")), Some("tfrecord"));
        for path in ["train.ffr.1a2b3c4d.tmp", ".train.1a2b3c4d.tmp", ".train.ffr.1a2b3c4d", ".tmp", ""] {
            assert_eq!(of(path), None, "{path}");
        }
    }
}
