//! Makes a set of objects appear together, even if it replaces an older set.
//!
//! At the beginning, all parts of all objects have arrived. Then
//!
//! 1. the [`journal`](super::journal) appears, if there is none: it has the names of all uploads;
//! 2. the objects are made of their parts, many at once;
//! 3. old objects that are not replaced are deleted;
//! 4. the journal is deleted: now the set is published.
//!
//! Between 1 and 4, readers that list see the journal and refuse the set. A store cannot put an old object back, so after
//! an error everything is undone only if no old object was replaced. Else [`recover`] finishes the set.

use super::finish;
use super::journal::{Journal, NewObject, OldObject, stamp_of, target_of, unfinished};
use super::spooled::SealedSpool;
use super::{Appearance, Pieces, SealedUpload, Uploading};
use crate::cx::{Cx, with_default};
use crate::error::{Error, Kind, Result};
use crate::storage::remote::options::StorageOptions;
use crate::storage::remote::request::{Identity, Object};
use crate::storage::remote::url::RemoteUrl;
use crate::storage::remote::{runtime, stores};
use crate::storage::transaction::Keep;
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::sync::Arc;

/// How often to begin anew if the old set changes meanwhile.
const ATTEMPTS: usize = 8;

/// An object of a set: its bytes are in the store, or in a local file.
pub enum Member {
    /// Its parts are sent.
    Upload(SealedUpload),
    /// It is sent now that its name is known.
    Spooled(SealedSpool),
}

/// The objects to publish together.
pub struct NewSet<'a> {
    /// The objects, and the name of each. All names are in the folder of the journal.
    pub members: Vec<(Member, RemoteUrl)>,
    /// Where the journal goes.
    pub journal: RemoteUrl,
    /// Whether to replace the old set. If not, an existing old set is an error.
    pub overwrite: bool,
    /// What the uploads share.
    pub uploading: Uploading,
    /// Finds the objects of the old set, which may have another number of shards.
    pub find_old: &'a mut dyn FnMut() -> Result<Vec<RemoteUrl>>,
}

/// Publishes a set of objects. After an error, the old set is unchanged, or the error says how to recover.
pub fn publish(mut set: NewSet<'_>, cx: &Cx<'_>) -> Result<()> {
    let mut uploads = Vec::with_capacity(set.members.len());
    let appearance = Appearance { overwrite: true, in_set: true };
    for (member, url) in std::mem::take(&mut set.members) {
        uploads.push(match member {
            Member::Upload(upload) => upload,
            Member::Spooled(spool) => spool.upload(&url, &set.uploading, appearance, cx)?,
        });
    }
    for upload in &uploads {
        upload.wait()?;
    }
    let names = uploads.iter().map(|upload| name_of(upload.url())).collect::<Result<Vec<_>>>()?;
    if names.iter().collect::<HashSet<_>>().len() < names.len() {
        return Err(Error::argument("two objects of a set have the same name"));
    }
    let mut new = Vec::with_capacity(uploads.len());
    for (upload, name) in uploads.iter().zip(names) {
        new.push(NewObject { name, pieces: upload.parts.pieces(upload.size())? });
    }
    let place = Place { journal: set.journal.clone(), options: set.uploading.options.clone() };
    let journal = place.begin(new, &mut set, cx)?;
    let how = if set.overwrite { How::Over } else { How::OnlyNew };
    let published = place.advance(&journal, how, cx);
    // Either they are complete now, or they are taken back, or `recover` needs them.
    uploads.iter_mut().for_each(SealedUpload::keep);
    let Err(Interrupted { why, done }) = published else { return Ok(()) };
    if matches!(why.kind(), Kind::External(_)) {
        // The caller wants to stop now. The journal stays, and `recover` can do both.
        return Err(why);
    }
    if done.len() == journal.new.len() {
        let what = format!("all objects are complete, but publishing failed ({why})");
        return Err(stuck(&set.journal, what, "new", "finish"));
    }
    if let Err(second) = with_default(|cx| place.check_old(&journal, cx)) {
        let what = format!("publishing failed ({why}), and it cannot be undone ({second})");
        return Err(stuck(&set.journal, what, "new", "finish"));
    }
    match with_default(|cx| place.take_back(&journal, &done, cx)) {
        Ok(()) => Err(why),
        Err(second) => {
            let what = format!("publishing failed ({why}), and it could not be undone ({second})");
            Err(stuck(&set.journal, what, "old", "undo it"))
        }
    }
}

/// The error for a set that is neither published nor as before.
fn stuck(journal: &RemoteUrl, what: String, keep: &str, purpose: &str) -> Error {
    let target = target_of(journal);
    let hint =
        format!("remove the cause, then call anyrecord.recover({target:?}, keep={keep:?}) to {purpose}");
    Error::publish(what).in_file(journal.shown()).hint(hint)
}

/// How the objects of a set are made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// None of them may exist.
    OnlyNew,
    /// They replace old ones.
    Over,
    /// Another process may have made some of them.
    Resume,
}

fn refused(url: &RemoteUrl, journal: Option<&Journal>) -> Error {
    unfinished(url.shown(), &target_of(url), journal)
}

fn name_of(url: &RemoteUrl) -> Result<String> {
    let name = url.path.filename().map(str::to_owned);
    name.ok_or_else(|| Error::argument("an object of a set has no name").in_file(url.shown()))
}

/// An error in the middle of publishing, and the names of the objects that have appeared.
struct Interrupted {
    why: Error,
    done: HashSet<String>,
}

/// The folder of a set.
struct Place {
    journal: RemoteUrl,
    options: Arc<StorageOptions>,
}

impl Place {
    fn object(&self, url: &RemoteUrl) -> Result<Object> {
        Ok(Object::new(url, stores::of(url, &self.options)?, &Arc::default()))
    }

    fn url(&self, name: &str) -> Result<RemoteUrl> {
        let named = |_: &std::ffi::OsStr| name.into();
        let url = self.journal.beside(&named);
        url.ok_or_else(|| Error::argument(format!("{name:?} cannot be the name of an object")))
    }

    /// Does something with many objects at once.
    fn each<T: Send + 'static, F>(
        &self,
        names: impl IntoIterator<Item = String>,
        mut act: impl FnMut(Object, String) -> F,
        cx: &Cx<'_>,
    ) -> Result<Vec<Result<T>>>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let mut futures = Vec::new();
        for name in names {
            let url = self.url(&name)?;
            let acting = act(self.object(&url)?, name);
            futures.push(async move { acting.await.map_err(|error: Error| error.in_file(url.shown())) });
        }
        runtime::run_all(futures, 2 * self.options.policy.most_requests(self.journal.kind), cx)
    }

    /// What old objects are now.
    fn look(&self, names: impl IntoIterator<Item = String>, cx: &Cx<'_>) -> Result<Vec<Option<Identity>>> {
        self.each(names, |object, _| async move { finish::look(&object).await }, cx)?.into_iter().collect()
    }

    /// Makes the journal appear. No visible object has changed then.
    fn begin(&self, new: Vec<NewObject>, set: &mut NewSet<'_>, cx: &Cx<'_>) -> Result<Journal> {
        let mut old = (set.find_old)()?;
        for _ in 0..ATTEMPTS {
            if let (Some(first), false) = (old.first(), set.overwrite) {
                return Err(finish::exists().in_file(first.shown()));
            }
            let journal = self.plan(new.clone(), &old, cx)?;
            self.put(&journal, cx)?;
            // Another process may have published before the journal existed. From now on, others are refused.
            let now = (set.find_old)();
            if now.as_ref().is_ok_and(|now| *now == old) {
                return Ok(journal);
            }
            self.remove_journal(cx)?;
            old = now?;
        }
        Err(Error::publish("other processes publish the same set again and again")
            .in_file(self.journal.shown()))
    }

    fn plan(&self, new: Vec<NewObject>, old: &[RemoteUrl], cx: &Cx<'_>) -> Result<Journal> {
        let mut journal = Journal::new(new, Vec::new());
        let names = old.iter().map(name_of).collect::<Result<Vec<_>>>()?;
        let is_new: HashSet<_> = journal.new.iter().map(|member| member.name.clone()).collect();
        let replaced = names.iter().filter(|name| is_new.contains(*name)).cloned();
        let mut found = self.look(replaced, cx)?.into_iter();
        for name in names {
            let identity = if is_new.contains(&name) { found.next().flatten() } else { None };
            journal.old.push(OldObject { stamp: identity.as_ref().map(stamp_of), name });
        }
        Ok(journal)
    }

    fn put(&self, journal: &Journal, cx: &Cx<'_>) -> Result<()> {
        let (object, bytes) = (self.object(&self.journal)?, Bytes::from(journal.encode()));
        let put = async move { finish::put(&object, &bytes, false).await };
        match runtime::run(put, cx) {
            Err(error) if finish::io_kind(&error) == Some(ErrorKind::AlreadyExists) => {
                Err(refused(&self.journal, self.read(cx)?.flatten().as_ref()))
            }
            put => put.map(drop).map_err(|error| error.in_file(self.journal.shown())),
        }
    }

    fn remove_journal(&self, cx: &Cx<'_>) -> Result<()> {
        let object = self.object(&self.journal)?;
        runtime::run(async move { finish::delete(&object).await }, cx)
            .map_err(|error| error.in_file(self.journal.shown()))
    }

    /// The journal. None if there is none, or if another program wrote it, and None inside if it is damaged.
    fn read(&self, cx: &Cx<'_>) -> Result<Option<Option<Journal>>> {
        let object = self.object(&self.journal)?;
        let read = async move { finish::read(&object).await };
        let bytes = runtime::run(read, cx).map_err(|error| error.in_file(self.journal.shown()))?;
        Ok(bytes.filter(|bytes| Journal::is_one(bytes)).map(|bytes| Journal::decode(&bytes)))
    }

    /// Makes all objects, and removes what they replace.
    fn advance(&self, journal: &Journal, how: How, cx: &Cx<'_>) -> std::result::Result<(), Interrupted> {
        let mut done = HashSet::new();
        let stopped = |why| Interrupted { why, done: HashSet::new() };
        let mut pieces = pieces_of(journal);
        let stamps = journal.old.iter().filter_map(|old| Some((old.name.clone(), old.stamp.clone()?)));
        let mut stamps: HashMap<_, _> = stamps.collect();
        let names: Vec<_> = journal.new.iter().map(|member| member.name.clone()).collect();
        let complete = |object: Object, name: String| {
            let (pieces, stamp) = (pieces.remove(&name), stamps.remove(&name));
            async move {
                match (pieces, how) {
                    (Some(pieces), How::Resume) => finish::resume(&object, &pieces, stamp.as_deref()).await,
                    (Some(pieces), _) => finish::complete(&object, &pieces, how == How::Over).await,
                    (None, _) => Ok(()),
                }
            }
        };
        let results = self.each(names.iter().cloned(), complete, cx).map_err(stopped)?;
        let mut failed = None;
        for (name, result) in names.into_iter().zip(results) {
            match result {
                Ok(()) => drop(done.insert(name)),
                Err(error) => drop(failed.get_or_insert(error)),
            }
        }
        if let Some(why) = failed {
            return Err(Interrupted { why, done });
        }
        match self.delete_old(journal, cx).and_then(|()| self.remove_journal(cx)) {
            Ok(()) => Ok(()),
            Err(why) => Err(Interrupted { why, done }),
        }
    }

    fn delete_old(&self, journal: &Journal, cx: &Cx<'_>) -> Result<()> {
        let new: HashSet<_> = journal.new.iter().map(|member| &member.name).collect();
        let left = journal.old.iter().map(|member| &member.name).filter(|name| !new.contains(name)).cloned();
        let deleted = self.each(left, |object, _| async move { finish::delete(&object).await }, cx)?;
        deleted.into_iter().collect()
    }

    /// An error if an old object was replaced or deleted: then the old set cannot be restored.
    fn check_old(&self, journal: &Journal, cx: &Cx<'_>) -> Result<()> {
        let names: Vec<_> = journal.old.iter().map(|member| member.name.clone()).collect();
        let found = self.look(names, cx)?;
        for (OldObject { name, stamp }, found) in journal.old.iter().zip(found) {
            let is_there = match (&found, stamp) {
                (Some(found), Some(stamp)) => stamp_of(found) == *stamp,
                (found, _) => found.is_some(),
            };
            if !is_there {
                let url = self.url(name)?;
                return Err(Error::publish("the old object is gone, so the old set cannot be restored")
                    .in_file(url.shown())
                    .hint("keep the new set: keep=\"new\""));
            }
        }
        Ok(())
    }

    /// Removes what has appeared. `done`: objects that we have made, as far as we know. The store may know better.
    fn take_back(&self, journal: &Journal, done: &HashSet<String>, cx: &Cx<'_>) -> Result<()> {
        let names = || journal.new.iter().map(|member| member.name.clone());
        let mut pieces = pieces_of(journal);
        let abort = |object: Object, name: String| {
            let id = pieces.remove(&name).map(|pieces| pieces.id).unwrap_or_default();
            async move { finish::abort(&object, &id).await }
        };
        self.each(names(), abort, cx)?.into_iter().collect::<Result<()>>()?;
        let mut pieces = pieces_of(journal);
        let old: HashSet<_> = journal.old.iter().map(|member| member.name.clone()).collect();
        let remove = |object: Object, name: String| {
            let (pieces, is_done) = (pieces.remove(&name), done.contains(&name));
            async move {
                let (Some(pieces), Some(found)) = (pieces, finish::look(&object).await?) else {
                    return Ok(());
                };
                match finish::is_of_pieces(&found, &pieces, object.store.kind).unwrap_or(is_done) {
                    true => finish::delete(&object).await,
                    false => Ok(()),
                }
            }
        };
        let new = names().filter(|name| !old.contains(name));
        self.each(new, remove, cx)?.into_iter().collect::<Result<()>>()?;
        self.remove_journal(cx)
    }
}

/// What the store has of each object, by its name.
fn pieces_of(journal: &Journal) -> HashMap<String, Pieces> {
    journal.new.iter().map(|member| (member.name.clone(), member.pieces.clone())).collect()
}

/// The journal at a URL. None if there is none.
pub fn read_journal(url: &RemoteUrl, options: &Arc<StorageOptions>, cx: &Cx<'_>) -> Result<Option<Journal>> {
    let place = Place { journal: url.clone(), options: options.clone() };
    match place.read(cx)? {
        None => Ok(None),
        Some(Some(journal)) => Ok(Some(journal)),
        Some(None) => Err(refused(url, None)),
    }
}

/// Finishes or undoes a publish that was interrupted. Returns the objects that are visible now. None if nothing was
/// interrupted. With no set to keep, an interrupted publish is an error.
pub fn recover(
    url: &RemoteUrl,
    options: &Arc<StorageOptions>,
    keep: Option<Keep>,
    cx: &Cx<'_>,
) -> Result<Option<Vec<RemoteUrl>>> {
    let place = Place { journal: url.clone(), options: options.clone() };
    let Some(journal) = read_journal(url, options, cx)? else { return Ok(None) };
    let Some(keep) = keep else { return Err(refused(url, Some(&journal))) };
    let names: Vec<_> = match keep {
        Keep::New => {
            place.advance(&journal, How::Resume, cx).map_err(|error| lost(error.why))?;
            journal.new.iter().map(|member| member.name.clone()).collect()
        }
        Keep::Old => {
            // Objects of the new set that are not in the old one were made by nobody else: writers refuse the name.
            let done = journal.new.iter().map(|member| member.name.clone()).collect();
            place.check_old(&journal, cx)?;
            place.take_back(&journal, &done, cx)?;
            journal.old.iter().map(|member| member.name.clone()).collect()
        }
    };
    names.iter().map(|name| place.url(name)).collect::<Result<_>>().map(Some)
}

/// The error for parts that are gone.
fn lost(error: Error) -> Error {
    if finish::io_kind(&error) != Some(ErrorKind::NotFound) {
        return error;
    }
    error
        .seen_as(Kind::Publish, "the new set cannot be finished")
        .hint("its parts are gone: keep the old set with keep=\"old\", or write the new one again")
}

/// Deletes objects. Those that do not exist are no error.
pub fn delete(urls: &[RemoteUrl], options: &Arc<StorageOptions>, cx: &Cx<'_>) -> Result<()> {
    let mut deleting = Vec::new();
    for url in urls {
        let object = Object::new(url, stores::of(url, options)?, &Arc::default());
        let shown = url.shown().to_owned();
        deleting.push(async move { finish::delete(&object).await.map_err(|error| error.in_file(&shown)) });
    }
    let most = urls.first().map_or(1, |url| options.policy.most_requests(url.kind));
    runtime::run_all(deleting, 2 * most, cx)?.into_iter().collect()
}
