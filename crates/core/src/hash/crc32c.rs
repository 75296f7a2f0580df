//! CRC-32C (Castagnoli), and its masked form.
//!
//! A CRC of bytes that hold their own CRC is always the same. So formats that may be nested in each other store a
//! masked CRC: it is rotated, and a constant is added. TFRecord and the snappy framing use the same mask.

const MASK: u32 = 0xa282_ead8;

/// Continues the CRC-32C `crc` with `bytes`. Begin with 0.
pub fn append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// The masked form of a CRC, in which it is stored.
pub fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(MASK)
}

/// The masked CRC-32C of `bytes`.
pub fn masked(bytes: &[u8]) -> u32 {
    mask(crc32c::crc32c(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        assert_eq!(append(0, b"123456789"), 0xe306_9283);
        assert_eq!(append(append(0, b"1234"), b"56789"), 0xe306_9283);
        assert_eq!(append(0, &[0; 32]), 0x8a91_36aa);
        // The length frame of a record of one byte, as the original RecordIO writes it.
        assert_eq!(masked(&[1, 0, 0, 0]), 0x6582_151d);
    }
}
