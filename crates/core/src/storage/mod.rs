//! Where bytes come from and where they go. A storage never knows a format.
//!
//! | file | what |
//! |---|---|
//! | [`location`] | the one place that opens things to read: from a location to a storage |
//! | [`fetch`] | the one place that reads ranges of many storages together |
//! | [`file`] | a local file |
//! | `identity` | whether a file that is opened again is still the same file |
//! | `map`, `mapped_file` | a memory map of a file; what can be borrowed from it (Linux) |
//! | `sigbus`, `map_registry` | the signal handler that makes memory maps safe; the address ranges of all maps (Linux) |
//! | `positional`, `vectored` | reads at a position: of one range, of neighbouring ranges |
//! | `cold` | batches that the page cache may not have (Linux) |
//! | `direct`, `aligned`, `uring` | reads past the page cache with O_DIRECT, many in flight (Linux) |
//! | [`handles`], [`file_set`] | the bound on open descriptors; what the files of a data set share |
//! | [`memory`] | bytes that are already in memory |
//! | [`partial`] | a storage of which some ranges are in memory, while it is being opened |
//! | [`spool`] | temporary files: unpacked streams, tables of chunks on disk |
//! | [`window`] | reading from front to back, in large pieces or skipping |
//! | [`output`] | what a writer writes to |
//! | [`publish`], [`transaction`], [`journal`] | how a file, or a set of files, appears whole or not at all; what is left to do meanwhile |
//!
//! Another way of reading (an object store) is one more file here with one more `impl Storage`.

#[cfg(target_os = "linux")]
mod aligned;
#[cfg(target_os = "linux")]
mod cold;
#[cfg(target_os = "linux")]
pub mod direct;
pub mod fetch;
pub mod file;
pub mod file_set;
pub mod handles;
mod identity;
pub mod journal;
pub mod location;
#[cfg(target_os = "linux")]
pub mod map;
#[cfg(target_os = "linux")]
mod map_registry;
#[cfg(target_os = "linux")]
mod mapped_file;
pub mod memory;
pub mod output;
pub mod partial;
mod positional;
pub mod publish;
#[cfg(target_os = "linux")]
pub(crate) mod sigbus;
pub mod spool;
pub mod transaction;
#[cfg(target_os = "linux")]
pub mod uring;
#[cfg(unix)]
mod vectored;
pub mod window;

use crate::cx::Cx;
use crate::error::Result;
use fetch::Queue;
use std::ops::Range;

/// One range of a storage, and the place its bytes go.
pub struct ReadOp<'a> {
    /// Offset of the first byte.
    pub at: u64,
    /// Filled whole, or the read fails.
    pub out: &'a mut [u8],
}

/// Bytes that can be read at any position, from many threads at once.
pub trait Storage: Send + Sync {
    /// What to call it in an error: usually the path.
    fn name(&self) -> &str;

    /// How many bytes there are.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `out` with the bytes from `at` on. A storage that ends early is a truncation error.
    fn read_at(&self, at: u64, out: &mut [u8], cx: &Cx<'_>) -> Result<()>;

    /// Fills many ranges at once. Returns with nothing in flight.
    fn read_many(&self, ops: &mut [ReadOp<'_>], cx: &Cx<'_>) -> Result<()> {
        ops.iter_mut().try_for_each(|op| self.read_at(op.at, op.out, cx))
    }

    /// What serves its reads, so that [`fetch`] can serve many storages of one kind together.
    fn queue(&self) -> Queue<'_> {
        Queue::Own
    }

    /// An error if the bytes are not the ones that were there at the beginning: asked when something does not fit.
    fn unchanged(&self) -> Result<()> {
        Ok(())
    }

    /// What can be done with bytes that are in memory already. None: they have to be read.
    #[inline]
    fn mapped(&self) -> Option<&dyn Mapped> {
        None
    }
}

/// A storage whose bytes can be looked at in place: a memory-mapped file, or bytes in memory.
pub trait Mapped: Send + Sync {
    /// A range in place. None: it has to be read after all.
    fn borrow(&self, at: u64, length: usize) -> Result<Option<Borrowed<'_>>>;

    /// Whether looking at the bytes never waits for a disk.
    fn is_memory(&self) -> bool;

    /// Whether a range could also be read by a system call at once, with nothing to open.
    fn has_descriptor(&self) -> bool {
        false
    }

    /// Whether a range can be borrowed without waiting for a disk. Costs a system call.
    fn is_cached(&self, _at: u64, _length: usize) -> bool {
        true
    }

    /// Tells that ranges `(at, length)` are about to be borrowed, so that cold ones are fetched together.
    fn will_need(&self, _ranges: &mut dyn Iterator<Item = (u64, usize)>) {}

    /// Tells that a range is about to be borrowed, so that its beginning comes into the processor's cache.
    fn prefetch(&self, _range: Range<u64>) {}

    /// Keeps the bytes in place until [`unexport`](Self::unexport), for somebody who looks at a range of them without
    /// checks. False: they cannot be kept, or the file was truncated.
    fn export(&self, range: Range<u64>) -> bool;

    /// The end of one [`export`](Self::export).
    fn unexport(&self) {}

    /// Bytes in place, for who has called [`export`](Self::export).
    fn exported(&self, range: Range<u64>) -> Option<&[u8]>;

    /// Gives the memory back, unless somebody has exported it. Readers go on by plain reads.
    fn retire(&self) {}
}

/// Bytes of a storage, in place. What was copied or decoded from them is to be believed only if it was done by
/// [`with`](Self::with).
pub enum Borrowed<'a> {
    /// In memory, where nobody changes them.
    Memory(&'a [u8]),
    /// In a mapped file, which is held open.
    #[cfg(target_os = "linux")]
    Mapped(mapped_file::MappedRange<'a>),
}

impl Borrowed<'_> {
    /// The bytes, unverified.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Borrowed::Memory(bytes) => bytes,
            #[cfg(target_os = "linux")]
            Borrowed::Mapped(range) => range.bytes(),
        }
    }

    /// The result of `act` on the bytes. If the mapped file was truncated or failed meanwhile, `act` is called again,
    /// with what a positional read gives. `is_verified`: `act` fails on bytes that are not those of the file.
    #[inline]
    pub fn with<T>(
        &self,
        is_verified: bool,
        cx: &Cx<'_>,
        mut act: impl FnMut(&[u8]) -> Result<T>,
    ) -> Result<T> {
        #[cfg(not(target_os = "linux"))]
        let _ = (is_verified, cx);
        match self {
            Borrowed::Memory(bytes) => act(bytes),
            #[cfg(target_os = "linux")]
            Borrowed::Mapped(range) => {
                let result = act(range.bytes());
                match range.is_intact(is_verified, result.is_ok())? {
                    true => result,
                    false => range.read_again(cx, &mut act),
                }
            }
        }
    }
}

/// Reads `length` bytes at `at` into a new buffer, after checking that the storage has them. The buffer grows with the
/// bytes that have come: a sparse file of a few bytes on disk can have any size.
pub fn read_vec(
    storage: &dyn Storage,
    what: &'static str,
    at: u64,
    length: u64,
    cx: &Cx<'_>,
) -> Result<Vec<u8>> {
    crate::bytes::range(what, at, length, storage.len())?;
    let mut out = crate::bytes::reserved(what, length)?;
    read_to_end_of(storage, &mut out, at, length, cx)?;
    Ok(out)
}

/// Appends bytes from `at` on until `out` holds `length` of them. `out` has room for them.
pub(crate) fn read_to_end_of(
    storage: &dyn Storage,
    out: &mut Vec<u8>,
    at: u64,
    length: u64,
    cx: &Cx<'_>,
) -> Result<()> {
    /// Zeroing all of a large buffer first would touch its memory twice; a piece of this size stays in the cache.
    const PIECE: u64 = 1 << 20;
    while (out.len() as u64) < length {
        let done = out.len();
        let piece = PIECE.min(length - done as u64) as usize;
        out.resize(done + piece, 0);
        if let Err(error) = storage.read_at(at + done as u64, &mut out[done..], cx) {
            out.truncate(done);
            return Err(error);
        }
        if piece as u64 == PIECE {
            cx.check()?;
        }
    }
    Ok(())
}
