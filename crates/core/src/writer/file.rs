//! One output and its encoder: records are grouped, groups encoded (by other threads when asked) and placed in order.

use crate::error::{Error, Result};
use crate::format::{EncodeJob, Encoded, Encoder, Group};
use crate::process;
use crate::storage::output::{Output, Stream};
use crate::storage::publish::{Sealed, Staged};
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

/// Threads that encode, shared by the shards of one writer.
pub struct Pool {
    threads: rayon::ThreadPool,
    count: usize,
}

impl Pool {
    /// Starts `count` threads.
    pub fn new(count: usize) -> Result<Arc<Self>> {
        let builder = rayon::ThreadPoolBuilder::new()
            .num_threads(count)
            .thread_name(|i| format!("anyrecord-encode-{i}"));
        let threads =
            builder.build().map_err(|e| Error::io("cannot start threads", std::io::Error::other(e)))?;
        Ok(Arc::new(Pool { threads, count }))
    }

    fn start(&self, job: EncodeJob, group: Group) -> Receiver<Result<Encoded>> {
        let (done, result) = sync_channel(1);
        self.threads.spawn(move || {
            // The writer may be gone by now; then nobody wants the result.
            let _ = done.send(job(group));
        });
        result
    }
}

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
    encoder: Box<dyn Encoder>,
    job: EncodeJob,
    pool: Option<Arc<Pool>>,
    /// Groups that are being encoded, in order.
    in_flight: VecDeque<Receiver<Result<Encoded>>>,
}

/// Writes the records of one file.
pub struct FileWriter {
    /// Dropped only in the process that made it, see `Drop`.
    parts: ManuallyDrop<Parts>,
    /// A group that is complete and not encoded yet.
    full: Option<Group>,
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
        encoder: Box<dyn Encoder>,
        pool: Option<Arc<Pool>>,
    ) -> Result<Self> {
        let sink = match std::fs::metadata(path) {
            Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => {
                let opened = std::fs::OpenOptions::new().write(true).open(path);
                let file =
                    opened.map_err(|e| Error::io("cannot open", e).in_file(&path.to_string_lossy()))?;
                Sink::Other(Box::new(Stream::new(std::io::BufWriter::new(file))))
            }
            _ => Sink::Staged(Staged::create(path, overwrite, durable)?),
        };
        Self::start(sink, encoder, pool)
    }

    /// Writes to an output that is already there.
    pub fn over(output: Box<dyn Output>, encoder: Box<dyn Encoder>, pool: Option<Arc<Pool>>) -> Result<Self> {
        Self::start(Sink::Other(output), encoder, pool)
    }

    fn start(mut sink: Sink, mut encoder: Box<dyn Encoder>, pool: Option<Arc<Pool>>) -> Result<Self> {
        encoder.start(sink.output())?;
        let job = encoder.job();
        let parts = ManuallyDrop::new(Parts { sink, encoder, job, pool, in_flight: VecDeque::new() });
        Ok(FileWriter { parts, full: None, num_records: 0, num_bytes: 0, generation: process::generation() })
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
        self.num_records += 1;
        self.num_bytes += record.len() as u64;
        Ok(self.full.is_some())
    }

    /// Encodes and writes the full group, if there is one.
    pub fn work(&mut self) -> Result<()> {
        self.full.take().map_or(Ok(()), |group| self.parts.encode(group))
    }

    /// Writes everything that is pending and what comes at the end. The file is whole then, under its temporary
    /// name; nothing is returned where the output is not a file of ours.
    pub fn seal(mut self) -> Result<Option<Sealed>> {
        self.work()?;
        self.parts.finish()?;
        // SAFETY: `self` is forgotten right after, so the parts are not taken or dropped a second time.
        let parts = unsafe { ManuallyDrop::take(&mut self.parts) };
        std::mem::forget(self);
        match parts.sink {
            Sink::Staged(staged) => staged.seal().map(Some),
            Sink::Other(_) => Ok(None),
        }
    }
}

impl Parts {
    fn encode(&mut self, group: Group) -> Result<()> {
        let Some(pool) = &self.pool else {
            let encoded = (self.job)(group)?;
            return self.encoder.place(encoded, self.sink.output());
        };
        self.in_flight.push_back(pool.start(self.job.clone(), group));
        // One group for each thread, and one more so that none of them waits.
        let most = pool.count + 1;
        while self.in_flight.len() > most {
            self.place_next()?;
        }
        Ok(())
    }

    fn place_next(&mut self) -> Result<()> {
        let Some(result) = self.in_flight.pop_front() else { return Ok(()) };
        let encoded = result.recv().map_err(|_| Error::closed("an encoding thread died"))??;
        self.encoder.place(encoded, self.sink.output())
    }

    fn finish(&mut self) -> Result<()> {
        if let Some(group) = self.encoder.flush() {
            self.encode(group)?;
        }
        while !self.in_flight.is_empty() {
            self.place_next()?;
        }
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
