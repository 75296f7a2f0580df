//! Opens objects: many at once, each with one request where the store allows it.

use super::file::RemoteFile;
use super::options::StorageOptions;
use super::request::{Identity, Object};
use super::url::RemoteUrl;
use super::{runtime, stores};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::storage::file_set::FileSet;
use crate::storage::partial::FetchedRange;
use crate::storage::stats::Stats;
use bytes::Bytes;
use object_store::GetRange;
use std::sync::Arc;
use std::time::Instant;

/// Bytes that come with opening: enough for the tables of most files, and less than a round trip costs.
pub const PART: u64 = 128 << 10;

/// Which part of an object to fetch when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstPart {
    /// Its beginning.
    Beginning,
    /// Its end.
    End,
}

/// An object, and the part of it that came with opening.
pub type OpenedObject = (RemoteFile, FetchedRange);

/// Opens objects together. The results are in the same order.
pub fn open(
    objects: Vec<(RemoteUrl, Arc<StorageOptions>, FirstPart)>,
    files: &Arc<FileSet>,
    cx: &Cx<'_>,
) -> Result<Vec<Result<OpenedObject>>> {
    let most =
        objects.iter().map(|(url, options, _)| options.policy.most_requests(url.kind)).max().unwrap_or(1);
    let open = objects.into_iter().map(|(url, options, part)| open_one(url, options, part, files.clone()));
    let begun = Instant::now();
    // More than may be in flight, so that the next ones wait at the gate of their store.
    let opened = runtime::run_all(open, 2 * most, cx);
    files.stats.waited(begun.elapsed());
    opened
}

/// The identity of each object.
pub fn identities(
    urls: Vec<RemoteUrl>,
    options: &Arc<StorageOptions>,
    stats: &Arc<Stats>,
    cx: &Cx<'_>,
) -> Result<Vec<Identity>> {
    let most = urls.iter().map(|url| options.policy.most_requests(url.kind)).max().unwrap_or(1);
    let ask = urls.into_iter().map(|url| identity(url, options.clone(), stats.clone()));
    runtime::run_all(ask, 2 * most, cx)?.into_iter().collect()
}

async fn identity(url: RemoteUrl, options: Arc<StorageOptions>, stats: Arc<Stats>) -> Result<Identity> {
    let ask = async {
        let object = Object::new(&url, stores::of(&url, &options)?, &stats);
        object.head().await
    };
    ask.await.map_err(|error| error.in_file(url.shown()))
}

async fn open_one(
    url: RemoteUrl,
    options: Arc<StorageOptions>,
    part: FirstPart,
    files: Arc<FileSet>,
) -> Result<OpenedObject> {
    let open = async {
        let store = stores::of(&url, &options)?;
        let object = Object::new(&url, store, &files.stats);
        let range = match part {
            FirstPart::Beginning => GetRange::Bounded(0..PART),
            FirstPart::End => GetRange::Suffix(PART),
        };
        let (identity, at, mut bytes) = object.open(&range).await?;
        if !bytes.is_empty() || identity.size == 0 {
            return Ok((identity, FetchedRange { at, bytes }));
        }
        // The store cannot send the end of an object of unknown size. Now its size is known.
        let range = identity.size.saturating_sub(PART)..identity.size;
        let at = range.start;
        let take = |piece: Bytes| {
            bytes.extend_from_slice(&piece);
            Ok(())
        };
        object.read(range, &identity, take).await?;
        Ok((identity, FetchedRange { at, bytes }))
    };
    let (identity, part) = open.await.map_err(|error: Error| error.in_file(url.shown()))?;
    Ok((RemoteFile::new(url, options, identity, &files), part))
}
