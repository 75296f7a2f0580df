//! A compressed file as the stream of its unpacked bytes.

use super::frame::{self, AROUND, HEADER};
use crate::budget::Held;
use crate::bytes;
use crate::codec::Decompressor;
use crate::codec::gzip::{Inflater, Wrapper};
use crate::cx::Cx;
use crate::error::{Error, Kind, Result};
use crate::storage::Storage;

/// About how many bytes are read, or unpacked, at a time.
const PIECE: usize = 128 << 10;

/// The wrapper of the file, if it has one, and whether its content begins with a valid record header.
///
/// The length of a record can look like the beginning of a zlib stream, and rarely of a gzip stream. A length with a
/// right checksum is always taken as a record header.
pub(super) fn wrapper(storage: &dyn Storage, cx: &Cx<'_>) -> Result<(Option<Wrapper>, bool)> {
    let mut head = [0; HEADER as usize];
    let head = &mut head[..HEADER.min(storage.len()) as usize];
    storage.read_at(0, head, cx)?;
    if frame::length(head, 0, true).is_ok() {
        return Ok((None, true));
    }
    let Some(wrapper) = [Wrapper::Gzip, Wrapper::Zlib].into_iter().find(|w| w.begins(head)) else {
        return Ok((None, false));
    };
    let (begins_well, fits) = match UnpackedStream::new(storage, wrapper, cx).fill(HEADER) {
        Ok(head) => {
            let begins_well = frame::length(&head[..head.len().min(HEADER as usize)], 0, true).is_ok();
            (begins_well, begins_well || head.is_empty())
        }
        Err(error) if error.is_from_outside() => return Err(error),
        Err(error) => (false, matches!(error.kind(), Kind::Truncated)),
    };
    // The first two bytes of a zlib stream also occur in many other files. The first four bytes of a gzip stream
    // identify it.
    let wrapped = fits || wrapper == Wrapper::Gzip;
    Ok((wrapped.then_some(wrapper), begins_well))
}

/// The stream of a file whose wrapper is damaged, if a record begins right after it.
pub(super) fn without_wrapper<'a>(
    storage: &'a dyn Storage,
    cx: &'a Cx<'a>,
) -> Result<Option<(Wrapper, UnpackedStream<'a>)>> {
    for wrapper in [Wrapper::Gzip, Wrapper::Zlib] {
        let header = super::stream_walk::packed(wrapper, storage.len()).start;
        if storage.len() <= header {
            continue;
        }
        let mut stream = UnpackedStream::of(storage, Inflater::after_header(wrapper, header), cx);
        match stream.fill(HEADER) {
            Ok(head) if frame::length(&head[..head.len().min(HEADER as usize)], 0, true).is_ok() => {
                return Ok(Some((wrapper, stream)));
            }
            Err(error) if error.is_from_outside() => return Err(error),
            _ => {}
        }
    }
    Ok(None)
}

/// The unpacked bytes of a compressed file, from the first to the last.
pub(super) struct UnpackedStream<'a> {
    storage: &'a dyn Storage,
    cx: &'a Cx<'a>,
    inflater: Inflater,
    /// Bytes read and not yet unpacked: `input[used..]`.
    input: Vec<u8>,
    used: usize,
    /// Bytes unpacked and not yet taken: `output[begin..end]`.
    output: Vec<u8>,
    begin: usize,
    end: usize,
    /// How many bytes were taken.
    taken: u64,
    /// The memory of `output` in the budget. `output` grows to hold one long record.
    held: Held<'a>,
}

impl<'a> UnpackedStream<'a> {
    pub(super) fn new(storage: &'a dyn Storage, wrapper: Wrapper, cx: &'a Cx<'a>) -> Self {
        Self::of(storage, Inflater::new(wrapper), cx)
    }

    fn of(storage: &'a dyn Storage, inflater: Inflater, cx: &'a Cx<'a>) -> Self {
        UnpackedStream {
            storage,
            cx,
            inflater,
            input: Vec::new(),
            used: 0,
            output: Vec::new(),
            begin: 0,
            end: 0,
            taken: 0,
            held: cx.budget.nothing(),
        }
    }

    /// Bytes of the file that were unpacked so far.
    pub(super) fn consumed(&self) -> u64 {
        self.inflater.consumed()
    }

    /// The offset of the next byte in the unpacked stream.
    pub(super) fn position(&self) -> u64 {
        self.taken
    }

    /// Returns at least `wanted` bytes, or as many as are left. The buffer grows with the unpacked bytes, not with
    /// `wanted`.
    pub(super) fn fill(&mut self, wanted: u64) -> Result<&[u8]> {
        let wanted = bytes::in_memory("record", wanted)?;
        while self.end - self.begin < wanted && self.more()? {}
        Ok(&self.output[self.begin..self.end])
    }

    /// Removes `bytes` bytes from the front of the buffer.
    pub(super) fn take(&mut self, bytes: usize) {
        self.begin += bytes;
        self.taken += bytes as u64;
    }

    /// Unpacks more bytes. Returns false at the end of the stream, which is also the end of the file.
    fn more(&mut self) -> Result<bool> {
        self.cx.check()?;
        if self.used == self.input.len() {
            let left = self.storage.len() - self.consumed();
            if left == 0 {
                return self.inflater.finish().map(|()| false);
            }
            self.input.resize(left.min(PIECE as u64) as usize, 0);
            self.used = 0;
            if let Err(error) = self.storage.read_at(self.inflater.consumed(), &mut self.input, self.cx) {
                self.input.clear();
                return Err(error);
            }
        }
        if self.begin > 0 && self.begin >= self.output.len() / 2 {
            self.output.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        if self.output.len() - self.end < PIECE / 2 {
            let grown = (2 * self.output.len()).max(PIECE);
            self.held.grow((grown - self.output.len()) as u64)?;
            bytes::reserve_bytes("record", &mut self.output, grown as u64)?;
            self.output.resize(grown, 0);
        }
        let room = self.output.len().min(self.end + PIECE);
        let progress =
            self.inflater.decompress_some(&self.input[self.used..], &mut self.output[self.end..room])?;
        self.used += progress.consumed;
        self.end += progress.produced;
        Ok(true)
    }

    /// The length of the next record. `None` at the end of the stream. Takes no bytes.
    pub(super) fn next_length(&mut self, checksums: bool, limit: u64) -> Result<Option<u64>> {
        let at = self.position();
        let head = self.fill(HEADER)?;
        if head.is_empty() {
            return Ok(None);
        }
        let head = &head[..head.len().min(HEADER as usize)];
        let length = frame::length(head, at, checksums).map_err(unpacked)?;
        if length > limit {
            return Err(Error::limit("record of a compressed file is over the limit")
                .at(at)
                .expected(format_args!("at most {limit} bytes"))
                .found(length)
                .hint("raise decoded_chunk_bytes in limits="));
        }
        length.checked_add(AROUND).ok_or_else(|| frame::impossible(length, at))?;
        Ok(Some(length))
    }
}

/// Takes the next record, whose data has `length` bytes. Calls `each` with the pieces of the record and its framing.
pub(super) fn take_record(
    stream: &mut UnpackedStream<'_>,
    length: u64,
    mut each: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let (at, mut left) = (stream.position(), length + AROUND);
    while left > 0 {
        let piece = stream.fill(1)?;
        let taken = (piece.len() as u64).min(left) as usize;
        if taken == 0 {
            return Err(cut(at, length, length + AROUND - left));
        }
        each(&piece[..taken])?;
        stream.take(taken);
        left -= taken as u64;
    }
    Ok(())
}

/// Adds the hint that the offset of the error counts unpacked bytes.
pub(super) fn unpacked(error: Error) -> Error {
    error.hint("the offset counts bytes of the decompressed stream")
}

/// The error for a stream that ends inside the record at `at`.
pub(super) fn cut(at: u64, length: u64, found: u64) -> Error {
    unpacked(
        Error::truncated("the decompressed stream ends inside a record")
            .at(at)
            .expected(format_args!("{} bytes", length.saturating_add(AROUND)))
            .found(found),
    )
}
