//! Compression: one file per codec, one bounded `decompress`.
