//! Checksums that stores compute of what they receive, compared with what was sent.

use super::url::Kind;
use crate::hash::crc32c;
use bytes::Bytes;
use md5::{Digest, Md5};
use reqwest::header::{HeaderMap, HeaderName};

/// Compares the checksum in an answer with the bytes that were sent. `Err` says which one differs. `Ok(false)`: the answer
/// has no checksum that we know.
pub fn compare(kind: Kind, headers: &HeaderMap, sent: &[Bytes]) -> Result<bool, &'static str> {
    let text = |name: &'static str| headers.get(name).and_then(|value| value.to_str().ok());
    let same = |is_same: bool, name: &'static str| if is_same { Ok(true) } else { Err(name) };
    match kind {
        Kind::S3 => match md5_of_tag(headers) {
            Some(tag) => same(tag == hex(&md5(sent)), "ETag"),
            None => Ok(false),
        },
        Kind::Gcs => {
            // One header for each hash, or one header for all of them.
            let values = headers.get_all(HeaderName::from_static("x-goog-hash")).iter();
            let values: Vec<_> = values.filter_map(|value| value.to_str().ok()).collect();
            let hashes: Vec<_> = values.iter().flat_map(|value| value.split(',')).map(str::trim).collect();
            let of = |name: &str| hashes.iter().find_map(|hash| hash.strip_prefix(name)?.strip_prefix('='));
            match (of("crc32c"), of("md5")) {
                (Some(found), _) => same(found == base64(&crc32c_of(sent).to_be_bytes()), "crc32c"),
                (None, Some(found)) => same(found == base64(&md5(sent)), "md5"),
                (None, None) => Ok(false),
            }
        }
        Kind::Azure => match (text("x-ms-content-crc64"), text("content-md5")) {
            (Some(found), _) => same(found == base64(&crc64_of(sent).to_le_bytes()), "x-ms-content-crc64"),
            (None, Some(found)) => same(found == base64(&md5(sent)), "Content-MD5"),
            (None, None) => Ok(false),
        },
        Kind::Http | Kind::Memory => Ok(false),
    }
}

/// The ETag of an answer, if it is the MD5 of the bytes. It is not if they are encrypted with keys of a customer.
fn md5_of_tag(headers: &HeaderMap) -> Option<String> {
    let is_encrypted = headers.contains_key("x-amz-server-side-encryption-customer-algorithm")
        || headers
            .get("x-amz-server-side-encryption")
            .is_some_and(|value| value.as_bytes().starts_with(b"aws:kms"));
    let tag = headers.get("etag").filter(|_| !is_encrypted)?.to_str().ok()?;
    md5_in(tag).map(|digits| hex(&digits))
}

/// The MD5 that a tag states, if it has the form of one.
fn md5_in(tag: &str) -> Option<[u8; 16]> {
    let digits = tag.trim_matches('"');
    if digits.len() != 32 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(digits, 16).ok().map(u128::to_be_bytes)
}

/// The ETag that S3 gives to an object of these parts: the MD5 of their MD5s. None if the tags of the parts are no MD5s.
pub fn tag_of_parts<'t>(tags: impl ExactSizeIterator<Item = &'t str>) -> Option<String> {
    let (count, mut hasher) = (tags.len(), Md5::new());
    for tag in tags {
        hasher.update(md5_in(tag)?);
    }
    Some(format!("\"{}-{count}\"", hex(&hasher.finalize())))
}

fn md5(sent: &[Bytes]) -> [u8; 16] {
    let mut hasher = Md5::new();
    sent.iter().for_each(|piece| hasher.update(piece));
    hasher.finalize().into()
}

fn crc32c_of(sent: &[Bytes]) -> u32 {
    sent.iter().fold(0, |sum, piece| crc32c::append(sum, piece))
}

fn crc64_of(sent: &[Bytes]) -> u64 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
    sent.iter().for_each(|piece| digest.update(piece));
    digest.finalize()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit)) & 63;
            text.push(if digit <= group.len() { char::from(DIGITS[index as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderValue;

    fn compared(
        kind: Kind,
        headers: &[(&'static str, &str)],
        sent: &'static [u8],
    ) -> Result<bool, &'static str> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        // In pieces of any size.
        let pieces: Vec<_> = sent.chunks(4).map(Bytes::from_static).collect();
        compare(kind, &map, &pieces)
    }

    /// The checksum of Azure is one that the real service has answered.
    #[test]
    fn the_checksums_of_each_store_are_compared() {
        const HELLO: &[u8] = b"Hello World";
        let md5 = "\"b10a8db164e0754105b7a99be72e3fe5\"";
        for (kind, headers) in [
            (Kind::S3, vec![("etag", md5)]),
            (Kind::S3, vec![("etag", md5), ("x-amz-server-side-encryption", "AES256")]),
            (
                Kind::Gcs,
                vec![("x-goog-hash", "crc32c=aR2qLw=="), ("x-goog-hash", "md5=sQqNsWTgdUEFt6mb5y4/5Q==")],
            ),
            (Kind::Gcs, vec![("x-goog-hash", "crc32c=aR2qLw==,md5=sQqNsWTgdUEFt6mb5y4/5Q==")]),
            (Kind::Gcs, vec![("x-goog-hash", "md5=sQqNsWTgdUEFt6mb5y4/5Q==")]),
            (Kind::Azure, vec![("x-ms-content-crc64", "YeJLfssylmU=")]),
            (Kind::Azure, vec![("content-md5", "sQqNsWTgdUEFt6mb5y4/5Q==")]),
        ] {
            assert_eq!(compared(kind, &headers, HELLO), Ok(true), "{headers:?}");
            assert!(compared(kind, &headers, b"Hello Wor1d").is_err(), "{headers:?}");
        }
    }

    #[test]
    fn a_tag_that_is_no_md5_is_not_compared() {
        for headers in [
            vec![("etag", "\"0x8D81019EC948CAB\"")],
            vec![("etag", "\"b10a8db164e0754105b7a99be72e3fe5-2\"")],
            vec![
                ("etag", "\"00000000000000000000000000000000\""),
                ("x-amz-server-side-encryption", "aws:kms"),
            ],
            vec![
                ("etag", "\"00000000000000000000000000000000\""),
                ("x-amz-server-side-encryption", "aws:kms:dsse"),
            ],
            vec![
                ("etag", "\"00000000000000000000000000000000\""),
                ("x-amz-server-side-encryption-customer-algorithm", "AES256"),
            ],
            vec![],
        ] {
            assert_eq!(compared(Kind::S3, &headers, b"x"), Ok(false), "{headers:?}");
        }
    }

    #[test]
    fn an_answer_without_a_checksum_that_is_known_compares_nothing() {
        const MD5: &str = "\"9dd4e461268c8034f5c8564e155c67a6\"";
        for (kind, headers) in [
            (Kind::Gcs, vec![]),
            (Kind::Gcs, vec![("etag", MD5)]),
            (Kind::Gcs, vec![("x-goog-hash", "sha1=Aaaa")]),
            (Kind::Azure, vec![]),
            (Kind::Azure, vec![("etag", MD5)]),
            (Kind::Http, vec![("etag", MD5), ("content-md5", "wrong")]),
            (Kind::Memory, vec![("etag", MD5)]),
        ] {
            assert_eq!(compared(kind, &headers, b"x"), Ok(false), "{kind:?} {headers:?}");
        }
    }

    #[test]
    fn base64_has_padding() {
        for (bytes, text) in [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("abc", "YWJj"), ("abcd", "YWJjZA==")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
