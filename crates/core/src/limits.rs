//! Every cap on untrusted input, with its reason.
//!
//! Stored bytes need no cap, because the size of the file bounds them. Sizes that a file *claims* need one: a few bytes
//! can declare a chunk of any decompressed size. There is no cap on the compression ratio, because real data (runs of
//! zeros, masks) reaches 30,000 to 1.

/// Caps on what a file may make us allocate or hold open. [`Budget`](crate::budget::Budget) enforces them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that one chunk may decompress to.
    pub decoded_chunk_bytes: u64,
    /// Decoded bytes that one call may hold at once, of all the chunks it works on.
    pub decoded_bytes: u64,
    /// Bytes that the temporary files of one data set may take: unpacked streams, and tables of chunks on disk.
    pub spool_bytes: u64,
    /// File descriptors that one data set keeps open, including temporary files. CLOCK eviction closes those that were
    /// not used recently.
    pub open_files: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            decoded_chunk_bytes: 4 << 30,
            // Room for the largest chunk together with the tables that belong to it.
            decoded_bytes: 8 << 30,
            // Larger than any data set that one would reasonably read through a temporary file.
            spool_bytes: 1 << 40,
            // A quarter of the usual soft limit of 1024, so that several data sets fit in one process.
            open_files: 256,
        }
    }
}
