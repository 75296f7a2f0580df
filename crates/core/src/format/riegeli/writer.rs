//! Writes chunks, with the block headers and the padding that they need.

use super::block::{self, BLOCK, BlockHeader};
use super::chunk::{self, CHUNK_HEADER, Header, kind};
use crate::bytes;
use crate::error::Result;
use crate::hash::highway;
use crate::storage::output::Output;

const ZEROS: [u8; 4096] = [0; 4096];

/// Writes a chunk whose data is `parts`, one after the other. Returns where the chunk begins.
pub fn write_chunk(out: &mut dyn Output, header: &Header, parts: &[&[u8]]) -> Result<u64> {
    let begin = out.position();
    let end = header.end(begin)?;
    let mut chunk = Chunk { out, begin, end };
    chunk.put(&header.to_bytes())?;
    parts.iter().try_for_each(|part| chunk.put(part))?;
    chunk.pad()
}

/// Writes a chunk. `head` begins with the chunk header, and `body` is the rest. Returns where the chunk begins.
pub fn write_encoded(out: &mut dyn Output, head: &[u8], body: &[u8]) -> Result<u64> {
    let begin = out.position();
    let records = bytes::u64_le(head, 24) >> 8;
    let size = (head.len() + body.len()) as u64;
    // Most chunks lie inside a block.
    if !begin.is_multiple_of(BLOCK) && size <= block::left_in_block(begin) && records <= size {
        out.write_all(head)?;
        out.write_all(body)?;
        return Ok(begin);
    }
    let end = chunk::end_of(begin, size, records)?;
    let mut chunk = Chunk { out, begin, end };
    chunk.put(head)?;
    chunk.put(body)?;
    chunk.pad()
}

struct Chunk<'a> {
    out: &'a mut dyn Output,
    begin: u64,
    end: u64,
}

impl Chunk<'_> {
    fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let at = self.out.position();
            if at.is_multiple_of(BLOCK) {
                let header = BlockHeader { previous: at - self.begin, next: self.end - at };
                self.out.write_all(&header.to_bytes())?;
            }
            let room = block::left_in_block(self.out.position());
            let (now, later) = bytes.split_at(bytes.len().min(room as usize));
            self.out.write_all(now)?;
            bytes = later;
        }
        Ok(())
    }

    /// Fills the rest of the chunk with zeros. Returns where the chunk begins.
    fn pad(&mut self) -> Result<u64> {
        // `put` may also write a block header, so every step computes again how many bytes are left.
        loop {
            let left = self.end - self.out.position();
            if left == 0 {
                return Ok(self.begin);
            }
            let in_block = match block::left_in_block(self.out.position()) {
                0 => 1,
                n => n,
            };
            self.put(&ZEROS[..left.min(in_block).min(ZEROS.len() as u64) as usize])?;
        }
    }
}

/// Writes the chunk that every file begins with.
pub fn write_signature(out: &mut dyn Output) -> Result<()> {
    let header =
        Header { data_size: 0, data_hash: highway::hash(&[]), kind: kind::SIGNATURE, records: 0, decoded: 0 };
    write_chunk(out, &header, &[]).map(drop)
}

/// Writes a padding chunk that ends at a block boundary, unless the output is at one.
pub fn pad_to_block(out: &mut dyn Output) -> Result<()> {
    let left = block::left_in_block(out.position());
    if left == 0 {
        return Ok(());
    }
    // If a chunk header does not fit into the rest of the block, the padding also fills the next block.
    let size = match left.checked_sub(CHUNK_HEADER) {
        Some(size) => size,
        None => left + BLOCK - block::BLOCK_HEADER - CHUNK_HEADER,
    };
    let zeros = vec![0; size as usize];
    let header = Header {
        data_size: size,
        data_hash: highway::hash(&zeros),
        kind: kind::PADDING,
        records: 0,
        decoded: 0,
    };
    write_chunk(out, &header, &[&zeros]).map(drop)
}
