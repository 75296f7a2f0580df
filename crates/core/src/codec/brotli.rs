//! Brotli streams, with windows of up to 2^30 bytes, by Google's C library.
//!
//! The decoder's ring buffer grows with the content of the stream, and never beyond the window in its header.

use super::{Codec, Decompressor, Passed, Progress, broken, wrong_size};
use crate::bytes;
use crate::error::{Error, Kind, Result};
use compu_brotli_sys as c;
use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::ptr::{self, NonNull};

/// Windows over this need the large-window form of the stream.
const LARGEST_STANDARD_WINDOW_LOG: u32 = 24;
/// The decoder's error codes for memory that it could not allocate.
const NO_MEMORY: std::ops::RangeInclusive<i32> = -30..=-21;

/// Decompresses one stream, all of `input`, into all of `out`.
pub fn decompress(input: &[u8], out: &mut [u8]) -> Result<()> {
    let mut decoder = Decoder::new()?;
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
pub fn compress(input: &[u8], level: i32, window_log: u32, passed: Passed, out: &mut Vec<u8>) -> Result<()> {
    let no_memory = || bytes::no_memory("brotli data", input.len() as u64);
    let encoder = Encoder::new().ok_or_else(no_memory)?;
    let large_window = window_log > LARGEST_STANDARD_WINDOW_LOG;
    encoder.set(c::BrotliEncoderParameter_BROTLI_PARAM_QUALITY, level as u32)?;
    encoder.set(c::BrotliEncoderParameter_BROTLI_PARAM_LARGE_WINDOW, u32::from(large_window))?;
    encoder.set(c::BrotliEncoderParameter_BROTLI_PARAM_LGWIN, window_log)?;
    // 0 would stand for the size of the input.
    let size_hint = passed.first.clamp(1, 1 << 30) as u32;
    encoder.set(c::BrotliEncoderParameter_BROTLI_PARAM_SIZE_HINT, size_hint)?;
    let (mut left, mut next) = (input.len(), input.as_ptr());
    loop {
        // Most streams are shorter than their input. The others are a few bytes longer for each 16 MB.
        bytes::reserve_more("brotli data", out, left + 64)?;
        let free = out.spare_capacity_mut();
        let (mut room, mut to) = (free.len(), free.as_mut_ptr().cast::<u8>());
        let operation = match passed.ends_later && left > 0 {
            true => c::BrotliEncoderOperation_BROTLI_OPERATION_PROCESS,
            false => c::BrotliEncoderOperation_BROTLI_OPERATION_FINISH,
        };
        // SAFETY: `next` and `to` point to `left` bytes to read and `room` bytes to write. The encoder is alive.
        let ok = unsafe {
            c::BrotliEncoderCompressStream(
                encoder.0.as_ptr(),
                operation,
                &mut left,
                &mut next,
                &mut room,
                &mut to,
                ptr::null_mut(),
            )
        };
        let written = free.len() - room;
        // SAFETY: the encoder has written this many bytes of the free capacity.
        unsafe { out.set_len(out.len() + written) };
        // The parameters were accepted, so the only failure left is missing memory.
        if ok == 0 {
            return Err(no_memory());
        }
        // SAFETY: the encoder is alive.
        if unsafe { c::BrotliEncoderIsFinished(encoder.0.as_ptr()) } != 0 {
            return Ok(());
        }
    }
}

/// An encoder of one stream.
struct Encoder(NonNull<c::BrotliEncoderState>);

impl Encoder {
    fn new() -> Option<Self> {
        // SAFETY: both functions keep the contract of an allocator. They need no state.
        let state = unsafe { c::BrotliEncoderCreateInstance(Some(allocate), Some(release), ptr::null_mut()) };
        NonNull::new(state).map(Encoder)
    }

    fn set(&self, parameter: c::BrotliEncoderParameter, value: u32) -> Result<()> {
        // SAFETY: the encoder is alive.
        match unsafe { c::BrotliEncoderSetParameter(self.0.as_ptr(), parameter, value) } {
            0 => Err(Error::argument("brotli compression failed: a parameter was refused").found(value)),
            _ => Ok(()),
        }
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        // SAFETY: the encoder is alive, and nobody uses it after this.
        unsafe { c::BrotliEncoderDestroyInstance(self.0.as_ptr()) }
    }
}

/// Decompresses one stream in pieces.
pub struct Decoder(NonNull<c::BrotliDecoderState>);

impl Decoder {
    /// A decoder at the beginning of a stream.
    pub fn new() -> Result<Self> {
        // SAFETY: both functions keep the contract of an allocator. They need no state.
        let state = unsafe { c::BrotliDecoderCreateInstance(Some(allocate), Some(release), ptr::null_mut()) };
        let decoder = Decoder(NonNull::new(state).ok_or_else(out_of_memory)?);
        let large_window = c::BrotliDecoderParameter_BROTLI_DECODER_PARAM_LARGE_WINDOW;
        // SAFETY: the decoder is alive. It has not started, so it accepts the parameter.
        unsafe { c::BrotliDecoderSetParameter(decoder.0.as_ptr(), large_window, 1) };
        Ok(decoder)
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // SAFETY: the decoder is alive, and nobody uses it after this.
        unsafe { c::BrotliDecoderDestroyInstance(self.0.as_ptr()) }
    }
}

impl Decompressor for Decoder {
    fn decompress_some(&mut self, input: &[u8], out: &mut [u8]) -> Result<Progress> {
        let (mut left, mut next) = (input.len(), input.as_ptr());
        let (mut room, mut to) = (out.len(), out.as_mut_ptr());
        // SAFETY: `next` and `to` point to `left` bytes to read and `room` bytes to write. The decoder is alive.
        let result = unsafe {
            c::BrotliDecoderDecompressStream(
                self.0.as_ptr(),
                &mut left,
                &mut next,
                &mut room,
                &mut to,
                ptr::null_mut(),
            )
        };
        if result == c::BrotliDecoderResult_BROTLI_DECODER_RESULT_ERROR {
            // SAFETY: the decoder is alive.
            let code = unsafe { c::BrotliDecoderGetErrorCode(self.0.as_ptr()) };
            return Err(match NO_MEMORY.contains(&code) {
                true => out_of_memory(),
                false => broken(Codec::Brotli, "the stream is damaged"),
            });
        }
        let finished = result == c::BrotliDecoderResult_BROTLI_DECODER_RESULT_SUCCESS;
        Ok(Progress { consumed: input.len() - left, produced: out.len() - room, finished })
    }
}

fn out_of_memory() -> Error {
    Error::new(Kind::Memory, "no memory for the window of brotli data")
}

/// The size of an allocation is stored in front of it, in this many bytes. They also align what follows.
const SIZE_BYTES: usize = 16;

fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size.checked_add(SIZE_BYTES)?, SIZE_BYTES).ok()
}

/// Memory for the library comes from Rust's allocator, like all other memory, so that tests can count it.
unsafe extern "C" fn allocate(_state: *mut c_void, size: usize) -> *mut c_void {
    let Some(layout) = layout(size) else { return ptr::null_mut() };
    // SAFETY: the layout is not empty. The size fits in front of the memory that is returned.
    unsafe {
        let memory = alloc(layout);
        if memory.is_null() {
            return ptr::null_mut();
        }
        memory.cast::<usize>().write(size);
        memory.add(SIZE_BYTES).cast()
    }
}

/// Frees memory of [`allocate`].
unsafe extern "C" fn release(_state: *mut c_void, memory: *mut c_void) {
    if memory.is_null() {
        return;
    }
    // SAFETY: `allocate` returned this memory, and wrote the size of its layout in front of it.
    unsafe {
        let begin = memory.cast::<u8>().sub(SIZE_BYTES);
        if let Some(layout) = layout(begin.cast::<usize>().read()) {
            dealloc(begin, layout);
        }
    }
}
