//! Transitions: the choices among states, one byte each.
//!
//! There can be many more transitions than bytes in the records, and they can still take few stored bytes. So they are
//! unpacked in pieces. A machine that produces nothing from them is stopped before many are unpacked.

use super::super::simple::{declared, unpack};
use crate::budget::Held;
use crate::bytes;
use crate::codec::zstd::{STREAMED_WINDOW, window_bytes};
use crate::codec::{Codec, Decompressor};
use crate::cx::Cx;
use crate::error::{Error, Result};
use std::borrow::Cow;

/// Up to this many transitions are unpacked at once, which is faster than in pieces.
const AT_ONCE: u64 = 1 << 20;
/// Bytes of a piece.
const PIECE: usize = 64 << 10;
/// The limit for data that cannot be unpacked in pieces: snappy, and zstd with a large window, which transitions do not
/// need. It is this many bytes, plus `WHOLE_RATIO` times the stored bytes of the chunk.
const WHOLE: u64 = 64 << 20;
const WHOLE_RATIO: u64 = 64;

/// The transitions of a chunk.
pub struct Transitions<'a> {
    ready: Cow<'a, [u8]>,
    /// How many of `ready` were taken.
    taken: usize,
    more: Option<More<'a>>,
}

struct More<'a> {
    decompressor: Box<dyn Decompressor>,
    stored: &'a [u8],
    /// How many are declared and not yet unpacked.
    left: u64,
    at: u64,
}

impl<'a> Transitions<'a> {
    /// The transitions in `blob`, the end of a chunk of `chunk_stored` bytes at `at`.
    pub fn open(
        codec: Codec,
        blob: &'a [u8],
        chunk_stored: u64,
        at: u64,
        held: &mut Held<'_>,
        cx: &Cx<'_>,
    ) -> Result<Self> {
        let (size, stored) = declared(codec, blob, at)?;
        let in_pieces = match codec {
            Codec::None | Codec::Snappy => false,
            Codec::Brotli => size > AT_ONCE,
            Codec::Zstd => size > AT_ONCE && window_bytes(stored, size) <= STREAMED_WINDOW,
        };
        if in_pieces && let Some(decompressor) = codec.decompressor()? {
            let ready = Cow::Owned(bytes::zeroed("transitions of a chunk", PIECE as u64)?);
            let more = Some(More { decompressor, stored, left: size, at });
            return Ok(Transitions { ready, taken: PIECE, more });
        }
        let most = chunk_stored.saturating_mul(WHOLE_RATIO).saturating_add(WHOLE);
        let ready = unpack(codec, Cow::Borrowed(blob), most, at, held, cx)?;
        Ok(Transitions { ready, taken: 0, more: None })
    }

    /// The next transition. `None` after the last one.
    #[inline]
    pub fn next(&mut self) -> Result<Option<u8>> {
        if self.taken == self.ready.len() && !self.fill()? {
            return Ok(None);
        }
        self.taken += 1;
        Ok(self.ready.get(self.taken - 1).copied())
    }

    /// Unpacks more transitions. Returns false at the end.
    fn fill(&mut self) -> Result<bool> {
        let Some(more) = &mut self.more else { return Ok(false) };
        let wrong = |what: &'static str| Error::format(what).at(more.at);
        let ready = self.ready.to_mut();
        ready.resize(PIECE, 0);
        loop {
            let input = &more.stored[..more.stored.len().min(PIECE)];
            let progress = more.decompressor.decompress_some(input, ready)?;
            more.stored = &more.stored[progress.consumed..];
            more.left = (more.left.checked_sub(progress.produced as u64))
                .ok_or_else(|| wrong("transposed chunk has more transitions than it declares"))?;
            if progress.produced > 0 {
                ready.truncate(progress.produced);
                self.taken = 0;
                return Ok(true);
            }
            if progress.finished && more.stored.is_empty() && more.left == 0 {
                ready.clear();
                self.taken = 0;
                return Ok(false);
            }
            if progress.consumed == 0 {
                return Err(wrong("transitions of a transposed chunk do not have the declared size"));
            }
        }
    }
}
