//! Zstandard frames: one frame, no dictionary, windows of up to 2^31 bytes.
//!
//! Contexts are expensive to make and are kept, one of each kind a thread.

use super::{Codec, Step, Stream, broken, wrong_size};
use crate::error::{Error, Result};
use std::cell::RefCell;
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective, WriteBuf};

/// The largest window of any frame on a 64-bit machine; narrower ones refuse what they cannot address.
const WINDOW_LOG_MAX: u32 = if usize::BITS == 64 { 31 } else { 30 };

const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

thread_local! {
    static DECODER: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
    static ENCODER: RefCell<Option<Encoder>> = const { RefCell::new(None) };
}

/// A context that keeps the parameters that were set last.
struct Encoder {
    context: CCtx<'static>,
    level: i32,
    window_log: u32,
}

impl Encoder {
    fn new(mut context: CCtx<'static>, level: i32, window_log: u32) -> Result<Self> {
        context.reset(ResetDirective::SessionAndParameters).map_err(refused)?;
        context.set_parameter(CParameter::CompressionLevel(level)).map_err(refused)?;
        context.set_parameter(CParameter::WindowLog(window_log)).map_err(refused)?;
        context.set_parameter(CParameter::ChecksumFlag(false)).map_err(refused)?;
        Ok(Encoder { context, level, window_log })
    }
}

/// The unused memory at the end of a vector, reserved to be written to.
struct Tail<'a> {
    vec: &'a mut Vec<u8>,
    begin: usize,
}

// SAFETY: pointer and capacity describe the memory of the vector behind `begin`, which was its length; the library
// has written as many bytes of it as it tells.
unsafe impl WriteBuf for Tail<'_> {
    fn as_slice(&self) -> &[u8] {
        &self.vec[self.begin..]
    }

    fn capacity(&self) -> usize {
        self.vec.capacity() - self.begin
    }

    fn as_mut_ptr(&mut self) -> *mut u8 {
        // SAFETY: `begin` is at most the capacity.
        unsafe { self.vec.as_mut_ptr().add(self.begin) }
    }

    unsafe fn filled_until(&mut self, n: usize) {
        // SAFETY: the caller vouches for `n` written bytes.
        unsafe { self.vec.set_len(self.begin + n) }
    }
}

/// Decompresses one frame, all of `input`, into all of `out`.
///
/// In one call the output itself is the window, so a frame's claimed window costs nothing.
pub fn decompress(input: &[u8], out: &mut [u8]) -> Result<()> {
    if let Some(stored) = stored_frame(input) {
        if stored.len() != out.len() {
            return Err(wrong_size(Codec::Zstd, out.len(), stored.len()));
        }
        out.copy_from_slice(stored);
        return Ok(());
    }
    // The library would also take several frames, and frames that it skips.
    if !input.starts_with(&MAGIC) {
        return Err(broken(Codec::Zstd, "it does not begin with a frame"));
    }
    let frame = zstd_safe::find_frame_compressed_size(input).map_err(failed)?;
    if frame != input.len() {
        return Err(broken(Codec::Zstd, "bytes follow the frame"));
    }
    DECODER.with_borrow_mut(|slot| {
        let context = match slot {
            Some(context) => context,
            None => slot.insert(DCtx::try_create().ok_or_else(out_of_memory)?),
        };
        let written = context.decompress(out, input).map_err(failed)?;
        if written != out.len() {
            return Err(wrong_size(Codec::Zstd, out.len(), written));
        }
        Ok(())
    })
}

/// The content of a frame that is one short stored block, the form that tiny inputs take. Chunks of one
/// record have such a frame for their one size, and this spares them half of the decoding.
fn stored_frame(input: &[u8]) -> Option<&[u8]> {
    let rest = input.strip_prefix(&MAGIC)?;
    let (&[descriptor, size, a, b, c], content) = rest.split_first_chunk()?;
    let block = u32::from_le_bytes([a, b, c, 0]);
    let single_segment_without_extras = descriptor == 0x20;
    let last_and_stored = block == u32::from(size) << 3 | 1;
    (single_segment_without_extras && last_and_stored && content.len() == usize::from(size))
        .then_some(content)
}

/// Input shorter than this is never worth compressing to the library, which stores it in one block.
const STORED_BELOW: usize = 7;

/// Appends `input` as one frame, which states its size.
pub fn compress(input: &[u8], level: i32, window_log: u32, out: &mut Vec<u8>) -> Result<()> {
    if input.len() < STORED_BELOW {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[0x20, input.len() as u8, (input.len() as u8) << 3 | 1, 0, 0]);
        out.extend_from_slice(input);
        return Ok(());
    }
    ENCODER.with_borrow_mut(|slot| {
        let encoder = match slot.take() {
            Some(encoder) if (encoder.level, encoder.window_log) == (level, window_log) => encoder,
            Some(encoder) => Encoder::new(encoder.context, level, window_log)?,
            None => Encoder::new(CCtx::try_create().ok_or_else(out_of_memory)?, level, window_log)?,
        };
        let encoder = slot.insert(encoder);
        let begin = out.len();
        out.reserve(zstd_safe::compress_bound(input.len()));
        if input.len() >> window_log == 0 {
            encoder.context.compress2(&mut Tail { vec: out, begin }, input).map_err(refused)?;
            return Ok(());
        }
        // What is longer than the window goes through a buffer of its size, which stays in the processor's cache:
        // that is twice as fast as looking back in the input itself.
        encoder.context.reset(ResetDirective::SessionOnly).map_err(refused)?;
        encoder.context.set_pledged_src_size(Some(input.len() as u64)).map_err(refused)?;
        let (mut from, mut pos) = (InBuffer::around(input), begin);
        loop {
            let mut to = OutBuffer::around_pos(out, pos);
            let done = from.pos() == input.len();
            let left = match done {
                true => encoder.context.end_stream(&mut to),
                false => encoder.context.compress_stream(&mut to, &mut from),
            };
            let left = left.map_err(refused)?;
            pos = to.pos();
            if done && left == 0 {
                return Ok(());
            }
            out.reserve(1024);
        }
    })
}

/// The window that a frame's header asks a streaming decoder to keep; none where the content is the window.
pub fn window_bytes(frame: &[u8]) -> Option<u64> {
    let (&descriptor, &window) = (frame.get(4)?, frame.get(5)?);
    let single_segment = descriptor & 0x20 != 0;
    let base = 1u64 << (10 + (window >> 3));
    (!single_segment).then(|| base + base / 8 * u64::from(window & 7))
}

/// Decompresses one frame in pieces.
pub struct Decoder {
    context: DCtx<'static>,
    done: bool,
}

impl Decoder {
    /// At the beginning of a frame; none where there is no memory for it.
    pub fn new() -> Option<Self> {
        let mut context = DCtx::try_create()?;
        context.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX)).ok()?;
        Some(Decoder { context, done: false })
    }
}

impl Stream for Decoder {
    fn step(&mut self, input: &[u8], out: &mut [u8]) -> Result<Step> {
        if self.done {
            return Ok(Step { read: 0, written: 0, done: true });
        }
        let mut from = InBuffer::around(input);
        let mut to = OutBuffer::around(out);
        let hint = self.context.decompress_stream(&mut to, &mut from).map_err(failed)?;
        self.done = hint == 0;
        Ok(Step { read: from.pos(), written: to.pos(), done: self.done })
    }
}

fn failed(code: usize) -> Error {
    broken(Codec::Zstd, zstd_safe::get_error_name(code))
}

fn refused(code: usize) -> Error {
    Error::argument(format!("zstd compression failed: {}", zstd_safe::get_error_name(code)))
}

fn out_of_memory() -> Error {
    Error::limit("there is no memory for zstd")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_frames_are_those_of_the_library() {
        for length in 0..20usize {
            for input in [vec![7; length], (0..length as u8).collect()] {
                let (mut ours, mut theirs) = (b"x".to_vec(), Vec::with_capacity(100));
                compress(&input, 3, 20, &mut ours).unwrap();
                Encoder::new(CCtx::create(), 3, 20).unwrap().context.compress2(&mut theirs, &input).unwrap();
                assert_eq!(ours[1..], theirs, "{length}");
            }
        }
    }

    #[test]
    fn a_kept_context_compresses_as_a_new_one() {
        let text = b"the quick brown fox ".repeat(5_000);
        let (mut kept, mut new) = (Vec::new(), Vec::new());
        for (level, window_log) in [(3, 20), (3, 10), (9, 20), (-5, 20), (3, 20), (3, 20)] {
            for input in [&text[..], &text[..120], &text[..4_096], &[], &text[..70_000]] {
                compress(input, level, window_log, &mut kept).unwrap();
                std::thread::scope(|scope| {
                    let compressed = scope.spawn(|| compress(input, level, window_log, &mut new));
                    compressed.join().unwrap().unwrap();
                });
                assert!(kept == new);
            }
        }
    }
}
