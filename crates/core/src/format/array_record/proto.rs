//! The three protobuf messages in an ArrayRecord file.
//!
//! ```text
//! RiegeliPostscript      1 footer_offset  2 magic
//! RiegeliFooterMetadata  1 { 1 version  2 num_chunks  3 num_records  4 writer_options }
//! ArrayRecordFooter      1 chunk_offset  2 decoded_data_size  3 num_records
//! ```

use crate::bytes::{Cursor, put_varint};
use crate::error::{Error, Result};

/// What the second field of a postscript must be.
pub const MAGIC: u64 = 0x7193_0e70_4fda_e05e;
/// The only version there is.
pub const VERSION: u64 = 1;
/// The longest options text that is read. Writers store about a hundred bytes.
const MAX_OPTIONS: usize = 64 << 10;

enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Other,
}

/// Calls `each` with every field of a message.
fn fields<'a>(what: &'static str, message: &'a [u8], mut each: impl FnMut(u64, Field<'a>)) -> Result<()> {
    let mut cursor = Cursor::new(what, message, 0);
    // An offset inside a message is not an offset in the file. The caller adds the file offset.
    let mut read = || -> Result<()> {
        while !cursor.is_empty() {
            let tag = cursor.varint64()?;
            let field = match tag & 7 {
                0 => Field::Number(cursor.varint64()?),
                1 => cursor.take(8).map(|_| Field::Other)?,
                2 => {
                    let length = cursor.varint64()?;
                    Field::Bytes(cursor.take(length)?)
                }
                5 => cursor.take(4).map(|_| Field::Other)?,
                other => return Err(Error::format(format!("unexpected wire type {other}"))),
            };
            each(tag >> 3, field);
        }
        Ok(())
    };
    read().map_err(|e| Error::format(format!("{what} is not a valid message: {}", e.what())))
}

/// Where the footer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Postscript {
    /// Where the footer chunk begins.
    pub footer_offset: u64,
    /// Must be [`MAGIC`].
    pub magic: u64,
}

impl Postscript {
    /// Returns `None` if a field is missing.
    pub fn read(message: &[u8]) -> Result<Option<Self>> {
        let (mut footer_offset, mut magic) = (None, None);
        fields("postscript", message, |number, field| match (number, field) {
            (1, Field::Number(n)) => footer_offset = Some(n),
            (2, Field::Number(n)) => magic = Some(n),
            _ => {}
        })?;
        Ok(footer_offset.zip(magic).map(|(footer_offset, magic)| Postscript { footer_offset, magic }))
    }

    /// The stored form.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut out = Vec::new();
        put_number(&mut out, 1, self.footer_offset);
        put_number(&mut out, 2, self.magic);
        out
    }
}

/// The first record of the footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Must be [`VERSION`].
    pub version: u64,
    /// How many entries follow.
    pub chunks: u64,
    /// How many records the file has.
    pub records: u64,
    /// The options of the writer. Old files have none.
    pub options: Option<String>,
}

impl Metadata {
    /// Returns `None` if this is another message: it has no field 1.
    pub fn read(message: &[u8]) -> Result<Option<Self>> {
        let mut inner = None;
        fields("footer metadata", message, |number, field| {
            if let (1, Field::Bytes(bytes)) = (number, field) {
                inner = Some(bytes);
            }
        })?;
        let Some(inner) = inner else { return Ok(None) };
        // Missing numbers are zero, as in every protobuf message.
        let mut metadata = Metadata { version: 0, chunks: 0, records: 0, options: None };
        let mut options = None;
        fields("footer metadata", inner, |number, field| match (number, field) {
            (1, Field::Number(n)) => metadata.version = n,
            (2, Field::Number(n)) => metadata.chunks = n,
            (3, Field::Number(n)) => metadata.records = n,
            (4, Field::Bytes(bytes)) => options = Some(bytes),
            _ => {}
        })?;
        if let Some(options) = options {
            if options.len() > MAX_OPTIONS {
                let error = Error::format("footer metadata has options that are too long");
                return Err(error.expected(MAX_OPTIONS).found(options.len()));
            }
            metadata.options = Some(String::from_utf8_lossy(options).into_owned());
        }
        Ok(Some(metadata))
    }

    /// The stored form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut inner = Vec::new();
        put_number(&mut inner, 1, self.version);
        put_number(&mut inner, 2, self.chunks);
        put_number(&mut inner, 3, self.records);
        if let Some(options) = &self.options {
            put_bytes(&mut inner, 4, options.as_bytes());
        }
        let mut out = Vec::new();
        put_bytes(&mut out, 1, &inner);
        out
    }
}

/// The entry of one chunk in the footer. The caller decides which fields are required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FooterEntry {
    /// Where the chunk begins.
    pub offset: Option<u64>,
    /// Decoded size of its records.
    pub decoded: Option<u64>,
    /// How many records it holds.
    pub records: Option<u64>,
}

impl FooterEntry {
    /// Reads an entry in the form that all writers use. Returns `None` for any other form.
    #[inline]
    fn read_usual(message: &[u8]) -> Option<Self> {
        let (offset, rest) = usual_number(message, 1)?;
        let (decoded, rest) = usual_number(rest, 2)?;
        let (records, rest) = usual_number(rest, 3)?;
        let entry = FooterEntry { offset: Some(offset), decoded: Some(decoded), records: Some(records) };
        rest.is_empty().then_some(entry)
    }

    /// Reads an entry.
    #[inline]
    pub fn read(message: &[u8]) -> Result<Self> {
        Self::read_usual(message).map_or_else(|| Self::read_any(message), Ok)
    }

    #[cold]
    fn read_any(message: &[u8]) -> Result<Self> {
        let mut entry = FooterEntry { offset: None, decoded: None, records: None };
        fields("footer entry", message, |number, field| match (number, field) {
            (1, Field::Number(n)) => entry.offset = Some(n),
            (2, Field::Number(n)) => entry.decoded = Some(n),
            (3, Field::Number(n)) => entry.records = Some(n),
            _ => {}
        })?;
        Ok(entry)
    }

    /// Appends the entry in its stored form.
    pub fn put(self, out: &mut Vec<u8>) {
        let values = [self.offset, self.decoded, self.records];
        for (number, value) in (1..).zip(values) {
            if let Some(value) = value {
                put_number(out, number, value);
            }
        }
    }
}

/// Reads a number of at most 56 bits from field `field`. Returns the number and the bytes after it.
#[inline]
fn usual_number(message: &[u8], field: u8) -> Option<(u64, &[u8])> {
    let (&tag, rest) = message.split_first()?;
    if tag != field << 3 {
        return None;
    }
    if let Some((&byte @ ..0x80, after)) = rest.split_first() {
        return Some((byte.into(), after));
    }
    let Some(&eight) = rest.first_chunk::<8>() else {
        let mut cursor = Cursor::new("number", rest, 0);
        let value = cursor.varint64().ok().filter(|value| value >> 56 == 0)?;
        return Some((value, cursor.rest()));
    };
    // The top bits of all eight bytes at once show which byte is the last of the varint. Then the groups of 7 bits are
    // joined.
    let word = u64::from_le_bytes(eight);
    let length = (!word & 0x8080_8080_8080_8080).trailing_zeros() as usize / 8 + 1;
    if length > 8 {
        return None;
    }
    let word = word & (u64::MAX >> (64 - 8 * length));
    let word = word & 0x007f_007f_007f_007f | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    let word = word & 0x0000_3fff_0000_3fff | (word & 0x3fff_0000_3fff_0000) >> 2;
    let word = word & 0x0000_0000_0fff_ffff | (word & 0x0fff_ffff_0000_0000) >> 4;
    Some((word, &rest[length..]))
}

fn put_number(out: &mut Vec<u8>, field: u64, value: u64) {
    put_varint(out, field << 3);
    put_varint(out, value);
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_usual_entry_is_read_as_any_other(offset: u64, decoded: u64, records: u64, bits in 0u32..64, extra: Vec<u8>) {
            let entry = FooterEntry {
                offset: Some(offset >> bits), decoded: Some(decoded >> bits), records: Some(records >> bits),
            };
            let mut message = Vec::new();
            entry.put(&mut message);
            prop_assert_eq!(FooterEntry::read(&message).unwrap(), entry);
            let small = [offset, decoded, records].iter().all(|n| (n >> bits) >> 56 == 0);
            prop_assert_eq!(FooterEntry::read_usual(&message), small.then_some(entry));
            message.extend(&extra);
            prop_assert_eq!(FooterEntry::read_usual(&message).is_some(), small && extra.is_empty());
        }
    }
}
