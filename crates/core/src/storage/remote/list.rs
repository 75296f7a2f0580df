//! The objects under a prefix.

use super::options::StorageOptions;
use super::request::Object;
use super::url::RemoteUrl;
use super::{runtime, stores};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::storage::stats::Stats;
use futures_util::TryStreamExt;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
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
    let object = Object::new(prefix, store, stats);
    let found = runtime::run(async move { list_all(&object, is_deep).await }, cx);
    let (mut objects, mut folders) = found.map_err(|error| error.in_file(prefix.shown()))?;
    objects.sort();
    folders.sort();
    Ok(Listing {
        objects: objects.into_iter().map(|(path, size)| (prefix.with_path(path), size)).collect(),
        folders: folders.into_iter().map(|path| prefix.with_path(path)).collect(),
    })
}

/// Objects with their sizes, and folders.
type Found = (Vec<(Path, u64)>, Vec<Path>);

async fn list_all(object: &Object, is_deep: bool) -> Result<Found> {
    let mut found = match &object.store.pages {
        Some(pages) => list_pages(object, &**pages, is_deep).await?,
        None => list_at_once(object, is_deep).await?,
    };
    found.0.retain(|(path, size)| *path != object.path && !is_marker(path, *size));
    Ok(found)
}

/// Whether an object stands for a folder. Tools make one of 0 bytes with a slash at the end, which is lost here.
fn is_marker(path: &Path, size: u64) -> bool {
    size == 0 && path.extension().is_none()
}

/// Asks for one page after the other, so that a page that fails is asked for again, and not the whole listing.
async fn list_pages(object: &Object, pages: &dyn PaginatedListStore, is_deep: bool) -> Result<Found> {
    let prefix = Some(format!("{}/", object.path)).filter(|_| !object.path.as_ref().is_empty());
    let (mut objects, mut folders, mut token) = (Vec::new(), Vec::new(), None);
    loop {
        let options = PaginatedListOptions {
            delimiter: (!is_deep).then(|| "/".into()),
            page_token: token.clone(),
            ..PaginatedListOptions::default()
        };
        let page = object.request(|| pages.list_paginated(prefix.as_deref(), options.clone())).await?;
        objects.extend(page.result.objects.into_iter().map(|meta| (meta.location, meta.size)));
        folders.extend(page.result.common_prefixes);
        match page.page_token {
            None => return Ok((objects, folders)),
            Some(next) if token.as_ref() == Some(&next) => {
                return Err(Error::format("the listing has no end: the server sends the same page again"));
            }
            next => token = next,
        }
    }
}

async fn list_at_once(object: &Object, is_deep: bool) -> Result<Found> {
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
