//! Blocks: a block header every 65,536 bytes. It interrupts the chunk that is stored there.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | hash of the 16 bytes that follow |
//! | 8 | 8 | `previous`: how far back the chunk that the header interrupts begins |
//! | 16 | 8 | `next`: how far ahead that chunk ends |
//!
//! A block header between two chunks belongs to the second, which then begins at the block header itself.

use crate::bytes;
use crate::error::{Error, Result};
use crate::hash::highway;

/// Distance between block headers.
pub const BLOCK: u64 = 1 << 16;
/// Size of a block header.
pub const BLOCK_HEADER: u64 = 24;
/// Bytes of a block without its header.
const USABLE: u64 = BLOCK - BLOCK_HEADER;

/// Bytes from `at` to the next block header. 0 at a block header.
pub fn left_in_block(at: u64) -> u64 {
    at.wrapping_neg() % BLOCK
}

/// Whether a chunk may begin or end at `at`. It may not inside a block header, nor directly after one.
pub fn is_boundary(at: u64) -> bool {
    left_in_block(at) < USABLE
}

/// Where the first `length` bytes of a chunk end if the chunk begins at `begin`. `None` on overflow.
pub fn end_of(begin: u64, length: u64) -> Option<u64> {
    let in_block = begin.wrapping_add(USABLE - 1) % BLOCK;
    let headers = length.checked_add(in_block)? / USABLE;
    begin.checked_add(length)?.checked_add(headers.checked_mul(BLOCK_HEADER)?)
}

/// The offset of byte `index` of a chunk that begins at `begin`. `None` on overflow.
pub fn place_of(begin: u64, index: u64) -> Option<u64> {
    let end = end_of(begin, index)?;
    if end.is_multiple_of(BLOCK) { end.checked_add(BLOCK_HEADER) } else { Some(end) }
}

/// The first offset from `at` on where a chunk may end.
pub fn next_boundary(at: u64) -> Option<u64> {
    at.checked_add(left_in_block(at).saturating_sub(USABLE - 1))
}

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// How far back the interrupted chunk begins.
    pub previous: u64,
    /// How far ahead the interrupted chunk ends.
    pub next: u64,
}

impl BlockHeader {
    /// The stored form.
    pub fn to_bytes(self) -> [u8; BLOCK_HEADER as usize] {
        let mut bytes = [0; BLOCK_HEADER as usize];
        bytes[8..16].copy_from_slice(&self.previous.to_le_bytes());
        bytes[16..].copy_from_slice(&self.next.to_le_bytes());
        let hash = highway::hash(&bytes[8..]);
        bytes[..8].copy_from_slice(&hash.to_le_bytes());
        bytes
    }

    /// Reads the header stored at `at` in the file.
    pub fn read(stored: &[u8; BLOCK_HEADER as usize], at: u64, checksums: bool) -> Result<Self> {
        Self::plausible(stored, checksums).ok_or_else(|| {
            let (expected, found) = (bytes::u64_le(stored, 0), highway::hash(&stored[8..]));
            Error::checksum("block header hash mismatch")
                .at(at)
                .expected(format_args!("{expected:016x}"))
                .found(format_args!("{found:016x}"))
        })
    }

    /// The header, if its hash is right.
    pub fn plausible(stored: &[u8; BLOCK_HEADER as usize], checksums: bool) -> Option<Self> {
        let is_right = !checksums || bytes::u64_le(stored, 0) == highway::hash(&stored[8..]);
        is_right.then(|| BlockHeader { previous: bytes::u64_le(stored, 8), next: bytes::u64_le(stored, 16) })
    }

    /// Checks that the header at `at` belongs to the chunk `begin..end`.
    pub fn check(self, at: u64, begin: u64, end: u64) -> Result<()> {
        let expected = BlockHeader { previous: at - begin, next: end - at };
        if self == expected {
            return Ok(());
        }
        Err(Error::format("block header belongs to another chunk")
            .at(at)
            .expected(format_args!("{begin}..{end}"))
            .found(format_args!("{} back, {} ahead", self.previous, self.next)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_header_of_every_file() {
        let bytes = BlockHeader { previous: 0, next: 64 }.to_bytes();
        assert_eq!(bytes[..8], [0x83, 0xaf, 0x70, 0xd1, 0x0d, 0x88, 0x4a, 0x3f]);
        assert_eq!(BlockHeader::read(&bytes, 0, true).unwrap().next, 64);
    }

    #[test]
    fn places_skip_the_headers() {
        assert_eq!(place_of(0, 0), Some(24));
        assert_eq!(end_of(0, 40), Some(64));
        assert_eq!(place_of(64, 65_471), Some(65_535));
        assert_eq!(place_of(64, 65_472), Some(65_560));
        assert_eq!(end_of(64, 65_472), Some(65_536));
        assert_eq!(end_of(1, u64::MAX), None);
        assert!(is_boundary(65_536) && !is_boundary(65_537) && !is_boundary(65_560) && is_boundary(65_561));
        assert_eq!(next_boundary(65_537), Some(65_561));
        assert_eq!(next_boundary(65_536), Some(65_536));
    }
}
