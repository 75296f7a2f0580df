//! Where bytes come from and where they go. A storage never knows a format.
//!
//! | file | what |
//! |---|---|
//! | `cold` | batches that the page cache may not have (Linux) |
//! | `direct` | reading past the page cache (Linux) |
//! | [`file`] | a local file: mapped where that is safe, else positional reads |
//! | [`handles`] | the bound on how many descriptors are open |
//! | `map` | a memory map of a file (Linux) |
//! | `map_registry` | the address ranges of all memory maps (Linux) |
//! | [`memory`] | bytes that are already in memory |
//! | [`output`] | what a writer writes to: streams, patches |
//! | `page_memory` | memory for reads past the page cache (Linux) |
//! | [`publish`] | the one helper that makes a file appear whole or not at all |
//! | `sigbus` | the signal handler that makes memory maps safe (Linux) |
//! | [`skim`] | reading headers and skipping what lies between them |
//! | `uring` | many reads in flight at once (Linux) |
//! | [`window`] | reading from front to back in large pieces |
//!
//! Another way of reading (an object store) is one more file
//! here with one more `impl Storage`.

#[cfg(target_os = "linux")]
mod cold;
#[cfg(target_os = "linux")]
pub mod direct;
pub mod file;
pub mod handles;
#[cfg(target_os = "linux")]
pub mod map;
#[cfg(target_os = "linux")]
mod map_registry;
pub mod memory;
pub mod output;
#[cfg(target_os = "linux")]
mod page_memory;
pub mod publish;
#[cfg(target_os = "linux")]
pub(crate) mod sigbus;
pub mod skim;
#[cfg(target_os = "linux")]
pub mod uring;
pub mod window;

use crate::error::Result;
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
    fn read_at(&self, at: u64, out: &mut [u8]) -> Result<()>;

    /// Fills many ranges at once. Returns with nothing in flight.
    fn read_many(&self, ops: &mut [ReadOp<'_>]) -> Result<()> {
        ops.iter_mut().try_for_each(|op| self.read_at(op.at, op.out))
    }

    /// A range in place, where it is in memory or mapped and nothing has to be copied. None: it has to be read.
    fn borrow(&self, _at: u64, _length: usize) -> Result<Option<Borrowed<'_>>> {
        Ok(None)
    }

    /// Whether ranges can be borrowed, as far as is known beforehand.
    fn is_mapped(&self) -> bool {
        self.is_memory()
    }

    /// Whether a read of what can be borrowed could also be made by a system call at once, with nothing to open.
    fn has_descriptor(&self) -> bool {
        false
    }

    /// Whether borrowed bytes are certainly in memory, so that looking at them never waits for a disk.
    fn is_memory(&self) -> bool {
        false
    }

    /// What whoever opened it should know about the way it is read: `"read ..."`.
    fn warning(&self) -> Option<&'static str> {
        None
    }

    /// Gives descriptors and maps back.
    fn release(&self) {}

    /// Keeps what can be borrowed in place until [`unexport`](Self::unexport), for somebody who looks at a range of it
    /// without checks. False: there is nothing to keep, or the file was truncated.
    fn export(&self, _range: Range<u64>) -> bool {
        false
    }

    /// The end of one [`export`](Self::export).
    fn unexport(&self) {}

    /// Bytes in place, for who has called [`export`](Self::export).
    fn exported(&self, _range: Range<u64>) -> Option<&[u8]> {
        None
    }

    /// An error if the bytes are not the ones that were there at the beginning: asked when something does not fit.
    fn unchanged(&self) -> Result<()> {
        Ok(())
    }

    /// Tells that ranges `(at, length)` are about to be borrowed, so that cold ones are fetched together.
    fn will_need(&self, _ranges: &mut dyn Iterator<Item = (u64, usize)>) {}

    /// Whether a range can be borrowed without waiting for a disk. Costs a system call.
    fn is_cached(&self, _at: u64, _length: usize) -> bool {
        true
    }

    /// Tells that a range is about to be borrowed, so that its beginning comes into the processor's cache.
    fn prefetch(&self, _range: Range<u64>) {}
}

/// Bytes of a storage, in place. What was copied or decoded from them is to be believed only if
/// [`believed`](Self::believed) says so afterwards.
pub enum Borrowed<'a> {
    /// In memory, where nobody changes them.
    Memory(&'a [u8]),
    /// In a mapped file, which is held open.
    #[cfg(target_os = "linux")]
    Mapped(file::MappedRange<'a>),
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

    /// `result`, which was made of the bytes, if it is to be believed. None: the mapped file was truncated or failed
    /// meanwhile; read the same range by a positional read, which has the right bytes or says what is wrong.
    #[inline]
    pub fn believed<T>(&self, result: Result<T>) -> Option<Result<T>> {
        match self {
            Borrowed::Memory(_) => Some(result),
            #[cfg(target_os = "linux")]
            Borrowed::Mapped(range) if result.is_ok() && range.is_intact() => Some(result),
            #[cfg(target_os = "linux")]
            Borrowed::Mapped(range) => range.settle(result),
        }
    }
}

/// Reads `length` bytes at `at` into a new buffer, after checking that the storage has them, so that a
/// claimed length never allocates more than the file could fill.
pub fn read_vec(storage: &dyn Storage, what: &'static str, at: u64, length: u64) -> Result<Vec<u8>> {
    /// Zeroing all of a large buffer first would touch its memory twice; a piece of this size stays in the cache.
    const PIECE: usize = 1 << 20;
    crate::bytes::range(what, at, length, storage.len())?;
    let mut out = crate::bytes::reserved(what, length)?;
    while (out.len() as u64) < length {
        let done = out.len();
        out.resize(done + PIECE.min(length as usize - done), 0);
        storage.read_at(at + done as u64, &mut out[done..])?;
    }
    Ok(out)
}
