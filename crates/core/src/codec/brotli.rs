//! Brotli streams, with windows of up to 2^30 bytes.
//!
//! The decoder's ring buffer grows with the content of the stream, and never beyond the window in its header.

use super::{Codec, Decompressor, Progress, broken, wrong_size};
use crate::bytes;
use crate::error::{Error, Kind, Result};
use ::brotli::enc::{BrotliEncoderParams, StandardAlloc};
use ::brotli::{Allocator, BrotliCompress, BrotliDecompressStream, BrotliResult, BrotliState};
use std::io::{ErrorKind, Write};

/// Windows over this need the large-window form of the stream.
const LARGEST_STANDARD_WINDOW_LOG: u32 = 24;
/// Allocations of this size or more are the decoder's ring buffer. Its other allocations have a fixed size.
const LARGE: usize = 1 << 20;
/// The decoder's codes for a ring buffer that it could not allocate.
const NO_MEMORY: [i32; 2] = [-26, -27];

/// Decompresses one stream, all of `input`, into all of `out`.
pub fn decompress(input: &[u8], out: &mut [u8]) -> Result<()> {
    let mut decoder = Decoder::new();
    let first = decoder.decompress_some(input, out)?;
    let progress = if !first.finished && first.produced == out.len() {
        // The stream can end some bytes after its last byte of output. If it produces one more byte, it is too long.
        let last = decoder.decompress_some(&input[first.consumed..], &mut [0])?;
        if last.produced > 0 {
            return Err(wrong_size(Codec::Brotli, out.len(), "more"));
        }
        Progress { consumed: first.consumed + last.consumed, produced: first.produced, ..last }
    } else {
        first
    };
    match progress {
        Progress { finished: false, .. } => Err(broken(Codec::Brotli, "the stream ends early")),
        Progress { consumed, .. } if consumed != input.len() => {
            Err(broken(Codec::Brotli, "bytes follow the stream"))
        }
        Progress { produced, .. } if produced != out.len() => {
            Err(wrong_size(Codec::Brotli, out.len(), produced))
        }
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
    BrotliCompress(&mut &*input, &mut Growing(out), &params).map_err(|e| match e.kind() {
        ErrorKind::OutOfMemory => bytes::no_memory("brotli data", input.len() as u64),
        _ => Error::io("brotli compression failed", e),
    })?;
    Ok(())
}

/// The output of the compressor. Missing memory is an error.
struct Growing<'a>(&'a mut Vec<u8>);

impl Write for Growing<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.try_reserve(bytes.len()).map_err(|_| ErrorKind::OutOfMemory)?;
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Allocates bytes for the decoder. If memory is missing, it returns an empty slice, as the decoder expects.
struct ByteAlloc;

type Allocated = <StandardAlloc as Allocator<u8>>::AllocatedMemory;

impl Allocator<u8> for ByteAlloc {
    type AllocatedMemory = Allocated;

    fn alloc_cell(&mut self, length: usize) -> Allocated {
        if length < LARGE {
            return StandardAlloc::default().alloc_cell(length);
        }
        bytes::zeroed("brotli window", length as u64).map_or_else(|_| Allocated::default(), Allocated::from)
    }

    fn free_cell(&mut self, _memory: Allocated) {}
}

/// Decompresses one stream in pieces.
pub struct Decoder {
    state: BrotliState<ByteAlloc, StandardAlloc, StandardAlloc>,
}

impl Decoder {
    /// A decoder at the beginning of a stream.
    pub fn new() -> Self {
        let alloc = StandardAlloc::default;
        Decoder { state: BrotliState::new(ByteAlloc, alloc(), alloc()) }
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decompressor for Decoder {
    fn decompress_some(&mut self, input: &[u8], out: &mut [u8]) -> Result<Progress> {
        let (mut left, mut consumed) = (input.len(), 0);
        let (mut room, mut produced, mut total) = (out.len(), 0, 0);
        let result = BrotliDecompressStream(
            &mut left,
            &mut consumed,
            input,
            &mut room,
            &mut produced,
            out,
            &mut total,
            &mut self.state,
        );
        match result {
            BrotliResult::ResultFailure if NO_MEMORY.contains(&(self.state.error_code as i32)) => {
                Err(Error::new(Kind::Memory, "no memory for the window of brotli data"))
            }
            BrotliResult::ResultFailure => Err(broken(Codec::Brotli, "the stream is damaged")),
            result => {
                Ok(Progress { consumed, produced, finished: matches!(result, BrotliResult::ResultSuccess) })
            }
        }
    }
}
