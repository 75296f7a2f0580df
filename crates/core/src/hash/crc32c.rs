//! CRC-32C (Castagnoli), and its masked form.
//!
//! A CRC of bytes that hold their own CRC is always the same, so formats that may be nested in each other store
//! it rotated and shifted by a constant. TFRecord and the snappy framing do so in the same way.

const MASK: u32 = 0xa282_ead8;

/// The CRC-32C of `bytes` that continue what `crc` covers; begin with 0.
pub fn append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// A CRC as it is stored.
pub fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(MASK)
}

/// The CRC-32C of `bytes` as it is stored.
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
