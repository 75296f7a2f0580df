//! Builds chunks and compressed data directly. No encoder of the library is used, so that anything can be built, fast.

use anyrecord::bytes::put_varint;
use anyrecord::codec::Codec;
use anyrecord::codec::gzip::Wrapper;
use anyrecord::codec::snappy_frames::{FRAME_BYTES, IDENTIFIER};
use anyrecord::format::riegeli::block::{self, BLOCK, BlockHeader};
use anyrecord::format::riegeli::chunk::Header;
use anyrecord::hash::{crc32, crc32c, highway};

/// A file is not built beyond this size.
pub const MOST_BYTES: u64 = 320 << 10;

/// The most padding of a chunk, with block headers.
const MOST_PADDING: u64 = 4 << 10;

/// Appends a chunk of a Riegeli file that begins at `begin`, with its block headers and padding.
pub fn put_chunk(out: &mut Vec<u8>, begin: u64, kind: u8, records: u64, decoded: u64, data: &[u8]) {
    let records = records & (u64::MAX >> 8);
    let data_hash = highway::hash(data);
    let header = Header { data_size: data.len() as u64, data_hash, kind, records, decoded };
    let Ok(end) = header.end(begin) else { return };
    let header = header.to_bytes();
    let (mut rest, mut later) = (&header[..], data);
    let mut at = begin;
    // A chunk that claims many records has a long padding. It is cut, as in a truncated file.
    let most = begin + data.len() as u64 + MOST_PADDING;
    while at < end.min(most) {
        if at.is_multiple_of(BLOCK) {
            out.extend(BlockHeader { previous: at - begin, next: end - at }.to_bytes());
            at += block::BLOCK_HEADER;
        }
        if rest.is_empty() {
            rest = std::mem::take(&mut later);
        }
        let room = (end.min(most.max(at)) - at).min(block::left_in_block(at)) as usize;
        let here = if rest.is_empty() { room } else { room.min(rest.len()) };
        let (now, after) = rest.split_at(here.min(rest.len()));
        let before = out.len();
        out.extend_from_slice(now);
        out.resize(before + here, 0);
        rest = after;
        at += here as u64;
    }
}

/// The data as compressed data that stores it unchanged.
pub fn pack(codec: Codec, data: &[u8], out: &mut Vec<u8>) {
    if codec != Codec::None {
        put_varint(out, data.len() as u64);
    }
    match codec {
        Codec::None => out.extend_from_slice(data),
        Codec::Snappy => pack_snappy(data, out),
        Codec::Zstd => {
            out.extend([0x28, 0xb5, 0x2f, 0xfd, 0xa0]);
            out.extend((data.len() as u32).to_le_bytes());
            let pieces = data.chunks(1 << 17).count().max(1);
            for i in 0..pieces {
                let piece = data.chunks(1 << 17).nth(i).unwrap_or(&[]);
                let header = (piece.len() as u32) << 3 | u32::from(i + 1 == pieces);
                out.extend(&header.to_le_bytes()[..3]);
                out.extend_from_slice(piece);
            }
        }
        Codec::Brotli => {
            // A window of 2^16 bytes (one bit, 0). Then for each piece: not the last, 4 nibbles of length less one,
            // uncompressed; padding to a whole byte.
            let mut bit = 1;
            for piece in data.chunks(1 << 16) {
                let header = (piece.len() as u32 - 1) << 3 | 1 << 19;
                out.extend(&(header << bit).to_le_bytes()[..3]);
                out.extend_from_slice(piece);
                bit = 0;
            }
            // The last and empty piece.
            out.push(3 << bit);
        }
    }
}

/// One block of snappy that stores the data unchanged, with the length in front.
pub fn pack_snappy(data: &[u8], out: &mut Vec<u8>) {
    put_varint(out, data.len() as u64);
    for piece in data.chunks(1 << 16) {
        out.push(61 << 2);
        out.extend(((piece.len() - 1) as u16).to_le_bytes());
        out.extend_from_slice(piece);
    }
}

/// A gzip or zlib stream that stores the data unchanged.
pub fn pack_deflate(wrapper: Wrapper, data: &[u8]) -> Vec<u8> {
    let mut out = wrapper.header(6).to_vec();
    for piece in data.chunks(u16::MAX.into()) {
        let length = piece.len() as u16;
        out.push(0);
        out.extend(length.to_le_bytes());
        out.extend((!length).to_le_bytes());
        out.extend_from_slice(piece);
    }
    out.extend([1, 0, 0, 0xff, 0xff]);
    out.extend(wrapper.trailer(wrapper.checksum(data), data.len() as u64));
    out
}

/// A stream of snappy frames. `size` is how many bytes a frame has.
pub fn pack_frames(data: &[u8], size: usize, compressed: bool) -> Vec<u8> {
    let mut out = IDENTIFIER.to_vec();
    for piece in data.chunks(size.clamp(1, FRAME_BYTES)) {
        let mut body = crc32c::masked(piece).to_le_bytes().to_vec();
        if compressed {
            pack_snappy(piece, &mut body)
        } else {
            body.extend_from_slice(piece)
        }
        out.push(u8::from(!compressed));
        out.extend(&(body.len() as u32).to_le_bytes()[..3]);
        out.extend(body);
    }
    out
}

/// A chunk of RecordIO.
pub fn put_recordio(out: &mut Vec<u8>, codec: u32, records: u32, payload: &[u8]) {
    out.extend([4, 3, 2, 1]);
    for field in [crc32::hash(payload), codec, payload.len() as u32, records] {
        out.extend(field.to_le_bytes());
    }
    out.extend_from_slice(payload);
}

/// A record of TFRecord.
pub fn put_tfrecord(out: &mut Vec<u8>, record: &[u8]) {
    let length = (record.len() as u64).to_le_bytes();
    out.extend(length);
    out.extend(crc32c::masked(&length).to_le_bytes());
    out.extend_from_slice(record);
    out.extend(crc32c::masked(record).to_le_bytes());
}

/// A file of FFRecord. `moved` is how many bytes lie between the table and the samples.
pub fn ffrecord(samples: &[&[u8]], moved: u64) -> Vec<u8> {
    let count = samples.len() as u64;
    let mut out = vec![0; 4];
    out.extend(count.to_le_bytes());
    samples.iter().for_each(|sample| out.extend(crc32::hash(sample).to_le_bytes()));
    let mut at = 12 + 12 * count + moved;
    for sample in samples {
        out.extend(at.to_le_bytes());
        at += sample.len() as u64;
    }
    let checksum = crc32::hash(&out[4..]);
    out[..4].copy_from_slice(&checksum.to_le_bytes());
    out.resize(out.len() + moved as usize, 0);
    samples.iter().for_each(|sample| out.extend_from_slice(sample));
    out
}
