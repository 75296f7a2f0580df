//! Makes the hashes of a damaged file right, so that the parsers behind them see the damage.

use super::build::MOST_BYTES;
use super::input::{Input, Inverse};
use anyrecord::bytes::{u32_le, u64_le};
use anyrecord::codec::snappy_frames::Frames;
use anyrecord::format::riegeli::block::{self, BLOCK, BLOCK_HEADER};
use anyrecord::format::riegeli::chunk::{CHUNK_HEADER, HEADER_SPAN, Header, kind};
use anyrecord::hash::{crc32, crc32c, highway};

fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = file.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// Expands a file from its short form: slices, each followed by a number of zeros.
pub fn expand(mut input: Input<'_>) -> Vec<u8> {
    let mut file = Vec::new();
    while !input.is_empty() && (file.len() as u64) < MOST_BYTES {
        file.extend_from_slice(input.slice());
        let zeros = input.varint().min(MOST_BYTES.saturating_sub(file.len() as u64));
        file.resize(file.len() + zeros as usize, 0);
    }
    file
}

/// The inverse of [`expand`].
pub fn shorten(file: &[u8], out: &mut Inverse) {
    let mut rest = file;
    while !rest.is_empty() {
        let end = rest.windows(64).position(|window| window.iter().all(|&b| b == 0)).unwrap_or(rest.len());
        let (slice, after) = rest.split_at(end);
        let zeros = after.iter().take_while(|&&b| b == 0).count();
        out.slice(slice).varint(zeros as u64);
        rest = &after[zeros..];
    }
}

/// Makes the hashes of a Riegeli file right: those of the blocks, of the chunks that follow each other from the
/// beginning, and of the footer and the postscript.
pub fn riegeli(file: &mut [u8]) {
    for at in (0..file.len()).step_by(BLOCK as usize) {
        if let Some(stored) = file.get(at + 8..at + BLOCK_HEADER as usize) {
            let hash = highway::hash(stored);
            put(file, at, &hash.to_le_bytes());
        }
    }
    let mut begin = 0;
    while let Some(end) = repair_chunk(file, begin) {
        begin = end;
    }
    if let Some(postscript) = (file.len() as u64).checked_sub(BLOCK) {
        repair_chunk(file, postscript);
        if let Some(footer) = footer_offset(file, postscript) {
            repair_chunk(file, footer);
        }
    }
}

/// The offset in a postscript that is stored uncompressed, as all writers do.
fn footer_offset(file: &[u8], postscript: u64) -> Option<u64> {
    let data = file.get((postscript + HEADER_SPAN) as usize..)?;
    let mut input = Input(data);
    let (_codec, sizes) = (input.byte(), input.slice());
    (!sizes.is_empty() && input.byte() == 8).then(|| input.varint())
}

/// Makes the hashes of one chunk right. Returns where it ends, if that is in the file.
fn repair_chunk(file: &mut [u8], begin: u64) -> Option<u64> {
    let size = file.len() as u64;
    let stored = file.get(begin as usize..)?;
    let mut header = Header::read(begin, stored, false).ok()?;
    let end = header.end(begin).ok().filter(|&end| end <= size && end > begin)?;
    let mut hasher = highway::Hasher::new();
    let mut index = CHUNK_HEADER;
    let data_end = CHUNK_HEADER + header.data_size;
    while index < data_end {
        let at = block::place_of(begin, index)?;
        let n = (data_end - index).min(block::left_in_block(at));
        hasher.update(file.get(at as usize..(at + n) as usize)?);
        index += n;
    }
    header.data_hash = hasher.finish();
    for (index, byte) in (0..).zip(header.to_bytes()) {
        let at = block::place_of(begin, index)?;
        put(file, at as usize, &[byte]);
    }
    Some(end)
}

/// The chunks of a file whose structure is right: the header of each, and its data.
pub fn riegeli_chunks(file: &[u8]) -> Vec<(Header, Vec<u8>)> {
    let (mut chunks, mut begin) = (Vec::new(), 0);
    while let Some(stored) = file.get(begin as usize..) {
        let Ok(header) = Header::read(begin, stored, true) else { break };
        let Ok(end) = header.end(begin) else { break };
        let byte = |index| file.get(block::place_of(begin, index)? as usize).copied();
        let data: Option<Vec<u8>> = (CHUNK_HEADER..CHUNK_HEADER + header.data_size).map(byte).collect();
        let Some(data) = data else { break };
        if header.kind != kind::PADDING {
            chunks.push((header, data));
        }
        begin = end;
    }
    chunks
}

/// Makes the checksums of RecordIO chunks right, and those of snappy frames in them.
pub fn recordio(file: &mut [u8]) {
    let mut at = 0;
    while at + 20 <= file.len() {
        let (codec, payload) = (u32_le(file, at + 8), u32_le(file, at + 12) as usize);
        let end = (at + 20).saturating_add(payload).min(file.len());
        if codec == 1 {
            frames(&mut file[at + 20..end]);
        }
        let checksum = crc32::hash(&file[at + 20..end]);
        put(file, at + 4, &checksum.to_le_bytes());
        at = end;
    }
}

/// Makes the checksums of snappy frames right.
pub fn frames(stream: &mut [u8]) {
    let mut fixes = Vec::new();
    let mut frames = Frames::of_stream(stream, 0);
    while let Ok(Some(frame)) = frames.next_frame() {
        let mut decoded = vec![0; frame.decoded_bytes()];
        if frame.decode_into(&mut decoded, false).is_ok() {
            fixes.push((frame.begin + 4, crc32c::masked(&decoded)));
        }
    }
    fixes.into_iter().for_each(|(at, checksum)| put(stream, at, &checksum.to_le_bytes()));
}

/// Makes the checksums of TFRecord records right.
pub fn tfrecord(file: &mut [u8]) {
    let mut at = 0usize;
    while at + 16 <= file.len() {
        let length = u64_le(file, at);
        let checksum = crc32c::masked(&file[at..at + 8]);
        put(file, at + 8, &checksum.to_le_bytes());
        let Some(end) = usize::try_from(length).ok().and_then(|n| (at + 12).checked_add(n)) else { return };
        let Some(data) = file.get(at + 12..end) else { return };
        let checksum = crc32c::masked(data);
        put(file, end, &checksum.to_le_bytes());
        at = end + 4;
    }
}

/// Makes the checksums of an FFRecord file right.
pub fn ffrecord(file: &mut [u8]) {
    if file.len() < 12 {
        return;
    }
    let n = u64_le(file, 4);
    if n > (file.len() as u64 - 12) / 12 {
        return;
    }
    let n = n as usize;
    let offset = |file: &[u8], i: usize| {
        if i == n { file.len() as u64 } else { u64_le(file, 12 + 4 * n + 8 * i) }
    };
    for i in 0..n {
        let (begin, end) = (offset(file, i), offset(file, i + 1));
        let range = usize::try_from(begin).unwrap_or(usize::MAX)..usize::try_from(end).unwrap_or(usize::MAX);
        let Some(sample) = (begin <= end).then(|| file.get(range)).flatten() else { continue };
        let checksum = crc32::hash(sample);
        put(file, 12 + 4 * i, &checksum.to_le_bytes());
    }
    let checksum = crc32::hash(&file[4..12 + 12 * n]);
    put(file, 0, &checksum.to_le_bytes());
}
