//! The first bytes of an object, if they are written last, as the table of FFRecord is. The parts that they are in wait
//! until the object is complete.

use super::buffer::Buffer;
use super::{MOST_PARTS, part_size};

/// Bytes at the beginning of an object that can be overwritten until it is sealed.
pub struct Front {
    /// How many bytes.
    pub length: u64,
    /// How many parts they are in.
    pub parts: usize,
    /// The size of these parts.
    pub size: u64,
    /// These parts, once all their bytes are written.
    pub held: Option<Buffer>,
}

impl Front {
    /// Room for so many bytes. None if an object cannot have so many. `first_part` is the size of the first part.
    pub fn new(length: u64, first_part: u64) -> Option<Self> {
        let mut size = 0;
        for number in 0..MOST_PARTS {
            size += part_size(first_part, number);
            if size >= length {
                return Some(Front { length, parts: number + 1, size, held: None });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_front_covers_whole_parts() {
        for (length, parts) in [(1, 1), (9, 1), (10, 1), (11, 2), (20, 2), (21, 3)] {
            let front = Front::new(length, 10).unwrap();
            assert_eq!((front.parts, front.size), (parts, 10 * parts as u64), "{length}");
        }
        assert!(Front::new(u64::MAX, 10).is_none());
    }
}
