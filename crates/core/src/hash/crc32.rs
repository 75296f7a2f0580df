//! CRC-32 with the polynomial of gzip and zip, with hardware support where available.

pub use crc32fast::{Hasher, hash};

#[cfg(test)]
mod tests {
    #[test]
    fn the_check_value_of_the_polynomial() {
        assert_eq!(super::hash(b"123456789"), 0xcbf4_3926);
    }
}
