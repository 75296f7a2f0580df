//! Encodes chunks without block headers. Block headers depend on where a chunk lies in the file.

use super::chunk::{CHUNK_HEADER, Header, kind};
use super::{simple, transpose_encode};
use crate::codec::{Codec, Compression};
use crate::error::Result;
use crate::format::encode::Group;
use crate::format::spare::Spare;
use crate::hash::highway;

/// Any number of chunks, without block headers, ready to be written.
#[derive(Debug, Default)]
pub struct EncodedChunks {
    /// The header and the first part of the data of each chunk.
    pub head: Vec<u8>,
    /// The rest of the data of each chunk.
    pub body: Vec<u8>,
    /// Where each chunk ends in `head` and in `body`.
    ends: Vec<[usize; 2]>,
    /// How many records they hold.
    pub records: u64,
}

impl EncodedChunks {
    /// The chunks, each as its part of the head and of the body.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let (mut head, mut body) = (0, 0);
        self.ends.iter().map(move |&[head_end, body_end]| {
            let chunk = (&self.head[head..head_end], &self.body[body..body_end]);
            (head, body) = (head_end, body_end);
            chunk
        })
    }
}

/// How records become chunks.
#[derive(Clone, Copy, Debug)]
pub struct Encoding {
    /// How many records a chunk holds.
    pub group_size: u64,
    /// How they are compressed.
    pub compression: Compression,
    /// Set for transposed chunks, whose records are split by field: about how many bytes are compressed together.
    pub transpose: Option<u64>,
}

impl Encoding {
    /// The kind of chunk.
    pub fn kind(&self) -> u8 {
        if self.transpose.is_some() { kind::TRANSPOSED } else { kind::SIMPLE }
    }

    /// Encodes a group as any number of chunks. Only the last chunk may have fewer records than the others.
    pub fn encode(&self, group: Group, spare: &Spare) -> Result<EncodedChunks> {
        let (compression, mut scratch) = (&self.compression, simple::Scratch::default());
        // Uncompressed values become the body without a copy.
        let stored = self.transpose.is_none() && compression.codec == Codec::None;
        let group_size = usize::try_from(self.group_size).unwrap_or(usize::MAX);
        let mut out = EncodedChunks {
            records: group.ends.len() as u64,
            ends: Vec::with_capacity(group.ends.len() / group_size + 1),
            ..EncodedChunks::default()
        };
        if !stored {
            out.body = spare.take();
        }
        let mut body_end = 0;
        for run in group.runs(group_size) {
            let (begin, body_begin) = (out.head.len(), body_end);
            out.head.extend_from_slice(&[0; CHUNK_HEADER as usize]);
            match self.transpose {
                None => simple::encode_run(run, compression, &mut scratch, &mut out.head, &mut out.body)?,
                Some(bucket) => {
                    transpose_encode::encode_run(run, compression, bucket, &mut out.head, &mut out.body)?
                }
            }
            let body = if stored { run.bytes } else { &out.body[body_begin..] };
            body_end += body.len();
            put_header(&mut out.head[begin..], body, self.kind(), run.records(), run.bytes.len() as u64);
            out.ends.push([out.head.len(), body_end]);
        }
        if stored {
            out.body = group.bytes;
        } else {
            spare.put(group.bytes);
        }
        Ok(out)
    }
}

/// Encodes records whose sizes are already varints as one simple chunk.
pub fn encode_parts(
    sizes: &[u8],
    values: Vec<u8>,
    records: u64,
    compression: &Compression,
) -> Result<EncodedChunks> {
    let decoded_bytes = values.len() as u64;
    let mut head = vec![0; CHUNK_HEADER as usize];
    simple::put_sizes(sizes, compression, &mut Vec::new(), &mut head)?;
    let body = if compression.codec == Codec::None {
        values
    } else {
        let mut body = Vec::new();
        simple::pack(compression, &values, &mut body)?;
        body
    };
    put_header(&mut head, &body, kind::SIMPLE, records, decoded_bytes);
    let ends = vec![[head.len(), body.len()]];
    Ok(EncodedChunks { head, body, ends, records })
}

/// Fills in the header that `head` begins with.
fn put_header(head: &mut [u8], body: &[u8], kind: u8, records: u64, decoded: u64) {
    let (header, data) = head.split_at_mut(CHUNK_HEADER as usize);
    let data_size = (data.len() + body.len()) as u64;
    let data_hash = highway::hash_parts(data, body);
    header.copy_from_slice(&Header { data_size, data_hash, kind, records, decoded }.to_bytes());
}
