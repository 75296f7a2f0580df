//! Makes an object of parts, or of bytes. If the answer of the store is lost, looks whether the object is there.

use super::{Pieces, command, takes_condition};
use crate::error::{Error, Kind as ErrorKindOf, Result};
use crate::storage::remote::checksums::tag_of_parts;
use crate::storage::remote::request::{Identity, Object};
use crate::storage::remote::sending::Sending;
use crate::storage::remote::url::Kind;
use bytes::Bytes;
use object_store::multipart::PartId;
use object_store::{ObjectStoreExt, PutMode, PutOptions};
use std::io::ErrorKind;
use std::sync::Arc;

/// Making one object of many parts can take a store minutes. It is patient for so many times as long as with others.
const PATIENCE: u32 = 6;

/// The kind of an error of the system.
pub fn io_kind(error: &Error) -> Option<ErrorKind> {
    match error.kind() {
        ErrorKindOf::Io(error) => Some(error.kind()),
        _ => None,
    }
}

/// The error for an object that exists.
pub fn exists() -> Error {
    let error = std::io::Error::new(ErrorKind::AlreadyExists, "there is an object of that name");
    Error::io("will not overwrite", error).hint("pass overwrite=True to replace it")
}

/// What an object is now. None if there is none.
pub async fn look(object: &Object) -> Result<Option<Identity>> {
    match object.head().await {
        Ok(identity) => Ok(Some(identity)),
        Err(error) if io_kind(&error) == Some(ErrorKind::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Stores an object with one request. Returns whether what arrived was compared with what was sent.
pub async fn put(object: &Object, bytes: &Bytes, overwrite: bool) -> Result<bool> {
    let kind = object.store.kind;
    if kind == Kind::Http && !overwrite && look(object).await?.is_some() {
        return Err(exists());
    }
    // Other stores send the condition themselves.
    let only_new = !overwrite && kind == Kind::Http;
    let sending = Sending::bytes(kind, bytes, object.store.policy.check_uploads).only_new(only_new).visible();
    let mode = || if overwrite || kind == Kind::Http { PutMode::Overwrite } else { PutMode::Create };
    let (sending, policy) = (Arc::new(sending), &object.store.policy);
    let store = &object.store.objects;
    let put = || {
        let options = PutOptions { mode: mode(), ..PutOptions::default() };
        store.put_opts(&object.path, sending.payload(), options)
    };
    let mut tries = 0;
    loop {
        let stored = object.send(&sending, policy.read_timeout, put).await;
        let Err(error) = stored.result else { return Ok(sending.was_compared()) };
        if let Some(tag) = stored.other_bytes {
            // It must not stay under the name, and it must not keep the next try from it.
            remove_damaged(object, &tag).await?;
            if tries < policy.max_retries {
                tries += 1;
                continue;
            }
        } else if stored.is_doubtful && is_there(object, bytes).await {
            return Ok(true);
        }
        return Err(error);
    }
}

/// Deletes an object that was stored with other bytes than were sent, unless it was replaced meanwhile.
async fn remove_damaged(object: &Object, tag: &str) -> Result<()> {
    match look(object).await? {
        Some(found) if found.tag().unwrap_or_default() == tag => delete(object).await,
        _ => Ok(()),
    }
}

/// Whether an object has these bytes. An earlier try may have stored it.
async fn is_there(object: &Object, bytes: &Bytes) -> bool {
    let Ok(Some(found)) = look(object).await else { return false };
    if found.size != bytes.len() as u64 {
        return false;
    }
    let (mut at, mut is_same) = (0, true);
    let read = object.read(0..found.size, &found, |piece| {
        is_same &= bytes.get(at..at + piece.len()) == Some(&piece[..]);
        at += piece.len();
        Ok(())
    });
    read.await.is_ok() && is_same
}

/// Makes one object of its parts.
pub async fn complete(object: &Object, pieces: &Pieces, overwrite: bool) -> Result<()> {
    let kind = object.store.kind;
    let Some(store) = &object.store.parts else { return Err(Error::argument("this store takes no parts")) };
    // Servers of S3's protocol may ignore the condition, so they are asked, too.
    let is_told_by_tag = kind == Kind::S3 && tag_of_parts(pieces.parts.iter().map(String::as_str)).is_some();
    let before = if overwrite && is_told_by_tag { None } else { look(object).await? };
    if before.is_some() && !overwrite {
        return Err(exists());
    }
    let sending = Arc::new(Sending::command(kind).only_new(!overwrite && takes_condition(kind)));
    let parts = || pieces.parts.iter().map(|name| PartId { content_id: name.clone() }).collect();
    let finish = || store.complete_multipart(&object.path, &pieces.id, parts());
    let stored =
        object.send(&sending, object.store.policy.read_timeout.saturating_mul(PATIENCE), finish).await;
    match stored.result {
        Ok(_) => Ok(()),
        Err(error) if stored.is_doubtful && is_complete(object, pieces, before.as_ref()).await => {
            drop(error);
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Whether the object of these parts is there. `before`: what was there before.
pub async fn is_complete(object: &Object, pieces: &Pieces, before: Option<&Identity>) -> bool {
    let Ok(Some(found)) = look(object).await else { return false };
    is_of_pieces(&found, pieces, object.store.kind).unwrap_or_else(|| {
        // The store does not tell what its tags are made of. A new object of the right size is taken for ours.
        found.size == pieces.size && before.is_none_or(|before| !before.is_of(&found))
    })
}

/// Whether an object is the one of these parts. None if that cannot be told.
pub fn is_of_pieces(found: &Identity, pieces: &Pieces, kind: Kind) -> Option<bool> {
    if found.size != pieces.size {
        return Some(false);
    }
    let expected = tag_of_parts(pieces.parts.iter().map(String::as_str)).filter(|_| kind == Kind::S3)?;
    let tag = found.tag()?;
    // The tags of some servers have another form.
    (tag.trim_matches('"').len() == expected.len() - 2)
        .then(|| tag.trim_matches('"') == expected.trim_matches('"'))
}

/// Lets the store forget the parts of an upload. An upload that is gone is no error.
pub async fn abort(object: &Object, id: &str) -> Result<()> {
    let Some(store) = &object.store.parts else { return Ok(()) };
    let (id, patience) = (id.to_owned(), object.store.policy.read_timeout);
    let abort = || store.abort_multipart(&object.path, &id);
    match object.send(&command(object), patience, abort).await.result {
        Err(error) if io_kind(&error) != Some(ErrorKind::NotFound) => Err(error),
        _ => Ok(()),
    }
}

/// Deletes an object. One that does not exist is no error.
pub async fn delete(object: &Object) -> Result<()> {
    let patience = object.store.policy.read_timeout;
    let delete = || object.store.objects.delete(&object.path);
    match object.send(&command(object), patience, delete).await.result {
        Err(error) if io_kind(&error) != Some(ErrorKind::NotFound) => Err(error),
        _ => Ok(()),
    }
}

/// Makes an object of its parts, unless another process has done so. `stamp`: what the old object of that name is.
pub async fn resume(object: &Object, pieces: &Pieces, stamp: Option<&str>) -> Result<()> {
    // Writers refuse the name as long as there is a journal, so what is not the old object is the new one.
    let is_new = |found: &Identity| {
        let told = is_of_pieces(found, pieces, object.store.kind);
        told.unwrap_or_else(|| stamp.is_none_or(|stamp| stamp != found.text()))
    };
    if look(object).await?.as_ref().is_some_and(is_new) {
        return Ok(());
    }
    match complete(object, pieces, true).await {
        Ok(()) => Ok(()),
        // The process that publishes the set still runs, and was faster.
        Err(error) => match look(object).await {
            Ok(Some(found)) if is_new(&found) => Ok(()),
            _ => Err(error),
        },
    }
}

/// All bytes of an object. None if there is none.
pub async fn read(object: &Object) -> Result<Option<Vec<u8>>> {
    let Some(found) = look(object).await? else { return Ok(None) };
    let mut bytes = Vec::new();
    let take = |piece: Bytes| {
        bytes.extend_from_slice(&piece);
        Ok(())
    };
    match object.read(0..found.size, &found, take).await {
        Ok(()) => Ok(Some(bytes)),
        Err(error) if io_kind(&error) == Some(ErrorKind::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}
