//! The hashes that formats protect their bytes with.

pub mod crc32;
pub mod crc32c;
pub mod highway;
