//! Where bytes are read from and written to. A storage knows nothing about formats.
//!
//! | file | what |
//! |---|---|
//! | [`location`] | the only place that opens files for reading: from a location to a storage |
//! | [`fetch`] | the only place that reads ranges of many storages together |
//! | [`mod@file`] | a local file |
//! | `identity` | whether a file that is opened again is still the same file |
//! | `map`, `mapped_file` | a memory map of a file; what can be borrowed from it (Linux) |
//! | `sigbus`, `map_registry` | the signal handler that makes memory maps safe; the addresses of all maps (Linux) |
//! | `map_exports` | whether a memory map may be taken away (Linux) |
//! | `positional`, `vectored` | positional reads: of one range, of adjacent ranges |
//! | `cold` | batches that may not be in the page cache (Linux) |
//! | `direct`, `aligned`, `uring` | O_DIRECT reads, which bypass the page cache, many in flight (Linux) |
//! | [`handles`], [`file_set`] | the limit on open file descriptors; what the files of a data set share |
//! | [`memory`] | bytes that are already in memory |
//! | [`partial`] | the ranges of a storage that are in memory, while many files are opened together |
//! | [`buffered`] | a storage far away, of which some parts are in memory |
//! | [`spool`] | temporary files: unpacked streams, tables of chunks on disk |
//! | [`window`] | reading from front to back, in large pieces or skipping |
//! | [`remote`] | objects in object stores and on web servers |
//! | `cache` | a local folder with blocks of such objects (Unix) |
//! | [`output`] | what a writer writes to |
//! | [`publish`], [`transaction`], [`journal`] | how a file or a set of files appears whole or not at all |
//! | [`disk`] | the changes that they make to a folder |
//! | `write_back` | the disk writes a file while the file is still being made (Linux) |
//! | [`temporary`], [`stale`] | the temporary files of writers, and of writers that were killed |
//!
//! To add another kind of storage, add one file here with one `impl Storage`.

#[cfg(target_os = "linux")]
mod aligned;
mod block_writer;
pub mod buffered;
#[cfg(unix)]
pub mod cache;
#[cfg(target_os = "linux")]
mod cold;
#[cfg(target_os = "linux")]
pub mod direct;
mod disk;
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
mod map_exports;
#[cfg(target_os = "linux")]
mod map_registry;
#[cfg(target_os = "linux")]
mod mapped_file;
pub mod memory;
pub mod output;
pub mod partial;
mod positional;
#[cfg(all(test, unix))]
mod power_cut;
pub mod publish;
pub mod remote;
#[cfg(target_os = "linux")]
pub(crate) mod sigbus;
pub mod spool;
pub mod stale;
pub mod stats;
pub mod temporary;
pub mod transaction;
#[cfg(target_os = "linux")]
pub mod uring;
#[cfg(unix)]
mod vectored;
pub mod window;
mod write_back;

use crate::cx::Cx;
use crate::error::Result;
use fetch::Queue;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// One range of a storage, and the buffer for its bytes.
pub struct ReadOp<'a> {
    /// Offset of the first byte.
    pub at: u64,
    /// Filled completely, or the read fails.
    pub out: &'a mut [u8],
}

/// How far apart reads of a storage should be. A request to a server costs as much time as many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distance {
    /// The bytes of the first read, before it is known how far apart reads are.
    pub first: u64,
    /// Reads that are no further apart are made as one.
    pub near: u64,
    /// The most bytes that a sequential read takes at once.
    pub largest: u64,
    /// Bytes that an iteration has fetched before they are read. 0: the system reads ahead by itself.
    pub ahead: u64,
    /// An iteration has no more fetched than it reads in this time.
    pub ahead_time: Duration,
}

/// The distances of local files. A gap of 16 KiB costs as much as a system call. A read of 1 MiB has the full speed of a
/// disk, and fits into the processor's cache.
pub const LOCAL: Distance =
    Distance { first: 64 << 10, near: 16 << 10, largest: 1 << 20, ahead: 0, ahead_time: Duration::ZERO };

impl Distance {
    /// Whether the system reads the storage, and keeps what was read in memory.
    pub fn is_local(&self) -> bool {
        *self == LOCAL
    }

    /// Whether a read takes so long that opening should need as few as possible.
    pub fn is_far(&self) -> bool {
        self.ahead > 0
    }
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

    /// Reads many ranges at once. When it returns, no read is in flight.
    fn read_many(&self, ops: &mut [ReadOp<'_>], cx: &Cx<'_>) -> Result<()> {
        ops.iter_mut().try_for_each(|op| self.read_at(op.at, op.out, cx))
    }

    /// The mechanism that serves its reads. [`fetch`] reads from many storages with the same mechanism together.
    fn queue(&self) -> Queue<'_> {
        Queue::Own
    }

    /// How far apart reads should be.
    fn distance(&self) -> Distance {
        LOCAL
    }

    /// Announces that ranges will be read soon, so that a storage that is far away begins to fetch them.
    fn will_need(&self, _ranges: &mut dyn Iterator<Item = Range<u64>>) {}

    /// Returns an error if the storage has changed since it was opened. Called when something in its bytes is wrong.
    fn unchanged(&self) -> Result<()> {
        Ok(())
    }

    /// A number that becomes another one when the bytes are written to, as far as the system tells. Costs a system call.
    fn change_mark(&self) -> u64 {
        0
    }

    /// The storage with another name in the same folder. `name` makes its file name. None if there is none.
    fn beside(&self, _name: &dyn Fn(&OsStr) -> OsString) -> Option<Arc<dyn Storage>> {
        None
    }

    /// Access to bytes that are in memory already. None: they have to be read.
    #[inline]
    fn mapped(&self) -> Option<&dyn Mapped> {
        None
    }
}

/// A storage whose bytes can be accessed in place: a memory-mapped file, or bytes in memory.
pub trait Mapped: Send + Sync {
    /// Borrows a range in place. None: the range has to be read.
    fn borrow(&self, at: u64, length: usize) -> Result<Option<Borrowed<'_>>>;

    /// Whether a range can be borrowed, as far as is known.
    fn holds(&self, _range: Range<u64>) -> bool {
        true
    }

    /// Whether all bytes can be borrowed, as far as is known.
    fn is_whole(&self) -> bool {
        true
    }

    /// Whether access to the bytes never waits for a disk.
    fn is_memory(&self) -> bool;

    /// Whether a range could also be read by a system call right away, without opening a file first.
    fn has_descriptor(&self) -> bool {
        false
    }

    /// Whether a range can be borrowed without waiting for a disk. Costs a system call.
    fn is_cached(&self, _at: u64, _length: usize) -> bool {
        true
    }

    /// Announces that ranges `(at, length)` will be borrowed soon, so that cold ones are fetched together.
    fn will_need(&self, _ranges: &mut dyn Iterator<Item = (u64, usize)>) {}

    /// How many bytes from the beginning [`fill_page_cache`](Self::fill_page_cache) can read.
    fn fillable(&self) -> u64 {
        0
    }

    /// Reads a range in order into the page cache.
    fn fill_page_cache(&self, _range: Range<u64>) {}

    /// Announces that a range will be borrowed soon, so that its beginning is loaded into the processor's cache.
    fn prefetch(&self, _range: Range<u64>) {}

    /// Keeps the bytes in place until [`unexport`](Self::unexport), for a caller that accesses a range of them without
    /// checks. False: they cannot be kept, or the file was truncated.
    fn export(&self, range: Range<u64>) -> bool;

    /// Ends one [`export`](Self::export).
    fn unexport(&self) {}

    /// Bytes in place, for a caller that has called [`export`](Self::export).
    fn exported(&self, range: Range<u64>) -> Option<&[u8]>;

    /// Releases the memory, unless it is exported. Readers continue with plain reads.
    fn retire(&self) {}
}

/// Bytes of a storage, in place. A copy or a decoded result is valid only if [`with`](Self::with) made it.
pub enum Borrowed<'a> {
    /// In memory, where they do not change.
    Memory(&'a [u8]),
    /// In a mapped file, which is held open.
    #[cfg(target_os = "linux")]
    Mapped(mapped_file::MappedRange<'a>),
    /// In mapped blocks of a cache.
    #[cfg(target_os = "linux")]
    Cached(cache::file::CachedRange<'a>),
}

impl Borrowed<'_> {
    /// The bytes, unverified.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Borrowed::Memory(bytes) => bytes,
            #[cfg(target_os = "linux")]
            Borrowed::Mapped(range) => range.bytes(),
            #[cfg(target_os = "linux")]
            Borrowed::Cached(range) => range.bytes(),
        }
    }

    /// Whether a result that was computed from the bytes, and that a checksum covers, can be trusted. If not, they must be
    /// read in another way.
    #[inline]
    pub fn is_intact(&self) -> bool {
        match self {
            Borrowed::Memory(_) => true,
            #[cfg(target_os = "linux")]
            Borrowed::Mapped(range) => range.is_intact(true, true).unwrap_or(false),
            #[cfg(target_os = "linux")]
            Borrowed::Cached(range) => range.is_intact(true, true).unwrap_or(false),
        }
    }

    /// The result of `act` on the bytes. If the mapped file was truncated or failed meanwhile, `act` is called again
    /// with the bytes of a positional read. `is_verified`: `act` fails on bytes that are not those of the file.
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
            #[cfg(target_os = "linux")]
            Borrowed::Cached(range) => {
                let result = act(range.bytes());
                match range.is_intact(is_verified, result.is_ok())? {
                    true => result,
                    false => range.read_again(cx, &mut act),
                }
            }
        }
    }
}

/// Reads `length` bytes at `at` into a new buffer, after a check that the storage has them. The buffer is filled piece
/// by piece, because a sparse file that takes a few bytes on disk can have any size.
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

/// Reads the bytes from `at` on until `out` holds `length` of them. Bytes that `out` holds already are not read again.
/// `out` has room for all of them.
pub(crate) fn read_to_end_of(
    storage: &dyn Storage,
    out: &mut Vec<u8>,
    at: u64,
    length: u64,
    cx: &Cx<'_>,
) -> Result<()> {
    // Zeroing all of a large buffer first would access its memory twice. A piece of a local file stays in the processor's
    // cache.
    let most = storage.distance().largest.max(1);
    while (out.len() as u64) < length {
        let done = out.len();
        let piece = most.min(length - done as u64) as usize;
        out.resize(done + piece, 0);
        if let Err(error) = storage.read_at(at + done as u64, &mut out[done..], cx) {
            out.truncate(done);
            return Err(error);
        }
        if piece as u64 == most {
            cx.check()?;
        }
    }
    Ok(())
}
