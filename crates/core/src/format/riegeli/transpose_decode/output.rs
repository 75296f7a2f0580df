//! An output buffer that is filled from its end to its beginning.

use crate::budget::Held;
use crate::bytes;
use crate::cx::Cx;
use crate::error::{Error, Result};

/// Memory for a declared size up to this is allocated at once.
const AT_ONCE: u64 = 4 << 20;
/// For a larger declared size, memory for this many times the stored bytes is allocated at once. It then grows with the
/// output.
const EXPECTED_RATIO: u64 = 4;

/// Bytes that are written from the last to the first.
pub struct Backward<'a> {
    /// The produced bytes are at its end, from `head` on.
    bytes: Vec<u8>,
    head: usize,
    /// How many bytes there are in the end.
    size: usize,
    held: Held<'a>,
    at: u64,
    cx: &'a Cx<'a>,
}

impl<'a> Backward<'a> {
    /// An output of `size` bytes in the end, for a chunk of `stored` bytes at `at`.
    pub fn new(size: u64, stored: u64, at: u64, cx: &'a Cx<'a>) -> Result<Self> {
        let first = size.min(stored.saturating_mul(EXPECTED_RATIO).max(AT_ONCE));
        let held = cx.budget.hold(first)?;
        let bytes = bytes::zeroed("chunk", first)?;
        Ok(Backward { head: bytes.len(), bytes, size: bytes::in_memory("chunk", size)?, held, at, cx })
    }

    /// How many bytes were produced.
    pub fn made(&self) -> usize {
        self.bytes.len() - self.head
    }

    /// How many bytes are missing.
    pub fn left(&self) -> usize {
        self.size - self.made()
    }

    #[inline]
    pub fn prepend(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.len() > self.head {
            self.grow(bytes.len())?;
        }
        let head = self.head - bytes.len();
        bytes::copy_paced(bytes, &mut self.bytes[head..self.head], self.cx)?;
        self.head = head;
        Ok(())
    }

    pub fn prepend_varint(&mut self, mut value: u64) -> Result<()> {
        let mut buffer = [0; bytes::MAX_VARINT64];
        let length = bytes::varint_len(value);
        for byte in &mut buffer[..length] {
            *byte = value as u8 | 0x80;
            value >>= 7;
        }
        buffer[length - 1] &= 0x7f;
        self.prepend(&buffer[..length])
    }

    /// Makes room for `more` bytes in front.
    #[cold]
    fn grow(&mut self, more: usize) -> Result<()> {
        if more > self.left() {
            return Err(Error::format("transposed chunk holds more than it declares")
                .at(self.at)
                .expected(self.size));
        }
        let made = self.made();
        let wanted = self.bytes.len().saturating_mul(2).max(made + more).min(self.size);
        self.held.grow((wanted - self.bytes.len()) as u64)?;
        let mut grown = bytes::zeroed("chunk", wanted as u64)?;
        bytes::copy_paced(&self.bytes[self.head..], &mut grown[wanted - made..], self.cx)?;
        (self.bytes, self.head) = (grown, wanted - made);
        Ok(())
    }

    /// All bytes, if none is missing.
    pub fn finish(self) -> Result<Vec<u8>> {
        if self.left() == 0 && self.head == 0 {
            return Ok(self.bytes);
        }
        Err(Error::format("transposed chunk holds less than it declares")
            .at(self.at)
            .expected(self.size)
            .found(self.made()))
    }
}
