//! The options of a store: credentials and addresses, which the store reads, and how requests are made, which we read.

use super::url::Kind;
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// How requests are made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// How often a request is sent again.
    pub max_retries: u32,
    /// How long a request may take, with all its retries.
    pub retry_timeout: Duration,
    /// The wait before the first retry. It doubles with each one.
    pub init_backoff: Duration,
    /// The longest wait between two retries.
    pub max_backoff: Duration,
    /// A request that delivers nothing for so long is sent again.
    pub read_timeout: Duration,
    /// A request that has not ended after so long is sent again. None: as long as it delivers something.
    pub timeout: Option<Duration>,
    /// How long it may take to connect to a server.
    pub connect_timeout: Duration,
    /// How long a connection is kept that nobody uses.
    pub pool_idle_timeout: Option<Duration>,
    /// How many connections are kept that nobody uses.
    pub pool_max_idle_per_host: Option<usize>,
    /// Requests in flight to one store, from all readers of the process. None: as many as servers of its kind bear.
    pub max_requests: Option<usize>,
    /// Bytes in flight for one call.
    pub max_bytes_in_flight: u64,
    /// Ranges that are no further apart are fetched with one request, unless most of it would be thrown away.
    pub merge_gap: u64,
    /// Larger ranges are fetched with several requests.
    pub part_size: u64,
    /// Bytes that an iteration fetches before they are read.
    pub readahead_bytes: u64,
    /// An iteration fetches no more than it reads in this time.
    pub readahead_time: Duration,
    /// Whether a redirect to another host is followed.
    pub follow_redirects: bool,
    /// Bytes of one part of an upload.
    pub upload_part_size: u64,
    /// Bytes that the uploads of one writer hold in memory together.
    pub upload_memory: u64,
    /// Whether the checksums that a store answers are compared with what was sent.
    pub check_uploads: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            max_retries: 10,
            retry_timeout: Duration::from_secs(120),
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(10),
            read_timeout: Duration::from_secs(10),
            timeout: None,
            connect_timeout: Duration::from_secs(5),
            pool_idle_timeout: None,
            pool_max_idle_per_host: None,
            max_requests: None,
            max_bytes_in_flight: 64 << 20,
            // A request takes about as long as 256 KiB at 100 Mb/s.
            merge_gap: 256 << 10,
            part_size: 8 << 20,
            readahead_bytes: 64 << 20,
            // Long enough for several tries of a request that stalls.
            readahead_time: Duration::from_secs(30),
            follow_redirects: false,
            upload_part_size: 8 << 20,
            upload_memory: 128 << 20,
            check_uploads: true,
        }
    }
}

/// The options of a store.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct StorageOptions {
    /// Options that the store reads, by their names in lower case.
    pub store: BTreeMap<String, String>,
    /// How requests are made.
    pub policy: Policy,
}

impl fmt::Debug for StorageOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The values may be secrets.
        write!(f, "StorageOptions({:?})", self.store.keys().collect::<Vec<_>>())
    }
}

/// Options of the `object_store` crate that our client does not use.
const NOT_USED: [&str; 7] = [
    "default_content_type",
    "http2_keep_alive_interval",
    "http2_keep_alive_timeout",
    "http2_keep_alive_while_idle",
    "http2_max_frame_size",
    "proxy_ca_certificate",
    "randomize_addresses",
];
/// Options that our client reads as true or false. They may have the prefix of a provider.
const FLAGS: [&str; 4] = ["allow_http", "allow_invalid_certificates", "http1_only", "http2_only"];

impl StorageOptions {
    /// Reads options. Those that are not ours are left to the store.
    pub fn new(options: impl IntoIterator<Item = (String, String)>) -> Result<Self> {
        let mut read = StorageOptions::default();
        for (name, value) in options {
            let name = name.to_ascii_lowercase();
            if NOT_USED.contains(&&*name) {
                return Err(Error::argument(format!("the storage option {name:?} has no effect here"))
                    .hint("leave it out"));
            }
            if read.policy.set(&name, &value)? {
                continue;
            }
            let is_flag = FLAGS.iter().any(|flag| name.ends_with(flag));
            let value = if is_flag { flag(&name, &value)?.to_string() } else { value };
            read.store.insert(name, value);
        }
        Ok(read)
    }
}

impl Policy {
    /// Requests in flight to one store.
    pub fn most_requests(&self, kind: Kind) -> usize {
        // The stores of clouds want many small requests at once, and say so if there are too many. A web server may have
        // only a few hundred connections for everyone.
        self.max_requests.unwrap_or(if kind == Kind::Http { 64 } else { 256 })
    }

    /// Sets an option. False if there is none of that name.
    fn set(&mut self, name: &str, value: &str) -> Result<bool> {
        match name {
            "max_retries" => self.max_retries = number(name, value, 0)? as u32,
            "retry_timeout" => self.retry_timeout = duration(name, value)?,
            "init_backoff" => self.init_backoff = duration(name, value)?,
            "max_backoff" => self.max_backoff = duration(name, value)?,
            "read_timeout" => self.read_timeout = duration(name, value)?,
            "timeout" => self.timeout = Some(duration(name, value)?),
            "connect_timeout" => self.connect_timeout = duration(name, value)?,
            "pool_idle_timeout" => self.pool_idle_timeout = Some(duration(name, value)?),
            "pool_max_idle_per_host" => {
                self.pool_max_idle_per_host = Some(number(name, value, 0)? as usize);
            }
            "max_requests" => self.max_requests = Some(number(name, value, 1)? as usize),
            "max_bytes_in_flight" => self.max_bytes_in_flight = number(name, value, 1)?,
            "merge_gap" => self.merge_gap = number(name, value, 0)?,
            "part_size" => self.part_size = number(name, value, 4096)?,
            "readahead_bytes" => self.readahead_bytes = number(name, value, 0)?,
            "readahead_time" => self.readahead_time = duration(name, value)?,
            "follow_redirects" => self.follow_redirects = flag(name, value)?,
            // No store takes smaller parts, except for the last one, or larger ones.
            "upload_part_size" => self.upload_part_size = number_in(name, value, 5 << 20, 5 << 30)?,
            "upload_memory" => self.upload_memory = number(name, value, 1)?,
            "check_uploads" => self.check_uploads = flag(name, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn invalid(name: &str, value: &str, wanted: &str) -> Error {
    Error::argument(format!("storage option {name:?} is not valid: {value:?} is not {wanted}"))
}

fn number(name: &str, value: &str, least: u64) -> Result<u64> {
    let most = if name == "max_retries" || name == "max_requests" { u32::MAX.into() } else { 1 << 50 };
    number_in(name, value, least, most)
}

fn number_in(name: &str, value: &str, least: u64, most: u64) -> Result<u64> {
    let read = value.trim().parse().ok().filter(|n| (least..=most).contains(n));
    read.ok_or_else(|| invalid(name, value, &format!("a number from {least} to {most}")))
}

fn flag(name: &str, value: &str) -> Result<bool> {
    match value.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err(invalid(name, value, "true or false")),
    }
}

/// A duration: seconds, or with a unit such as `500ms` or `2m`.
pub fn duration(name: &str, value: &str) -> Result<Duration> {
    let text = value.trim();
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let seconds = match unit {
        "" | "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "m" | "min" | "mins" => 60.0,
        "h" => 3600.0,
        _ => 0.0,
    };
    let read = number.trim().parse::<f64>().ok().map(|n| n * seconds);
    let read = read.filter(|&n| n > 0.0 && n <= 1e7 && seconds > 0.0).map(Duration::from_secs_f64);
    read.ok_or_else(|| invalid(name, value, "a time such as 30, \"30s\" or \"500ms\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> Result<StorageOptions> {
        StorageOptions::new(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    #[test]
    fn our_options_are_read_and_the_others_are_left_to_the_store() {
        let read = options(&[
            ("AWS_REGION", "here"),
            ("retry_timeout", "1.5"),
            ("read_timeout", "250ms"),
            ("max_requests", "3"),
            ("follow_redirects", "True"),
            ("aws_allow_http", "yes"),
        ])
        .unwrap();
        assert_eq!(
            read.store.into_iter().collect::<Vec<_>>(),
            [("aws_allow_http".into(), "true".into()), ("aws_region".into(), "here".into())]
        );
        assert_eq!(read.policy.retry_timeout, Duration::from_millis(1500));
        assert_eq!(read.policy.read_timeout, Duration::from_millis(250));
        assert_eq!((read.policy.max_requests, read.policy.follow_redirects), (Some(3), true));
    }

    #[test]
    fn a_wrong_value_is_named() {
        for (name, value) in [
            ("retry_timeout", "soon"),
            ("retry_timeout", "-1"),
            ("retry_timeout", "inf"),
            ("max_requests", "0"),
            ("max_requests", "1.5"),
            ("part_size", "1"),
            ("upload_part_size", "5242879"),
            ("upload_part_size", "5368709121"),
            ("check_uploads", "sometimes"),
            ("follow_redirects", "maybe"),
            ("allow_http", "maybe"),
            ("timeout", "soon"),
            ("pool_max_idle_per_host", "many"),
        ] {
            let error = options(&[(name, value)]).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
    }

    #[test]
    fn secrets_are_not_printed() {
        let read = options(&[("aws_secret_access_key", "hidden")]).unwrap();
        assert_eq!(format!("{read:?}"), "StorageOptions([\"aws_secret_access_key\"])");
    }
}
