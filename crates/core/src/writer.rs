//! Writes files: groups records, encodes the groups, writes them in order, and publishes the files.
//!
//! A [`Writer`] distributes records to one file or to many shards. A [`FileWriter`] writes each file. No file appears
//! under its final name before it is published ([`SealedSet`]). If a writer is dropped before that, existing files stay
//! unchanged.

pub mod file;
pub mod pool;
pub mod sealed;
pub mod tally;
#[cfg(test)]
mod tests;

use crate::cx::Cx;
use crate::error::{Error, Kind, Result};
use crate::format::Format;
use crate::format::encode::CarriedChunk;
use crate::format::options::WriteOptions;
use crate::format::walk::Content;
use crate::process;
use crate::storage::output::Output;
use crate::storage::remote::upload::spooled::Spooled;
use crate::storage::remote::upload::{self, Appearance, Upload, Uploading};
use crate::storage::remote::url::{Kind as StoreKind, RemoteUrl};
use crate::storage::temporary::Owner;
use file::{Complete, FileWriter, Finished};
use pool::{Listen, Pool};
pub use sealed::SealedSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tally::Sum;

/// How records are distributed to files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharding {
    /// All records go to one file.
    One,
    /// Records go to this many shards in turn (round-robin). The shards are balanced even if the number of records is
    /// not known in advance.
    Turns(u64),
    /// Shards are filled in order. A new shard begins when a record would take the last one over this many bytes of
    /// records.
    Bytes(u64),
    /// Shards are filled in order. A new shard begins when the last one holds this many records.
    Records(u64),
    /// Shards are filled in order. A new shard begins when [`Writer::begin_shard`] is called.
    Explicit,
}

/// How a file is written.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Replace an existing file.
    pub overwrite: bool,
    /// Make published files survive a power failure.
    pub durable: bool,
    /// Number of encoding threads. With 0 or 1, the calling thread encodes. With None, there is one for each core if
    /// there is enough data to compress. In worker processes, None means the calling thread.
    pub threads: Option<usize>,
    /// How records are distributed to files.
    pub sharding: Sharding,
    /// Count and hash the written records, so that [`SealedSet::check`] can compare them with the files.
    pub tally: bool,
    /// How many records will be written, if that is known.
    pub num_records: Option<u64>,
    /// Called while the writer waits for encoding threads.
    pub listen: Listen,
    /// Who owns the temporary files. Writers whose files are published together can have one owner.
    pub owner: Arc<Owner>,
    /// The options of the format.
    pub format_options: WriteOptions,
}

impl Default for CreateOptions {
    fn default() -> Self {
        CreateOptions {
            overwrite: false,
            durable: true,
            threads: None,
            sharding: Sharding::One,
            tally: false,
            num_records: None,
            listen: Listen::default(),
            owner: Arc::default(),
            format_options: WriteOptions::default(),
        }
    }
}

/// Where objects are written to.
#[derive(Clone)]
pub struct ObjectTarget {
    /// The object, or the name of the set of shards.
    pub url: RemoteUrl,
    /// The shards, if their number is known. Shards that are not named are sent when all of them are complete.
    pub shards: Vec<RemoteUrl>,
    /// Whether the objects of several writers appear together.
    pub in_set: bool,
    /// What the uploads share.
    pub uploading: Uploading,
}

/// Writes records to one file, to many shards, or to any output.
pub struct Writer {
    format: &'static Format,
    path: PathBuf,
    /// Where objects are written to, instead of a path.
    objects: Option<ObjectTarget>,
    /// How many shards were begun.
    begun: usize,
    options: CreateOptions,
    pool: Option<Arc<Pool>>,
    /// The files that take records now. All shards with [`Sharding::Turns`], otherwise one file.
    open: Vec<FileWriter>,
    /// The last shard that is full, if it is durable. It is sealed when the next one is full, so that the disk writes it
    /// while records are written.
    full: Option<FileWriter>,
    sealed: Vec<(Complete, Option<Sum>)>,
    num_records: u64,
    num_bytes: u64,
    generation: u64,
    failed: Option<String>,
}

impl Writer {
    /// A writer to `path`, or to shards in the same folder.
    pub fn create(path: &Path, format: &'static Format, options: CreateOptions) -> Result<Self> {
        if options.sharding != Sharding::One
            && let Ok(metadata) = std::fs::metadata(path)
            && !metadata.is_file()
        {
            let error = if metadata.is_dir() {
                Error::io("cannot create", std::io::ErrorKind::IsADirectory.into())
            } else {
                Error::argument("shards are separate files, which a device or a pipe cannot hold")
            };
            return Err(error.in_file(&path.to_string_lossy()));
        }
        let mut writer = Self::new(path, format, options)?;
        writer.open_files(|writer, shard| writer.new_file(shard))?;
        Ok(writer)
    }

    /// A writer to objects of a store.
    pub fn create_objects(
        target: ObjectTarget,
        format: &'static Format,
        options: CreateOptions,
        cx: &Cx<'_>,
    ) -> Result<Self> {
        let shown = target.url.shown().to_owned();
        let is_set = options.sharding != Sharding::One || target.in_set;
        if target.url.kind == StoreKind::Http && is_set {
            return Err(Error::argument("a web server cannot make several files appear together")
                .in_file(&shown)
                .hint("write one file, or write the set to a local folder and upload it"));
        }
        if target.url.kind == StoreKind::Http && !options.overwrite {
            upload::refuse_existing(&target.url, &target.uploading, cx)?;
        }
        let mut writer = Self::new(Path::new(&shown), format, options)?;
        writer.objects = Some(target);
        writer.open_files(|writer, shard| writer.new_object(shard, cx))?;
        Ok(writer)
    }

    fn open_files(&mut self, mut open: impl FnMut(&mut Self, u64) -> Result<FileWriter>) -> Result<()> {
        let count = if let Sharding::Turns(n) = self.options.sharding { n } else { 1 };
        for shard in 0..count {
            let file = open(self, shard)?;
            self.open.push(file);
        }
        Ok(())
    }

    /// A writer to an output that is already open.
    pub fn over(output: Box<dyn Output>, format: &'static Format, options: CreateOptions) -> Result<Self> {
        if options.sharding != Sharding::One {
            return Err(Error::argument("shards need a path, not an open file"));
        }
        let mut writer = Self::new(Path::new(""), format, options)?;
        let encoder = (format.encoder)(&writer.format_options(0))?;
        let file = FileWriter::over(output, encoder, writer.pool.clone())?;
        let listen = writer.options.listen.clone();
        writer.open.push(file.with_listen(listen));
        Ok(writer)
    }

    fn new(path: &Path, format: &'static Format, options: CreateOptions) -> Result<Self> {
        let pool = match options.threads {
            None => Pool::automatic(),
            Some(0 | 1) => None,
            Some(count) => Some(Pool::of(count)),
        };
        Ok(Writer {
            format,
            path: path.to_owned(),
            objects: None,
            begun: 0,
            options,
            pool,
            open: Vec::new(),
            full: None,
            sealed: Vec::new(),
            num_records: 0,
            num_bytes: 0,
            generation: process::generation(),
            failed: None,
        })
    }

    fn format_options(&self, shard: u64) -> WriteOptions {
        let options = self.options.format_options.clone();
        match (self.options.num_records, self.options.sharding) {
            (Some(n), Sharding::One) => options.with_int("num_records", n),
            (Some(n), Sharding::Turns(shards)) => {
                options.with_int("num_records", n / shards + u64::from(shard < n % shards))
            }
            _ => options,
        }
    }

    fn new_file(&self, shard: u64) -> Result<FileWriter> {
        let encoder = (self.format.encoder)(&self.format_options(shard))?;
        let CreateOptions { overwrite, durable, sharding, tally, ref owner, .. } = self.options;
        let pool = self.pool.clone();
        let file = if sharding == Sharding::One {
            FileWriter::create(&self.path, overwrite, durable, owner, encoder, pool)?
        } else {
            FileWriter::create_shard(&self.path, durable, owner, encoder, pool)?
        };
        Ok(file.with_tally(tally).with_listen(self.options.listen.clone()))
    }

    fn new_object(&mut self, shard: u64, cx: &Cx<'_>) -> Result<FileWriter> {
        let encoder = (self.format.encoder)(&self.format_options(shard))?;
        let (tally, pool) = (self.options.tally, self.pool.clone());
        let Some(target) = &self.objects else { return Err(Error::argument("this writer has no objects")) };
        let (number, is_one) = (self.begun, self.options.sharding == Sharding::One);
        self.begun += 1;
        let name = if is_one { Some(&target.url) } else { target.shards.get(number) };
        let file = match name.filter(|url| url.kind != StoreKind::Http) {
            Some(url) => {
                // Of a set, the old objects are looked for when it is published.
                let overwrite = self.options.overwrite || !is_one;
                let appearance = Appearance { overwrite, in_set: !is_one || target.in_set };
                let upload = Upload::create(url, &target.uploading, appearance, cx)?;
                FileWriter::upload(upload, encoder, pool)?
            }
            None => FileWriter::spooled(Spooled::create(target.url.shown())?, encoder, pool)?,
        };
        Ok(file.with_tally(tally).with_listen(self.options.listen.clone()))
    }

    /// The format that is written.
    pub fn format(&self) -> &'static Format {
        self.format
    }

    /// Records written so far.
    pub fn num_records(&self) -> u64 {
        self.num_records
    }

    /// Bytes of the records written so far.
    pub fn num_bytes(&self) -> u64 {
        self.num_bytes
    }

    fn usable(&self) -> Result<()> {
        if self.generation != process::generation() {
            return Err(Error::closed("a writer belongs to the process that created it")
                .hint("create one in each process, each with its own path"));
        }
        match &self.failed {
            Some(first) => {
                Err(Error::closed(format!("writing failed before ({first})")).hint("write the file again"))
            }
            None => Ok(()),
        }
    }

    /// Writes a record. If the format cannot hold the record, it is rejected and the writer stays usable. After any
    /// other error, nothing more can be written or published.
    pub fn write(&mut self, record: &[u8]) -> Result<()> {
        if self.push(record)? { self.work() } else { Ok(()) }
    }

    /// Whether [`push`](Self::push) of a record of that size only copies it, without beginning a new shard.
    pub fn is_quick(&self, size: usize) -> bool {
        !self.shard_is_full(size)
    }

    /// The first half of [`write`](Self::write): adds the record. Returns whether [`work`](Self::work) must be called
    /// before the next record.
    pub fn push(&mut self, record: &[u8]) -> Result<bool> {
        self.usable()?;
        if let Some(n) = self.options.num_records
            && self.num_records >= n
        {
            return Err(Error::argument(format!("more records than the {n} announced by num_records")));
        }
        match self.deal(record) {
            Ok(full) => {
                self.num_records += 1;
                self.num_bytes += record.len() as u64;
                Ok(full)
            }
            Err(error) if matches!(error.kind(), Kind::Argument) => Err(error),
            Err(error) => Err(self.fail(error)),
        }
    }

    /// The second half of [`write`](Self::write): encodes and writes the groups that are full.
    pub fn work(&mut self) -> Result<()> {
        let worked = self.open.iter_mut().try_for_each(FileWriter::work);
        worked.map_err(|error| self.fail(error))
    }

    fn fail(&mut self, error: Error) -> Error {
        let error = match error.kind() {
            // The code that ran out of memory does not know which file is written.
            Kind::Memory if !self.path.as_os_str().is_empty() => error.in_file(&self.path.to_string_lossy()),
            _ => error,
        };
        self.failed = Some(error.to_string());
        error
    }

    /// Whether a record of that size begins a new shard.
    fn shard_is_full(&self, size: usize) -> bool {
        match (self.options.sharding, self.open.first()) {
            (Sharding::Records(most), Some(shard)) => shard.num_records() >= most,
            // A shard holds at least one record, and no more than `most` bytes unless that one is larger.
            (Sharding::Bytes(most), Some(shard)) => {
                shard.num_records() > 0 && shard.num_bytes().saturating_add(size as u64) > most
            }
            _ => false,
        }
    }

    fn next_shard(&mut self) -> Result<()> {
        let next = match &self.objects {
            // The name of a shard is not looked at, so nothing waits here.
            Some(_) => crate::cx::with_default(|cx| self.new_object(0, cx))?,
            None => self.new_file(0)?,
        };
        let mut last = std::mem::replace(&mut self.open[0], next);
        if !last.is_durable() {
            self.sealed.extend(last.seal()?);
            return Ok(());
        }
        last.finish()?;
        if let Some(before) = self.full.replace(last) {
            self.sealed.extend(before.seal()?);
        }
        Ok(())
    }

    /// Begins a new shard. Only for [`Sharding::Explicit`].
    pub fn begin_shard(&mut self) -> Result<()> {
        self.usable()?;
        if self.options.sharding != Sharding::Explicit {
            return Err(Error::argument("this writer begins shards automatically"));
        }
        self.next_shard().map_err(|error| self.fail(error))
    }

    /// Whether a chunk of that many records from another file of the same format can be written next without decoding
    /// it.
    pub fn takes_chunk(&self, records: u64) -> bool {
        let in_order = matches!(self.options.sharding, Sharding::One | Sharding::Explicit);
        let file = self.open.first().filter(|_| in_order && self.options.num_records.is_none());
        file.is_some_and(|file| file.takes_chunk(records))
    }

    /// Writes a chunk of another file of the same format without decoding it. Called only if
    /// [`takes_chunk`](Self::takes_chunk) returned true. `content` gives access to the records of the chunk.
    pub fn carry(&mut self, chunk: CarriedChunk, content: &dyn Content) -> Result<()> {
        self.usable()?;
        let (file, records) = (&mut self.open[0], chunk.records);
        let before = file.num_bytes();
        let carried = file.carry(chunk, content);
        self.num_records += records;
        self.num_bytes += file.num_bytes() - before;
        carried.map_err(|error| self.fail(error))
    }

    /// The options of the format.
    pub fn write_options(&self) -> &WriteOptions {
        &self.options.format_options
    }

    fn deal(&mut self, record: &[u8]) -> Result<bool> {
        if self.shard_is_full(record.len()) {
            self.next_shard()?;
        }
        let shard =
            if let Sharding::Turns(shards) = self.options.sharding { self.num_records % shards } else { 0 };
        self.open[shard as usize].push(record)
    }

    /// Completes all files under their temporary names. The set is empty if the output is not a file that is published.
    pub fn seal(mut self) -> Result<SealedSet> {
        self.usable()?;
        if let Some(n) = self.options.num_records
            && self.num_records != n
        {
            return Err(Error::argument(format!(
                "{} records written, but num_records announced {n}; nothing was published",
                self.num_records
            )));
        }
        let mut sealed = std::mem::take(&mut self.sealed);
        let mut files: Vec<_> = self.full.take().into_iter().chain(std::mem::take(&mut self.open)).collect();
        if files.len() > 1 && files.iter().all(FileWriter::is_durable) {
            // The disk writes all of them while we wait for the first.
            files.iter_mut().try_for_each(FileWriter::finish)?;
        }
        for file in files {
            sealed.extend(file.seal()?);
        }
        for (complete, _) in &sealed {
            if let Complete::Object(upload) = complete {
                upload.wait()?;
            }
        }
        let (objects, overwrite) = (self.objects.take(), self.options.overwrite);
        Ok(SealedSet { files: sealed, objects, overwrite })
    }
}

impl Writer {
    /// Takes a complete file that another process left, instead of what was written. For a writer of one file.
    /// `is_compared`: for an object, whether its store has told the right checksums of its parts.
    pub fn adopt(mut self, finished: Finished, sum: Option<Sum>, is_compared: bool) -> Result<SealedSet> {
        let one = self.open.pop().ok_or_else(|| Error::closed("this writer has no file"))?;
        let files = vec![(one.adopt(finished, is_compared)?, sum)];
        Ok(SealedSet { files, objects: self.objects.take(), overwrite: self.options.overwrite })
    }
}
