//! SHA-1, which names data. It protects nothing.

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// The SHA-1 of bytes, in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes);
    hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
