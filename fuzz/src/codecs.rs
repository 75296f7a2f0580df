//! Decompression with a declared size.

use super::check::{LARGE, SMALL, with_cx};
use super::input::Input;
use super::repair;
use anyrecord::codec::gzip::{self as deflate, Inflater, Wrapper};
use anyrecord::codec::{AT_ONCE, Codec, Compression, Decompressor, snappy_frames as frames, zstd};
use anyrecord::{Cx, Kind, Limits, Result};

const CODECS: [Codec; 4] = [Codec::None, Codec::Brotli, Codec::Zstd, Codec::Snappy];

/// A frame, block or stream of one codec, decompressed in every way there is.
pub fn codec(data: &[u8]) {
    let mut input = Input(data);
    let mode = input.byte();
    let size = (input.varint() as usize).min(SMALL.decoded_chunk_bytes as usize);
    decode(mode, &input, size, &SMALL);
}

/// The same, of any size, and compression. Both take more time.
pub fn large_codec(data: &[u8]) {
    let mut input = Input(data);
    let mode = input.byte();
    let size = (input.varint() as usize).min(5 << 20);
    if mode & 4 != 0 {
        return check_compression(CODECS[usize::from(mode & 3)], mode, &mut input, size, &LARGE);
    }
    decode(mode, &input, size, &LARGE);
}

fn decode(mode: u8, input: &Input<'_>, size: usize, limits: &Limits) {
    let codec = CODECS[usize::from(mode & 3)];
    if mode & 8 != 0 {
        // The last three bytes, which can be an element of snappy that copies 64 bytes, are repeated.
        let (front, element) = input.0.split_at(input.0.len().saturating_sub(3));
        check_codec(codec, &[front, &element.repeat(size / 64)].concat(), size, limits);
        return;
    }
    check_codec(codec, input.0, size, limits);
}

/// What is compressed can be decompressed. The data is the rest of the input, repeated.
fn check_compression(codec: Codec, mode: u8, input: &mut Input<'_>, size: usize, limits: &Limits) {
    let (level, window_log) = match codec {
        Codec::None => (0, 0),
        Codec::Brotli => (i32::from(input.byte() % 6), 10 + u32::from(input.byte() % 16)),
        Codec::Zstd => (i32::from(input.byte() % 8) - 3, 10 + u32::from(input.byte() % 12)),
        Codec::Snappy => (1 + i32::from(input.byte() % 2), 0),
    };
    let rest = input.rest();
    // Encoders are slow. The fuzzer looks for what decoders do.
    let size = if mode & 0xf8 == 0xf8 { size } else { size.min(2 * rest.len()) };
    let whole: Vec<u8> = rest.iter().copied().cycle().take(if rest.is_empty() { 0 } else { size }).collect();
    let mut packed = Vec::new();
    let compression = Compression { codec, level, window_log };
    if let Err(error) = compression.compress(&whole, &mut packed) {
        panic!("{compression:?}: {error}");
    }
    let unpacked = check_codec(codec, &packed, whole.len(), limits);
    assert!(unpacked.is_some_and(|unpacked| unpacked == whole), "{compression:?} {}", whole.len());
}

fn check_codec(codec: Codec, packed: &[u8], size: usize, limits: &Limits) -> Option<Vec<u8>> {
    with_cx(limits, |cx| {
        let mut out = vec![0; size];
        let mut decoded = codec.decompress(packed, &mut out);
        check_error(&decoded);
        let is_strict = decoded.is_ok();
        if size > AT_ONCE {
            // The output is the window of large data, so a frame may have blocks that are larger than its window.
            let mut paced = vec![0; size];
            let result = codec.decompress_paced(packed, &mut paced, cx);
            check_error(&result);
            assert!(decoded.is_err() || result.is_ok() && paced == out, "{codec:?}: only paced {result:?}");
            (decoded, out) = (result, paced);
        }
        let mut appended = Vec::new();
        let result = codec.append(packed, size as u64, &mut appended, &mut cx.budget.nothing(), cx);
        assert_eq!(result.is_ok(), decoded.is_ok(), "{codec:?}: {decoded:?} and appended {result:?}");
        let mut behind = b"front".to_vec();
        let result = codec.append(packed, size as u64, &mut behind, &mut cx.budget.nothing(), cx);
        assert_eq!(result.is_ok(), decoded.is_ok(), "{codec:?}: {decoded:?} and appended {result:?}");
        if decoded.is_err() {
            return None;
        }
        assert!(appended == out && behind.strip_prefix(b"front") == Some(&out));
        if is_strict {
            check_pieces(codec, packed, &out);
        }
        Some(out)
    })
}

/// A decompressor that works in pieces gives the same, with any window that it accepts.
fn check_pieces(codec: Codec, packed: &[u8], whole: &[u8]) {
    if codec == Codec::Zstd && zstd::window_bytes(packed, whole.len() as u64) > zstd::STREAMED_WINDOW {
        return;
    }
    let decompressor = match codec.decompressor() {
        Ok(Some(decompressor)) => decompressor,
        Ok(None) => return,
        Err(error) => panic!("{error}"),
    };
    match in_pieces(decompressor, packed, whole.len()) {
        Ok(pieces) => assert!(pieces == whole, "{codec:?} in pieces"),
        Err(error) => panic!("{codec:?}: only the pieces fail: {error}"),
    }
}

fn in_pieces(mut decompressor: Box<dyn Decompressor>, packed: &[u8], size: usize) -> Result<Vec<u8>> {
    let (mut rest, mut whole, mut piece) = (packed, Vec::new(), vec![0; (size / 3).max(1)]);
    loop {
        let feed = &rest[..rest.len().min(packed.len() / 3 + 1)];
        let progress = decompressor.decompress_some(feed, &mut piece)?;
        assert!(progress.consumed <= feed.len() && progress.produced <= piece.len());
        rest = &rest[progress.consumed..];
        whole.extend_from_slice(&piece[..progress.produced]);
        if progress.produced == 0 && (rest.is_empty() || progress.consumed == 0) {
            return Ok(whole);
        }
    }
}

fn check_error<T>(result: &Result<T>) {
    if let Err(error) = result {
        assert!(!matches!(error.kind(), Kind::Memory), "{error}");
    }
}

/// A gzip or zlib stream, unpacked at once and in pieces.
pub fn gzip(data: &[u8]) {
    let mut input = Input(data);
    let mode = input.byte();
    let wrapper = if mode & 1 == 0 { Wrapper::Gzip } else { Wrapper::Zlib };
    let limit = input.varint().min(64 << 10);
    let rest = input.rest();
    let stream = match mode >> 1 & 3 {
        // The header is there, so that the stream itself is tried.
        1 => [wrapper.header(6), rest].concat(),
        2 => super::build::pack_deflate(wrapper, rest),
        _ => rest.to_vec(),
    };
    with_cx(&SMALL, |cx| {
        let whole = unpack(wrapper, &stream, limit, cx);
        check_error(&whole);
        if mode >> 1 & 3 == 2 && rest.len() as u64 <= limit {
            assert!(whole.as_ref().is_ok_and(|whole| whole == rest));
        }
        if let Ok(whole) = whole {
            assert!(wrapper.begins(&stream) && whole.len() as u64 <= limit);
            let mut inflater = Inflater::new(wrapper);
            let (mut rest, mut pieces, mut piece) = (&stream[..], Vec::new(), vec![0; whole.len() / 3 + 1]);
            while !rest.is_empty() {
                let feed = &rest[..rest.len().min(stream.len() / 3 + 1)];
                match inflater.decompress_some(feed, &mut piece) {
                    Ok(progress) => {
                        rest = &rest[progress.consumed..];
                        pieces.extend_from_slice(&piece[..progress.produced]);
                    }
                    Err(error) => panic!("only the pieces fail: {error}"),
                }
            }
            assert!(
                pieces == whole && inflater.finish().is_ok() && inflater.consumed() == stream.len() as u64
            );
        }
    });
}

fn unpack(wrapper: Wrapper, stream: &[u8], limit: u64, cx: &Cx<'_>) -> Result<Vec<u8>> {
    deflate::decompress(wrapper, stream, 0, limit, &mut cx.budget.nothing(), cx)
}

/// A stream of snappy frames. Their checksums are right.
pub fn snappy_frames(data: &[u8]) {
    let mut input = Input(data);
    let mode = input.byte();
    let limit = input.varint().min(64 << 10);
    let rest = input.rest();
    let mut stream = if mode & 1 == 0 { frames::IDENTIFIER.to_vec() } else { Vec::new() };
    if mode & 2 == 0 {
        stream.extend_from_slice(rest);
    } else if let Err(error) = frames::Compressor::default().write(rest, &mut stream) {
        panic!("{error}");
    }
    if mode & 4 == 0 {
        repair::frames(&mut stream);
    }
    with_cx(&SMALL, |cx| {
        let with = frames::decompress(&stream, 0, limit, true, &mut cx.budget.nothing(), cx);
        let without = frames::decompress(&stream, 0, limit, false, &mut cx.budget.nothing(), cx);
        check_error(&with);
        match (with, without) {
            (Ok((bytes, end)), Ok(without)) => {
                assert!(bytes.len() as u64 <= limit && end <= stream.len());
                assert!((bytes, end) == without);
            }
            (Ok(_), Err(error)) => panic!("only the reader without checksums fails: {error}"),
            (Err(error), Ok(_)) => assert!(matches!(error.kind(), Kind::Checksum), "{error}"),
            (Err(_), Err(_)) => {}
        }
    });
}
