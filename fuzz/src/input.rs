//! Reads numbers and slices from the bytes of an input. Past its end, numbers are 0 and slices are empty.

/// The part of an input that was not read yet.
#[derive(Clone, Copy)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    /// The next two bytes as a number.
    pub fn u16(&mut self) -> usize {
        usize::from(self.byte()) | usize::from(self.byte()) << 8
    }

    /// The next eight bytes as a number.
    pub fn u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        let taken = self.take(8);
        bytes[..taken.len()].copy_from_slice(taken);
        u64::from_le_bytes(bytes)
    }

    /// A number of any size. Small numbers are short.
    pub fn varint(&mut self) -> u64 {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte();
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }

    /// The next bytes, at most `n`.
    pub fn take(&mut self, n: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A slice with its length in front.
    pub fn slice(&mut self) -> &'a [u8] {
        let n = self.varint();
        self.take(usize::try_from(n).unwrap_or(usize::MAX))
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        self.take(usize::MAX)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Writes what [`Input`] reads, for inputs that are made from existing files.
#[derive(Default)]
pub struct Inverse(pub Vec<u8>);

impl Inverse {
    /// See [`Input::varint`].
    pub fn varint(&mut self, value: u64) -> &mut Self {
        anyrecord::bytes::put_varint(&mut self.0, value);
        self
    }

    /// See [`Input::u64`].
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    /// See [`Input::take`].
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// See [`Input::slice`].
    pub fn slice(&mut self, bytes: &[u8]) -> &mut Self {
        self.varint(bytes.len() as u64).bytes(bytes)
    }
}
