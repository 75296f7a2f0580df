//! The raw block format of snappy: no framing, the length in front, no checksum.

use super::{AT_ONCE, Codec, PIECE, broken, wrong_size};
use crate::budget::Held;
use crate::bytes;
use crate::cx::Cx;
use crate::error::{Error, Result};

/// A block must be shorter than this.
const MAX_BYTES: u64 = 1 << 32;
/// The most bytes of output per stored byte. A copy of 64 bytes takes 3.
const MOST_RATIO: u64 = 32;

/// Whether `bytes` bytes can be compressed into one block. The library works with 32-bit lengths. If its bound for the
/// compressed size does not fit into them, it returns 0. That happens at about 3.6 GiB.
pub fn fits(bytes: u64) -> bool {
    bytes < MAX_BYTES && usize::try_from(bytes).is_ok_and(|n| snap::raw::max_compress_len(n) > 0)
}

/// Decompresses one block, all of `input`, into all of `out`.
pub fn decompress(input: &[u8], out: &mut [u8]) -> Result<()> {
    let declared = snap::raw::decompress_len(input).map_err(|e| broken(Codec::Snappy, e))?;
    if declared != out.len() {
        return Err(wrong_size(Codec::Snappy, out.len(), declared));
    }
    if declared == 0 {
        // The library does not check what follows an empty block.
        return if input == [0] { Ok(()) } else { Err(broken(Codec::Snappy, "bytes follow the block")) };
    }
    let written = snap::raw::Decoder::new().decompress(input, out).map_err(|e| broken(Codec::Snappy, e))?;
    if written != out.len() {
        return Err(wrong_size(Codec::Snappy, out.len(), written));
    }
    Ok(())
}

/// Like [`decompress`], for a large block: in pieces, with an interruption check between them.
pub fn decompress_paced(input: &[u8], out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
    let (mut block, mut filled) = (Block::begin(input, out.len())?, 0);
    while filled < out.len() {
        cx.check()?;
        let room = out.len().min(filled + PIECE);
        filled = block.fill(&mut out[..room], filled)?;
    }
    block.end()
}

/// Appends the content of a large block, which has `size` bytes, to `out`. Memory grows with the decoded data.
pub fn append(input: &[u8], size: usize, out: &mut Vec<u8>, held: &mut Held<'_>, cx: &Cx<'_>) -> Result<()> {
    let mut block = Block::begin(input, size)?;
    let (begin, mut filled) = (out.len(), 0);
    while filled < size {
        cx.check()?;
        bytes::grow_as_filled("snappy data", out, begin + size, held)?;
        let room = size.min(filled + PIECE).min(out.capacity() - begin);
        out.resize(begin + room, 0);
        filled = block.fill(&mut out[begin..], filled)?;
    }
    block.end()
}

/// Appends `input` as one block.
pub fn compress(input: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let too_long = || Error::argument(format!("snappy cannot hold {} bytes in one block", input.len()));
    if !fits(input.len() as u64) {
        return Err(too_long());
    }
    let begin = out.len();
    let most = snap::raw::max_compress_len(input.len());
    bytes::reserve_more("snappy data", out, most)?;
    out.resize(begin + most, 0);
    let written = snap::raw::Encoder::new().compress(input, &mut out[begin..]).map_err(|_| too_long())?;
    out.truncate(begin + written);
    Ok(())
}

/// A block that is decoded in steps. The library can only decode a block as a whole. For a block of 4 GiB, that means
/// seconds without a response to Ctrl-C, and memory that the block only claims to need. The library is faster, so it
/// decodes the blocks up to [`AT_ONCE`], which are nearly all.
struct Block<'a> {
    /// The part of the block that is not yet read.
    rest: &'a [u8],
    element: Element,
}

/// What is left of the element that is being decoded.
#[derive(Clone, Copy)]
enum Element {
    Literal { left: usize },
    Copy { offset: usize, left: usize },
}

impl<'a> Block<'a> {
    /// A block that must have `size` bytes, decoded.
    fn begin(input: &'a [u8], size: usize) -> Result<Self> {
        debug_assert!(size > AT_ONCE);
        let declared = snap::raw::decompress_len(input).map_err(|e| broken(Codec::Snappy, e))?;
        if declared != size {
            return Err(wrong_size(Codec::Snappy, size, declared));
        }
        if declared as u64 > (input.len() as u64).saturating_mul(MOST_RATIO) {
            return Err(broken(Codec::Snappy, "it is too short for what it declares"));
        }
        let mut cursor = bytes::Cursor::new("snappy block", input, 0);
        cursor.varint64()?;
        Ok(Block { rest: cursor.rest(), element: Element::Literal { left: 0 } })
    }

    /// Decodes until `out` is full. Its first `filled` bytes are already decoded.
    fn fill(&mut self, out: &mut [u8], mut filled: usize) -> Result<usize> {
        while filled < out.len() {
            let room = out.len() - filled;
            match self.element {
                Element::Literal { left: 0 } | Element::Copy { left: 0, .. } => self.element = self.next()?,
                Element::Literal { left } => {
                    let n = left.min(room);
                    let literal = self.take(n)?;
                    out[filled..filled + n].copy_from_slice(literal);
                    self.element = Element::Literal { left: left - n };
                    filled += n;
                }
                Element::Copy { offset, left } => {
                    if offset == 0 || offset > filled {
                        return Err(broken(Codec::Snappy, "it copies from before its beginning"));
                    }
                    // The source of a copy can overlap its own output, so at most `offset` bytes are copied at a time.
                    let n = left.min(room).min(offset);
                    out.copy_within(filled - offset..filled - offset + n, filled);
                    self.element = Element::Copy { offset, left: left - n };
                    filled += n;
                }
            }
        }
        Ok(filled)
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let taken = self.rest.split_at_checked(n);
        let (taken, rest) = taken.ok_or_else(|| broken(Codec::Snappy, "the block ends early"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// A little-endian number of `n` bytes.
    fn number(&mut self, n: usize) -> Result<usize> {
        let number = self.take(n)?.iter().rev().fold(0u64, |number, &byte| number << 8 | u64::from(byte));
        bytes::in_memory("snappy element", number)
    }

    fn next(&mut self) -> Result<Element> {
        let tag = self.number(1)?;
        let upper = tag >> 2;
        Ok(match tag & 3 {
            0 if upper < 60 => Element::Literal { left: upper + 1 },
            0 => Element::Literal { left: self.number(upper - 59)? + 1 },
            1 => Element::Copy { offset: (tag >> 5) << 8 | self.number(1)?, left: (upper & 7) + 4 },
            2 => Element::Copy { offset: self.number(2)?, left: upper + 1 },
            _ => Element::Copy { offset: self.number(4)?, left: upper + 1 },
        })
    }

    /// Checks that the block ends here.
    fn end(&self) -> Result<()> {
        match self.element {
            Element::Literal { left: 0 } | Element::Copy { left: 0, .. } if self.rest.is_empty() => Ok(()),
            _ => Err(broken(Codec::Snappy, "it holds more than it declares")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_known_before_it_is_tried() {
        assert!(fits(0) && fits(3 << 30));
        assert!(!fits(MAX_BYTES - 1) && !fits(MAX_BYTES) && !fits(u64::MAX));
    }
}
