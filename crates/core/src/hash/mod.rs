//! The checksums and hashes that the formats use, and one that names data.

pub mod crc32;
pub mod crc32_copy;
pub mod crc32c;
pub mod highway;
pub mod highway_copy;
pub mod sha1;
