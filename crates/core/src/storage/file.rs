//! A local file: mapped into memory where that is safe, else read by plain positional reads.
//!
//! A position is part of each read, so that threads and forked children can share one descriptor. The
//! descriptor is opened when it is needed and may be closed and opened again ([`handles`](super::handles));
//! a file that is not the same one any more when it is opened again is an error, not a mixture.

#[cfg(unix)]
use super::ReadOp;
use super::Storage;
#[cfg(target_os = "linux")]
use super::direct::{self, Direct};
use super::handles::{Handle, Handles};
#[cfg(target_os = "linux")]
use super::map::{Map, State};
#[cfg(target_os = "linux")]
use super::{Borrowed, sigbus};
use crate::error::{Error, Result};
use crate::process;
#[cfg(target_os = "linux")]
use crate::{bytes, prefetch};
use std::fs::Metadata;
use std::mem::ManuallyDrop;
#[cfg(target_os = "linux")]
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

/// What makes a file the same file: compared when it is opened again.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    size: u64,
    modified: Option<SystemTime>,
    device_and_inode: Option<(u64, u64)>,
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        #[cfg(unix)]
        let device_and_inode = {
            use std::os::unix::fs::MetadataExt;
            Some((metadata.dev(), metadata.ino()))
        };
        #[cfg(not(unix))]
        let device_and_inode = None;
        Identity { size: metadata.len(), modified: metadata.modified().ok(), device_and_inode }
    }

    /// Whether both are the same file, whatever was done to it.
    fn is_file_of(&self, other: &Self) -> bool {
        self.device_and_inode == other.device_and_inode
    }
}

/// How a local file is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// Mapped on file systems of this machine, plain on network and user-space ones.
    #[default]
    Auto,
    /// By positional reads.
    Plain,
    /// Mapped wherever the system lets us.
    Map,
    /// By reads past the page cache; by positional reads where the file system has none.
    Direct,
}

/// A file while it is open.
pub struct OpenFile {
    file: ManuallyDrop<std::fs::File>,
    /// The process that this descriptor is known to be right in. The kernel copies descriptors to a forked child a
    /// moment before it copies memory, so that a thread that opens or closes files in between leaves the child with
    /// numbers that mean other files.
    generation: AtomicU64,
    #[cfg(target_os = "linux")]
    direct: Option<Direct>,
}

impl OpenFile {
    /// A file that was just opened in this process.
    pub fn new(file: std::fs::File, io: Io) -> Self {
        #[cfg(target_os = "linux")]
        let direct = if io == Io::Direct { Direct::switch(&file) } else { None };
        #[cfg(not(target_os = "linux"))]
        let _ = io;
        OpenFile {
            file: ManuallyDrop::new(file),
            generation: AtomicU64::new(process::generation()),
            #[cfg(target_os = "linux")]
            direct,
        }
    }

    /// Whether the descriptor is right in this process: looked at once in each.
    fn is_right(&self, identity: &Identity) -> bool {
        let generation = process::generation();
        if self.generation.load(Relaxed) == generation {
            return true;
        }
        // A file that was cut meanwhile is still the file; that is for who reads it to find out.
        let is_right =
            self.file.metadata().is_ok_and(|metadata| Identity::of(&metadata).is_file_of(identity));
        if is_right {
            self.generation.store(generation, Relaxed);
        }
        is_right
    }

    fn is_direct(&self) -> bool {
        #[cfg(target_os = "linux")]
        return self.direct.is_some();
        #[cfg(not(target_os = "linux"))]
        return false;
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // A number that may mean another file here is not ours to close.
        if self.generation.load(Relaxed) == process::generation() {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

/// Whether a file lies on a file system of this machine, as far as is known. On network and user-space ones a read
/// of a mapped page can wait for ever, or fail where a plain read would be tried again.
#[cfg(target_os = "linux")]
fn is_of_this_machine(file: &std::fs::File) -> bool {
    const LOCAL: [u64; 10] = [
        0xEF53,      // ext2, ext3, ext4
        0x5846_5342, // xfs
        0x9123_683E, // btrfs
        0x0102_1994, // tmpfs
        0x794C_7630, // overlay
        0xF2F5_2010, // f2fs
        0x2FC1_2FC1, // zfs
        0xCA45_1A4E, // bcachefs
        0x7371_7368, // squashfs
        0xE0F5_E1E2, // erofs
    ];
    rustix::fs::fstatfs(file).is_ok_and(|found| LOCAL.contains(&(found.f_type as u64 & 0xFFFF_FFFF)))
}

/// A range of a mapped file.
#[cfg(target_os = "linux")]
pub struct MappedRange<'a> {
    file: &'a LocalFile,
    map: &'a Map,
    bytes: &'a [u8],
}

#[cfg(target_os = "linux")]
impl<'a> MappedRange<'a> {
    /// The bytes in place.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether all of the bytes were the file's when they were read. False: perhaps, see [`settle`](Self::settle).
    #[inline]
    pub fn is_intact(&self) -> bool {
        if !self.file.is_checked {
            return self.is_intact_unchecked();
        }
        self.map.state_after_reading() == State::Intact
    }

    /// A file that is cut inside a page reads as zeros from there to the end of the page, with no signal. A checksum
    /// sees that. Without one, a look at the last byte finds every cut but those in the last page, and only who reads
    /// from that one has to ask for the size.
    fn is_intact_unchecked(&self) -> bool {
        self.map.touch_end();
        self.map.state_after_reading() == State::Intact
            && (!self.map.is_in_last_page(self.end()) || self.file.unchanged().is_ok())
    }

    /// Where the range ends in the file.
    fn end(&self) -> u64 {
        (self.bytes.as_ptr_range().end as usize - self.map.bytes().as_ptr() as usize) as u64
    }

    /// [`Borrowed::believed`] where there is doubt.
    #[cold]
    #[inline(never)]
    pub fn settle<T>(&self, result: Result<T>) -> Option<Result<T>> {
        match self.map.state_after_reading() {
            State::Retired => {
                Some(Err(Error::closed("these records were closed meanwhile").hint("open them again")))
            }
            State::Intact if self.is_intact() && self.file.unchanged().is_ok() => Some(result),
            _ => None,
        }
    }
}

/// A local file.
pub struct LocalFile {
    path: PathBuf,
    name: String,
    identity: Identity,
    handle: Arc<Handle>,
    handles: Arc<Handles>,
    /// Whether what is read is verified by checksums. Only a map needs to know.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code))]
    is_checked: bool,
    io: Io,
    /// Whether reads past the page cache were asked for and are not to be had.
    is_refused: bool,
    /// Needs no descriptor, and is not one of the things that are closed when there are too many.
    #[cfg(target_os = "linux")]
    map: Option<Map>,
}

impl LocalFile {
    /// Opens a file; its descriptor counts against the bound of `handles`. `is_checked`: what is read is verified by
    /// checksums.
    pub fn open(path: &Path, handles: &Arc<Handles>, io: Io, is_checked: bool) -> Result<Self> {
        Self::open_as(path.to_string_lossy().into_owned(), path, handles, io, is_checked)
    }

    /// [`open`](Self::open) of a file that errors call `name`.
    pub fn open_as(
        name: String,
        path: &Path,
        handles: &Arc<Handles>,
        io: Io,
        is_checked: bool,
    ) -> Result<Self> {
        let (file, metadata) = open(path, &name)?;
        let handle = Arc::new(Handle::default());
        let identity = Identity::of(&metadata);
        #[cfg(target_os = "linux")]
        let map = match io {
            Io::Auto if !is_of_this_machine(&file) => None,
            Io::Plain | Io::Direct => None,
            Io::Auto | Io::Map => Map::new(&file, identity.size),
        };
        let opened = Arc::new(OpenFile::new(file, io));
        let is_refused = io == Io::Direct && !opened.is_direct();
        handles.admit(&handle, opened);
        Ok(LocalFile {
            path: path.to_owned(),
            name,
            identity,
            handle,
            handles: handles.clone(),
            is_checked,
            io,
            is_refused,
            #[cfg(target_os = "linux")]
            map,
        })
    }

    /// Calls `act` with the open file, which is opened again if it was closed meanwhile.
    fn with_file<T>(&self, act: impl FnOnce(&OpenFile) -> Result<T>) -> Result<T> {
        match self.handle.get().as_deref() {
            Some(file) if file.is_right(&self.identity) => act(file),
            _ => act(&*self.open_again()?),
        }
    }

    #[cold]
    fn open_again(&self) -> Result<Arc<OpenFile>> {
        let (file, metadata) = open(&self.path, &self.name)?;
        let found = Identity::of(&metadata);
        if found != self.identity {
            return Err(Error::format("file changed since it was opened")
                .in_file(&self.name)
                .expected(format_args!("{:?}", self.identity))
                .found(format_args!("{found:?}"))
                .hint("open it again to read the new one"));
        }
        let file = Arc::new(OpenFile::new(file, self.io));
        self.handles.admit(&self.handle, file.clone());
        Ok(file)
    }

    fn ends_early(&self, position: u64) -> Error {
        Error::truncated("the file ends early")
            .in_file(&self.name)
            .at(position)
            .expected(format_args!("{} bytes in the file, as when it was opened", self.len()))
            .found(format_args!("its end at or before byte {position}"))
            .hint("was it cut or written to meanwhile?")
    }

    fn failed(&self, position: u64, error: std::io::Error) -> Error {
        Error::io("reading failed", error).in_file(&self.name).at(position)
    }

    #[cfg(target_os = "linux")]
    fn read_direct(&self, file: &OpenFile, direct: Direct, ops: &mut [ReadOp<'_>]) -> Result<()> {
        direct.read_many(&file.file, ops).map_err(|failure| match failure {
            direct::Failure::Ends(position) => self.ends_early(position),
            direct::Failure::Refused(position, error) => self.failed(position, error.into()),
        })
    }
}

fn open(path: &Path, name: &str) -> Result<(std::fs::File, Metadata)> {
    let failed = |e| Error::io("cannot open", e).in_file(name);
    // A look before the open: opening a pipe that nobody writes to would wait for ever.
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if metadata.is_dir() {
        return Err(Error::io("cannot open", std::io::ErrorKind::IsADirectory.into()).in_file(name));
    }
    if !metadata.is_file() {
        return Err(Error::argument("not a regular file, so its records cannot be read by number")
            .in_file(name)
            .hint("copy it to a file first"));
    }
    let file = std::fs::File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    Ok((file, metadata))
}

/// One positional read, which may come back short.
pub(crate) fn read_some(file: &std::fs::File, out: &mut [u8], at: u64) -> std::io::Result<usize> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_at(file, out, at);
    #[cfg(windows)]
    return std::os::windows::fs::FileExt::seek_read(file, out, at);
}

impl Drop for LocalFile {
    fn drop(&mut self) {
        // The ring of handles may hold the descriptor for longer than anybody needs it.
        self.handle.close();
    }
}

impl Storage for LocalFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> u64 {
        self.identity.size
    }

    fn read_at(&self, at: u64, out: &mut [u8]) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        self.with_file(|opened| {
            #[cfg(target_os = "linux")]
            if let Some(direct) = opened.direct {
                return self.read_direct(opened, direct, &mut [ReadOp { at, out }]);
            }
            let mut done = 0;
            while done < out.len() {
                let position = at + done as u64;
                match read_some(&opened.file, &mut out[done..], position) {
                    Ok(0) => return Err(self.ends_early(position)),
                    Ok(n) => done += n,
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(self.failed(position, e)),
                }
            }
            Ok(())
        })
    }

    #[cfg(unix)]
    fn read_many(&self, ops: &mut [ReadOp<'_>]) -> Result<()> {
        self.with_file(|opened| {
            #[cfg(target_os = "linux")]
            if let Some(direct) = opened.direct {
                return self.read_direct(opened, direct, ops);
            }
            // Records that lie one behind the other, as they do when a file is read in order, come in one system call
            // and still go straight to their places.
            #[cfg(target_os = "linux")]
            let mut cold = super::cold::Cold::default();
            let mut rest = ops;
            while let Some(first) = rest.first().map(|op| op.at) {
                let count = neighbours(rest);
                #[cfg(target_os = "linux")]
                let done = cold.read(&opened.file, rest, count);
                #[cfg(not(target_os = "linux"))]
                let done = read_neighbours(&opened.file, &mut rest[..count]);
                let done = done.map_err(|error| self.failed(first, error.into()))?;
                let (run, behind) = rest.split_at_mut(count);
                self.finish_run(run, done)?;
                rest = behind;
            }
            Ok(())
        })
    }

    #[cfg(target_os = "linux")]
    #[inline]
    fn borrow(&self, at: u64, length: usize) -> Result<Option<Borrowed<'_>>> {
        let Some(map) = &self.map else { return Ok(None) };
        let begin = usize::try_from(at).unwrap_or(usize::MAX);
        let Some(bytes) = map.bytes().get(begin..begin.saturating_add(length)) else {
            bytes::range("read", at, length as u64, self.len()).map_err(|e| e.in_file(&self.name))?;
            return Ok(None);
        };
        // A map that had a fault, or was closed by one of several who share it: positional reads go on.
        if map.state() != State::Intact || !sigbus::protects_this_thread() {
            return Ok(None);
        }
        Ok(Some(Borrowed::Mapped(MappedRange { file: self, map, bytes })))
    }

    fn release(&self) {
        self.handle.close();
        #[cfg(target_os = "linux")]
        if let Some(map) = &self.map {
            map.retire();
        }
    }

    fn has_descriptor(&self) -> bool {
        self.handle.get().as_ref().is_some_and(|opened| opened.is_right(&self.identity))
    }

    fn warning(&self) -> Option<&'static str> {
        self.is_refused.then_some(
            "read through the page cache, because the file system has no reads past it, which io=\"direct\" asks for",
        )
    }

    fn unchanged(&self) -> Result<()> {
        let opened = self.handle.get();
        let opened = opened.as_ref().filter(|opened| opened.is_right(&self.identity));
        let found = match opened {
            Some(opened) => opened.file.metadata(),
            // Of a map whose descriptor was closed, only the path is left to ask. Another file there says nothing.
            #[cfg(target_os = "linux")]
            None if self.map.is_some() => std::fs::metadata(&self.path),
            None => return Ok(()),
        };
        let size = match found {
            Ok(found) if Identity::of(&found).is_file_of(&self.identity) => found.len(),
            _ => return Ok(()),
        };
        if size == self.len() {
            return Ok(());
        }
        Err(Error::truncated("the file changed its size while it was open")
            .in_file(&self.name)
            .expected(format_args!("{} bytes, as when it was opened", self.len()))
            .found(format_args!("{size} bytes"))
            .hint("was it cut or written to meanwhile?"))
    }

    #[cfg(target_os = "linux")]
    fn is_mapped(&self) -> bool {
        self.map.as_ref().is_some_and(|map| map.state() == State::Intact)
    }

    #[cfg(target_os = "linux")]
    fn export(&self, range: Range<u64>) -> bool {
        let Some(map) = self.map.as_ref().filter(|_| sigbus::protects_this_thread()) else { return false };
        // A file that was cut inside its last page shows only in its size.
        (!map.is_in_last_page(range.end) || self.unchanged().is_ok()) && map.export()
    }

    #[cfg(target_os = "linux")]
    fn unexport(&self) {
        if let Some(map) = &self.map {
            map.unexport();
        }
    }

    #[cfg(target_os = "linux")]
    fn exported(&self, range: Range<u64>) -> Option<&[u8]> {
        let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
        self.map.as_ref()?.bytes().get(range)
    }

    #[cfg(target_os = "linux")]
    fn is_cached(&self, at: u64, length: usize) -> bool {
        self.map.as_ref().is_none_or(|map| map.is_cached(at, length))
    }

    #[cfg(target_os = "linux")]
    fn prefetch(&self, range: Range<u64>) {
        /// Behind its first lines, the processor finds the rest of a record by itself.
        const LINES: usize = 512;
        let (Ok(begin), Ok(end)) = (usize::try_from(range.start), usize::try_from(range.end)) else { return };
        if let Some(bytes) = self.map.as_ref().and_then(|map| map.bytes().get(begin..end)) {
            prefetch::bytes(bytes, LINES);
        }
    }

    #[cfg(target_os = "linux")]
    fn will_need(&self, ranges: &mut dyn Iterator<Item = (u64, usize)>) {
        if let Some(map) = &self.map {
            map.will_need(ranges);
        }
    }
}

/// How many of the first ranges lie one behind the other: at least 1, at most what one call takes.
#[cfg(unix)]
pub(super) fn neighbours(ops: &[ReadOp<'_>]) -> usize {
    // The least that POSIX systems allow in one call is 16; Linux and macOS take 1024.
    const MOST: usize = 1024;
    let follows = |pair: &[ReadOp<'_>]| pair[0].at.checked_add(pair[0].out.len() as u64) == Some(pair[1].at);
    1 + ops.windows(2).take(MOST - 1).take_while(|pair| follows(pair)).count()
}

#[cfg(unix)]
impl LocalFile {
    /// Reads what one call left undone, range by range.
    fn finish_run(&self, run: &mut [ReadOp<'_>], mut done: usize) -> Result<()> {
        for op in run {
            let here = done.min(op.out.len());
            done -= here;
            self.read_at(op.at + here as u64, &mut op.out[here..])?;
        }
        Ok(())
    }
}

/// Reads ranges that lie one behind the other with one call, which may come back short.
#[cfg(unix)]
pub(super) fn read_neighbours(file: &std::fs::File, run: &mut [ReadOp<'_>]) -> rustix::io::Result<usize> {
    let Some(at) = run.first().map(|op| op.at) else { return Ok(0) };
    let outcome = match run {
        [op] => rustix::io::pread(file, &mut *op.out, at),
        _ => {
            let mut places: Vec<_> = run.iter_mut().map(|op| std::io::IoSliceMut::new(op.out)).collect();
            rustix::io::preadv(file, &mut places, at)
        }
    };
    match outcome {
        Err(rustix::io::Errno::INTR) => Ok(0),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn temp(content: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        file
    }

    #[test]
    fn a_file_cut_under_the_reader_is_a_truncation_error() {
        let temp = temp(b"0123456789");
        let file = LocalFile::open(temp.path(), &Handles::new(4), Io::Plain, true).unwrap();
        std::fs::OpenOptions::new().write(true).open(temp.path()).unwrap().set_len(4).unwrap();
        let error = file.read_at(2, &mut [0; 8]).unwrap_err();
        assert!(matches!(error.kind(), Kind::Truncated));
        assert_eq!(error.offset(), Some(4));
    }

    #[test]
    fn a_replaced_file_keeps_its_bytes_while_open_and_is_refused_when_opened_again() {
        let temp = temp(b"old bytes");
        let file = LocalFile::open(temp.path(), &Handles::new(4), Io::Plain, true).unwrap();
        let new = temp.path().with_extension("new");
        std::fs::write(&new, b"new").unwrap();
        std::fs::rename(&new, temp.path()).unwrap();
        let mut out = [0; 3];
        file.read_at(0, &mut out).unwrap();
        assert_eq!(&out, b"old");
        file.release();
        assert!(file.read_at(0, &mut out).unwrap_err().to_string().contains("file changed"));
    }

    #[test]
    fn neighbouring_ranges_and_others_are_read_alike() {
        let content: Vec<u8> = (0..200u8).collect();
        let temp = temp(&content);
        let file = LocalFile::open(temp.path(), &Handles::new(4), Io::Plain, true).unwrap();
        let ranges = [(0, 3), (3, 0), (3, 7), (10, 90), (50, 10), (60, 140), (0, 1)];
        let mut out: Vec<Vec<u8>> = ranges.iter().map(|&(_, n)| vec![0; n]).collect();
        let mut ops: Vec<_> = ranges.iter().zip(&mut out).map(|(&(at, _), out)| ReadOp { at, out }).collect();
        file.read_many(&mut ops).unwrap();
        for ((at, n), out) in ranges.iter().zip(&out) {
            assert_eq!(out, &content[*at as usize..*at as usize + n]);
        }
        let (mut a, mut b) = ([0; 100], [0; 101]);
        let mut past = [ReadOp { at: 0, out: &mut a }, ReadOp { at: 100, out: &mut b }];
        assert!(matches!(file.read_many(&mut past).unwrap_err().kind(), Kind::Truncated));
    }

    #[test]
    fn a_folder_and_a_missing_file_keep_the_system_error() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path().to_owned(), dir.path().join("missing")] {
            let Err(error) = LocalFile::open(&path, &Handles::new(1), Io::Auto, true) else {
                panic!("opened {path:?}")
            };
            assert!(matches!(error.kind(), Kind::Io(_)));
        }
    }
}
