//! What distinguishes versions of objects.

use crate::storage::remote::request::Identity;
use crate::storage::remote::url::{Kind, RemoteUrl};
use ring::digest::{Context, SHA256};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Parameters of a signature. Each signed URL of an object has others.
const SIGNATURE: [&str; 6] =
    ["signature", "expires", "awsaccesskeyid", "googleaccessid", "key-pair-id", "policy"];
const SIGNATURE_PREFIXES: [&str; 2] = ["x-amz-", "x-goog-"];

/// A hash of an object's place and version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectKey(pub [u8; 32]);

/// A number of this process and its forked children: objects in memory are theirs alone. Set by [`prepare`].
static PROCESS: AtomicU64 = AtomicU64::new(0);

/// Call this before threads are started.
pub fn prepare() {
    use std::hash::{BuildHasher, RandomState};
    PROCESS.store(RandomState::new().hash_one(std::process::id()), Relaxed);
}

impl ObjectKey {
    /// The key of an object. `origin` is the server that answered. `now` is the time in seconds. None if nothing would
    /// tell another version of the object from this one.
    pub fn of(url: &RemoteUrl, origin: Option<&str>, identity: &Identity, now: i64) -> Option<Self> {
        let version = identity.lasting(now)?;
        let process = PROCESS.load(Relaxed).to_string();
        let server = match url.kind {
            Kind::Memory => &process,
            _ => origin?,
        };
        let mut hash = Context::new(&SHA256);
        let size = identity.size.to_string();
        let query = url.query.as_deref().map(without_signature).unwrap_or_default();
        let base = if url.kind == Kind::Http { url.base_without_login() } else { url.base.clone() };
        for part in [server, &base, url.path.as_ref(), &query, &version, &size] {
            // With its length, so that no two lists of parts are the same bytes.
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        let digest = hash.finish();
        Some(ObjectKey(digest.as_ref().try_into().ok()?))
    }
}

fn without_signature(query: &str) -> String {
    let is_kept = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default().to_ascii_lowercase();
        !SIGNATURE.contains(&&*name) && !SIGNATURE_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    query.split('&').filter(is_kept).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn key(url: &str, origin: &str, tag: Option<&str>, modified: i64, size: u64) -> Option<[u8; 32]> {
        let url = RemoteUrl::parse(url).unwrap();
        let identity = Identity::for_tests(size, tag, modified);
        ObjectKey::of(&url, Some(origin), &identity, 1_000_000).map(|key| key.0)
    }

    #[test]
    fn whatever_can_differ_between_objects_makes_another_key() {
        let (url, origin, tag) = ("s3://bucket/name", "https://host", Some("\"1\""));
        let keys = [
            key(url, origin, tag, 5, 100),
            key("s3://other/name", origin, tag, 5, 100),
            key("s3://bucket/other", origin, tag, 5, 100),
            key(url, "https://host:81", tag, 5, 100),
            key(url, origin, Some("\"2\""), 5, 100),
            key(url, origin, tag, 5, 101),
            key(url, origin, None, 5, 100),
            key(url, origin, None, 6, 100),
            key("https://host/name?file=1", origin, tag, 5, 100),
            key("https://host/name?file=2", origin, tag, 5, 100),
        ];
        assert_eq!(keys.iter().flatten().collect::<HashSet<_>>().len(), keys.len());
        assert_eq!(key(url, origin, tag, 5, 100), key(url, origin, tag, 6, 100), "the tag says more");
    }

    #[test]
    fn a_new_signature_and_a_login_are_no_other_object() {
        let plain = key("https://host/name", "https://host", Some("1"), 5, 100);
        for url in [
            "https://host/name?X-Amz-Signature=abc&X-Amz-Date=1",
            "https://host/name?Expires=5&Signature=abc",
            "https://me:secret@host/name",
        ] {
            assert_eq!(key(url, "https://host", Some("1"), 5, 100), plain, "{url}");
        }
    }

    #[test]
    fn an_object_that_could_be_replaced_unnoticed_has_no_key() {
        let url = "https://host/name";
        assert!(key(url, "https://host", None, 0, 100).is_none(), "no tag and no time");
        assert!(key(url, "https://host", Some("W/\"1\""), 0, 100).is_none(), "equal tags of other bytes");
        // It may change again within the same second.
        assert!(key(url, "https://host", None, 999_990, 100).is_none());
        assert!(key(url, "https://host", None, 999_000, 100).is_some());
    }
}
