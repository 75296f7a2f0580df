//! The objects under a prefix.

use super::options::StorageOptions;
use super::request::Object;
use super::url::RemoteUrl;
use super::{runtime, stores};
use crate::cx::Cx;
use crate::error::Result;
use crate::storage::stats::Stats;
use futures_util::TryStreamExt;
use object_store::path::Path;
use std::sync::Arc;

/// What is directly under a prefix.
#[derive(Debug, Default)]
pub struct Listing {
    /// The objects: URL and size.
    pub objects: Vec<(RemoteUrl, u64)>,
    /// The prefixes below: folders.
    pub folders: Vec<RemoteUrl>,
}

/// Lists what is under a prefix: of one level, or of all levels below. Sorted by name.
pub fn list(
    prefix: &RemoteUrl,
    options: &StorageOptions,
    is_deep: bool,
    stats: &Arc<Stats>,
    cx: &Cx<'_>,
) -> Result<Listing> {
    let store = stores::of(prefix, options)?;
    let object = Object { store, path: prefix.path.clone(), stats: stats.clone() };
    let found = runtime::run(async move { list_all(&object, is_deep).await }, cx)?;
    let (mut objects, mut folders) = found.map_err(|error| error.in_file(prefix.shown()))?;
    objects.sort();
    folders.sort();
    Ok(Listing {
        objects: objects.into_iter().map(|(path, size)| (prefix.with_path(path), size)).collect(),
        folders: folders.into_iter().map(|path| prefix.with_path(path)).collect(),
    })
}

async fn list_all(object: &Object, is_deep: bool) -> Result<(Vec<(Path, u64)>, Vec<Path>)> {
    let store = &object.store.objects;
    let prefix = Some(&object.path).filter(|path| !path.as_ref().is_empty());
    if is_deep {
        let listed = object.request(|| store.list(prefix).try_collect::<Vec<_>>()).await?;
        return Ok((listed.into_iter().map(|meta| (meta.location, meta.size)).collect(), Vec::new()));
    }
    let listed = object.request(|| store.list_with_delimiter(prefix)).await?;
    let objects = listed.objects.into_iter().map(|meta| (meta.location, meta.size)).collect();
    Ok((objects, listed.common_prefixes))
}
