//! Deflate in its wrappers: gzip (any number of members) and zlib.

use super::{Decompressor, PIECE, Progress};
use crate::budget::Held;
use crate::bytes;
use crate::cx::Cx;
use crate::error::{Error, Result};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// The format around a deflate stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrapper {
    /// RFC 1952: a CRC-32 at the end, and members may follow each other.
    Gzip,
    /// RFC 1950: an Adler-32 at the end.
    Zlib,
}

/// The window of every deflate stream that these wrappers can hold, as a power of two.
const WINDOW_BITS: u8 = 15;
/// Output of the compressor grows by this much at a time.
const STEP: usize = 64 << 10;

impl Wrapper {
    /// Its name, as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Wrapper::Gzip => "gzip",
            Wrapper::Zlib => "zlib",
        }
    }

    /// The fewest bytes that it adds to a deflate stream.
    pub fn around(self) -> u64 {
        match self {
            // Ten bytes before the stream, and a checksum and a length after it.
            Wrapper::Gzip => 18,
            // Two bytes before the stream, and a checksum after it.
            Wrapper::Zlib => 6,
        }
    }

    /// Whether a stream can begin with `head`.
    pub fn begins(self, head: &[u8]) -> bool {
        match (self, head) {
            // Deflate is the only method that exists, and three flags are reserved.
            (Wrapper::Gzip, [0x1f, 0x8b, 8, flags, ..]) => flags & 0xe0 == 0,
            // Deflate with a window of at most 32 KiB, no dictionary, and the check bits right.
            (Wrapper::Zlib, [method, flags, ..]) => {
                let check = u16::from_be_bytes([*method, *flags]);
                method & 0x0f == 8 && method >> 4 <= 7 && flags & 0x20 == 0 && check.is_multiple_of(31)
            }
            _ => false,
        }
    }

    /// The bytes before the deflate stream. They are the same on every machine, because they state neither time nor
    /// operating system.
    pub fn header(self, level: u32) -> &'static [u8] {
        match (self, level) {
            (Wrapper::Gzip, _) => &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff],
            (Wrapper::Zlib, 0..=1) => &[0x78, 0x01],
            (Wrapper::Zlib, 2..=5) => &[0x78, 0x5e],
            (Wrapper::Zlib, 6) => &[0x78, 0x9c],
            (Wrapper::Zlib, _) => &[0x78, 0xda],
        }
    }

    /// The checksum of `bytes` that this wrapper stores.
    pub fn checksum(self, bytes: &[u8]) -> u32 {
        match self {
            Wrapper::Gzip => crc32fast::hash(bytes),
            Wrapper::Zlib => adler32(bytes),
        }
    }

    /// The checksum of empty data.
    pub fn checksum_of_none(self) -> u32 {
        match self {
            Wrapper::Gzip => 0,
            Wrapper::Zlib => 1,
        }
    }

    /// The checksum of two parts joined. `first` and `second` are the checksums of the parts, and `length` is the size
    /// of the second part.
    pub fn combine(self, first: u32, second: u32, length: u64) -> u32 {
        match self {
            Wrapper::Gzip => {
                // The result does not depend on the length of the first part.
                let mut sum = crc32fast::Hasher::new_with_initial_len(first, 0);
                sum.combine(&crc32fast::Hasher::new_with_initial_len(second, length));
                sum.finalize()
            }
            Wrapper::Zlib => adler32_combine(first, second, length),
        }
    }

    /// The bytes after the deflate stream, for data of `length` bytes.
    pub fn trailer(self, checksum: u32, length: u64) -> Vec<u8> {
        match self {
            Wrapper::Gzip => [checksum.to_le_bytes(), (length as u32).to_le_bytes()].concat(),
            Wrapper::Zlib => checksum.to_be_bytes().to_vec(),
        }
    }
}

const ADLER: u32 = 65_521;

fn adler32(bytes: &[u8]) -> u32 {
    let (mut low, mut high) = (1u32, 0u32);
    // After at most this many bytes, neither sum can have overflowed.
    for piece in bytes.chunks(5552) {
        for &byte in piece {
            low += u32::from(byte);
            high += low;
        }
        (low, high) = (low % ADLER, high % ADLER);
    }
    high << 16 | low
}

fn adler32_combine(first: u32, second: u32, length: u64) -> u32 {
    let base = u64::from(ADLER);
    let split = |sum: u32| (u64::from(sum & 0xffff), u64::from(sum >> 16));
    let ((low1, high1), (low2, high2)) = (split(first), split(second));
    let low = (low1 + low2 + base - 1) % base;
    let high = (high1 + high2 + length % base * (low1 + base - 1)) % base;
    (high << 16 | low) as u32
}

/// Unpacks a stream piece by piece, and verifies its checksum.
pub struct Inflater {
    wrapper: Wrapper,
    /// None between the members of a gzip stream, and after the end of a zlib stream.
    inflate: Option<Decompress>,
    members: u64,
    consumed: u64,
    /// Damage that was found after some bytes were produced. Those are returned first.
    problem: Option<String>,
}

impl Inflater {
    /// An inflater at the beginning of a stream.
    pub fn new(wrapper: Wrapper) -> Self {
        Inflater { wrapper, inflate: None, members: 0, consumed: 0, problem: None }
    }

    /// An inflater of a stream whose header of `header` bytes is damaged. It is at the first byte after the header.
    pub fn after_header(wrapper: Wrapper, header: u64) -> Self {
        let inflate = Some(Decompress::new_with_window_bits(false, WINDOW_BITS));
        Inflater { inflate, consumed: header, ..Self::new(wrapper) }
    }

    /// Bytes of the stream used up so far.
    pub fn consumed(&self) -> u64 {
        self.consumed
    }

    fn begin(&mut self, first: u8) -> Result<()> {
        self.inflate = Some(match self.wrapper {
            Wrapper::Gzip if self.members == 0 || first == 0x1f => Decompress::new_gzip(WINDOW_BITS),
            Wrapper::Zlib if self.members == 0 => Decompress::new_with_window_bits(true, WINDOW_BITS),
            _ => {
                return Err(Error::format(format!(
                    "bytes after the end of the {} stream",
                    self.wrapper.name()
                ))
                .at(self.consumed)
                .found(format_args!("{first:#04x}")));
            }
        });
        Ok(())
    }

    fn damaged(&self, problem: &str) -> Error {
        Error::format(format!("damaged {} stream ({problem})", self.wrapper.name())).at(self.consumed)
    }

    /// Checks that the stream may end here: it has begun, and nothing of it is missing.
    pub fn finish(&self) -> Result<()> {
        if let Some(problem) = &self.problem {
            return Err(self.damaged(problem));
        }
        if self.inflate.is_none() && self.members > 0 {
            return Ok(());
        }
        Err(Error::truncated(format!("{} stream is truncated", self.wrapper.name()))
            .at(self.consumed)
            .expected("more data")
            .found("the end of the data"))
    }
}

impl Decompressor for Inflater {
    /// Stops when the input is used up or the output is full.
    fn decompress_some(&mut self, input: &[u8], out: &mut [u8]) -> Result<Progress> {
        if let Some(problem) = &self.problem {
            return Err(self.damaged(problem));
        }
        let (mut consumed, mut produced) = (0, 0);
        while consumed < input.len() && produced < out.len() {
            if self.inflate.is_none()
                && let Err(error) = self.begin(input[consumed])
            {
                if produced == 0 {
                    return Err(error);
                }
                // The next call finds the same, after the caller has taken what was produced.
                break;
            }
            let Some(inflate) = &mut self.inflate else { break };
            let (before_in, before_out) = (inflate.total_in(), inflate.total_out());
            let status = inflate.decompress(&input[consumed..], &mut out[produced..], FlushDecompress::None);
            let used = inflate.total_in() - before_in;
            let made = inflate.total_out() - before_out;
            consumed += used as usize;
            produced += made as usize;
            self.consumed += used;
            match status {
                Ok(Status::StreamEnd) => {
                    self.inflate = None;
                    self.members += 1;
                }
                Ok(_) if used > 0 || made > 0 => {}
                Ok(_) => return Err(self.damaged("no progress")),
                Err(error) if produced == 0 => return Err(self.damaged(&error.to_string())),
                Err(error) => {
                    self.problem = Some(error.to_string());
                    break;
                }
            }
        }
        Ok(Progress { consumed, produced, finished: self.inflate.is_none() && self.members > 0 })
    }
}

/// Unpacks a whole stream to at most `limit` bytes. Nothing may follow it. `base` is where it begins in the file. The
/// memory counts as held.
pub fn decompress(
    wrapper: Wrapper,
    stored: &[u8],
    base: u64,
    limit: u64,
    held: &mut Held<'_>,
    cx: &Cx<'_>,
) -> Result<Vec<u8>> {
    unpack(wrapper, stored, limit, held, cx).map_err(|e| e.moved_by(base))
}

fn unpack(wrapper: Wrapper, stored: &[u8], limit: u64, held: &mut Held<'_>, cx: &Cx<'_>) -> Result<Vec<u8>> {
    let limit = bytes::in_memory("limit", limit.min(isize::MAX as u64 - 1))?;
    let mut inflater = Inflater::new(wrapper);
    let (mut out, mut used, mut pace) = (Vec::new(), 0, cx.pace());
    while used < stored.len() {
        // Room for one byte over the limit distinguishes "exactly full" from "too much".
        bytes::grow_as_filled("unpacked data", &mut out, limit + 1, held)?;
        let filled = out.len();
        out.resize(out.capacity().min(filled + PIECE), 0);
        // Pass the input in pieces as well: a long stream can produce no output.
        let input = &stored[used..stored.len().min(used + PIECE)];
        let progress = inflater.decompress_some(input, &mut out[filled..])?;
        used += progress.consumed;
        out.truncate(filled + progress.produced);
        pace.step((progress.produced + progress.consumed) as u64)?;
        if out.len() > limit {
            return Err(Error::limit(format!("{} stream unpacks to more than the limit", wrapper.name()))
                .at(0)
                .expected(format_args!("at most {limit} bytes"))
                .hint("raise decoded_chunk_bytes in limits="));
        }
    }
    inflater.finish()?;
    // The result may be kept for a while, so release the unused capacity.
    out.shrink_to_fit();
    Ok(out)
}

/// Compresses `data` to a deflate stream without its end, padded to whole bytes, so that another part may follow it.
pub fn deflate_part(data: &[u8], level: u32) -> Result<Vec<u8>> {
    let mut deflate = Compress::new(Compression::new(level), false);
    let mut out = bytes::reserved("deflated data", (data.len() / 2 + STEP) as u64)?;
    loop {
        let used = deflate.total_in() as usize;
        if out.capacity() - out.len() < STEP {
            bytes::reserve_more("deflated data", &mut out, STEP + data.len().saturating_sub(used) / 2)?;
        }
        // Compression cannot fail while there is room for output. The flush is complete when some room is left.
        let status = deflate.compress_vec(&data[used..], &mut out, FlushCompress::Sync);
        let all_used = deflate.total_in() as usize == data.len();
        if status.is_err() || (all_used && out.len() < out.capacity()) {
            return Ok(out);
        }
    }
}

/// An empty deflate block that is marked as the last one. It ends a sequence of [parts](deflate_part).
pub const LAST_BLOCK: [u8; 2] = [3, 0];

/// Compresses `data` to a whole stream.
pub fn compress(wrapper: Wrapper, data: &[u8], level: u32) -> Result<Vec<u8>> {
    let (deflated, trailer) =
        (deflate_part(data, level)?, wrapper.trailer(wrapper.checksum(data), data.len() as u64));
    let header = wrapper.header(level);
    let length = header.len() + deflated.len() + LAST_BLOCK.len() + trailer.len();
    let mut out = bytes::reserved("deflated data", length as u64)?;
    [header, &deflated, &LAST_BLOCK, &trailer].into_iter().for_each(|part| out.extend_from_slice(part));
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::cx::for_tests;
    use crate::error::Kind;
    use proptest::prelude::*;

    fn compress(wrapper: Wrapper, data: &[u8], level: u32) -> Vec<u8> {
        super::compress(wrapper, data, level).unwrap()
    }

    const BOTH: [Wrapper; 2] = [Wrapper::Gzip, Wrapper::Zlib];

    fn decompress(wrapper: Wrapper, stored: &[u8], base: u64, limit: u64) -> Result<Vec<u8>> {
        let cx = for_tests(Limits::default());
        super::decompress(wrapper, stored, base, limit, &mut cx.budget.nothing(), &cx)
    }

    proptest! {
        #[test]
        fn streams_round_trip_in_parts(parts in prop::collection::vec(prop::collection::vec(0u8..9, 0..500), 0..6), level in 0u32..10) {
            let whole = parts.concat();
            for wrapper in BOTH {
                let mut stream = wrapper.header(level).to_vec();
                let mut sum = wrapper.checksum_of_none();
                for part in &parts {
                    stream.extend(deflate_part(part, level).unwrap());
                    sum = wrapper.combine(sum, wrapper.checksum(part), part.len() as u64);
                }
                stream.extend(LAST_BLOCK);
                prop_assert_eq!(sum, wrapper.checksum(&whole));
                stream.extend(wrapper.trailer(sum, whole.len() as u64));
                prop_assert!(wrapper.begins(&stream));
                prop_assert_eq!(decompress(wrapper, &stream, 0, whole.len() as u64).unwrap(), whole.clone());
            }
        }

        #[test]
        fn no_input_is_unpacked_beyond_the_limit(mut stored: Vec<u8>, begun: bool) {
            for wrapper in BOTH {
                if begun {
                    stored.splice(0..0, wrapper.header(6).iter().copied());
                }
                if let Ok(out) = decompress(wrapper, &stored, 0, 1000) {
                    prop_assert!(out.len() <= 1000);
                }
            }
        }
    }

    #[test]
    fn a_limit_holds_to_the_byte() {
        for size in [0usize, 1, STEP - 1, STEP, STEP + 1, 3 * STEP] {
            for wrapper in BOTH {
                let stream = compress(wrapper, &vec![5; size], 6);
                assert_eq!(decompress(wrapper, &stream, 0, size as u64).unwrap().len(), size);
                if size > 0 {
                    let error = decompress(wrapper, &stream, 0, size as u64 - 1).unwrap_err();
                    assert!(matches!(error.kind(), Kind::Limit), "{error}");
                }
            }
        }
    }

    #[test]
    fn a_cut_a_flip_and_bytes_after_the_end_are_errors_with_their_place() {
        for wrapper in BOTH {
            let stream = compress(wrapper, b"some bytes, some bytes, and some more", 6);
            for cut in 0..stream.len() {
                let error = decompress(wrapper, &stream[..cut], 1000, 1 << 20).unwrap_err();
                assert!(matches!(error.kind(), Kind::Truncated), "{wrapper:?} cut at {cut}: {error}");
                assert_eq!(error.offset(), Some(1000 + cut as u64), "{error}");
            }
            for tail in [&[0u8][..], b"\x1f", b"garbage"] {
                assert!(decompress(wrapper, &[&stream, tail].concat(), 0, 1 << 20).is_err());
            }
            let last = stream.len() - 1;
            for at in [last, last - 3] {
                let mut flipped = stream.clone();
                flipped[at] ^= 1;
                assert!(decompress(wrapper, &flipped, 0, 1 << 20).is_err());
            }
        }
    }

    #[test]
    fn gzip_members_follow_each_other_and_zlib_streams_do_not() {
        let twice = |wrapper| [compress(wrapper, b"one ", 6), compress(wrapper, b"two", 1)].concat();
        assert_eq!(decompress(Wrapper::Gzip, &twice(Wrapper::Gzip), 0, 100).unwrap(), b"one two");
        let error = decompress(Wrapper::Zlib, &twice(Wrapper::Zlib), 0, 100).unwrap_err();
        assert!(error.what().contains("after the end"), "{error}");
    }
}
