//! Chunks of Riegeli files.

use super::build::{pack, put_chunk};
use super::check::{LARGE, SMALL, is_compared, with_cx};
use super::input::Input;
use super::storages::Sparse;
use anyrecord::bytes::put_varint;
use anyrecord::codec::Codec;
use anyrecord::format::Decoded;
use anyrecord::format::riegeli::block::BLOCK;
use anyrecord::format::riegeli::chunk::{ChunkView, kind};
use anyrecord::format::riegeli::single;
use anyrecord::format::riegeli::stream::{ChunkData, SimpleStream};
use anyrecord::{Cx, Kind, Limits, Result};

const CODECS: [Codec; 4] = [Codec::None, Codec::Brotli, Codec::Zstd, Codec::Snappy];
const TYPES: [u8; 4] = [0, b'b', b'z', b's'];

/// Where the chunk begins in its file: in a block, shortly before the end of a block, at a block header.
const BEGINS: [u64; 4] = [64, BLOCK - 20, BLOCK - 60, 2 * BLOCK];

/// Decodes a chunk in every way there is, and compares the results.
fn check_chunk(
    begin: u64,
    kind: u8,
    records: u64,
    decoded: u64,
    data: &[u8],
    limits: &Limits,
    streamed: bool,
) {
    let mut stored = Vec::new();
    put_chunk(&mut stored, begin, kind, records, decoded, data);
    with_cx(limits, |cx| {
        let whole = decode(begin, &stored, true, cx);
        if is_compared(data) {
            let unchecked = decode(begin, &stored, false, cx);
            match (&whole, &unchecked) {
                (Ok(whole), Ok(unchecked)) => assert_eq!(whole.bytes(), unchecked.bytes()),
                (Err(whole), Err(unchecked)) => assert_eq!(whole.to_string(), unchecked.to_string()),
                _ => panic!("checksums change whether a chunk can be decoded"),
            }
        }
        if let Err(error) = &whole {
            assert!(!matches!(error.kind(), Kind::Memory | Kind::Io(_) | Kind::Checksum), "{error}");
        }
        let whole = whole.ok();
        if let Some(whole) = &whole {
            assert_eq!((whole.rows() as u64, whole.bytes().len() as u64), (records, decoded));
        }
        if records == 1 && decoded <= limits.decoded_chunk_bytes {
            check_one(begin, &stored, decoded as usize, whole.as_ref(), cx);
        }
        if streamed && kind == kind::SIMPLE {
            check_stream(begin, &stored, whole.as_ref(), cx);
        }
    });
}

fn decode(begin: u64, stored: &[u8], checksums: bool, cx: &Cx<'_>) -> Result<Decoded> {
    let view = ChunkView::read(begin, stored, checksums)?;
    view.verify_padding()?;
    view.decode(cx)
}

/// A chunk of one record: both fast paths.
fn check_one(begin: u64, stored: &[u8], size: usize, whole: Option<&Decoded>, cx: &Cx<'_>) {
    for checksums in [true, false] {
        let mut out = vec![0; size];
        for may_change in [true, false] {
            let view = ChunkView::read(begin, stored, checksums);
            match (view.and_then(|view| view.decode_one(may_change, &mut out, cx)), whole) {
                (Ok(()), Some(whole)) => assert_eq!(whole.row(0), Some(&*out)),
                (Err(_), None) => {}
                // A whole chunk also needs memory for its tables.
                (Ok(()), None) if size as u64 + 64 > cx.budget.limits().decoded_bytes => {}
                (one, whole) => panic!("alone: {one:?}, as a whole: {:?}", whole.map(Decoded::rows)),
            }
        }
        if single::decode(begin, stored, checksums, &mut out) {
            assert_eq!(whole.and_then(|whole| whole.row(0)), Some(&*out), "the fast path");
        }
    }
}

/// A chunk that is read record by record.
fn check_stream(begin: u64, stored: &[u8], whole: Option<&Decoded>, cx: &Cx<'_>) {
    let end = begin + stored.len() as u64;
    let storage = Sparse { size: end, pieces: &[(begin, stored)] };
    let mut rows = 0;
    let mut run = || -> Result<bool> {
        let data = ChunkData::find(&storage, begin, end, true, cx)?;
        data.verify()?;
        let Some(mut stream) = SimpleStream::open(data)? else { return Ok(false) };
        while let Some(record) = stream.next_record()? {
            if let Some(whole) = whole {
                assert_eq!(whole.row(rows), Some(record));
            }
            rows += 1;
        }
        Ok(true)
    };
    match (run(), whole) {
        (Ok(true), Some(whole)) => assert_eq!(rows, whole.rows() as u64),
        (Ok(true), None) => assert!(rows > 0 || whole.is_none()),
        (Ok(false), _) | (Err(_), None) => {}
        (Err(error), Some(_)) => panic!("only the stream fails: {error}"),
    }
}

struct Mode(u8);

impl Mode {
    fn begin(&self) -> u64 {
        BEGINS[usize::from(self.0 & 3)]
    }

    fn is_built(&self) -> bool {
        self.0 & 4 != 0
    }

    fn is_streamed(&self) -> bool {
        self.0 & 0x38 == 0x38
    }

    fn limits(&self) -> &'static Limits {
        if self.0 & 0xc0 == 0xc0 { &LARGE } else { &SMALL }
    }
}

/// A simple chunk. Its hashes are right.
pub fn simple(data: &[u8]) {
    let mut input = Input(data);
    let mode = Mode(input.byte());
    let (records, decoded) = (input.varint(), input.varint());
    if !mode.is_built() {
        let rest = input.rest();
        return check_chunk(
            mode.begin(),
            kind::SIMPLE,
            records,
            decoded,
            rest,
            mode.limits(),
            mode.is_streamed(),
        );
    }
    let codec = usize::from(input.byte() & 3);
    let (mut sizes, mut chunk) = (Vec::new(), vec![TYPES[codec]]);
    pack(CODECS[codec], input.slice(), &mut sizes);
    put_varint(&mut chunk, sizes.len() as u64);
    chunk.extend(sizes);
    pack(CODECS[codec], input.rest(), &mut chunk);
    check_chunk(mode.begin(), kind::SIMPLE, records, decoded, &chunk, mode.limits(), mode.is_streamed());
}

/// A transposed chunk. Its hashes are right, and its parts are compressed with any codec.
pub fn transposed(data: &[u8]) {
    let mut input = Input(data);
    let mode = Mode(input.byte());
    let (records, decoded) = (input.varint(), input.varint());
    if !mode.is_built() {
        return check_chunk(
            mode.begin(),
            kind::TRANSPOSED,
            records,
            decoded,
            input.rest(),
            mode.limits(),
            false,
        );
    }
    let codec = usize::from(input.byte() & 3);
    let (header, bucket) = (input.slice(), input.slice());
    let chunk = transposed_data(codec, header, bucket, input.rest());
    check_chunk(mode.begin(), kind::TRANSPOSED, records, decoded, &chunk, mode.limits(), false);
}

/// The data of a transposed chunk with at most one bucket. `header` is the header without the bucket.
fn transposed_data(codec: usize, header: &[u8], bucket: &[u8], transitions: &[u8]) -> Vec<u8> {
    let (mut whole_header, mut packed_bucket, mut packed_header) = (Vec::new(), Vec::new(), Vec::new());
    let (count, rest) = header.split_first().map_or((0, header), |(&count, rest)| (u64::from(count), rest));
    pack(CODECS[codec], bucket, &mut packed_bucket);
    put_varint(&mut whole_header, u64::from(count > 0));
    put_varint(&mut whole_header, count);
    if count > 0 {
        put_varint(&mut whole_header, packed_bucket.len() as u64);
    } else {
        packed_bucket.clear();
    }
    whole_header.extend_from_slice(rest);
    pack(CODECS[codec], &whole_header, &mut packed_header);
    let mut chunk = vec![TYPES[codec]];
    put_varint(&mut chunk, packed_header.len() as u64);
    chunk.extend(packed_header);
    chunk.extend(packed_bucket);
    pack(CODECS[codec], transitions, &mut chunk);
    chunk
}

/// A transposed chunk whose state machine comes from the input: tags, next states, buffers. The lists have the right
/// lengths, so that most inputs run.
pub fn transposed_states(data: &[u8]) {
    let mut input = Input(data);
    let mode = Mode(input.byte());
    let (records, decoded, codec) = (input.varint(), input.varint(), usize::from(input.byte() & 3));
    let buffers: Vec<&[u8]> = (0..input.byte() % 8).map(|_| input.slice()).collect();
    let states: Vec<[u64; 4]> = (0..input.byte() % 32)
        .map(|_| [input.varint(), input.varint(), input.byte().into(), input.byte().into()])
        .collect();
    let mut header = vec![buffers.len() as u8];
    buffers.iter().for_each(|buffer| put_varint(&mut header, buffer.len() as u64));
    put_varint(&mut header, states.len() as u64);
    states.iter().for_each(|[tag, ..]| put_varint(&mut header, *tag));
    let count = states.len() as u64;
    states.iter().for_each(|[_, next, ..]| put_varint(&mut header, next % (2 * count).max(1)));
    let is_varint = |tag: u64| tag >= 8 && tag & 7 == 0;
    let has_buffer = |tag: u64, kind: u64| match tag {
        1 => true,
        8.. => matches!(tag & 7, 1 | 2 | 5) || is_varint(tag) && kind < 10,
        _ => false,
    };
    states.iter().filter(|[tag, ..]| is_varint(*tag)).for_each(|[_, _, kind, _]| header.push(*kind as u8));
    let in_buffers = states.iter().filter(|[tag, _, kind, _]| has_buffer(*tag, *kind));
    in_buffers.for_each(|[_, _, _, buffer]| put_varint(&mut header, buffer % (buffers.len() as u64).max(1)));
    put_varint(&mut header, u64::from(input.byte()) % count.max(1));
    let chunk = transposed_data(codec, &header, &buffers.concat(), input.rest());
    check_chunk(mode.begin(), kind::TRANSPOSED, records, decoded, &chunk, mode.limits(), false);
}
