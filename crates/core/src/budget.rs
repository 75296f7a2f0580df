//! Limits what one call may hold at once: decoded bytes in memory, unpacked bytes in temporary files, file descriptors.
//!
//! Numbers in a file are untrusted claims. A call asks its budget before it allocates memory, and buffers grow with the
//! bytes that have really arrived. The caps are in [`Limits`]. The caller can set each of them by keyword.

use crate::error::{Error, Kind, Result};
use crate::limits::Limits;
use crate::storage::file_set::FileSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const EXHAUSTED: &str = "decoded data takes more memory than the limit";

/// The budget of one call. Several threads that work for the call share it.
pub struct Budget<'a> {
    limits: &'a Limits,
    files: &'a Arc<FileSet>,
    /// Decoded bytes that are held now.
    held: AtomicU64,
}

impl<'a> Budget<'a> {
    /// A new, unused budget. `files` limits the file descriptors and temporary files of the whole data set.
    #[inline]
    pub fn new(limits: &'a Limits, files: &'a Arc<FileSet>) -> Self {
        Budget { limits, files, held: AtomicU64::new(0) }
    }

    /// The caps.
    pub fn limits(&self) -> &'a Limits {
        self.limits
    }

    /// The state that the files of the data set share.
    pub fn files(&self) -> &'a Arc<FileSet> {
        self.files
    }

    /// Returns an error if `bytes` decoded bytes are more than one chunk may have.
    pub fn check_chunk(&self, bytes: u64, at: u64) -> Result<()> {
        let most = self.limits.decoded_chunk_bytes;
        if bytes <= most {
            return Ok(());
        }
        Err(Error::limit("chunk declares more decoded bytes than the limit")
            .at(at)
            .expected(format_args!("at most {most}"))
            .found(bytes)
            .hint("raise decoded_chunk_bytes in limits= if you trust the file"))
    }

    /// Holds 0 bytes. [`Held::grow`] counts more.
    pub fn nothing(&self) -> Held<'_> {
        Held { budget: self, bytes: 0 }
    }

    /// Counts decoded bytes as held until the result is dropped. Returns an error if the total would exceed the limit.
    pub fn hold(&self, bytes: u64) -> Result<Held<'_>> {
        let mut held = self.nothing();
        held.grow(bytes)?;
        Ok(held)
    }

    /// Whether an error means that too many bytes were requested at once. A request for fewer bytes at once may then
    /// succeed.
    pub fn is_exhausted(&self, error: &Error) -> bool {
        matches!(error.kind(), Kind::Limit) && error.what() == EXHAUSTED
    }

    /// How many decoded bytes are held now.
    pub fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }
}

/// Decoded bytes that count as held.
pub struct Held<'a> {
    budget: &'a Budget<'a>,
    bytes: u64,
}

impl Held<'_> {
    /// Counts more bytes. After an error as many are held as before.
    pub fn grow(&mut self, bytes: u64) -> Result<()> {
        let most = self.budget.limits.decoded_bytes;
        let fits = |held: u64| held.checked_add(bytes).filter(|&held| held <= most);
        match self.budget.held.fetch_update(Relaxed, Relaxed, fits) {
            Ok(_) => {
                self.bytes += bytes;
                Ok(())
            }
            Err(held) => Err(Error::limit(EXHAUSTED)
                .expected(format_args!("at most {most} bytes at once"))
                .found(format_args!("{bytes} more bytes requested, {held} already held"))
                .hint("raise decoded_bytes in limits=")),
        }
    }

    /// How many bytes it counts.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_bounded_and_given_back() {
        let limits = Limits { decoded_bytes: 100, ..Limits::default() };
        let files = FileSet::new(&limits);
        let budget = Budget::new(&limits, &files);
        let mut first = budget.hold(60).unwrap();
        let error = budget.hold(41).err().unwrap();
        assert!(
            matches!(error.kind(), Kind::Limit) && error.to_string().contains("decoded_bytes"),
            "{error}"
        );
        assert!(first.grow(41).is_err() && first.grow(u64::MAX).is_err());
        assert_eq!((first.bytes(), budget.held()), (60, 60));
        let second = budget.hold(40).unwrap();
        drop(first);
        assert_eq!(budget.held(), 40);
        drop(second);
        assert!(budget.hold(100).is_ok());
    }
}
