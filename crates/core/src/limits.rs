//! Every cap on untrusted input, with its reason.
//!
//! Stored bytes need no cap: the file bounds them. What a file *claims* does: a few bytes can
//! declare a chunk of any decompressed size. There is no cap on the compression ratio, because
//! honest data (runs of zeros, masks) reaches 30,000 to 1.

/// Caps on what a file may make us allocate or hold open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that one chunk may declare to decompress to. The output buffer has exactly the
    /// declared size, so this is also the most memory that one chunk can take.
    pub decoded_chunk_bytes: u64,
    /// Descriptors that one set of records keeps open; the least recently used are closed.
    pub open_files: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            decoded_chunk_bytes: 4 << 30,
            // A quarter of the usual soft limit of 1024, so that several data sets fit in one process.
            open_files: 256,
        }
    }
}
