//! The content of a block file: the bytes of the block, then a trailer that says what they are.
//!
//! ```text
//! bytes of the object | magic 8 | key 32 | number 8 | length 8 | zero 4 | CRC-32C of all before it 4 |
//! ```
//!
//! Numbers are little-endian. The bytes come first, so that they can be mapped into memory at a page boundary.

use super::key::ObjectKey;
use crate::hash::crc32c;
use std::ops::Range;

/// The bytes of a block. The last one of an object may be shorter.
pub const BLOCK: u64 = 1 << 20;
/// Bytes after the bytes of the object.
pub const TRAILER: usize = 64;
const MAGIC: [u8; 8] = *b"ARcache1";
/// What a file system takes for the smallest file.
const CLUSTER: u64 = 4096;

/// The bytes of a block in an object of that size.
pub fn range(number: u64, size: u64) -> Range<u64> {
    let begin = number.saturating_mul(BLOCK).min(size);
    begin..begin.saturating_add(BLOCK).min(size)
}

/// How much of the disk a block of that many bytes takes.
pub fn disk_bytes(length: u64) -> u64 {
    (length + TRAILER as u64).next_multiple_of(CLUSTER)
}

/// The name of a block file.
pub fn name(key: &ObjectKey, number: u64) -> String {
    let mut name = String::with_capacity(84);
    for byte in key.0 {
        for digit in [byte >> 4, byte & 15] {
            name.push(char::from_digit(digit.into(), 16).unwrap_or_default());
        }
    }
    name + "." + &number.to_string()
}

/// Whether a file of the folder is a block.
pub fn is_name(name: &str) -> bool {
    name.split_once('.').is_some_and(|(key, number)| {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        key.len() == 64
            && key.bytes().all(is_hex)
            && number.parse::<u64>().is_ok_and(|n| n.to_string() == number)
    })
}

/// The trailer of a block.
pub fn trailer(key: &ObjectKey, number: u64, bytes: &[u8]) -> [u8; TRAILER] {
    let mut trailer = [0; TRAILER];
    let fields: [&[u8]; 4] = [&MAGIC, &key.0, &number.to_le_bytes(), &(bytes.len() as u64).to_le_bytes()];
    let mut rest = &mut trailer[..];
    for field in fields {
        let (place, later) = rest.split_at_mut(field.len());
        place.copy_from_slice(field);
        rest = later;
    }
    let crc = crc32c::append(crc32c::append(0, bytes), &trailer[..TRAILER - 4]);
    trailer[TRAILER - 4..].copy_from_slice(&crc.to_le_bytes());
    trailer
}

/// Whether a file has exactly the content of a block of `length` bytes.
pub fn is_sound(key: &ObjectKey, number: u64, length: u64, content: &[u8]) -> bool {
    let Some(at) = content.len().checked_sub(TRAILER) else { return false };
    let (bytes, found) = content.split_at(at);
    at as u64 == length && trailer(key, number, bytes) == found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: ObjectKey = ObjectKey([7; 32]);

    fn content(bytes: &[u8]) -> Vec<u8> {
        [bytes, &trailer(&KEY, 3, bytes)].concat()
    }

    #[test]
    fn a_block_of_another_object_number_or_length_is_not_sound() {
        let content = content(b"hello");
        assert!(is_sound(&KEY, 3, 5, &content));
        assert!(!is_sound(&ObjectKey([8; 32]), 3, 5, &content));
        assert!(!is_sound(&KEY, 4, 5, &content));
        assert!(!is_sound(&KEY, 3, 6, &content));
        assert!(!is_sound(&KEY, 3, 5, b""));
        assert!(!is_sound(&KEY, 0, 0, &[0; TRAILER]));
    }

    #[test]
    fn only_names_of_blocks_are_taken_for_blocks() {
        let name = name(&KEY, 12);
        assert!(is_name(&name) && name.ends_with(".12"));
        for other in ["", "x", ".usage", &name[1..], &format!("{name}x"), &name.replace('7', "G"), "a.1"] {
            assert!(!is_name(other), "{other}");
        }
        assert!(!is_name(&name.replace(".12", ".012")));
    }

    #[test]
    fn blocks_cover_an_object() {
        assert_eq!(range(0, 10), 0..10);
        assert_eq!(range(1, BLOCK + 1), BLOCK..BLOCK + 1);
        assert_eq!(range(2, BLOCK + 1), BLOCK + 1..BLOCK + 1);
    }

    proptest! {
        #[test]
        fn any_change_is_found(bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0usize..400, bit in 0u8..8) {
            let mut changed = content(&bytes);
            let at = at % changed.len();
            changed[at] ^= 1 << bit;
            prop_assert!(!is_sound(&KEY, 3, bytes.len() as u64, &changed));
            for cut in [0, at, bytes.len()] {
                prop_assert!(!is_sound(&KEY, 3, bytes.len() as u64, &content(&bytes)[..cut]));
            }
        }
    }
}
