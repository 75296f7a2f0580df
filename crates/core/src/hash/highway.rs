//! HighwayHash-64 with the key that Riegeli files use for every hash in them.

use highway::{HighwayHash, HighwayHasher, Key};

/// The bytes `Riegeli/records\n`, twice, as little-endian words.
pub(super) const KEY: Key =
    Key([0x2f69_6c65_6765_6952, 0x0a73_6472_6f63_6572, 0x2f69_6c65_6765_6952, 0x0a73_6472_6f63_6572]);

/// The hash of `bytes`.
#[inline]
pub fn hash(bytes: &[u8]) -> u64 {
    // A small record has two hashes. Selecting the instruction set for each of them takes half as long as the hash
    // itself. The standard library caches the answer.
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2.
        return unsafe { highway::AvxHash::force_new(KEY) }.hash64(bytes);
    }
    HighwayHasher::new(KEY).hash64(bytes)
}

/// The hash of `head` followed by `body`.
#[inline]
pub fn hash_parts(head: &[u8], body: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2.
        let mut hasher = unsafe { highway::AvxHash::force_new(KEY) };
        hasher.append(head);
        hasher.append(body);
        return hasher.finalize64();
    }
    let mut hasher = Hasher::new();
    hasher.update(head);
    hasher.update(body);
    hasher.finish()
}

/// The hash of bytes that come in pieces.
pub struct Hasher(HighwayHasher);

impl Hasher {
    /// A hasher without input.
    pub fn new() -> Self {
        Hasher(HighwayHasher::new(KEY))
    }

    /// Adds the next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.append(bytes);
    }

    /// The hash of all pieces joined.
    pub fn finish(self) -> u64 {
        self.0.finalize64()
    }
}

impl Default for Hasher {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_vectors() {
        let vectors: [(usize, u64); 25] = [
            (0, 0x72c3b1e9c0139fe1),
            (1, 0x2cd57bc47907559d),
            (2, 0x79f89e5c740f5e3b),
            (3, 0x3bbb8da470c80319),
            (4, 0x4d9e82979ab17ce7),
            (5, 0xfeefa31feeebed80),
            (7, 0x81d00cb703e09f52),
            (8, 0x28aad15071ce9aff),
            (15, 0x3402cb26fb217163),
            (16, 0x3e13be3a4140f4a7),
            (17, 0xa7084c614077eaca),
            (18, 0x6ab4e1b257f838bc),
            (19, 0x357ed62531a86044),
            (20, 0xfbc84e6f3ddb64e3),
            (23, 0x931ec63999ebd181),
            (24, 0x5ee2c131eacabcb6),
            (28, 0xea9d60696924ecf5),
            (31, 0x4d262a709c34ae7d),
            (32, 0xb73f6df550f9dce4),
            (33, 0xec2f920014eaa741),
            (40, 0x6a3b5b7836d4af29),
            (63, 0xbea28b7a087e1493),
            (64, 0xe34b1e100f1322af),
            (65, 0xb4125566520ce871),
            (100, 0xe809487465a44f74),
        ];
        for (length, expected) in vectors {
            let bytes: Vec<u8> = (0..length as u8).collect();
            assert_eq!(hash(&bytes), expected, "length {length}");
            let mut pieces = Hasher::new();
            bytes.chunks(7).for_each(|piece| pieces.update(piece));
            assert_eq!(pieces.finish(), expected, "length {length} in pieces");
        }
        assert_eq!(hash(b"a"), 0x24793c7da388949f);
        assert_eq!(hash(b"abc"), 0x672fe946c18d0ed9);
    }
}
