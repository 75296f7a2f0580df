//! Brotli streams, with windows of up to 2^30 bytes.
//!
//! The decoder's ring buffer grows with what the stream holds and never past the window in its header.

use super::{Codec, Step, Stream, broken, wrong_size};
use crate::error::{Error, Result};
use ::brotli::enc::{BrotliEncoderParams, StandardAlloc};
use ::brotli::{BrotliCompress, BrotliDecompressStream, BrotliResult, BrotliState};

/// Windows over this need the large-window form of the stream.
const LARGEST_STANDARD_WINDOW_LOG: u32 = 24;

/// Decompresses one stream, all of `input`, into all of `out`.
pub fn decompress(input: &[u8], out: &mut [u8]) -> Result<()> {
    let mut decoder = Decoder::new();
    let first = decoder.step(input, out)?;
    let step = if !first.done && first.written == out.len() {
        // The end of the stream can lie behind its last byte of output; one more byte is one too many.
        let last = decoder.step(&input[first.read..], &mut [0])?;
        if last.written > 0 {
            return Err(wrong_size(Codec::Brotli, out.len(), "more"));
        }
        Step { read: first.read + last.read, written: first.written, done: last.done }
    } else {
        first
    };
    match step {
        Step { done: false, .. } => Err(broken(Codec::Brotli, "the stream ends early")),
        Step { read, .. } if read != input.len() => Err(broken(Codec::Brotli, "bytes follow the stream")),
        Step { written, .. } if written != out.len() => Err(wrong_size(Codec::Brotli, out.len(), written)),
        _ => Ok(()),
    }
}

/// Appends `input` as one stream.
pub fn compress(input: &[u8], level: i32, window_log: u32, out: &mut Vec<u8>) -> Result<()> {
    let params = BrotliEncoderParams {
        quality: level,
        lgwin: window_log as i32,
        large_window: window_log > LARGEST_STANDARD_WINDOW_LOG,
        ..BrotliEncoderParams::default()
    };
    BrotliCompress(&mut &*input, out, &params).map_err(|e| Error::io("brotli compression failed", e))?;
    Ok(())
}

/// Decompresses one stream in pieces.
pub struct Decoder {
    state: BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>,
}

impl Decoder {
    /// At the beginning of a stream.
    pub fn new() -> Self {
        let alloc = StandardAlloc::default;
        Decoder { state: BrotliState::new(alloc(), alloc(), alloc()) }
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Stream for Decoder {
    fn step(&mut self, input: &[u8], out: &mut [u8]) -> Result<Step> {
        let (mut left, mut read) = (input.len(), 0);
        let (mut room, mut written, mut total) = (out.len(), 0, 0);
        let result = BrotliDecompressStream(
            &mut left,
            &mut read,
            input,
            &mut room,
            &mut written,
            out,
            &mut total,
            &mut self.state,
        );
        match result {
            BrotliResult::ResultFailure => Err(broken(Codec::Brotli, "the stream is damaged")),
            result => Ok(Step { read, written, done: matches!(result, BrotliResult::ResultSuccess) }),
        }
    }
}
