//! Zstandard frames: one frame, no dictionary, windows of up to 2^31 bytes.
//!
//! Contexts are expensive to create. Each thread keeps one of each kind.

use super::{AT_ONCE, Codec, Decompressor, EXPECTED_RATIO, Progress, broken, wrong_size};
use crate::budget::Held;
use crate::bytes;
use crate::cx::Cx;
use crate::error::{Error, Kind, Result};
use std::cell::RefCell;
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective, WriteBuf};

/// The largest window of any frame on a 64-bit machine. A 32-bit machine refuses windows that it cannot address.
const WINDOW_LOG_MAX: u32 = if usize::BITS == 64 { 31 } else { 30 };

/// The largest block of any frame, decoded.
const BLOCK: usize = 128 << 10;
/// The library's error code for missing memory.
const NO_MEMORY: usize = 64usize.wrapping_neg();
/// A buffer that proves too small grows by this factor. Decoding then starts again, which adds a third to the work.
const GROWTH: usize = 4;

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

// SAFETY: pointer and capacity describe the memory of the vector after `begin`, which was its length. The library has
// written as many bytes of it as it reports.
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
/// The frame is decoded in one call, so the output itself is the window. The window that a frame claims costs nothing.
pub fn decompress(input: &[u8], out: &mut [u8]) -> Result<()> {
    if let Some(stored) = stored_frame(input) {
        if stored.len() != out.len() {
            return Err(wrong_size(Codec::Zstd, out.len(), stored.len()));
        }
        out.copy_from_slice(stored);
        return Ok(());
    }
    // The library would also accept several frames, and frames that it skips.
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

/// The content of a frame that is one short stored block. Tiny inputs have this form. A chunk of one record has such a
/// frame for its one size. This shortcut saves it half of the decoding.
fn stored_frame(input: &[u8]) -> Option<&[u8]> {
    let rest = input.strip_prefix(&MAGIC)?;
    let (&[descriptor, size, a, b, c], content) = rest.split_first_chunk()?;
    let block = u32::from_le_bytes([a, b, c, 0]);
    let single_segment_without_extras = descriptor == 0x20;
    let last_and_stored = block == u32::from(size) << 3 | 1;
    (single_segment_without_extras && last_and_stored && content.len() == usize::from(size))
        .then_some(content)
}

/// The library never compresses input shorter than this. It stores it in one block.
const STORED_BELOW: usize = 7;

/// Appends `input` as one frame, which states its size.
pub fn compress(input: &[u8], level: i32, window_log: u32, out: &mut Vec<u8>) -> Result<()> {
    if input.len() < STORED_BELOW {
        bytes::reserve_more("zstd data", out, input.len() + 9)?;
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
        bytes::reserve_more("zstd data", out, zstd_safe::compress_bound(input.len()))?;
        if input.len() >> window_log == 0 {
            encoder.context.compress2(&mut Tail { vec: out, begin }, input).map_err(refused)?;
            return Ok(());
        }
        // Input that is longer than the window is streamed through a buffer of the window's size, which stays in the
        // CPU cache. That is twice as fast as looking back in the input itself.
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
            bytes::reserve_more("zstd data", out, 1024)?;
        }
    })
}

/// Like [`decompress`], for a large frame: block by block, with an interruption check between blocks.
pub fn decompress_paced(input: &[u8], out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
    Frame::read(input, out.len())?.decode(out, 0, out.len(), cx).map(|_| ())
}

/// Appends the content of a large frame, which has `size` bytes, to `out`. Memory grows with the decoded data.
pub fn append(input: &[u8], size: usize, out: &mut Vec<u8>, held: &mut Held<'_>, cx: &Cx<'_>) -> Result<()> {
    let frame = Frame::read(input, size)?;
    let begin = out.len();
    let mut room = input.len().saturating_mul(EXPECTED_RATIO).max(AT_ONCE).min(size);
    loop {
        let more = (begin + room).saturating_sub(out.capacity());
        held.grow(more as u64)?;
        let reserved = out.try_reserve_exact(room);
        reserved.map_err(|_| bytes::no_memory("zstd data", (begin + room) as u64))?;
        if frame.decode(out, begin, begin + size, cx)? {
            return Ok(());
        }
        out.truncate(begin);
        room = room.saturating_mul(GROWTH).min(size);
    }
}

/// A frame that is decoded directly into its final buffer. That buffer is also the window, so the window in the frame's
/// header does not matter, and no memory is allocated for it.
struct Frame<'a> {
    /// A header with the same meaning that states no size, and the largest window. If it stated the size, the library
    /// would refuse a buffer that is smaller.
    header: [u8; 6],
    /// The blocks, and the checksum if there is one.
    body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Reads the header of a frame, which must state `size` if it states any.
    fn read(input: &'a [u8], size: usize) -> Result<Self> {
        let no_frame = || broken(Codec::Zstd, "it does not begin with a frame");
        let (&descriptor, mut rest) =
            input.strip_prefix(&MAGIC).and_then(<[u8]>::split_first).ok_or_else(no_frame)?;
        let mut field = |n: usize| {
            let (field, after) = rest.split_at_checked(n).ok_or_else(no_frame)?;
            rest = after;
            Ok(field.iter().rev().fold(0u64, |number, &byte| number << 8 | u64::from(byte)))
        };
        let single_segment = descriptor & 0x20 != 0;
        if descriptor & 8 != 0 {
            return Err(broken(Codec::Zstd, "a reserved bit is set"));
        }
        field(usize::from(!single_segment))?;
        if field([0, 1, 2, 4][usize::from(descriptor & 3)])? != 0 {
            return Err(broken(Codec::Zstd, "it needs a dictionary"));
        }
        let stated = match descriptor >> 6 {
            0 if !single_segment => None,
            0 => Some(field(1)?),
            1 => Some(field(2)? + 256),
            2 => Some(field(4)?),
            _ => Some(field(8)?),
        };
        if let Some(stated) = stated.filter(|&stated| stated != size as u64) {
            return Err(wrong_size(Codec::Zstd, size, stated));
        }
        let [a, b, c, d] = MAGIC;
        let widest_window = ((WINDOW_LOG_MAX - 10) << 3) as u8;
        let checksum_only = descriptor & 4;
        Ok(Frame { header: [a, b, c, d, checksum_only, widest_window], body: rest })
    }

    /// Decodes into `begin..end` of a buffer. Returns false if the buffer is too small.
    fn decode<W: WriteBuf + ?Sized>(
        &self,
        buffer: &mut W,
        begin: usize,
        end: usize,
        cx: &Cx<'_>,
    ) -> Result<bool> {
        let mut context = DCtx::try_create().ok_or_else(out_of_memory)?;
        context.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX)).map_err(failed)?;
        // The buffer does not move during decoding, so the library needs no copy of its output.
        context.set_parameter(DParameter::StableOutBuffer(true)).map_err(failed)?;
        let (mut filled, mut used, mut input) = (begin, 0, &self.header[..]);
        let mut pace = cx.pace();
        loop {
            if buffer.capacity() - filled < BLOCK && buffer.capacity() < end {
                return Ok(false);
            }
            let mut to = OutBuffer::around_pos(buffer, filled);
            // The library gets as much input as it requests: one block, and the header of the next one.
            let wanted = context.decompress_stream(&mut to, &mut InBuffer::around(input)).map_err(failed)?;
            let made = to.pos() - filled;
            filled += made;
            pace.step(made as u64 + 64)?;
            if filled > end {
                return Err(wrong_size(Codec::Zstd, end - begin, "more"));
            }
            if wanted == 0 {
                break;
            }
            input = self.body[used..].get(..wanted).ok_or_else(|| broken(Codec::Zstd, "it ends early"))?;
            used += wanted;
        }
        if used != self.body.len() {
            return Err(broken(Codec::Zstd, "bytes follow the frame"));
        }
        if filled != end {
            return Err(wrong_size(Codec::Zstd, end - begin, filled - begin));
        }
        Ok(true)
    }
}

/// How many bytes a [`Decoder`] must keep for the window of a frame that declares `size` bytes.
pub fn window_bytes(frame: &[u8], size: u64) -> u64 {
    let (Some(&descriptor), Some(&window)) = (frame.get(4), frame.get(5)) else { return 0 };
    let single_segment = descriptor & 0x20 != 0;
    let base = 1u64 << (10 + (window >> 3));
    if single_segment { size } else { base + base / 8 * u64::from(window & 7) }
}

/// The largest window of a frame that is decompressed in pieces.
pub const STREAMED_WINDOW: u64 = 1 << STREAMED_WINDOW_LOG;
const STREAMED_WINDOW_LOG: u32 = 23;

/// Decompresses one frame in pieces, if its window is at most [`STREAMED_WINDOW`].
pub struct Decoder {
    context: DCtx<'static>,
    finished: bool,
}

impl Decoder {
    /// A decoder at the beginning of a frame.
    pub fn new() -> Result<Self> {
        let mut context = DCtx::try_create().ok_or_else(out_of_memory)?;
        context.set_parameter(DParameter::WindowLogMax(STREAMED_WINDOW_LOG)).map_err(failed)?;
        Ok(Decoder { context, finished: false })
    }
}

impl Decompressor for Decoder {
    fn decompress_some(&mut self, input: &[u8], out: &mut [u8]) -> Result<Progress> {
        if self.finished {
            return Ok(Progress { consumed: 0, produced: 0, finished: true });
        }
        let mut from = InBuffer::around(input);
        let mut to = OutBuffer::around(out);
        let wanted = self.context.decompress_stream(&mut to, &mut from).map_err(failed)?;
        self.finished = wanted == 0;
        Ok(Progress { consumed: from.pos(), produced: to.pos(), finished: self.finished })
    }
}

fn failed(code: usize) -> Error {
    if code == NO_MEMORY {
        return out_of_memory();
    }
    broken(Codec::Zstd, zstd_safe::get_error_name(code))
}

fn refused(code: usize) -> Error {
    Error::argument(format!("zstd compression failed: {}", zstd_safe::get_error_name(code)))
}

fn out_of_memory() -> Error {
    Error::new(Kind::Memory, "no memory to decompress or compress zstd data")
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
