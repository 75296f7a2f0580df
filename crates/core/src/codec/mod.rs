//! Compression: one file per codec, and the ways to decompress.
//!
//! | way | for |
//! |---|---|
//! | [`Codec::decompress`] | a buffer of the declared size, at once |
//! | [`Codec::decompress_paced`] | the same for any size, with interruption checks |
//! | [`Codec::append`] | a buffer that grows with the decompressed bytes, whatever size is declared |
//! | [`Decompressor`] | pieces, for data that need not be in memory as a whole |
//!
//! A result has exactly the declared size: less output, more output and input left over are all errors.

pub mod brotli;
pub mod gzip;
pub mod snappy;
pub mod snappy_frames;
pub mod zstd;

use crate::budget::Held;
use crate::bytes;
use crate::cx::Cx;
use crate::error::{Error, Result};

/// Data up to this size is decompressed at once, into memory of the declared size. That takes a few milliseconds.
pub const AT_ONCE: usize = 4 << 20;
/// Larger data is read, or decompressed, in pieces of this size.
const PIECE: usize = 256 << 10;
/// Memory for this many times the stored bytes is allocated before any have been decompressed. Most data has a lower
/// ratio.
const EXPECTED_RATIO: usize = 16;

/// A way of compressing bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Stored uncompressed.
    None,
    /// Brotli, RFC 7932, and its extension for large windows.
    Brotli,
    /// One zstd frame.
    Zstd,
    /// One raw snappy block.
    Snappy,
}

impl Codec {
    /// The one spelling of its name.
    pub fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Brotli => "brotli",
            Codec::Zstd => "zstd",
            Codec::Snappy => "snappy",
        }
    }

    /// Decompresses all of `input` into all of `out`.
    pub fn decompress(self, input: &[u8], out: &mut [u8]) -> Result<()> {
        match self {
            Codec::None if input.len() == out.len() => {
                out.copy_from_slice(input);
                Ok(())
            }
            Codec::None => Err(wrong_size(self, out.len(), input.len())),
            Codec::Brotli => brotli::decompress(input, out),
            Codec::Zstd => zstd::decompress(input, out),
            Codec::Snappy => snappy::decompress(input, out),
        }
    }

    /// Like [`decompress`](Self::decompress), with interruption checks.
    pub fn decompress_paced(self, input: &[u8], out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
        if out.len() <= AT_ONCE {
            return self.decompress(input, out);
        }
        match self {
            Codec::None if input.len() == out.len() => bytes::copy_paced(input, out, cx),
            Codec::None => Err(wrong_size(self, out.len(), input.len())),
            Codec::Brotli => {
                let mut pieces = Pieces::new(self, input)?;
                let mut filled = 0;
                while filled < out.len() {
                    cx.check()?;
                    let room = out.len().min(filled + PIECE);
                    filled += pieces.next(&mut out[filled..room])?;
                }
                pieces.end(out.len())
            }
            Codec::Zstd => zstd::decompress_paced(input, out, cx),
            Codec::Snappy => snappy::decompress_paced(input, out, cx),
        }
    }

    /// Decompresses all of `input` to exactly `size` bytes, and appends them to `out`. Memory that `out` takes in
    /// addition counts as held.
    ///
    /// The size is only a claim. Memory for more than [`AT_ONCE`] grows with the decompressed data.
    pub fn append(
        self,
        input: &[u8],
        size: u64,
        out: &mut Vec<u8>,
        held: &mut Held<'_>,
        cx: &Cx<'_>,
    ) -> Result<()> {
        let size = bytes::in_memory("decompressed data", size)?;
        if size <= AT_ONCE {
            return self.append_at_once(input, size, out, held);
        }
        match self {
            Codec::None if input.len() == size => {
                reserve(out, size, held)?;
                for piece in input.chunks(PIECE) {
                    cx.check()?;
                    out.extend_from_slice(piece);
                }
                Ok(())
            }
            Codec::None => Err(wrong_size(self, size, input.len())),
            Codec::Brotli => {
                let (begin, mut pieces) = (out.len(), Pieces::new(self, input)?);
                while out.len() - begin < size {
                    cx.check()?;
                    bytes::grow_as_filled("brotli data", out, begin + size, held)?;
                    let filled = out.len();
                    let room = (begin + size).min(out.capacity()).min(filled + PIECE);
                    out.resize(room, 0);
                    let made = pieces.next(&mut out[filled..])?;
                    out.truncate(filled + made);
                }
                pieces.end(size)
            }
            Codec::Zstd => zstd::append(input, size, out, held, cx),
            Codec::Snappy => snappy::append(input, size, out, held, cx),
        }
    }

    fn append_at_once(self, input: &[u8], size: usize, out: &mut Vec<u8>, held: &mut Held<'_>) -> Result<()> {
        if out.capacity() == 0 {
            held.grow(size as u64)?;
            *out = bytes::zeroed("decompressed data", size as u64)?;
            return self.decompress(input, out);
        }
        reserve(out, size, held)?;
        let begin = out.len();
        out.resize(begin + size, 0);
        self.decompress(input, &mut out[begin..])
    }

    /// A decompressor that works in pieces. `None` for snappy, whose blocks refer back without bound.
    pub fn decompressor(self) -> Result<Option<Box<dyn Decompressor>>> {
        Ok(match self {
            Codec::None => Some(Box::new(Stored)),
            Codec::Brotli => Some(Box::new(brotli::Decoder::new()?)),
            Codec::Zstd => Some(Box::new(zstd::Decoder::new()?)),
            Codec::Snappy => None,
        })
    }
}

/// Reserves memory for `more` bytes after the content of a buffer.
fn reserve(out: &mut Vec<u8>, more: usize, held: &mut Held<'_>) -> Result<()> {
    let before = out.capacity();
    let all = out.len() as u64 + more as u64;
    held.grow(all.saturating_sub(before as u64))?;
    bytes::reserve_bytes("decompressed data", out, all)
}

/// Feeds input to a [`Decompressor`] piece by piece.
struct Pieces<'a> {
    codec: Codec,
    decompressor: Box<dyn Decompressor>,
    rest: &'a [u8],
    finished: bool,
}

impl<'a> Pieces<'a> {
    fn new(codec: Codec, input: &'a [u8]) -> Result<Self> {
        let decompressor =
            codec.decompressor()?.ok_or_else(|| broken(codec, "it cannot be read in pieces"))?;
        Ok(Pieces { codec, decompressor, rest: input, finished: false })
    }

    /// Fills some of `out`, which must not be empty. Returns how many bytes. 0 means that more input is needed.
    fn next(&mut self, out: &mut [u8]) -> Result<usize> {
        let input = &self.rest[..self.rest.len().min(PIECE)];
        let progress = self.decompressor.decompress_some(input, out)?;
        if progress.produced == 0 && (progress.finished || progress.consumed == 0) {
            return Err(broken(self.codec, "it holds less than it declares"));
        }
        self.rest = &self.rest[progress.consumed..];
        self.finished = progress.finished;
        Ok(progress.produced)
    }

    /// Checks that both input and output end here.
    fn end(mut self, size: usize) -> Result<()> {
        // The stream can end some bytes after its last byte of output. If it produces one more byte, it is too long.
        while !self.finished {
            let progress = self.decompressor.decompress_some(self.rest, &mut [0])?;
            if progress.produced > 0 {
                return Err(wrong_size(self.codec, size, "more"));
            }
            if !progress.finished && progress.consumed == 0 {
                return Err(broken(self.codec, "it ends early"));
            }
            self.rest = &self.rest[progress.consumed..];
            self.finished = progress.finished;
        }
        if self.rest.is_empty() { Ok(()) } else { Err(broken(self.codec, "bytes follow its end")) }
    }
}

/// The pieces in which the input of a compressor comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// How many bytes have come when the compressor begins to compress. It takes this for the size of everything.
    pub first: usize,
    /// Whether the end of the input is announced by a call of its own, after the call with the last bytes.
    pub ends_later: bool,
}

impl Passed {
    /// The input comes at once.
    pub fn at_once(input: &[u8]) -> Self {
        Passed { first: input.len(), ends_later: false }
    }
}

/// A codec with the settings to compress with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    /// The codec.
    pub codec: Codec,
    /// The compression level, on the codec's own scale.
    pub level: i32,
    /// Binary logarithm of the window, for the codecs that have one.
    pub window_log: u32,
}

impl Compression {
    /// Appends `input`, compressed, to `out`.
    pub fn compress(&self, input: &[u8], out: &mut Vec<u8>) -> Result<()> {
        self.compress_pieces(input, Passed::at_once(input), out)
    }

    /// Like [`compress`](Self::compress), with the bytes that result if the input comes in pieces. Only brotli's depend
    /// on that.
    pub fn compress_pieces(&self, input: &[u8], passed: Passed, out: &mut Vec<u8>) -> Result<()> {
        match self.codec {
            Codec::None => {
                bytes::reserve_more("chunk", out, input.len())?;
                out.extend_from_slice(input);
                Ok(())
            }
            Codec::Brotli => brotli::compress(input, self.level, self.window_log, passed, out),
            Codec::Zstd => zstd::compress(input, self.level, self.window_log, out),
            Codec::Snappy => snappy::compress(input, out),
        }
    }
}

/// The progress of one call of a [`Decompressor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of input used.
    pub consumed: usize,
    /// Bytes of output produced.
    pub produced: usize,
    /// Whether the compressed data may end here.
    pub finished: bool,
}

/// Decompresses in pieces.
pub trait Decompressor {
    /// Uses some of `input` and fills some of `out`.
    fn decompress_some(&mut self, input: &[u8], out: &mut [u8]) -> Result<Progress>;
}

/// Uncompressed bytes. They have no end marker.
struct Stored;

impl Decompressor for Stored {
    fn decompress_some(&mut self, input: &[u8], out: &mut [u8]) -> Result<Progress> {
        let n = input.len().min(out.len());
        out[..n].copy_from_slice(&input[..n]);
        Ok(Progress { consumed: n, produced: n, finished: true })
    }
}

fn broken(codec: Codec, why: impl std::fmt::Display) -> Error {
    Error::format(format!("{} data cannot be decompressed: {why}", codec.name()))
}

fn wrong_size(codec: Codec, expected: usize, found: impl std::fmt::Display) -> Error {
    Error::format(format!("{} data has a different size than declared", codec.name()))
        .expected(format_args!("{expected} bytes"))
        .found(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Compression; 7] = [
        Compression { codec: Codec::None, level: 0, window_log: 0 },
        Compression { codec: Codec::Brotli, level: 4, window_log: 22 },
        Compression { codec: Codec::Brotli, level: 5, window_log: 28 },
        Compression { codec: Codec::Zstd, level: 3, window_log: 20 },
        Compression { codec: Codec::Zstd, level: -5, window_log: 31 },
        Compression { codec: Codec::Zstd, level: 1, window_log: 10 },
        Compression { codec: Codec::Snappy, level: 1, window_log: 0 },
    ];

    fn check(compression: &Compression, input: &[u8]) {
        let codec = compression.codec;
        let mut packed = b"prefix".to_vec();
        compression.compress(input, &mut packed).unwrap();
        let packed = packed.strip_prefix(b"prefix").unwrap();
        let mut out = vec![0; input.len()];
        codec.decompress(packed, &mut out).unwrap();
        assert!(out == input, "{compression:?}");
        assert!(codec.decompress(packed, &mut vec![0; input.len() + 1]).is_err());
        if !input.is_empty() {
            assert!(codec.decompress(packed, &mut vec![0; input.len() - 1]).is_err());
        }
        let longer = [packed, b"\0"].concat();
        assert!(codec.decompress(&longer, &mut out).is_err(), "{compression:?}: trailing input");
        if let Some(mut pieces) = codec.decompressor().unwrap() {
            assert!(unpack(&mut *pieces, packed, 5, 7) == input, "{compression:?} in pieces");
        }
    }

    fn unpack(decompressor: &mut dyn Decompressor, packed: &[u8], feed: usize, room: usize) -> Vec<u8> {
        let (mut at, mut all) = (0, Vec::new());
        loop {
            let mut out = vec![0; room];
            let end = packed.len().min(at + feed);
            let progress = decompressor.decompress_some(&packed[at..end], &mut out).unwrap();
            at += progress.consumed;
            all.extend_from_slice(&out[..progress.produced]);
            if at == packed.len() && progress.produced == 0 {
                return all;
            }
        }
    }

    #[test]
    fn what_is_compressed_decompresses_to_exactly_its_size() {
        let text = b"the quick brown fox ".repeat(20_000);
        for compression in &ALL {
            for input in [&b""[..], b"a", b"record-000001", &text[..4096], &text] {
                check(compression, input);
            }
        }
    }

    proptest! {
        #[test]
        fn no_input_makes_a_decoder_panic(input: Vec<u8>, size in 0usize..10_000) {
            for codec in [Codec::None, Codec::Brotli, Codec::Zstd, Codec::Snappy] {
                let _ = codec.decompress(&input, &mut vec![0; size]);
            }
        }
    }
}
