//! Commands about single objects.

use super::finish;
use crate::cx::Cx;
use crate::error::Result;
use crate::storage::remote::options::StorageOptions;
use crate::storage::remote::request::Object;
use crate::storage::remote::url::RemoteUrl;
use crate::storage::remote::{runtime, stores};
use std::sync::Arc;

fn object_of(url: &RemoteUrl, options: &StorageOptions) -> Result<Object> {
    Ok(Object::new(url, stores::of(url, options)?, &Arc::default()))
}

/// The bytes of a small object. None if it does not exist.
pub fn read(url: &RemoteUrl, options: &StorageOptions, cx: &Cx<'_>) -> Result<Option<Vec<u8>>> {
    let object = object_of(url, options)?;
    let read = runtime::run(async move { finish::read(&object).await }, cx);
    read.map_err(|error| error.in_file(url.shown()))
}

/// Lets a store forget the parts of an upload. One that does not exist is no error.
pub fn abort(url: &RemoteUrl, id: &str, options: &StorageOptions, cx: &Cx<'_>) -> Result<()> {
    let (object, id) = (object_of(url, options)?, id.to_owned());
    let aborted = runtime::run(async move { finish::abort(&object, &id).await }, cx);
    aborted.map_err(|error| error.in_file(url.shown()))
}
