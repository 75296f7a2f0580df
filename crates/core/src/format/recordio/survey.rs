//! Verifies an uncompressed chunk and finds its records, without a copy of the chunk.

use super::header::{Header, PREFIX};
use super::rows::{Plain, Rows};
use crate::bytes;
use crate::cx::Cx;
use crate::error::Result;
use crc32fast::Hasher;
use std::hint::black_box;

/// So many bytes are copied and hashed at a time. The copy stays in the processor's cache, and nobody changes it.
const WINDOW: usize = 128 << 10;

/// The records of an uncompressed chunk. `payload` may change meanwhile. None: something is wrong with it.
pub(super) fn rows(header: &Header, payload: &[u8], checksums: bool, cx: &Cx<'_>) -> Result<Option<Rows>> {
    let rows = bytes::list("rows of a chunk", header.records.into())?;
    if !checksums {
        return unverified(payload, header.records, rows, cx);
    }
    let mut window = bytes::zeroed("a part of a chunk", payload.len().min(WINDOW) as u64)?;
    let mut survey =
        Survey { rows, records: header.records as usize, size: payload.len(), ..Survey::default() };
    let (mut whole, mut pace) = (Hasher::new(), cx.pace());
    for piece in payload.chunks(WINDOW) {
        pace.step(piece.len() as u64)?;
        let copy = &mut window[..piece.len()];
        copy.copy_from_slice(piece);
        whole.update(copy);
        if !survey.go_on(copy) {
            return Ok(None);
        }
    }
    let is_right = survey.is_complete() && whole.finalize() == header.checksum;
    Ok(is_right.then_some(Rows::Plain(survey.rows)))
}

/// Finds the records of a payload, and does not hash them.
fn unverified(payload: &[u8], records: u32, mut rows: Vec<Plain>, cx: &Cx<'_>) -> Result<Option<Rows>> {
    let (mut rest, mut pace) = (payload, cx.pace());
    for _ in 0..records {
        pace.step(32)?;
        let Some((prefix, behind)) = rest.split_first_chunk::<PREFIX>() else { return Ok(None) };
        // `black_box`: the length is loaded once, because it may change.
        let length = u32::from_le_bytes(black_box(*prefix)) as usize;
        let Some((_, next)) = behind.split_at_checked(length) else { return Ok(None) };
        rest = next;
        rows.push(Plain { end: (payload.len() - rest.len()) as u32, checksum: 0 });
    }
    Ok(rest.is_empty().then_some(Rows::Plain(rows)))
}

/// Finds and hashes the records of a payload that comes in pieces.
#[derive(Default)]
struct Survey {
    rows: Vec<Plain>,
    /// How many records the payload should have, and how many bytes.
    records: usize,
    size: usize,
    /// The bytes that have come.
    position: usize,
    /// The length of the record at hand, and how many of its bytes have come.
    prefix: [u8; PREFIX],
    prefix_bytes: usize,
    /// The hash of the record at hand, and how many of its bytes are still to come.
    hasher: Hasher,
    left: usize,
}

impl Survey {
    /// Continues with the next bytes. False: they cannot be those of the records.
    fn go_on(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let is_prefix = self.prefix_bytes < PREFIX;
            let wanted = if is_prefix { PREFIX - self.prefix_bytes } else { self.left };
            let (now, later) = bytes.split_at(wanted.min(bytes.len()));
            (bytes, self.position) = (later, self.position + now.len());
            if is_prefix {
                self.prefix[self.prefix_bytes..self.prefix_bytes + now.len()].copy_from_slice(now);
                self.prefix_bytes += now.len();
                if self.prefix_bytes < PREFIX {
                    return true;
                }
                self.left = u32::from_le_bytes(self.prefix) as usize;
                if self.left > self.size - self.position || self.rows.len() == self.records {
                    return false;
                }
            } else {
                self.hasher.update(now);
                self.left -= now.len();
            }
            if self.left == 0 {
                let checksum = std::mem::take(&mut self.hasher).finalize();
                self.rows.push(Plain { end: self.position as u32, checksum });
                self.prefix_bytes = 0;
            }
        }
        true
    }

    /// Whether all records have come, and nothing else.
    fn is_complete(&self) -> bool {
        self.rows.len() == self.records && self.prefix_bytes == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cx::for_tests;
    use crate::format::recordio::header::Codec;
    use crate::limits::Limits;

    fn chunk(records: &[Vec<u8>]) -> (Header, Vec<u8>) {
        let payload: Vec<u8> = records
            .iter()
            .flat_map(|record| [&(record.len() as u32).to_le_bytes(), &record[..]].concat())
            .collect();
        let header = Header {
            checksum: crc32fast::hash(&payload),
            codec: Codec::None,
            payload: payload.len() as u32,
            records: records.len() as u32,
        };
        (header, payload)
    }

    fn found(header: &Header, payload: &[u8], checksums: bool) -> Option<Vec<Plain>> {
        match rows(header, payload, checksums, &for_tests(Limits::default())).unwrap()? {
            Rows::Plain(rows) => Some(rows),
            Rows::Framed(..) => None,
        }
    }

    #[test]
    fn records_are_found_and_hashed_wherever_a_window_ends() {
        for size in [0, 1, 3, 4, 5, 1000, WINDOW - 8, WINDOW - 6, WINDOW - 4, WINDOW, 3 * WINDOW + 1] {
            let records: Vec<Vec<u8>> =
                [size, 7, 0, size, 130_000, size, 0].map(|size| vec![size as u8; size]).into();
            let (header, payload) = chunk(&records);
            for checksums in [true, false] {
                let mut end = 0;
                let rows = found(&header, &payload, checksums).unwrap();
                assert_eq!(rows.len(), records.len());
                for (row, record) in rows.iter().zip(&records) {
                    end += PREFIX + record.len();
                    let checksum = if checksums { crc32fast::hash(record) } else { 0 };
                    assert_eq!((row.end as usize, row.checksum), (end, checksum), "{size}");
                }
            }
        }
    }

    #[test]
    fn no_records_are_found_if_anything_is_wrong() {
        let (header, payload) = chunk(&[vec![1; 100], vec![], vec![2; 300]]);
        for records in [1, 2, 4, 5] {
            for checksums in [true, false] {
                assert!(found(&Header { records, ..header }, &payload, checksums).is_none(), "{records}");
            }
        }
        for at in 0..payload.len() {
            let mut wrong = payload.clone();
            wrong[at] ^= 1;
            assert!(found(&header, &wrong, true).is_none(), "{at}");
        }
        for length in 0..payload.len() {
            assert!(found(&header, &payload[..length], true).is_none(), "{length}");
            assert!(found(&header, &payload[..length], false).is_none(), "{length}");
        }
        assert!(found(&header, &[&payload[..], &[0; 4]].concat(), true).is_none());
    }
}
