//! The options of a writer, as Python passes them.

use crate::attributes::from_attributes;
use crate::writer::Writer;
use anyrecord::format::options::{Value, WriteOptions};
use anyrecord::storage::remote::options::StorageOptions;
use anyrecord::storage::remote::upload::Uploading;
use anyrecord::storage::remote::url::RemoteUrl;
use anyrecord::writer::pool::Listen;
use anyrecord::writer::{CreateOptions, ObjectTarget, Sharding};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString};
use std::sync::Arc;

/// The attributes of `anyrecord._writer.Creating`.
pub struct Creating {
    pub format: String,
    pub overwrite: bool,
    pub durable: bool,
    pub threads: Option<usize>,
    /// `("one" | "turns" | "bytes" | "records" | "explicit", number)`.
    pub sharding: (String, u64),
    pub num_records: Option<u64>,
    pub tally: bool,
    /// Another writer whose files are published together with these.
    pub together_with: Option<Py<Writer>>,
    /// The options of the store of a URL.
    pub storage: Vec<(String, String)>,
    /// The URLs of shards, if their number is known.
    pub shard_urls: Vec<String>,
    /// Whether the objects of several writers appear together.
    pub in_set: bool,
}

from_attributes!(Creating {
    format,
    overwrite,
    durable,
    threads,
    sharding,
    num_records,
    tally,
    together_with,
    storage,
    shard_urls,
    in_set
});

/// The options of the core.
pub fn options(creating: &Creating, keywords: &Bound<'_, PyDict>, listen: Listen) -> PyResult<CreateOptions> {
    let mut format_options = WriteOptions::default();
    for (keyword, value) in keywords {
        let value = if let Ok(flag) = value.cast::<PyBool>() {
            Value::Flag(flag.is_true())
        } else if let Ok(text) = value.cast::<PyString>() {
            Value::Text(text.extract()?)
        } else {
            let number = value.extract::<i128>();
            Value::Int(
                number.map_err(|_| PyTypeError::new_err(format!("{keyword}={} is not a number", value)))?,
            )
        };
        format_options = format_options.with(&keyword.extract::<String>()?, value);
    }
    let (kind, number) = &creating.sharding;
    Ok(CreateOptions {
        overwrite: creating.overwrite,
        durable: creating.durable,
        threads: creating.threads,
        sharding: match kind.as_str() {
            "turns" => Sharding::Turns(*number),
            "bytes" => Sharding::Bytes(*number),
            "records" => Sharding::Records(*number),
            "explicit" => Sharding::Explicit,
            _ => Sharding::One,
        },
        tally: creating.tally,
        num_records: creating.num_records,
        owner: creating.together_with.as_ref().and_then(|other| other.get().owner()).unwrap_or_default(),
        listen,
        format_options,
    })
}

/// Where objects are written to.
pub fn object_target(
    url: &str,
    creating: &Creating,
    options: &CreateOptions,
) -> anyrecord::Result<ObjectTarget> {
    let parse = |url: &String| RemoteUrl::parse(url);
    let storage = StorageOptions::new(creating.storage.iter().cloned())?;
    // Writers whose objects appear together share one limit on memory.
    let other = creating.together_with.as_ref().and_then(|other| other.get().uploads().cloned());
    let new = || Uploading::new(Arc::new(storage), options.listen.clone());
    Ok(ObjectTarget {
        url: RemoteUrl::parse(url)?,
        shards: creating.shard_urls.iter().map(parse).collect::<anyrecord::Result<_>>()?,
        in_set: creating.in_set,
        uploading: other.unwrap_or_else(new),
    })
}
