//! The end of a file is cut off: that is an error when the file is opened, with the size that was found.

use crate::calls;
use crate::patched::Patched;
use crate::whole::Whole;
use anyrecord::Error;
use std::sync::Arc;

/// What came of opening a cut file.
pub enum Cut {
    /// An error says so.
    Refused,
    /// The file has fewer records, all of them right: it was cut exactly between two chunks.
    BetweenChunks,
    /// Something else.
    Wrong(String),
}

/// Opens the first `size` bytes of a file.
pub fn opened(whole: &Whole, storage: &Arc<Patched>, format: Option<&str>, size: u64) -> Cut {
    storage.cut(size);
    let reader = match calls::open(storage.clone(), format) {
        Ok(reader) => reader,
        Err(error) => return refused(whole, &error, size),
    };
    let format = reader.shards()[0].format();
    let units = whole.units.as_deref().unwrap_or_default();
    // A file of 0 bytes is a file of no records. A chunk of Riegeli begins behind the header of its block.
    let is_between = size == 0
        || units.iter().any(|unit| unit.stored.end == size)
        || units.iter().any(|unit| unit.stored.start == size)
        || whole.formats == [Some("riegeli")];
    if !["recordio", "tfrecord", "riegeli"].contains(&format) || !is_between {
        return Cut::Wrong(format!("opens as {format} with {} records", reader.len()));
    }
    if reader.len() > whole.records.len() as u64 {
        return Cut::Wrong(format!("has {} records, more than before", reader.len()));
    }
    // `expected_records=` compares this number.
    let is_fewer = reader.len() < whole.records.len() as u64;
    let holds_records = units.last().is_some_and(|unit| size < unit.stored.end);
    if holds_records && !is_fewer {
        return Cut::Wrong(format!("has all {} records", reader.len()));
    }
    let last = reader.len().checked_sub(1);
    for index in [Some(0), last].into_iter().flatten().filter(|&index| index < reader.len()) {
        match (calls::read(&reader, index), whole.records.get(index as usize)) {
            (Ok(found), Some(Some(record))) if found == *record => {}
            // It could not be read before, or has no certain number.
            (Ok(_), Some(None)) => {}
            (Err(error), Some(None)) if calls::due(&error, &whole.name, Some(index)).is_none() => {}
            (found, _) => return Cut::Wrong(format!("record {index} is {found:?}")),
        }
    }
    Cut::BetweenChunks
}

fn refused(whole: &Whole, error: &Error, size: u64) -> Cut {
    if let Some(missing) = calls::due(error, &whole.name, None) {
        return Cut::Wrong(format!("an error {missing}: {error}"));
    }
    if !names_size(error, size) {
        return Cut::Wrong(format!("an error without the size found: {error}"));
    }
    Cut::Refused
}

/// Whether an error names the size of the file: as a number, or as what is left from its offset on.
fn names_size(error: &Error, size: u64) -> bool {
    let text = error.to_string();
    let numbers = |text: &str| -> Vec<u64> {
        text.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
    };
    let left = numbers(error.found_text().unwrap_or_default()).first().copied();
    let end = error.offset().zip(left).and_then(|(at, left)| at.checked_add(left));
    numbers(&text).contains(&size) || end == Some(size)
}
