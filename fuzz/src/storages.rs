//! Storages for targets: pieces of a large file, a file that cannot be mapped, a file whose reads fail.

use anyrecord::storage::Storage;
use anyrecord::storage::memory::Memory;
use anyrecord::{Cx, Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A file in memory that several storages share.
#[derive(Clone)]
pub struct Shared(pub Arc<Vec<u8>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A storage over shared bytes, which is read in place.
pub fn mapped(file: &Shared) -> Arc<dyn Storage> {
    Arc::new(Memory::new("file", file.clone()))
}

/// A storage over shared bytes, which is read by calls.
pub fn plain(file: &Shared) -> Arc<dyn Storage> {
    Arc::new(Plain(Memory::new("file", file.clone())))
}

struct Plain(Memory<Shared>);

impl Storage for Plain {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, at: u64, out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
        self.0.read_at(at, out, cx)
    }
}

/// A storage whose reads fail after the first few.
pub struct Failing<'a> {
    file: Memory<&'a [u8]>,
    /// Reads that succeed.
    pub good: u64,
    reads: AtomicU64,
}

impl<'a> Failing<'a> {
    /// The first `good` reads succeed, all others fail.
    pub fn new(file: &'a [u8], good: u64) -> Self {
        Failing { file: Memory::new("file", file), good, reads: AtomicU64::new(0) }
    }

    /// Whether a read failed.
    pub fn has_failed(&self) -> bool {
        self.reads.load(Relaxed) > self.good
    }
}

impl Storage for Failing<'_> {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_at(&self, at: u64, out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
        if self.reads.fetch_add(1, Relaxed) >= self.good {
            return Err(Error::io("the disk failed", std::io::ErrorKind::Other.into()).at(at));
        }
        self.file.read_at(at, out, cx)
    }
}

/// A large file of which only some pieces are stored. All other bytes are zero.
pub struct Sparse<'a> {
    /// The size of the file.
    pub size: u64,
    /// Where each piece begins, and its bytes.
    pub pieces: &'a [(u64, &'a [u8])],
}

impl Storage for Sparse<'_> {
    fn name(&self) -> &str {
        "file"
    }

    fn len(&self) -> u64 {
        self.size
    }

    fn read_at(&self, at: u64, out: &mut [u8], _cx: &Cx<'_>) -> Result<()> {
        anyrecord::bytes::range("read", at, out.len() as u64, self.size)?;
        out.fill(0);
        let end = at + out.len() as u64;
        for (begin, piece) in self.pieces {
            let (from, to) = (at.max(*begin), end.min(begin + piece.len() as u64));
            if from < to {
                let piece = &piece[(from - begin) as usize..(to - begin) as usize];
                out[(from - at) as usize..(to - at) as usize].copy_from_slice(piece);
            }
        }
        Ok(())
    }
}
