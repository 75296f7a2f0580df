//! The side index: a small separate file that stores where the chunks of a data file are, so that they need not be
//! found again.
//!
//! It is a cache, not a record format. If anything is wrong with an index, the reader ignores it.
//!
//! | field | size |
//! |---|---|
//! | magic, `anyr-idx` | 8 |
//! | version, 1 | 1 |
//! | length of the format's name, and the name | 1 + n |
//! | a byte that only the format interprets | 1 |
//! | numbers for each entry: 1 offset, or 2 offset and count | 1 |
//! | size of the data, and number of entries | varint each |
//! | for each entry: its distance from the entry before it, and its count if entries have one | varint each |
//! | CRC-32 of all of this, little-endian | 4 |

use crate::bytes::{self, Cursor};

const MAGIC: &[u8; 8] = b"anyr-idx";
const VERSION: u8 = 1;
/// How many bytes [`begins`] needs.
pub const BEGIN: u64 = MAGIC.len() as u64 + 1;

/// Whether a file that begins with `head` can be an index.
pub fn begins(head: &[u8]) -> bool {
    head.strip_prefix(MAGIC).is_some_and(|rest| rest.first() == Some(&VERSION))
}

/// Builds the index for `data_bytes` bytes of data in `format`, from the offset of each entry and its count. Either all
/// entries have a count or none.
pub fn write(
    format: &str,
    data_bytes: u64,
    detail: u8,
    entries: impl ExactSizeIterator<Item = (u64, Option<u64>)>,
) -> Vec<u8> {
    let mut entries = entries.peekable();
    let counted = entries.peek().is_some_and(|(_, count)| count.is_some());
    let mut out = MAGIC.to_vec();
    out.extend([VERSION, format.len() as u8]);
    out.extend_from_slice(format.as_bytes());
    out.extend([detail, 1 + u8::from(counted)]);
    bytes::put_varint(&mut out, data_bytes);
    bytes::put_varint(&mut out, entries.len() as u64);
    let mut previous = 0;
    for (offset, count) in entries {
        bytes::put_varint(&mut out, offset.wrapping_sub(previous));
        previous = offset;
        if counted {
            bytes::put_varint(&mut out, count.unwrap_or(0));
        }
    }
    let checksum = crc32fast::hash(&out).to_le_bytes();
    out.extend_from_slice(&checksum);
    out
}

/// Reads an index for `data_bytes` bytes of data in `format`. Calls `entry` with the offset and the count of each
/// entry. The count is 1 if entries have none. Returns the byte that only the format interprets.
///
/// The first entry must begin at 0. The entries must be in order, with at least `smallest` bytes each. Returns `None`
/// if anything is wrong, or if `entry` returns `None`. `entry` may already have been called by then.
pub fn read(
    index: &[u8],
    format: &str,
    data_bytes: u64,
    smallest: u64,
    mut entry: impl FnMut(u64, u64) -> Option<()>,
) -> Option<u8> {
    let (body, checksum) = index.split_last_chunk::<4>()?;
    if crc32fast::hash(body) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let mut cursor = Cursor::new("side index", body, 0);
    let mut expect = |expected: &[u8]| cursor.take(expected.len() as u64).ok().filter(|b| *b == expected);
    expect(MAGIC)?;
    expect(&[VERSION, format.len() as u8])?;
    expect(format.as_bytes())?;
    let (detail, numbers) = (cursor.u8().ok()?, cursor.u8().ok()?);
    let (size, entries) = (cursor.varint64().ok()?, cursor.varint64().ok()?);
    if size != data_bytes || !(1..=2).contains(&numbers) || (entries == 0) != (data_bytes == 0) {
        return None;
    }
    let mut offset = 0u64;
    for i in 0..entries {
        let step = cursor.varint64().ok()?;
        if if i == 0 { step != 0 } else { step < smallest } {
            return None;
        }
        offset =
            offset.checked_add(step).filter(|offset| data_bytes - offset.min(&data_bytes) >= smallest)?;
        let count = if numbers == 2 { cursor.varint64().ok()? } else { 1 };
        entry(offset, count)?;
    }
    cursor.is_empty().then_some(detail)
}

/// The entries to check before an index of `entries` entries is trusted: the first, the last, and some in between.
/// There are at most `most`.
pub fn samples(entries: u64, most: u64) -> impl Iterator<Item = u64> {
    let steps = most.min(entries);
    let last = u128::from(entries.saturating_sub(1));
    (0..steps).map(move |i| (last * u128::from(i) / u128::from(steps.max(2) - 1)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn listed(index: &[u8], size: u64) -> Option<(u8, Vec<(u64, u64)>)> {
        let mut entries = Vec::new();
        let detail = read(index, "recordio", size, 4, |offset, count| {
            entries.push((offset, count));
            Some(())
        })?;
        Some((detail, entries))
    }

    proptest! {
        #[test]
        fn an_index_round_trips(steps in prop::collection::vec((4u64..1 << 40, 1u64..1 << 32), 1..50), detail: u8) {
            let (mut entries, mut at) = (Vec::new(), 0);
            for (step, count) in steps {
                entries.push((at, count));
                at += step;
            }
            let index = write("recordio", at, detail, entries.iter().map(|&(offset, count)| (offset, Some(count))));
            prop_assert_eq!(listed(&index, at), Some((detail, entries)));
            prop_assert!(listed(&index, at + 1).is_none());
            prop_assert!(read(&index, "tfrecord", at, 4, |_, _| Some(())).is_none());
            for i in 0..index.len() {
                let mut flipped = index.clone();
                flipped[i] ^= 1;
                prop_assert!(listed(&flipped, at).is_none());
                prop_assert!(listed(&index[..i], at).is_none());
            }
        }

        #[test]
        fn hostile_entries_with_a_right_checksum_stay_inside_the_data(body: Vec<u8>, size in 0u64..1000) {
            let mut index = MAGIC.to_vec();
            index.extend([VERSION, 8]);
            index.extend(b"recordio");
            index.extend([0, 2]);
            bytes::put_varint(&mut index, size);
            index.extend(body);
            let checksum = crc32fast::hash(&index).to_le_bytes();
            index.extend(checksum);
            if let Some((_, entries)) = listed(&index, size) {
                prop_assert!(entries.iter().all(|(offset, _)| offset + 4 <= size));
                prop_assert!(entries.is_sorted_by(|(a, _), (b, _)| a + 4 <= *b));
            }
        }
    }

    #[test]
    fn samples_are_the_first_the_last_and_some_in_between() {
        assert_eq!(samples(0, 4).count(), 0);
        assert_eq!(samples(1, 4).collect::<Vec<_>>(), [0]);
        assert_eq!(samples(3, 4).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(samples(100, 4).collect::<Vec<_>>(), [0, 33, 66, 99]);
        assert_eq!(samples(u64::MAX, 3).last(), Some(u64::MAX - 1));
    }
}
