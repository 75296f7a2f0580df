//! Where bytes come from and where they go. A storage never knows a format.
//!
//! | file | what |
//! |---|---|
//! | [`file`] | a local file: positional reads through a lazily opened descriptor |
//! | [`handles`] | the bound on how many descriptors are open |
//! | [`memory`] | bytes that are already in memory |
//! | [`output`] | what a writer writes to: streams, patches |
//! | [`publish`] | the one helper that makes a file appear whole or not at all |
//! | [`window`] | reading from front to back in large pieces |
//!
//! Another way of reading (a map, a queue of asynchronous reads, an object store) is one more file
//! here with one more `impl Storage`.

pub mod file;
pub mod handles;
pub mod memory;
pub mod output;
pub mod publish;
pub mod window;

use crate::error::Result;

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

    /// All bytes, where they are in memory anyway and nothing has to be read.
    fn in_memory(&self) -> Option<&[u8]> {
        None
    }
}

/// Reads `length` bytes at `at` into a new buffer, after checking that the storage has them, so that a
/// claimed length never allocates more than the file could fill.
pub fn read_vec(storage: &dyn Storage, what: &'static str, at: u64, length: u64) -> Result<Vec<u8>> {
    let range = crate::bytes::range(what, at, length, storage.len())?;
    let mut out = vec![0; crate::bytes::in_memory(what, range.end - range.start)?];
    storage.read_at(at, &mut out)?;
    Ok(out)
}
