//! One output and its encoder: records are grouped, groups encoded (by other threads when asked) and placed in order.

use crate::error::Result;
use crate::format::encode::{AnyEncoded, AnyEncoder, CarriedChunk, EncodeJob, Group};
use crate::format::walk::Content;
use crate::process;
use crate::storage::output::{ForwardOutput, Output, open_special};
use crate::storage::publish::{Sealed, Staged};
use crate::writer::pool::{Flying, Listen, Pool};
use crate::writer::tally::{Sum, Tally};
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::Arc;

enum Sink {
    Staged(Staged),
    Other(Box<dyn Output>),
}

impl Sink {
    fn output(&mut self) -> &mut dyn Output {
        match self {
            Sink::Staged(staged) => staged,
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
    /// Dropped only in the process that made it, see `Drop`.
    parts: ManuallyDrop<Parts>,
    /// A group that is complete and not encoded yet.
    full: Option<Group>,
    tally: Option<Tally>,
    num_records: u64,
    num_bytes: u64,
    generation: u64,
}

impl FileWriter {
    /// Stages a new file beside `path`, or streams to what is there if that is no regular file.
    pub fn create(
        path: &Path,
        overwrite: bool,
        durable: bool,
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
            _ => Sink::Staged(Staged::create(path, overwrite, durable)?),
        };
        Self::start(sink, encoder, pool)
    }

    /// Stages one shard of `path`.
    pub fn create_shard(
        path: &Path,
        durable: bool,
        encoder: Box<dyn AnyEncoder>,
        pool: Option<Arc<Pool>>,
    ) -> Result<Self> {
        Self::start(Sink::Staged(Staged::create_shard(path, durable)?), encoder, pool)
    }

    /// Writes to an output that is already there.
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
        // Checksums alone are no work to share.
        let pool = pool.filter(|pool| !pool.is_automatic() || encoder.compresses());
        let parts = Parts { sink, encoder, job, pool, in_flight: VecDeque::new(), listen: Listen::default() };
        Ok(FileWriter {
            parts: ManuallyDrop::new(parts),
            full: None,
            tally: None,
            num_records: 0,
            num_bytes: 0,
            generation: process::generation(),
        })
    }

    /// Asks `listen` while it waits for threads that encode.
    #[must_use]
    pub fn with_listen(mut self, listen: Listen) -> Self {
        self.parts.listen = listen;
        self
    }

    /// Adds up what is written, so that the file can be compared with it.
    #[must_use]
    pub fn with_tally(mut self, wanted: bool) -> Self {
        self.tally = wanted.then(Tally::default);
        self
    }

    /// Records written so far.
    pub fn num_records(&self) -> u64 {
        self.num_records
    }

    /// Their bytes.
    pub fn num_bytes(&self) -> u64 {
        self.num_bytes
    }

    /// Takes a record in; tells whether a group is full and waits for [`work`](Self::work).
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

    /// Whether a chunk of that many records can be taken as it is.
    pub fn takes_chunk(&self, records: u64) -> bool {
        self.full.is_none() && self.parts.encoder.takes_chunk(records)
    }

    /// Writes a chunk as it is; `content` is what is in it, for the tally.
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

    /// Writes everything that is pending and what comes at the end. The file is whole then, under its temporary
    /// name; nothing is returned where the output is not a file of ours.
    pub fn seal(mut self) -> Result<Option<(Sealed, Option<Sum>)>> {
        self.work()?;
        self.parts.finish()?;
        let sum = self.tally.take().map(Tally::sum);
        // SAFETY: `self` is forgotten right after, so the parts are not taken or dropped a second time.
        let parts = unsafe { ManuallyDrop::take(&mut self.parts) };
        std::mem::forget(self);
        match parts.sink {
            Sink::Staged(staged) => Ok(Some((staged.seal()?, sum))),
            Sink::Other(_) => Ok(None),
        }
    }
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

    /// By the calling thread; nothing is in flight.
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
        // In a forked child the temporary file and the buffered bytes still belong to the parent: removing the one
        // or writing the other would ruin its file, so here they are left alone.
        if self.generation == process::generation() {
            // SAFETY: dropped once: `seal`, the only other place that takes the parts, forgets `self`.
            unsafe { ManuallyDrop::drop(&mut self.parts) };
        }
    }
}
