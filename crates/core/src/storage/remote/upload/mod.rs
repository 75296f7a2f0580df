//! Objects that are written. An object appears under its name when it is complete, or not at all.
//!
//! 1. [`Upload`]: bytes are collected in parts, and full parts are sent while more bytes are written.
//! 2. [`Upload::seal`]: the last part is sent, too.
//! 3. [`SealedUpload::publish`]: the store is told to make one object of the parts. [`set`] does so for many together.
//!
//! An object that fits into one part is one request, which is sent when it is published. Dropping either stage aborts
//! the upload: the store then forgets its parts.
//!
//! | file | what |
//! |---|---|
//! | `memory` | how many bytes the uploads of a writer may hold |
//! | `buffer` | the part that is being written: in memory, or in a temporary file |
//! | `front` | the first parts, if they are written last |
//! | `parts` | parts that are being sent, and those that have arrived |
//! | `finish` | what makes an object of parts or of bytes, and how it is found again if the answer of the store is lost |
//! | [`spooled`] | files that are sent only when they are complete |
//! | [`set`], [`journal`] | many objects that appear together |
//! | [`single`] | commands about single objects |

mod buffer;
mod finish;
mod front;
pub mod journal;
pub mod memory;
mod parts;
pub mod set;
pub mod single;
pub mod spooled;

use super::options::StorageOptions;
use super::request::Object;
use super::sending::Sending;
use super::stores;
use super::url::{Kind, RemoteUrl};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::storage::output::Output;
use crate::writer::pool::Listen;
use buffer::Buffer;
use bytes::Bytes;
use front::Front;
use memory::{Memory, Room};
use parts::Parts;
use std::sync::Arc;

/// No store takes more parts.
const MOST_PARTS: usize = 10_000;
/// After so many parts they get larger, so that an object of any size fits.
const EQUAL_PARTS: usize = 5_000;
/// Each so many parts, the size doubles.
const DOUBLING: usize = 400;
const LARGEST_PART: u64 = 5 << 30;

/// What the uploads of one writer share.
#[derive(Clone)]
pub struct Uploading {
    /// The options of the store.
    pub options: Arc<StorageOptions>,
    /// Bounds what all uploads hold.
    pub memory: Arc<Memory>,
    /// Called while an upload waits.
    pub listen: Listen,
}

impl Uploading {
    /// Uploads with these options.
    pub fn new(options: Arc<StorageOptions>, listen: Listen) -> Self {
        let memory = Arc::new(Memory::new(options.policy.upload_memory, options.policy.upload_part_size));
        Uploading { options, memory, listen }
    }
}

/// How an object appears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appearance {
    /// Whether it may replace an object of that name.
    pub overwrite: bool,
    /// Whether it is one of several that appear together. Then it is always sent in parts.
    pub in_set: bool,
}

/// An object that is being written.
pub struct Upload {
    parts: Arc<Parts>,
    shared: Uploading,
    appearance: Appearance,
    /// The part that is being written. None before its first byte.
    buffer: Option<Buffer>,
    /// Whether parts are collected in memory, if they are not too large for it.
    in_memory: Option<Room>,
    /// What is written last, at the beginning of the object.
    front: Option<Front>,
    /// How many parts are complete. All but those of the front were passed on to be sent.
    complete: usize,
    position: u64,
    is_sealed: bool,
}

impl Upload {
    /// Begins an upload. Nothing is sent yet, but unless the object may be overwritten, the store is asked whether it
    /// exists.
    pub fn create(url: &RemoteUrl, shared: &Uploading, appearance: Appearance, cx: &Cx<'_>) -> Result<Self> {
        let store = stores::of(url, &shared.options)?;
        if store.parts.is_none() {
            return Err(Error::argument("a web server takes no object in parts").in_file(url.shown()));
        }
        let object = Object::new(url, store, &Arc::default());
        if !appearance.overwrite {
            refuse_existing(url, shared, cx)?;
        }
        // The first uploads of a writer have their buffers in memory. Those of further ones are temporary files.
        let in_memory = shared.memory.reserve();
        let parts = Arc::new(Parts::new(object, url.clone(), shared.memory.clone()));
        Ok(Upload {
            parts,
            shared: shared.clone(),
            appearance,
            buffer: None,
            in_memory,
            front: None,
            complete: 0,
            position: 0,
            is_sealed: false,
        })
    }

    /// Where the object will appear.
    pub fn url(&self) -> &RemoteUrl {
        &self.parts.url
    }

    fn part_size(&self) -> u64 {
        part_size(self.first_part(), self.complete)
    }

    fn first_part(&self) -> u64 {
        self.shared.options.policy.upload_part_size
    }

    fn is_in_front(&self) -> bool {
        self.front.as_ref().is_some_and(|front| front.held.is_none())
    }

    /// How many bytes are collected before they are passed on.
    fn buffer_size(&self) -> u64 {
        match &self.front {
            Some(front) if front.held.is_none() => front.size,
            _ => self.part_size(),
        }
    }

    fn begin_part(&mut self) -> Result<Buffer> {
        let size = self.buffer_size();
        match self.in_memory.take() {
            Some(room) if room.bytes() >= size => Ok(Buffer::in_memory(room)),
            // The parts after a large front may be in memory again.
            Some(room) if self.is_in_front() => {
                self.in_memory = Some(room);
                Buffer::in_file()
            }
            _ => Buffer::in_file(),
        }
    }

    /// Keeps the front until the object is complete. Its room in memory is for the parts after it, if there is no other.
    fn hold(&mut self, mut buffer: Buffer) -> Result<()> {
        if buffer.is_in_memory() {
            self.in_memory = self.shared.memory.reserve();
            if self.in_memory.is_none() {
                (buffer, self.in_memory) = buffer.moved_to_file()?;
            }
        }
        if let Some(front) = &mut self.front {
            self.complete = front.parts;
            front.held = Some(buffer);
        }
        Ok(())
    }

    /// Passes a part on to be sent.
    fn send(&mut self, buffer: Buffer) -> Result<()> {
        if self.complete >= MOST_PARTS {
            return Err(Error::argument(format!("the object has more than {MOST_PARTS} parts"))
                .hint("pass storage={\"upload_part_size\": ...} with larger parts, or write shards"));
        }
        let was_in_memory = buffer.is_in_memory();
        self.start(self.complete, buffer)?;
        self.complete += 1;
        if was_in_memory && self.part_size() <= self.shared.memory.part() {
            // The buffer of the next part. It waits until earlier parts have arrived.
            self.in_memory = Some(self.parts.wait_for_room(&self.shared.listen)?);
        }
        Ok(())
    }

    /// Takes the parts of an earlier upload of the same object, instead of what was written. They stay in the store
    /// until they are published, or until that upload is aborted. `is_compared`: what [`Comparison::is_done`] said there.
    pub fn adopt(self, pieces: Pieces, is_compared: bool) -> Result<SealedUpload> {
        let parts = Parts::new(self.parts.object.clone(), self.url().clone(), self.shared.memory.clone());
        let size = pieces.size;
        parts.adopt(pieces, is_compared)?;
        Ok(SealedUpload {
            parts: Arc::new(parts),
            listen: self.shared.listen.clone(),
            appearance: self.appearance,
            whole: None,
            size,
            is_done: false,
        })
    }

    /// Sends a part, or several that are in one temporary file. `number` is that of the first one.
    fn start(&self, mut number: usize, buffer: Buffer) -> Result<()> {
        let (mut bytes, room) = buffer.into_bytes()?;
        if let Some(room) = room {
            return self.parts.start(number, bytes, room);
        }
        loop {
            let size = usize::try_from(part_size(self.first_part(), number)).unwrap_or(usize::MAX);
            let part = bytes.split_to(size.min(bytes.len()));
            let room = self.parts.wait_for_file(part.len() as u64, &self.shared.listen)?;
            self.parts.start(number, part, room)?;
            number += 1;
            if bytes.is_empty() {
                return Ok(());
            }
        }
    }

    /// Sends what is left. When [`SealedUpload::wait`] returns, all of it has arrived.
    pub fn seal(mut self) -> Result<SealedUpload> {
        self.parts.check()?;
        let rest = match self.buffer.take() {
            Some(buffer) => Some(buffer),
            None if self.complete == 0 => Some(self.begin_part()?),
            None => None,
        };
        if let Some(front) = self.front.take().and_then(|front| front.held) {
            self.start(0, front)?;
        }
        let is_small = |buffer: &Buffer| self.complete == 0 && buffer.len() <= self.first_part();
        let mut whole = None;
        match rest {
            Some(buffer) if is_small(&buffer) && !self.appearance.in_set => {
                whole = Some(buffer.into_bytes()?);
            }
            Some(buffer) => self.start(self.complete, buffer)?,
            None => {}
        }
        self.is_sealed = true;
        Ok(SealedUpload {
            parts: self.parts.clone(),
            listen: self.shared.listen.clone(),
            appearance: self.appearance,
            whole,
            size: self.position,
            is_done: false,
        })
    }
}

/// An error if there is such an object.
pub fn refuse_existing(url: &RemoteUrl, shared: &Uploading, cx: &Cx<'_>) -> Result<()> {
    let object = Object::new(url, stores::of(url, &shared.options)?, &Arc::default());
    let found = super::runtime::run(async move { finish::look(&object).await }, cx);
    match found.map_err(|error| error.in_file(url.shown()))? {
        Some(_) => Err(finish::exists().in_file(url.shown())),
        None => Ok(()),
    }
}

/// The size of a part, by its number.
fn part_size(first: u64, number: usize) -> u64 {
    let doublings = (number.saturating_sub(EQUAL_PARTS) + DOUBLING - 1).min(MOST_PARTS) / DOUBLING;
    let size = first.checked_shl(doublings as u32).filter(|size| size >> doublings == first);
    size.unwrap_or(LARGEST_PART).min(LARGEST_PART)
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.is_sealed {
            self.parts.abort();
        }
    }
}

impl Output for Upload {
    fn position(&self) -> u64 {
        self.position
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            self.parts.check()?;
            let size = self.buffer_size();
            let mut buffer = match self.buffer.take() {
                Some(buffer) if buffer.len() >= size => {
                    // More follows, so it is not the last part.
                    if self.is_in_front() {
                        self.hold(buffer).map_err(|error| error.in_file(self.url().shown()))?;
                    } else {
                        self.send(buffer)?;
                    }
                    continue;
                }
                Some(buffer) => buffer,
                None => self.begin_part()?,
            };
            let room = usize::try_from(size - buffer.len()).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(bytes.len().min(room));
            let written = buffer.append(now);
            self.buffer = Some(buffer);
            written.map_err(|error| error.in_file(self.url().shown()))?;
            self.position += now.len() as u64;
            bytes = later;
        }
        Ok(())
    }

    fn can_patch(&self) -> bool {
        true
    }

    fn skip(&mut self, length: u64) -> Result<()> {
        if self.position > 0 {
            return Err(
                Error::argument("only the beginning of an object can be written later").at(self.position)
            );
        }
        let too_large = || Error::argument(format!("an object has no room for a table of {length} bytes"));
        self.front = Some(Front::new(length, self.first_part()).ok_or_else(too_large)?);
        let mut buffer = self.begin_part()?;
        let skipped = buffer.append_zeros(length);
        self.buffer = Some(buffer);
        self.position = length;
        skipped.map_err(|error| error.in_file(self.url().shown()))
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let end = at.checked_add(bytes.len() as u64);
        let written = match &mut self.front {
            Some(front) if end.is_some_and(|end| end <= front.length) => {
                front.held.as_mut().or(self.buffer.as_mut()).map(|buffer| buffer.write_at(at, bytes))
            }
            _ => None,
        };
        let outside = || Err(Error::argument("only the beginning of an object can be written later").at(at));
        written.unwrap_or_else(outside).map_err(|error| error.in_file(self.url().shown()))
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// An upload whose bytes are all sent, or being sent. The object is not visible yet.
pub struct SealedUpload {
    parts: Arc<Parts>,
    listen: Listen,
    appearance: Appearance,
    /// The whole object, if it is sent with one request when it is published.
    whole: Option<(Bytes, Option<Room>)>,
    size: u64,
    /// Whether it is published, or shall stay as it is.
    is_done: bool,
}

impl SealedUpload {
    /// Where the object will appear.
    pub fn url(&self) -> &RemoteUrl {
        &self.parts.url
    }

    /// The size of the object.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Waits until all parts have arrived.
    pub fn wait(&self) -> Result<()> {
        self.parts.wait(&self.listen)
    }

    /// What the store has received, if it is sent in parts. All of it must have arrived.
    pub fn pieces(&self) -> Result<Option<Pieces>> {
        if self.whole.is_some() { Ok(None) } else { self.parts.pieces(self.size).map(Some) }
    }

    /// Whether the store has told the right checksums of the bytes. It can be asked after the object was published, too.
    pub fn comparison(&self) -> Comparison {
        Comparison(self.parts.clone())
    }

    /// Leaves the parts in the store, where [`Upload::adopt`] finds them.
    pub fn leave(mut self) {
        self.keep();
    }

    /// Leaves the upload as it is.
    fn keep(&mut self) {
        self.is_done = true;
    }

    /// Makes the object appear.
    pub fn publish(mut self, cx: &Cx<'_>) -> Result<()> {
        self.wait()?;
        let (parts, overwrite) = (self.parts.clone(), self.appearance.overwrite);
        let (whole, size) = (self.whole.take(), self.size);
        let published = super::runtime::run(
            async move {
                match &whole {
                    Some((bytes, _)) => {
                        let put = finish::put(&parts.object, bytes, overwrite).await;
                        put.map(|is_compared| parts.note_comparison(is_compared))
                    }
                    None => finish::complete(&parts.object, &parts.pieces(size)?, overwrite).await,
                }
            },
            cx,
        );
        published.map_err(|error| error.in_file(self.url().shown()))?;
        self.is_done = true;
        Ok(())
    }
}

impl Drop for SealedUpload {
    fn drop(&mut self) {
        if !self.is_done {
            self.parts.abort();
        }
    }
}

/// Says whether what arrived at a store is known to be what was sent.
pub struct Comparison(Arc<Parts>);

impl Comparison {
    /// Whether the store has told the right checksum of each byte that was sent. Never before all of them have arrived: an
    /// object that is one request is sent when it is published.
    pub fn is_done(&self) -> bool {
        self.0.is_compared()
    }
}

/// What a store has received of an object: enough to make the object of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// The name that the store gave to the upload. Azure gives none.
    pub id: String,
    /// What the store calls the parts, in order.
    pub parts: Vec<String>,
    /// The size of the object.
    pub size: u64,
}

/// Stores an object with one request. It replaces an object of that name.
pub(super) async fn put(object: &Object, bytes: &Bytes) -> Result<()> {
    finish::put(object, bytes, true).await.map(drop)
}

/// A request that only says what to do.
fn command(object: &Object) -> Arc<Sending> {
    Arc::new(Sending::command(object.store.kind))
}

/// Whether a store of this kind takes `If-None-Match: *` for an object of parts.
fn takes_condition(kind: Kind) -> bool {
    matches!(kind, Kind::S3 | Kind::Azure | Kind::Http)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_equal_for_a_long_time_and_an_object_of_five_tebibytes_fits() {
        for first in [5 << 20, 8 << 20, 1 << 30, 5 << 30] {
            assert!((0..=EQUAL_PARTS).all(|number| part_size(first, number) == first));
            let sizes: Vec<_> = (0..MOST_PARTS).map(|number| part_size(first, number)).collect();
            assert!(sizes.is_sorted() && sizes.iter().all(|&size| size <= LARGEST_PART));
            assert!(sizes.iter().sum::<u64>() >= 5 << 40, "{first}");
        }
    }
}
