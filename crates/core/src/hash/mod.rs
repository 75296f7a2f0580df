//! Checksums.
