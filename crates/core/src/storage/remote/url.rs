//! What a URL names, and how it is shown.

use crate::error::{Error, Result};
use object_store::path::Path;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::sync::Arc;

/// The kinds of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Amazon S3, and servers with its protocol.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
    /// A web server.
    Http,
    /// The memory of this process.
    Memory,
}

/// The schemes, and what they stand for. `file` is not here: it names a local path.
const SCHEMES: [(&str, Kind); 11] = [
    ("s3", Kind::S3),
    ("s3a", Kind::S3),
    ("gs", Kind::Gcs),
    ("az", Kind::Azure),
    ("adl", Kind::Azure),
    ("azure", Kind::Azure),
    ("abfs", Kind::Azure),
    ("abfss", Kind::Azure),
    ("http", Kind::Http),
    ("https", Kind::Http),
    ("memory", Kind::Memory),
];

/// The scheme of a text, if it is a URL: `s3` of `s3://bucket/name`.
pub fn scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once("://")?;
    // `C://` is a drive on Windows.
    let is_scheme = scheme.len() > 1
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    is_scheme.then_some(scheme)
}

/// An object, or a prefix of objects.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteUrl {
    /// As it was given, with secrets. A pickle stores it.
    text: String,
    /// Without user names, passwords and signatures. Errors and listings show it.
    shown: String,
    /// The kind of store.
    pub kind: Kind,
    /// What names the store: scheme and bucket, or scheme and host.
    pub base: String,
    /// The query of a web address, such as a signature. Every request for the object needs it.
    pub query: Option<Arc<str>>,
    /// The name of the object in the store.
    pub path: Path,
}

impl fmt::Debug for RemoteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteUrl({:?})", self.shown)
    }
}

impl RemoteUrl {
    /// Reads a URL. A scheme that is not known is an error that names it.
    pub fn parse(text: &str) -> Result<Self> {
        let Some(name) = scheme(text) else {
            return Err(Error::argument(format!("{text:?} is not a URL")));
        };
        let lower = name.to_ascii_lowercase();
        let Some(&(_, kind)) = SCHEMES.iter().find(|(known, _)| *known == lower) else {
            return Err(Error::argument(format!(
                "the scheme {name:?} of {:?} is not supported",
                redacted(text)
            ))
            .hint("schemes: s3, gs, az, abfs, abfss, http, https, file, memory"));
        };
        let rest = &text[name.len() + 3..];
        match kind {
            Kind::Http => Self::web(text),
            Kind::Memory => Self::new(text, text.to_owned(), kind, "memory://".to_owned(), rest),
            _ => {
                let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
                // `abfss://container@account` is valid, `s3://key:secret@bucket` is not.
                if bucket.is_empty() || bucket.contains(':') {
                    return Err(Error::argument(format!("{:?} names no bucket", redacted(text))).hint(
                        format!("write {name}://bucket/name; keys and endpoints are options of storage="),
                    ));
                }
                if path.starts_with('/') {
                    return Err(Error::argument(format!("{text:?} names no object that can be read"))
                        .hint("there are two slashes after the bucket"));
                }
                Self::new(text, text.to_owned(), kind, format!("{lower}://{bucket}"), path)
            }
        }
    }

    fn web(text: &str) -> Result<Self> {
        let bad = |why: &dyn fmt::Display| {
            Error::argument(format!("the URL {:?} is not valid: {why}", redacted(text)))
        };
        let url = ::url::Url::parse(text).map_err(|error| bad(&error))?;
        let mut shown = url.clone();
        let has_secrets = url.query().is_some() || !url.username().is_empty() || url.password().is_some();
        if has_secrets {
            shown.set_query(None);
            // Neither can fail for a URL that has a host, and those of the web have one.
            let _ = (shown.set_username(""), shown.set_password(None));
        }
        let mut base = url.clone();
        base.set_path("/");
        base.set_query(None);
        base.set_fragment(None);
        let shown = if has_secrets { shown.to_string() } else { text.to_owned() };
        let path = Path::from_url_path(url.path()).map_err(|error| bad(&error))?;
        let query = url.query().map(Arc::from);
        Ok(RemoteUrl { text: text.to_owned(), shown, kind: Kind::Http, base: base.to_string(), query, path })
    }

    fn new(text: &str, shown: String, kind: Kind, base: String, path: &str) -> Result<Self> {
        // Names in a bucket are taken as they are. They may have characters that are special in other URLs.
        let path = Path::parse(path).map_err(|error| {
            Error::argument(format!("{text:?} names no object that can be read: {error}"))
        })?;
        Ok(RemoteUrl { text: text.to_owned(), shown, kind, base, query: None, path })
    }

    /// As it was given, with secrets.
    pub fn as_given(&self) -> &str {
        &self.text
    }

    /// Without secrets.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// What names the store, without user name and password.
    pub fn base_without_login(&self) -> String {
        let Ok(mut url) = ::url::Url::parse(&self.base) else { return self.base.clone() };
        // Neither can fail for a URL that has a host, and those of the web have one.
        let _ = (url.set_username(""), url.set_password(None));
        url.to_string()
    }

    /// Another object of the same store.
    pub fn with_path(&self, path: Path) -> Self {
        let (text, shown) = match self.kind {
            Kind::Http => self.web_texts(&path),
            Kind::Memory => (format!("memory://{path}"), format!("memory://{path}")),
            _ => (format!("{}/{path}", self.base), format!("{}/{path}", self.base)),
        };
        RemoteUrl { text, shown, base: self.base.clone(), query: self.query.clone(), path, ..*self }
    }

    /// An object in the same folder. `name` makes its name from the name of this one.
    pub fn beside(&self, name: &dyn Fn(&OsStr) -> OsString) -> Option<Self> {
        let renamed = name(OsStr::new(self.path.filename()?)).into_string().ok()?;
        let text = self.path.as_ref();
        let folder = text.rfind('/').map_or("", |slash| &text[..=slash]);
        Path::parse(format!("{folder}{renamed}")).ok().map(|path| self.with_path(path))
    }

    /// The address of an object on a web server, with secrets and without. Special characters are escaped.
    fn web_texts(&self, path: &Path) -> (String, String) {
        let base = &*self.base;
        let Ok(mut url) = ::url::Url::parse(base) else { return (base.to_owned(), redacted(base)) };
        // Everything else is escaped by `set_path`.
        url.set_path(&path.as_ref().replace('%', "%25"));
        url.set_query(self.query.as_deref());
        let text = url.to_string();
        (text.clone(), redacted(&text))
    }
}

/// A URL without what may be secret: user name, password and query.
fn redacted(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let rest = rest.split('?').next().unwrap_or_default();
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_store_and_an_object() {
        for (text, kind, base, path) in [
            ("s3://bucket/a/b.ffr", Kind::S3, "s3://bucket", "a/b.ffr"),
            ("S3://bucket/a b#c?d%20.ffr", Kind::S3, "s3://bucket", "a b#c?d%20.ffr"),
            ("gs://bucket", Kind::Gcs, "gs://bucket", ""),
            (
                "abfss://files@account.dfs.core.windows.net/a",
                Kind::Azure,
                "abfss://files@account.dfs.core.windows.net",
                "a",
            ),
            ("http://host:80/a%20b/c", Kind::Http, "http://host/", "a b/c"),
            ("https://host/a?sig=1", Kind::Http, "https://host/", "a"),
            ("memory://a/b", Kind::Memory, "memory://", "a/b"),
            ("memory:///a/b", Kind::Memory, "memory://", "a/b"),
        ] {
            let url = RemoteUrl::parse(text).unwrap();
            assert_eq!((url.kind, &*url.base, url.path.as_ref(), url.as_given()), (kind, base, path, text));
        }
    }

    #[test]
    fn other_schemes_and_nameless_buckets_are_refused() {
        for (text, expected) in [
            ("ftp://host/a", "\"ftp\""),
            ("hdfs://host/a", "\"hdfs\""),
            ("s3:///a", "names no bucket"),
            ("s3://key:secret@bucket/a", "\"s3://bucket/a\" names no bucket"),
            ("s3://bucket:80/a", "names no bucket"),
            ("s3://bucket//a", "two slashes"),
            ("s3://bucket/a//b", "names no object"),
            ("a.ffr", "is not a URL"),
        ] {
            let error = RemoteUrl::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let url = RemoteUrl::parse("https://me:word@host/a.ffr?X-Signature=abc").unwrap();
        assert_eq!(url.shown(), "https://host/a.ffr");
        assert_eq!(format!("{url:?}"), "RemoteUrl(\"https://host/a.ffr\")");
        for text in ["ftp://me:word@host/a?word", "https://me:word@ho st/a?word", "https://me:word@host:x/a"]
        {
            let error = RemoteUrl::parse(text).unwrap_err().to_string();
            assert!(!error.contains("word") && error.contains("/a"), "{error}");
        }
    }

    #[test]
    fn the_address_of_another_object_is_escaped_and_keeps_its_query() {
        let url = RemoteUrl::parse("https://me:word@host/a%20b/c.ffr?sig=1").unwrap();
        let other = url.with_path(Path::parse("a b/50%?#.ffr").unwrap());
        assert_eq!(other.as_given(), "https://me:word@host/a%20b/50%25%3F%23.ffr?sig=1");
        assert_eq!(other.shown(), "https://host/a%20b/50%25%3F%23.ffr");
        assert_eq!(RemoteUrl::parse(other.as_given()).unwrap(), other);
    }

    #[test]
    fn a_text_is_a_url_if_it_has_a_scheme() {
        assert_eq!(scheme("s3://a"), Some("s3"));
        assert_eq!(scheme("a+b-c.d://a"), Some("a+b-c.d"));
        for text in ["a.ffr", "/a://b", "://b", "1a://b", "a b://c", "c:\\a", "C://a"] {
            assert_eq!(scheme(text), None, "{text}");
        }
    }
}
