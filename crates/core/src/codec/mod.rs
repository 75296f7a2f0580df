//! Compression: one file per codec, one bounded `decompress`.
//!
//! Decompressing fills a buffer of exactly the declared size: less output, more output and input left
//! over are all errors, so a stream can never make us hold more than the caller allowed.

pub mod brotli;
pub mod gzip;
pub mod snappy;
pub mod snappy_frames;
pub mod zstd;

use crate::error::{Error, Result};

/// A way of compressing bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Stored as they are.
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
}

/// A codec with the settings to compress with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    /// The codec.
    pub codec: Codec,
    /// How hard to try, on the codec's own scale.
    pub level: i32,
    /// Binary logarithm of the window, for the codecs that have one.
    pub window_log: u32,
}

impl Compression {
    /// Appends `input`, compressed, to `out`.
    pub fn compress(&self, input: &[u8], out: &mut Vec<u8>) -> Result<()> {
        match self.codec {
            Codec::None => {
                out.extend_from_slice(input);
                Ok(())
            }
            Codec::Brotli => brotli::compress(input, self.level, self.window_log, out),
            Codec::Zstd => zstd::compress(input, self.level, self.window_log, out),
            Codec::Snappy => snappy::compress(input, out),
        }
    }
}

/// What one step of a [`Stream`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Bytes of input used.
    pub read: usize,
    /// Bytes of output made.
    pub written: usize,
    /// Whether the compressed stream has ended.
    pub done: bool,
}

/// Decompression in pieces, for what is too large to hold whole.
pub trait Stream {
    /// Uses some of `input` and fills some of `out`. No progress with both non-empty is an error.
    fn step(&mut self, input: &[u8], out: &mut [u8]) -> Result<Step>;
}

/// The streaming decompressor of a codec; none for snappy, whose blocks refer back without bound.
pub fn stream(codec: Codec) -> Option<Box<dyn Stream>> {
    match codec {
        Codec::None => Some(Box::new(Stored)),
        Codec::Brotli => Some(Box::new(brotli::Decoder::new())),
        Codec::Zstd => zstd::Decoder::new().map(|d| Box::new(d) as Box<dyn Stream>),
        Codec::Snappy => None,
    }
}

struct Stored;

impl Stream for Stored {
    fn step(&mut self, input: &[u8], out: &mut [u8]) -> Result<Step> {
        let n = input.len().min(out.len());
        out[..n].copy_from_slice(&input[..n]);
        Ok(Step { read: n, written: n, done: false })
    }
}

fn broken(codec: Codec, why: impl std::fmt::Display) -> Error {
    Error::format(format!("{} data cannot be decompressed: {why}", codec.name()))
}

fn wrong_size(codec: Codec, expected: usize, found: impl std::fmt::Display) -> Error {
    Error::format(format!("{} data has another size than declared", codec.name()))
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
        if let Some(mut stream) = stream(codec) {
            assert!(unpack(&mut *stream, packed, 5, 7) == input, "{compression:?} in pieces");
        }
    }

    fn unpack(stream: &mut dyn Stream, packed: &[u8], feed: usize, room: usize) -> Vec<u8> {
        let (mut at, mut all) = (0, Vec::new());
        loop {
            let mut out = vec![0; room];
            let end = packed.len().min(at + feed);
            let step = stream.step(&packed[at..end], &mut out).unwrap();
            at += step.read;
            all.extend_from_slice(&out[..step.written]);
            if step.done || (at == packed.len() && step.written == 0) {
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
