//! Views of records from the numbers that pickles and checkpoints hold.

use super::input::{Input, Inverse};
use anyrecord::view::{View, fingerprint};

/// The numbers of a view, for any number of records.
pub fn view_numbers(data: &[u8]) {
    let mut input = Input(data);
    let records = input.varint();
    let mut numbers = Vec::new();
    while !input.is_empty() {
        numbers.push(number(&mut input));
    }
    let Ok(view) = View::from_numbers(&numbers, records) else { return };
    let (length, last) = (view.len(), view.len().saturating_sub(1));
    let mut positions: Vec<u64> = (0..length.min(16)).collect();
    positions.extend([last, length / 2, length / 3].into_iter().filter(|&position| position < length));
    let one_by_one: Vec<u64> = positions.iter().map(|&position| view.get(position)).collect();
    view.get_many(&mut positions);
    assert_eq!(one_by_one, positions);
    assert!(positions.iter().all(|&record| record < records), "a record that does not exist: {positions:?}");
    let written = view.to_numbers();
    let again = View::from_numbers(&written, records);
    let Ok(again) = again else { panic!("what was read cannot be read again") };
    assert_eq!(again.to_numbers(), written);
    assert!(fingerprint(written) < 1 << 53);
    if length > 1
        && let Ok(sliced) = view.slice(1, 1, length - 1)
    {
        assert_eq!(sliced.get(0), view.get(1));
    }
}

/// A number of 128 bits. The lowest bit says whether it is negative.
fn number(input: &mut Input<'_>) -> i128 {
    let coded = input.varint();
    let value = i128::from(coded >> 1);
    match (coded & 1, value) {
        // A number that no integer of 64 bits holds.
        (1, 0) => i128::from(input.varint()) << 60,
        (1, value) => -value,
        _ => value,
    }
}

/// The input for a view.
pub fn input_for(view: &View, records: u64) -> Vec<u8> {
    let mut out = Inverse::default();
    out.varint(records);
    for number in view.to_numbers() {
        out.varint((number.unsigned_abs() as u64) << 1 | u64::from(number < 0));
    }
    out.0
}
