//! The snappy framing format: a stream identifier, then frames of at most 64 KiB, each with its own checksum.
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 1 | kind: `00` a snappy block, `01` uncompressed, `80`..`fe` to be skipped, `ff` stream identifier |
//! | 1 | 3 | length of what follows, little-endian |
//! | 4 | 4 | masked CRC-32C of the decoded bytes (kinds `00` and `01` only) |
//! | 8 | | the bytes |

use crate::budget::Held;
use crate::bytes;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::hash::crc32c;

/// The frame that begins a stream.
pub const IDENTIFIER: [u8; 10] = *b"\xff\x06\x00\x00sNaPpY";
/// Bytes that one frame may hold, decoded.
pub const FRAME_BYTES: usize = 1 << 16;
/// Bytes before the data of a frame: kind, length, checksum.
pub const OVERHEAD: usize = 8;

/// A frame that holds data.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Where it begins among the stored bytes.
    pub begin: usize,
    /// Where it ends.
    pub end: usize,
    checksum: u32,
    compressed: bool,
    data: &'a [u8],
    decoded: usize,
    base: u64,
}

impl Frame<'_> {
    /// How many bytes it decodes to: at most [`FRAME_BYTES`].
    pub fn decoded_bytes(&self) -> usize {
        self.decoded
    }

    fn offset(&self) -> u64 {
        self.base + self.begin as u64
    }

    /// Decodes into `out`, which has exactly [`decoded_bytes`](Self::decoded_bytes), and verifies the checksum.
    pub fn decode_into(&self, out: &mut [u8], checksums: bool) -> Result<()> {
        if self.compressed {
            let decoded = snap::raw::Decoder::new()
                .decompress(self.data, out)
                .map_err(|e| Error::format(format!("damaged snappy frame: {e}")).at(self.offset()))?;
            if decoded != out.len() {
                return Err(Error::format("snappy frame decodes to a different size than declared")
                    .at(self.offset())
                    .expected(out.len())
                    .found(decoded));
            }
        } else if self.data.len() == out.len() {
            out.copy_from_slice(self.data);
        } else {
            return Err(
                Error::format("size of a snappy frame differs from its output buffer").at(self.offset())
            );
        }
        let computed = if checksums { crc32c::masked(out) } else { self.checksum };
        if computed == self.checksum {
            return Ok(());
        }
        Err(Error::checksum("snappy frame checksum mismatch")
            .at(self.offset())
            .expected(format_args!("{:#010x}", self.checksum))
            .found(format_args!("{computed:#010x}")))
    }
}

/// The frames of a stream that hold data, in order. Headers are checked, data is not.
pub struct Frames<'a> {
    stored: &'a [u8],
    at: usize,
    base: u64,
    begun: bool,
}

impl<'a> Frames<'a> {
    /// A whole stream, whose first byte is at `base` of the file.
    pub fn of_stream(stored: &'a [u8], base: u64) -> Self {
        Frames { stored, at: 0, base, begun: false }
    }

    /// Frames out of the middle of a stream.
    pub fn of_part(stored: &'a [u8], base: u64) -> Self {
        Frames { stored, at: 0, base, begun: true }
    }

    /// The next frame that holds data.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'a>>> {
        while self.at < self.stored.len() {
            let begin = self.at;
            let offset = self.base + begin as u64;
            let rest = &self.stored[begin..];
            if !self.begun && !rest.starts_with(&IDENTIFIER) {
                return Err(Error::format("snappy stream does not begin with its identifier")
                    .at(offset)
                    .expected("ff 06 00 00 'sNaPpY'")
                    .found(format_args!("{:02x?}", &rest[..rest.len().min(IDENTIFIER.len())])));
            }
            self.begun = true;
            let Some(([kind, length @ ..], after)) = rest.split_first_chunk::<4>() else {
                return Err(cut(offset, 4, rest.len()));
            };
            let length = usize::from(length[0]) | usize::from(length[1]) << 8 | usize::from(length[2]) << 16;
            let Some(body) = after.get(..length) else {
                return Err(cut(offset, 4 + length, rest.len()));
            };
            self.at = begin + 4 + length;
            match kind {
                0 | 1 => return frame(*kind == 0, body, begin, self.base).map(Some),
                0x80..=0xfe => {}
                0xff if rest.starts_with(&IDENTIFIER) && length == IDENTIFIER.len() - 4 => {}
                _ => {
                    return Err(Error::format("unknown snappy frame type")
                        .at(offset)
                        .expected("00, 01 or 80 to ff")
                        .found(format_args!("{kind:02x}")));
                }
            }
        }
        Ok(None)
    }
}

fn cut(offset: u64, expected: usize, found: usize) -> Error {
    Error::format("snappy frame ends early")
        .at(offset)
        .expected(format_args!("{expected} bytes"))
        .found(found)
}

fn frame(compressed: bool, body: &[u8], begin: usize, base: u64) -> Result<Frame<'_>> {
    let offset = base + begin as u64;
    let Some((checksum, data)) = body.split_first_chunk::<4>() else {
        return Err(cut(offset, OVERHEAD, 4 + body.len()));
    };
    let decoded = if compressed {
        snap::raw::decompress_len(data)
            .map_err(|e| Error::format(format!("damaged snappy frame: {e}")).at(offset))?
    } else {
        data.len()
    };
    if decoded > FRAME_BYTES {
        return Err(Error::format("snappy frame is too large")
            .at(offset)
            .expected(format_args!("at most {FRAME_BYTES} bytes"))
            .found(decoded));
    }
    let (checksum, end) = (u32::from_le_bytes(*checksum), begin + 4 + body.len());
    Ok(Frame { begin, end, checksum, compressed, data, decoded, base })
}

/// Decodes a whole stream to at most `limit` bytes. `base` is where it begins in the file.
///
/// Also returns where the last frame that is not empty ends. What follows decodes to nothing. The memory counts as
/// held.
pub fn decompress(
    stored: &[u8],
    base: u64,
    limit: u64,
    checksums: bool,
    held: &mut Held<'_>,
    cx: &Cx<'_>,
) -> Result<(Vec<u8>, usize)> {
    let limit = bytes::in_memory("snappy stream", limit.min(isize::MAX as u64))?;
    let mut frames = Frames::of_stream(stored, base);
    let (mut out, mut end, mut pace) = (Vec::new(), 0, cx.pace());
    while let Some(frame) = frames.next_frame()? {
        let begin = out.len();
        if frame.decoded > limit - begin {
            return Err(Error::limit("snappy stream decodes to more than the limit")
                .at(base)
                .expected(format_args!("at most {limit} bytes"))
                .hint("raise decoded_chunk_bytes in limits="));
        }
        if out.capacity() - begin < frame.decoded {
            // Double the memory to keep copying cheap, but never allocate far more than the data that fills it.
            let wanted = (2 * out.capacity()).max(begin + frame.decoded).min(limit);
            held.grow((wanted - out.capacity()) as u64)?;
            bytes::reserve_bytes("snappy stream", &mut out, wanted as u64)?;
        }
        out.resize(begin + frame.decoded, 0);
        frame.decode_into(&mut out[begin..], checksums)?;
        pace.step((frame.decoded + 64) as u64)?;
        if frame.decoded > 0 {
            end = frame.end;
        }
    }
    // The result may be kept for a while, so release the unused capacity.
    out.shrink_to_fit();
    Ok((out, end))
}

/// Compression does not shorten input below this size: a block needs two bytes more than its literal bytes.
const STORED_BELOW: usize = 17;

/// Produces the frames of a stream after its identifier. Every write becomes separate frames.
pub struct Compressor {
    encoder: snap::raw::Encoder,
    block: Vec<u8>,
}

impl Default for Compressor {
    fn default() -> Self {
        Compressor { encoder: snap::raw::Encoder::new(), block: Vec::new() }
    }
}

impl Compressor {
    /// Appends the frames for one write to `out`. An empty write has no frames.
    pub fn write(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        for piece in bytes.chunks(FRAME_BYTES) {
            let most = snap::raw::max_compress_len(piece.len());
            if self.block.len() < most {
                self.block.resize(most, 0);
            }
            let compressed = if piece.len() < STORED_BELOW {
                piece.len()
            } else {
                let compressed = self.encoder.compress(piece, &mut self.block);
                compressed.map_err(|e| Error::argument(format!("snappy cannot compress: {e}")))?
            };
            // If compression saves less than an eighth, the data is stored uncompressed, as by all snappy writers.
            let worth_it = compressed < piece.len() - piece.len() / 8;
            let data = if worth_it { &self.block[..compressed] } else { piece };
            bytes::reserve_more("snappy frames", out, OVERHEAD + data.len())?;
            let length = (data.len() as u32 + 4).to_le_bytes();
            out.extend_from_slice(&[u8::from(!worth_it), length[0], length[1], length[2]]);
            out.extend_from_slice(&crc32c::masked(piece).to_le_bytes());
            out.extend_from_slice(data);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::cx::for_tests;
    use crate::error::Kind;
    use proptest::prelude::*;

    fn decompress(stored: &[u8], base: u64, limit: u64, checksums: bool) -> Result<(Vec<u8>, usize)> {
        let cx = for_tests(Limits::default());
        super::decompress(stored, base, limit, checksums, &mut cx.budget.nothing(), &cx)
    }

    fn stream(writes: &[Vec<u8>]) -> Vec<u8> {
        let mut compressor = Compressor::default();
        let mut out = if writes.concat().is_empty() { Vec::new() } else { IDENTIFIER.to_vec() };
        writes.iter().for_each(|write| compressor.write(write, &mut out).unwrap());
        out
    }

    proptest! {
        #[test]
        fn streams_round_trip(writes in prop::collection::vec(prop::collection::vec(0u8..4, 0..300), 0..20)) {
            let whole = writes.concat();
            let stored = stream(&writes);
            prop_assert_eq!(decompress(&stored, 0, whole.len() as u64, true).unwrap(), (whole.clone(), stored.len()));
            if !whole.is_empty() {
                let error = decompress(&stored, 0, whole.len() as u64 - 1, true).unwrap_err();
                prop_assert!(matches!(error.kind(), Kind::Limit));
            }
        }

        #[test]
        fn no_input_is_decoded_beyond_the_limit(mut stored: Vec<u8>, framed: bool) {
            if framed {
                stored.splice(0..0, IDENTIFIER);
            }
            if let Ok((out, _)) = decompress(&stored, 0, 1000, false) {
                prop_assert!(out.len() <= 1000);
            }
        }

        #[test]
        fn a_flipped_bit_is_an_error_or_changes_nothing(at in 0usize..80, bit in 0u8..8) {
            let whole = b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabcdefgh".to_vec();
            let mut stored = stream(&[whole.clone(), b"xyz".to_vec()]);
            let at = at % stored.len();
            stored[at] ^= 1 << bit;
            // A flip can turn the kind of a frame into one that is skipped. The frame is then lost. The number of
            // records reveals that.
            if let Ok((out, _)) = decompress(&stored, 0, 1 << 20, true) {
                prop_assert!(out == [&whole[..], b"xyz"].concat() || out == whole || out == b"xyz", "{:?}", out);
            }
        }
    }

    #[test]
    fn short_input_never_becomes_shorter() {
        for length in 1..STORED_BELOW {
            assert!(snap::raw::Encoder::new().compress_vec(&vec![0; length]).unwrap().len() > length);
        }
    }

    #[test]
    fn a_long_write_is_cut_into_frames_of_64_kib() {
        let stored = stream(&[vec![7; 2 * FRAME_BYTES + 1]]);
        let mut frames = Frames::of_stream(&stored, 0);
        let mut sizes = Vec::new();
        while let Some(frame) = frames.next_frame().unwrap() {
            sizes.push(frame.decoded_bytes());
        }
        assert_eq!(sizes, [FRAME_BYTES, FRAME_BYTES, 1]);
    }

    #[test]
    fn what_is_no_stream_is_refused_with_its_place() {
        let mut cases: Vec<(Vec<u8>, &str)> = vec![
            (b"sNaPpY".to_vec(), "does not begin with its identifier"),
            (b"\xff\x06\x00\x00sNaPp".to_vec(), "does not begin with its identifier"),
        ];
        for (tail, what) in [
            (&b"\x02\x00\x00\x00"[..], "unknown snappy frame type"),
            (b"\x00\x03\x00\x00abc", "ends early"),
            (b"\x01\x09\x00\x00abcd", "ends early"),
            (b"\x01\x08", "ends early"),
            (b"\xff\x06\x00\x00sNaPpX", "unknown snappy frame type"),
            (b"\x00\x0a\x00\x00abcd\xff\xff\xff\xff\x7f\x00", "damaged snappy frame"),
        ] {
            cases.push(([&IDENTIFIER, tail].concat(), what));
        }
        for (stored, what) in cases {
            let error = decompress(&stored, 100, 1 << 30, true).unwrap_err();
            assert!(error.what().contains(what), "{stored:02x?}: {error}");
            assert!(error.offset() >= Some(100), "{error}");
        }
    }
}
