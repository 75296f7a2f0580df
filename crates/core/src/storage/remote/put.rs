//! Stores small objects.

use super::options::StorageOptions;
use super::request::Object;
use super::url::RemoteUrl;
use super::{runtime, stores, upload};
use crate::cx::Cx;
use crate::error::Result;
use crate::storage::stats::Stats;
use bytes::Bytes;
use std::sync::Arc;

/// Stores an object with one request. It replaces an object of that name.
pub fn put(
    url: &RemoteUrl,
    options: &StorageOptions,
    bytes: Vec<u8>,
    stats: &Arc<Stats>,
    cx: &Cx<'_>,
) -> Result<()> {
    let object = Object::new(url, stores::of(url, options)?, stats);
    let bytes = Bytes::from(bytes);
    let put = async move { upload::put(&object, &bytes).await };
    runtime::run(put, cx).map_err(|error| error.in_file(url.shown()))
}
