//! The checksums and hashes that the formats use.

pub mod crc32;
pub mod crc32c;
pub mod highway;
