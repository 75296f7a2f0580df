//! The chunk header, checked against what the file can hold.

use crate::bytes;
use crate::error::{Error, Result};

/// Bytes of a header.
pub(super) const HEADER: u64 = 20;
/// Bytes before each record: its length.
pub(super) const PREFIX: usize = 4;
/// What every chunk begins with.
pub(super) const MAGIC: [u8; 4] = [4, 3, 2, 1];

/// How a payload is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    None,
    Snappy,
    Gzip,
}

impl Codec {
    /// All codecs. The index of each is its number in a file.
    pub(super) const ALL: [Codec; 3] = [Codec::None, Codec::Snappy, Codec::Gzip];
    /// Their names, in the same order.
    pub(super) const NAMES: [&'static str; 3] = ["none", "snappy", "gzip"];

    pub(super) fn number(self) -> u32 {
        self as u32
    }

    /// The most bytes that one stored byte can decode to.
    fn expansion(self) -> u64 {
        match self {
            Codec::None => 1,
            // A copy of 64 bytes takes at least two bytes.
            Codec::Snappy => 32,
            // A match of 258 bytes takes at least two bits.
            Codec::Gzip => 1032,
        }
    }
}

/// A plausible chunk header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) checksum: u32,
    pub(super) codec: Codec,
    pub(super) payload: u32,
    pub(super) records: u32,
}

impl Header {
    /// The header at `at` in a file of `file_size` bytes. `head` is its 20 bytes, or as many of them as the file has.
    pub(super) fn parse(head: &[u8], at: u64, file_size: u64) -> Result<Self> {
        let magic = &head[..head.len().min(MAGIC.len())];
        if !MAGIC.starts_with(magic) {
            return Err(Error::format("no RecordIO chunk begins here")
                .at(at)
                .expected("04 03 02 01")
                .found(Hex(magic)));
        }
        if (head.len() as u64) < HEADER {
            return Err(Error::truncated("chunk header is truncated")
                .at(at)
                .expected(format_args!("{HEADER} bytes"))
                .found(head.len()));
        }
        let [checksum, codec, payload, records] = [4, 8, 12, 16].map(|field| bytes::u32_le(head, field));
        bytes::range("chunk payload", at + HEADER, payload.into(), file_size)?;
        let Some(&codec) = Codec::ALL.get(codec as usize) else {
            return Err(Error::format("chunk names an unknown codec")
                .at(at + 8)
                .expected("0 (none), 1 (snappy) or 2 (gzip)")
                .found(codec));
        };
        let header = Header { checksum, codec, payload, records };
        let most = header.most_records();
        if records == 0 || u64::from(records) > most {
            return Err(Error::format("impossible number of records in a chunk")
                .at(at + 16)
                .expected(format_args!("1 to {most} in a payload of {payload} bytes"))
                .found(records));
        }
        Ok(header)
    }

    /// The header at `at`, if [`parse`](Self::parse) finds nothing wrong with it. It gives no reason for `None`, so it
    /// is fast enough to be called for every magic number of a damaged file.
    pub(super) fn plausible(head: &[u8], at: u64, file_size: u64) -> Option<Self> {
        if (head.len() as u64) < HEADER || !head.starts_with(&MAGIC) {
            return None;
        }
        let [checksum, codec, payload, records] = [4, 8, 12, 16].map(|field| bytes::u32_le(head, field));
        let codec = *Codec::ALL.get(codec as usize)?;
        let header = Header { checksum, codec, payload, records };
        let fits = at.checked_add(header.stored()).is_some_and(|end| end <= file_size);
        (fits && records > 0 && u64::from(records) <= header.most_records()).then_some(header)
    }

    /// The most records that the payload can hold.
    fn most_records(&self) -> u64 {
        u64::from(self.payload) * self.codec.expansion() / PREFIX as u64
    }

    /// Bytes from this header to the next.
    pub(super) fn stored(&self) -> u64 {
        HEADER + u64::from(self.payload)
    }

    /// The stored form.
    pub(super) fn to_bytes(self) -> [u8; HEADER as usize] {
        let mut out = [0; HEADER as usize];
        out[..4].copy_from_slice(&MAGIC);
        let fields = [self.checksum, self.codec.number(), self.payload, self.records];
        for (place, field) in out[4..].chunks_exact_mut(4).zip(fields) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        out
    }
}

struct Hex<'a>(&'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02x}", if i == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}
