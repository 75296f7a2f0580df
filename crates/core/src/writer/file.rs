//! One output and its encoder. Records are collected in groups. Groups are encoded (by other threads if there is a
//! pool) and written in order.

use crate::error::{Error, Result};
use crate::format::encode::{AnyEncoded, AnyEncoder, CarriedChunk, EncodeJob, Group};
use crate::format::walk::Content;
use crate::process;
use crate::storage::output::{ForwardOutput, Output, open_special};
use crate::storage::publish::{Sealed, Staged};
use crate::storage::remote::upload::spooled::{SealedSpool, Spooled};
use crate::storage::remote::upload::{Pieces, SealedUpload, Upload};
use crate::storage::temporary::Owner;
use crate::writer::pool::{Flying, Listen, Pool};
use crate::writer::tally::{Sum, Tally};
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::Arc;

enum Sink {
    Staged(Staged),
    Upload(Upload),
    Spooled(Spooled),
    Other(Box<dyn Output>),
}

/// A complete file that is not visible yet.
pub enum Complete {
    /// A local file under a temporary name.
    File(Sealed),
    /// An object in a store.
    Object(SealedUpload),
    /// An object that is not in the store yet.
    Spooled(SealedSpool),
}

impl Sink {
    fn output(&mut self) -> &mut dyn Output {
        match self {
            Sink::Staged(staged) => staged,
            Sink::Upload(upload) => upload,
            Sink::Spooled(spooled) => spooled,
            Sink::Other(output) => &mut **output,
        }
    }
}

struct Parts {
    sink: Sink,
    encoder: Box<dyn AnyEncoder>,
    job: EncodeJob<AnyEncoded>,
    pool: Option<Arc<Pool>>,
    /// Groups that are being encoded, in order.
    in_flight: VecDeque<Flying>,
    listen: Listen,
}

/// Writes the records of one file.
pub struct FileWriter {
    /// Dropped only in the process that created it, see `Drop`.
    parts: ManuallyDrop<Parts>,
    /// A group that is complete and not encoded yet.
    full: Option<Group>,
    tally: Option<Tally>,
    num_records: u64,
    num_bytes: u64,
    generation: u64,
    is_finished: bool,
}

impl FileWriter {
    /// Stages a new file next to `path`. If `path` exists and is neither a regular file nor a folder, writes to it as a
    /// stream.
    pub fn create(
        path: &Path,
        overwrite: bool,
        durable: bool,
        owner: &Arc<Owner>,
        encoder: Box<dyn AnyEncoder>,
        pool: Option<Arc<Pool>>,
    ) -> Result<Self> {
        let sink = match std::fs::metadata(path) {
            Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => {
                let file = open_special(path, &metadata)?;
                Sink::Other(Box::new(ForwardOutput::new(
                    path.to_string_lossy(),
                    std::io::BufWriter::new(file),
                )))
            }
            _ => Sink::Staged(Staged::create(path, overwrite, durable, owner)?),
        };
        Self::start(sink, encoder, pool)
    }

    /// Stages one shard of `path`.
    pub fn create_shard(
        path: &Path,
        durable: bool,
        owner: &Arc<Owner>,
        encoder: Box<dyn AnyEncoder>,
        pool: Option<Arc<Pool>>,
    ) -> Result<Self> {
        Self::start(Sink::Staged(Staged::create_shard(path, durable, owner)?), encoder, pool)
    }

    /// Writes an object to a store.
    pub fn upload(upload: Upload, encoder: Box<dyn AnyEncoder>, pool: Option<Arc<Pool>>) -> Result<Self> {
        Self::start(Sink::Upload(upload), encoder, pool)
    }

    /// Writes an object that is sent to its store when it is complete.
    pub fn spooled(spooled: Spooled, encoder: Box<dyn AnyEncoder>, pool: Option<Arc<Pool>>) -> Result<Self> {
        Self::start(Sink::Spooled(spooled), encoder, pool)
    }

    /// Writes to an existing output.
    pub fn over(
        output: Box<dyn Output>,
        encoder: Box<dyn AnyEncoder>,
        pool: Option<Arc<Pool>>,
    ) -> Result<Self> {
        Self::start(Sink::Other(output), encoder, pool)
    }

    fn start(mut sink: Sink, mut encoder: Box<dyn AnyEncoder>, pool: Option<Arc<Pool>>) -> Result<Self> {
        encoder.start(sink.output())?;
        let job = encoder.any_job();
        // An encoder that only computes checksums has too little work for other threads.
        let pool = pool.filter(|pool| !pool.is_automatic() || encoder.compresses());
        let parts = Parts { sink, encoder, job, pool, in_flight: VecDeque::new(), listen: Listen::default() };
        Ok(FileWriter {
            parts: ManuallyDrop::new(parts),
            full: None,
            tally: None,
            num_records: 0,
            num_bytes: 0,
            generation: process::generation(),
            is_finished: false,
        })
    }

    /// Calls `listen` while it waits for encoding threads.
    #[must_use]
    pub fn with_listen(mut self, listen: Listen) -> Self {
        self.parts.listen = listen;
        self
    }

    /// Counts and hashes the written records, so that the file can be compared with them.
    #[must_use]
    pub fn with_tally(mut self, wanted: bool) -> Self {
        self.tally = wanted.then(Tally::default);
        self
    }

    /// Records written so far.
    pub fn num_records(&self) -> u64 {
        self.num_records
    }

    /// Bytes of the records written so far.
    pub fn num_bytes(&self) -> u64 {
        self.num_bytes
    }

    /// Adds a record. Returns whether a group is full and waits for [`work`](Self::work).
    pub fn push(&mut self, record: &[u8]) -> Result<bool> {
        self.work()?;
        self.full = self.parts.encoder.push(record)?;
        if let Some(tally) = &mut self.tally {
            tally.add(record);
        }
        self.num_records += 1;
        self.num_bytes += record.len() as u64;
        Ok(self.full.is_some())
    }

    /// Encodes and writes the full group, if there is one.
    pub fn work(&mut self) -> Result<()> {
        self.full.take().map_or(Ok(()), |group| self.parts.encode(group))
    }

    /// Whether a chunk of `records` records can be written in its stored form.
    pub fn takes_chunk(&self, records: u64) -> bool {
        self.full.is_none() && self.parts.encoder.takes_chunk(records)
    }

    /// Writes a chunk in its stored form. `content` has its records, for the tally.
    pub fn carry(&mut self, chunk: CarriedChunk, content: &dyn Content) -> Result<()> {
        let mut decoded_bytes = chunk.decoded_bytes;
        if let Some(tally) = &mut self.tally {
            decoded_bytes = 0;
            content.rows(&mut |record| {
                tally.add(record);
                decoded_bytes += record.len() as u64;
                Ok(())
            })?;
        }
        self.parts.drain()?;
        self.num_records += chunk.records;
        self.num_bytes += decoded_bytes;
        let parts = &mut *self.parts;
        parts.encoder.place_chunk(chunk, parts.sink.output())
    }

    /// Takes a complete file instead of what was written. `is_compared`: for an object, whether its store has told the right
    /// checksums of its parts.
    pub fn adopt(mut self, finished: Finished, is_compared: bool) -> Result<Complete> {
        // SAFETY: `self` is forgotten right after, so the parts are not taken or dropped a second time.
        let parts = unsafe { ManuallyDrop::take(&mut self.parts) };
        std::mem::forget(self);
        match (parts.sink, finished) {
            (Sink::Staged(staged), Finished::File(path)) => staged.adopt(&path).map(Complete::File),
            (Sink::Upload(upload), Finished::Pieces(pieces)) => {
                upload.adopt(pieces, is_compared).map(Complete::Object)
            }
            _ => Err(Error::argument("the file is complete in another kind of place")),
        }
    }

    /// Whether [`seal`](Self::seal) waits until the file is on the disk.
    pub fn is_durable(&self) -> bool {
        matches!(&self.parts.sink, Sink::Staged(staged) if staged.is_durable())
    }

    /// Writes everything that is pending, and the end of the file. Call this before [`seal`](Self::seal) if other files
    /// are written in between: the disk begins to write this one.
    pub fn finish(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_finished, true) {
            return Ok(());
        }
        self.complete()?;
        match &mut self.parts.sink {
            Sink::Staged(staged) => staged.finish(),
            _ => Ok(()),
        }
    }

    fn complete(&mut self) -> Result<()> {
        self.work()?;
        self.parts.finish()
    }

    /// Writes what [`finish`](Self::finish) writes, if that was not called. The file is then complete under its temporary
    /// name. Returns `None` if the output is not published.
    pub fn seal(mut self) -> Result<Option<(Complete, Option<Sum>)>> {
        if !self.is_finished {
            self.complete()?;
        }
        let sum = self.tally.take().map(Tally::sum);
        // SAFETY: `self` is forgotten right after, so the parts are not taken or dropped a second time.
        let parts = unsafe { ManuallyDrop::take(&mut self.parts) };
        std::mem::forget(self);
        let complete = match parts.sink {
            Sink::Staged(staged) => Complete::File(staged.seal()?),
            Sink::Upload(upload) => Complete::Object(upload.seal()?),
            Sink::Spooled(spooled) => Complete::Spooled(spooled.seal()?),
            Sink::Other(_) => return Ok(None),
        };
        Ok(Some((complete, sum)))
    }
}

/// A complete file that another process left.
pub enum Finished {
    /// A local file.
    File(PathBuf),
    /// The parts of an object.
    Pieces(Pieces),
}

impl Parts {
    fn encode(&mut self, group: Group) -> Result<()> {
        let pool = self.pool.clone();
        let shared = pool.as_ref().and_then(|pool| Some((pool, pool.most_groups(&group)?)));
        let Some((pool, most)) = shared else { return self.encode_here(group) };
        while let Some(result) = self.in_flight.front().and_then(Flying::poll) {
            self.in_flight.pop_front();
            self.encoder.place_any(result?, self.sink.output())?;
        }
        while self.in_flight.len() >= most || !pool.has_room(&group) {
            if self.in_flight.is_empty() {
                return self.encode_here(group);
            }
            self.place_next()?;
        }
        match pool.start(self.job.clone(), group) {
            Ok(flying) => self.in_flight.push_back(flying),
            Err(group) => self.encode_here(group)?,
        }
        Ok(())
    }

    /// Encodes a group in the calling thread. No group may be in flight.
    fn encode_here(&mut self, group: Group) -> Result<()> {
        let encoded = (self.job)(group)?;
        self.encoder.place_any(encoded, self.sink.output())
    }

    fn place_next(&mut self) -> Result<()> {
        let Some(flying) = self.in_flight.pop_front() else { return Ok(()) };
        self.encoder.place_any(flying.wait(&self.listen)?, self.sink.output())
    }

    /// Encodes and places everything that is pending.
    fn drain(&mut self) -> Result<()> {
        if let Some(group) = self.encoder.flush() {
            self.encode(group)?;
        }
        while !self.in_flight.is_empty() {
            self.place_next()?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.drain()?;
        self.encoder.finish(self.sink.output())?;
        self.sink.output().flush()
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        // In a forked child, the temporary file and the buffered bytes still belong to the parent. Removing the file or
        // writing the bytes would damage the parent's file, so the child does neither.
        if self.generation == process::generation() {
            // SAFETY: dropped once: `seal`, the only other place that takes the parts, forgets `self`.
            unsafe { ManuallyDrop::drop(&mut self.parts) };
        }
    }
}
