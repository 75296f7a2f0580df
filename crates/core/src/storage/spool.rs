//! Temporary files: unpacked streams, and tables of chunks that are kept on disk.
//!
//! All temporary data of a data set goes to one file without a name, so ten thousand compressed files need one file
//! descriptor and not ten thousand. Each stream or table is a *part* of that file. A part takes *extents* of the file
//! as it grows, and the extents of different parts are interleaved.
//!
//! A forked child reads the parts that existed before the fork, but begins its own file for new ones. Otherwise parent
//! and child would write to the same offsets.

use super::handles::Handles;
use super::identity::Identity;
use super::positional::{self, Failure};
use crate::bytes;
use crate::cx::Stop;
use crate::error::{Error, Result};
use crate::process;
use arc_swap::ArcSwapOption;
use std::fs::File;
use std::io::ErrorKind;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes buffered before they are written.
const BUFFER: usize = 256 << 10;
/// A part up to this size stays in memory.
const SMALL: usize = 4 << 10;
/// The size of the first extent of a part, and of the largest. The unused rest of an extent takes no disk space.
const FIRST_EXTENT: u64 = 1 << 20;
const LARGEST_EXTENT: u64 = 1 << 30;

/// The temporary bytes of one data set.
pub struct Spool {
    limit: u64,
    /// Bytes written so far, of all parts.
    written: AtomicU64,
    /// The file that new parts go to.
    current: ArcSwapOption<SpoolFile>,
    handles: Arc<Handles>,
}

/// A file without a name. It disappears when its descriptor is closed.
struct SpoolFile {
    file: ManuallyDrop<File>,
    identity: Identity,
    generation: u64,
    /// Where the next extent begins.
    end: AtomicU64,
    handles: Arc<Handles>,
}

impl SpoolFile {
    fn new(handles: &Arc<Handles>) -> Result<Arc<Self>> {
        let file = tempfile::tempfile().map_err(|e| failed("cannot create a temporary file", e))?;
        let metadata = file.metadata().map_err(|e| failed("cannot create a temporary file", e))?;
        handles.occupy();
        Ok(Arc::new(SpoolFile {
            identity: Identity::of(&metadata),
            file: ManuallyDrop::new(file),
            generation: process::generation(),
            end: AtomicU64::new(0),
            handles: handles.clone(),
        }))
    }

    /// The file, if its descriptor still refers to it in this process.
    fn file(&self) -> Result<&File> {
        if self.generation == process::generation() {
            return Ok(&self.file);
        }
        let is_same =
            |file: &File| file.metadata().is_ok_and(|m| Identity::of(&m).is_file_of(&self.identity));
        if is_same(&self.file) {
            return Ok(&self.file);
        }
        Err(Error::closed("a temporary file was lost when the process forked").hint("open the records again"))
    }
}

impl Drop for SpoolFile {
    fn drop(&mut self) {
        // In a forked child, the number may refer to another file, which we must not close.
        if self.generation == process::generation() {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.file) };
            self.handles.vacate();
        }
    }
}

impl Spool {
    /// Takes at most `limit` bytes. No file is created before a part needs one.
    pub fn new(limit: u64, handles: Arc<Handles>) -> Self {
        Spool { limit, written: AtomicU64::new(0), current: ArcSwapOption::empty(), handles }
    }

    /// A new, empty part.
    pub fn begin(&self) -> PartWriter<'_> {
        PartWriter { spool: self, part: Part::default(), buffer: Vec::new(), room: 0 }
    }

    fn file(&self) -> Result<Arc<SpoolFile>> {
        if let Some(file) = self.current.load_full()
            && file.generation == process::generation()
        {
            return Ok(file);
        }
        // Two threads may both create a file. Both are used, each by the part that it was created for.
        let file = SpoolFile::new(&self.handles)?;
        self.current.store(Some(file.clone()));
        Ok(file)
    }

    fn count(&self, bytes: u64) -> Result<()> {
        let fits = |written: u64| written.checked_add(bytes).filter(|&written| written <= self.limit);
        if self.written.fetch_update(Relaxed, Relaxed, fits).is_ok() {
            return Ok(());
        }
        Err(Error::limit("temporary files take more bytes than the limit")
            .expected(format_args!("at most {} bytes", self.limit))
            .hint("raise spool_bytes in limits= if you trust the file"))
    }
}

/// Some consecutive bytes of a part, and where they lie in the file.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// The offset in the part after its last byte.
    end: u64,
    /// Added to an offset in the part, this gives the offset in the file.
    shift: u64,
}

/// The complete temporary bytes of one owner.
#[derive(Default)]
pub struct Part {
    file: Option<Arc<SpoolFile>>,
    extents: Vec<Extent>,
    length: u64,
    /// All bytes, if they are few enough to need no file.
    small: Vec<u8>,
}

impl Part {
    /// How many bytes it has.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Fills `out` with the bytes from `at` on. An error if the part does not have them.
    pub fn read_at(&self, at: u64, out: &mut [u8], stop: &dyn Stop) -> Result<()> {
        bytes::range("temporary bytes", at, out.len() as u64, self.length)?;
        let Some(file) = &self.file else {
            out.copy_from_slice(&self.small[at as usize..at as usize + out.len()]);
            return Ok(());
        };
        let (file, mut at, mut rest) = (file.file()?, at, out);
        let first = self.extents.partition_point(|extent| extent.end <= at);
        for extent in &self.extents[first..] {
            let here = rest.len().min(usize::try_from(extent.end - at).unwrap_or(usize::MAX));
            let (now, later) = rest.split_at_mut(here);
            positional::read_exact(file, now, at.wrapping_add(extent.shift), stop).map_err(|e| match e {
                Failure::Stopped(error) => error,
                Failure::Ends(_) => {
                    failed("reading a temporary file failed", ErrorKind::UnexpectedEof.into())
                }
                Failure::Refused(_, error) => failed("reading a temporary file failed", error),
            })?;
            (at, rest) = (at + here as u64, later);
            if rest.is_empty() {
                return Ok(());
            }
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(Error::format("offset is not in the temporary file").at(at))
        }
    }
}

/// Writes one part.
pub struct PartWriter<'a> {
    spool: &'a Spool,
    part: Part,
    buffer: Vec<u8>,
    /// The bytes that are left in the last extent.
    room: u64,
}

impl PartWriter<'_> {
    /// Appends bytes.
    pub fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER { self.flush() } else { Ok(()) }
    }

    /// Call this when all bytes are written.
    pub fn finish(mut self) -> Result<Part> {
        if self.part.file.is_none() && self.buffer.len() <= SMALL {
            self.spool.count(self.buffer.len() as u64)?;
            self.part.length = self.buffer.len() as u64;
            self.buffer.shrink_to_fit();
            self.part.small = self.buffer;
            return Ok(self.part);
        }
        self.flush()?;
        self.part.extents.shrink_to_fit();
        Ok(self.part)
    }

    fn flush(&mut self) -> Result<()> {
        self.spool.count(self.buffer.len() as u64)?;
        let file = match &self.part.file {
            Some(file) => file.clone(),
            None => self.part.file.insert(self.spool.file()?).clone(),
        };
        let buffer = std::mem::take(&mut self.buffer);
        let mut rest = &buffer[..];
        while !rest.is_empty() {
            if self.room == 0 {
                self.extend(&file)?;
            }
            let (now, later) =
                rest.split_at(rest.len().min(usize::try_from(self.room).unwrap_or(usize::MAX)));
            let shift = self.part.extents.last().map_or(0, |extent| extent.shift);
            positional::write_all(file.file()?, now, self.part.length.wrapping_add(shift))
                .map_err(|e| failed("writing a temporary file failed", e))?;
            self.part.length += now.len() as u64;
            self.room -= now.len() as u64;
            rest = later;
        }
        self.buffer = buffer;
        self.buffer.clear();
        Ok(())
    }

    /// Takes another extent of the file.
    fn extend(&mut self, file: &SpoolFile) -> Result<()> {
        let size = self.part.length.clamp(FIRST_EXTENT, LARGEST_EXTENT);
        let begin = file.end.fetch_add(size, Relaxed);
        let (shift, end) = (begin.wrapping_sub(self.part.length), self.part.length + size);
        self.room = size;
        match self.part.extents.last_mut() {
            // No other part took an extent in between, so the last extent continues.
            Some(last) if last.shift == shift => last.end = end,
            _ => {
                bytes::push("extents of a temporary file", &mut self.part.extents, Extent { end, shift })?;
            }
        }
        Ok(())
    }
}

fn failed(what: &'static str, error: std::io::Error) -> Error {
    Error::io(what, error)
        .hint("the folder for temporary files (TMPDIR) needs space for all of the decompressed data")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cx::Never;
    use crate::error::Kind;
    use crate::limits::Limits;
    use crate::storage::file_set::FileSet;

    fn content(length: usize, seed: u8) -> Vec<u8> {
        (0..length).map(|i| (i % 251) as u8 ^ seed).collect()
    }

    fn check(part: &Part, expected: &[u8]) {
        assert_eq!(part.len(), expected.len() as u64);
        for (at, length) in
            [(0, expected.len()), (expected.len() / 3, expected.len() / 2), (expected.len(), 0)]
        {
            let mut out = vec![0; length];
            part.read_at(at as u64, &mut out, &Never).unwrap();
            assert!(out == expected[at..at + length]);
        }
        assert!(part.read_at(1, &mut vec![0; expected.len()], &Never).is_err());
    }

    #[test]
    fn parts_that_grow_side_by_side_keep_their_bytes_and_share_one_descriptor() {
        let limits = Limits::default();
        let files = FileSet::new(&limits);
        let all: Vec<_> = (0..5).map(|i| content(3_000_000 * i, i as u8)).collect();
        let mut writers: Vec<_> = all.iter().map(|_| files.spool.begin()).collect();
        for at in (0..12_000_000).step_by(100_003) {
            for (writer, bytes) in writers.iter_mut().zip(&all) {
                let end = bytes.len().min(at + 100_003);
                writer.write_all(&bytes[at.min(end)..end]).unwrap();
            }
        }
        let parts: Vec<_> = writers.into_iter().map(|writer| writer.finish().unwrap()).collect();
        parts.iter().zip(&all).for_each(|(part, bytes)| check(part, bytes));
        let file = files.spool.current.load_full().unwrap();
        assert!(parts[1..].iter().all(|part| part.file.as_ref().is_some_and(|own| Arc::ptr_eq(own, &file))));
        assert!(parts[1].extents.len() > 1, "their extents lie between each other");
    }

    #[test]
    fn a_short_part_makes_no_file() {
        let limits = Limits::default();
        let files = FileSet::new(&limits);
        let mut writer = files.spool.begin();
        writer.write_all(b"a few bytes").unwrap();
        check(&writer.finish().unwrap(), b"a few bytes");
        assert!(files.spool.current.load().is_none());
    }

    #[test]
    fn all_parts_together_stay_below_the_limit() {
        let limits = Limits { spool_bytes: 1_000_000, ..Limits::default() };
        let files = FileSet::new(&limits);
        let mut first = files.spool.begin();
        first.write_all(&content(600_000, 1)).unwrap();
        let mut second = files.spool.begin();
        let error = second.write_all(&content(600_000, 2)).unwrap_err();
        assert!(matches!(error.kind(), Kind::Limit) && error.to_string().contains("spool_bytes"), "{error}");
        assert_eq!(first.finish().unwrap().len(), 600_000);
    }

    #[test]
    fn a_forked_child_begins_a_file_of_its_own() {
        process::tests::alone("storage::spool::tests::a_forked_child_begins_a_file_of_its_own", || {
            let limits = Limits::default();
            let files = FileSet::new(&limits);
            let (before, after) = (content(500_000, 1), content(500_000, 2));
            let write = |bytes: &[u8]| {
                let mut writer = files.spool.begin();
                writer.write_all(bytes).unwrap();
                writer.finish().unwrap()
            };
            let old = write(&before);
            process::forked();
            let new = write(&after);
            check(&old, &before);
            check(&new, &after);
            assert!(!Arc::ptr_eq(old.file.as_ref().unwrap(), new.file.as_ref().unwrap()));
        });
    }
}
