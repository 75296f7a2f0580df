//! A local file: memory-mapped if that is safe, else read by plain positional reads.
//!
//! Each read includes its position, so threads and forked children can share one file descriptor. The descriptor is
//! opened when it is needed. It may be closed and opened again ([`handles`](super::handles)). If the path then leads to
//! another file, that is an error. The bytes of two files are never mixed.

#[cfg(unix)]
use super::ReadOp;
#[cfg(target_os = "linux")]
use super::direct::{self, Direct};
#[cfg(target_os = "linux")]
use super::fetch::Queue;
use super::handles::{Handle, Handles};
use super::identity::{self, Identity, OpenFile};
#[cfg(target_os = "linux")]
use super::map::Map;
use super::positional::{self, Failure};
#[cfg(unix)]
use super::vectored::neighbours;
use super::{Mapped, Storage};
use crate::cx::Cx;
use crate::error::{Error, Result};
#[cfg(target_os = "linux")]
use arc_swap::Guard;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

/// How a local file is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// Memory-mapped on local file systems, plain on network and user-space ones.
    #[default]
    Auto,
    /// By positional reads.
    Plain,
    /// Memory-mapped wherever the system allows it.
    Map,
    /// By O_DIRECT reads, which bypass the page cache. By positional reads if the file system does not support
    /// O_DIRECT.
    Direct,
}

/// Whether a file is on a file system that is known to be local. On network and user-space file systems, a read of a
/// mapped page can wait forever, or fail where a plain read would be tried again.
#[cfg(target_os = "linux")]
pub(super) fn is_of_this_machine(file: impl std::os::fd::AsFd) -> bool {
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

/// A local file.
pub struct LocalFile {
    pub(super) path: PathBuf,
    pub(super) name: String,
    pub(super) identity: Identity,
    pub(super) handle: Arc<Handle>,
    handles: Arc<Handles>,
    io: Io,
    /// Whether O_DIRECT was requested but is not supported.
    is_refused: bool,
    /// The memory map. It needs no descriptor, and is not closed when too many descriptors are open.
    #[cfg(target_os = "linux")]
    pub(super) map: Option<Map>,
    /// Whether the file belongs to the user of this process.
    #[cfg(target_os = "linux")]
    pub(super) is_own: bool,
}

impl LocalFile {
    /// Opens a file. Its descriptor counts against the limit of `handles`.
    pub fn open(path: &Path, handles: &Arc<Handles>, io: Io) -> Result<Self> {
        Self::open_as(path.to_string_lossy().into_owned(), path, handles, io)
    }

    /// Like [`open`](Self::open). Errors call the file `name`.
    pub fn open_as(name: String, path: &Path, handles: &Arc<Handles>, io: Io) -> Result<Self> {
        let (file, metadata) = identity::open(path, &name)?;
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
            io,
            is_refused,
            #[cfg(target_os = "linux")]
            map,
            // SAFETY: the call takes nothing and cannot fail.
            #[cfg(target_os = "linux")]
            is_own: std::os::unix::fs::MetadataExt::uid(&metadata) == unsafe { libc::geteuid() },
        })
    }

    /// This file as [`Mapped`], if it is memory-mapped.
    pub fn into_mapped(self: Arc<Self>) -> Option<Arc<dyn Mapped>> {
        #[cfg(target_os = "linux")]
        return self.map.is_some().then_some(self as Arc<dyn Mapped>);
        #[cfg(not(target_os = "linux"))]
        None
    }

    /// A flag that is 0 as long as the file can be read from its memory map. None if it is not mapped.
    pub fn map_flag(&self) -> Option<&'static AtomicU8> {
        #[cfg(target_os = "linux")]
        return self.map.as_ref().map(Map::flag);
        #[cfg(not(target_os = "linux"))]
        None
    }

    /// The handle of its descriptor.
    pub fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// A warning to the caller about how the file is read: `"read ..."`.
    pub fn warning(&self) -> Option<&'static str> {
        self.is_refused.then_some(
            "read through the page cache, because the file system does not support O_DIRECT, which io=\"direct\" needs",
        )
    }

    /// Calls `act` with the open file. Opens the file again if it was closed meanwhile.
    pub(super) fn with_file<T>(&self, act: impl FnOnce(&OpenFile) -> Result<T>) -> Result<T> {
        match self.handle.get().as_deref() {
            Some(file) if file.is_right(&self.identity) => act(file),
            _ => act(&*self.open_again()?),
        }
    }

    #[cold]
    fn open_again(&self) -> Result<Arc<OpenFile>> {
        let (file, metadata) = identity::open(&self.path, &self.name)?;
        let found = Identity::of(&metadata);
        if found != self.identity {
            return Err(Error::format("file changed since it was opened")
                .in_file(&self.name)
                .expected(format_args!("{:?}", self.identity))
                .found(format_args!("{found:?}"))
                .hint("open it again to read the new file")
                .as_change());
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
            .found(format_args!("the end of the file at or before byte {position}"))
            .hint("the file was truncated or changed while it was open")
            .as_change()
    }

    fn refused(&self, position: u64, error: std::io::Error) -> Error {
        Error::io("reading failed", error).in_file(&self.name).at(position)
    }

    fn failed(&self, failure: Failure) -> Error {
        match failure {
            Failure::Ends(position) => self.ends_early(position),
            Failure::Refused(position, error) => self.refused(position, error),
            Failure::Stopped(error) => error,
        }
    }

    #[cfg(target_os = "linux")]
    fn read_direct(&self, file: &OpenFile, direct: Direct, ops: &mut [ReadOp<'_>]) -> Result<()> {
        let file = &*file.file;
        let wanted = ops.iter_mut().map(|op| {
            let op = ReadOp { at: op.at, out: &mut *op.out };
            direct::Wanted { owner: 0, file, direct, op }
        });
        direct::read_many(&mut wanted.collect::<Vec<_>>()).map_err(|(_, failure)| self.failed_direct(failure))
    }

    #[cfg(target_os = "linux")]
    pub(super) fn failed_direct(&self, failure: direct::Failure) -> Error {
        match failure {
            direct::Failure::Ends(position) => self.ends_early(position),
            direct::Failure::Refused(position, error) => self.refused(position, error.into()),
        }
    }
}

impl Drop for LocalFile {
    fn drop(&mut self) {
        // The ring of handles may hold the descriptor for longer than it is needed.
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

    fn read_at(&self, at: u64, out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        cx.budget.files().stats.read(1, out.len() as u64);
        self.with_file(|opened| {
            #[cfg(target_os = "linux")]
            if let Some(direct) = opened.direct {
                return self.read_direct(opened, direct, &mut [ReadOp { at, out }]);
            }
            positional::read_exact(&opened.file, out, at, cx.stop).map_err(|failure| self.failed(failure))
        })
    }

    #[cfg(unix)]
    fn read_many(&self, ops: &mut [ReadOp<'_>], cx: &Cx<'_>) -> Result<()> {
        #[cfg(target_os = "linux")]
        return match self.queue() {
            Queue::Direct(_) => {
                cx.budget.files().stats.read_all(ops);
                let (opened, direct) = self.open_direct()?;
                self.read_direct(&opened, direct, ops)
            }
            _ => self.read_through_page_cache(ops, &mut super::cold::Cold::default(), cx),
        };
        #[cfg(not(target_os = "linux"))]
        self.read_runs(ops, cx, |file, rest, count| {
            super::vectored::read_neighbours(file, &mut rest[..count])
        })
    }

    #[cfg(target_os = "linux")]
    fn queue(&self) -> Queue<'_> {
        if self.io == Io::Direct && !self.is_refused { Queue::Direct(self) } else { Queue::PageCache(self) }
    }

    fn change_mark(&self) -> u64 {
        let opened = self.handle.get();
        let metadata = match opened.as_ref().filter(|opened| opened.is_right(&self.identity)) {
            Some(opened) => opened.file.metadata(),
            None => std::fs::metadata(&self.path),
        };
        metadata.map_or(u64::MAX, |metadata| identity::change_mark(&metadata))
    }

    fn unchanged(&self) -> Result<()> {
        let opened = self.handle.get();
        let opened = opened.as_ref().filter(|opened| opened.is_right(&self.identity));
        let found = match opened {
            Some(opened) => opened.file.metadata(),
            // If the descriptor of a mapped file was closed, only its path can be checked. Another file at that path
            // says nothing about this one.
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
            .hint("the file was truncated or changed while it was open")
            .as_change())
    }

    #[cfg(target_os = "linux")]
    #[inline]
    fn mapped(&self) -> Option<&dyn Mapped> {
        self.map.as_ref().map(|_| self as &dyn Mapped)
    }

    #[cfg(not(target_os = "linux"))]
    fn mapped(&self) -> Option<&dyn Mapped> {
        None
    }
}

#[cfg(target_os = "linux")]
impl LocalFile {
    /// How many files of its data set may be open at once.
    pub(super) fn most_open(&self) -> usize {
        self.handles.limit()
    }

    /// The open file, for O_DIRECT reads.
    pub(super) fn open_direct(&self) -> Result<(Arc<OpenFile>, Direct)> {
        let opened = match Guard::into_inner(self.handle.get()) {
            Some(file) if file.is_right(&self.identity) => file,
            _ => self.open_again()?,
        };
        match opened.direct {
            Some(direct) => Ok((opened, direct)),
            None => {
                Err(Error::closed("the file system no longer supports O_DIRECT reads").in_file(&self.name))
            }
        }
    }

    /// Advises the system of ranges that will be read soon. Errors are ignored here, because the read itself reports
    /// them.
    pub(super) fn will_read(&self, ops: &[ReadOp<'_>]) {
        let _ = self.with_file(|opened| {
            super::cold::advise(&opened.file, ops);
            Ok(())
        });
    }

    /// Reads ranges. `cold` knows whether earlier ranges missed the page cache.
    pub(super) fn read_through_page_cache(
        &self,
        ops: &mut [ReadOp<'_>],
        cold: &mut super::cold::Cold,
        cx: &Cx<'_>,
    ) -> Result<()> {
        cx.budget.files().stats.read_all(ops);
        self.read_runs(ops, cx, |file, rest, count| cold.read(file, rest, count))
    }
}

#[cfg(unix)]
impl LocalFile {
    /// Reads ranges. `read` reads the first `count` of them, which are adjacent. When a file is read in order, its
    /// records are adjacent: one system call reads many of them straight to their destinations.
    fn read_runs(
        &self,
        ops: &mut [ReadOp<'_>],
        cx: &Cx<'_>,
        mut read: impl FnMut(&std::fs::File, &mut [ReadOp<'_>], usize) -> rustix::io::Result<usize>,
    ) -> Result<()> {
        self.with_file(|opened| {
            let (mut rest, mut pace) = (ops, cx.pace());
            while let Some(first) = rest.first().map(|op| op.at) {
                let count = neighbours(rest);
                let done = read(&opened.file, rest, count);
                let done = done.map_err(|error| self.refused(first, error.into()))?;
                let (run, later) = rest.split_at_mut(count);
                self.finish_run(run, done, cx)?;
                rest = later;
                pace.step(done as u64 + 1024)?;
            }
            Ok(())
        })
    }

    /// Reads what one call left unread, range by range.
    fn finish_run(&self, run: &mut [ReadOp<'_>], mut done: usize, cx: &Cx<'_>) -> Result<()> {
        for op in run {
            let here = done.min(op.out.len());
            done -= here;
            self.read_at(op.at + here as u64, &mut op.out[here..], cx)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::error::Kind;
    use crate::limits::Limits;
    use crate::storage::file_set::FileSet;

    fn temp(content: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        file
    }

    fn open_plain(temp: &tempfile::NamedTempFile) -> LocalFile {
        LocalFile::open(temp.path(), &Handles::new(4), Io::Plain).unwrap()
    }

    fn with_cx<T>(act: impl FnOnce(&Cx<'_>) -> T) -> T {
        let limits = Limits::default();
        let files = FileSet::new(&limits);
        act(&Cx::new(&Budget::new(&limits, &files)))
    }

    fn read_at(file: &LocalFile, at: u64, out: &mut [u8]) -> Result<()> {
        with_cx(|cx| file.read_at(at, out, cx))
    }

    fn read_many(file: &LocalFile, ops: &mut [ReadOp<'_>]) -> Result<()> {
        with_cx(|cx| file.read_many(ops, cx))
    }

    #[test]
    fn a_file_cut_under_the_reader_is_a_truncation_error() {
        let temp = temp(b"0123456789");
        let file = open_plain(&temp);
        std::fs::OpenOptions::new().write(true).open(temp.path()).unwrap().set_len(4).unwrap();
        let error = read_at(&file, 2, &mut [0; 8]).unwrap_err();
        assert!(matches!(error.kind(), Kind::Truncated));
        assert_eq!(error.offset(), Some(4));
    }

    #[test]
    fn a_replaced_file_keeps_its_bytes_while_open_and_is_refused_when_opened_again() {
        let temp = temp(b"old bytes");
        let file = open_plain(&temp);
        let new = temp.path().with_extension("new");
        std::fs::write(&new, b"new").unwrap();
        std::fs::rename(&new, temp.path()).unwrap();
        let mut out = [0; 3];
        read_at(&file, 0, &mut out).unwrap();
        assert_eq!(&out, b"old");
        file.handle().close();
        assert!(read_at(&file, 0, &mut out).unwrap_err().to_string().contains("file changed"));
    }

    #[test]
    fn neighbouring_ranges_and_others_are_read_alike() {
        let content: Vec<u8> = (0..200u8).collect();
        let temp = temp(&content);
        let file = open_plain(&temp);
        let ranges = [(0, 3), (3, 0), (3, 7), (10, 90), (50, 10), (60, 140), (0, 1)];
        let mut out: Vec<Vec<u8>> = ranges.iter().map(|&(_, n)| vec![0; n]).collect();
        let mut ops: Vec<_> = ranges.iter().zip(&mut out).map(|(&(at, _), out)| ReadOp { at, out }).collect();
        read_many(&file, &mut ops).unwrap();
        for ((at, n), out) in ranges.iter().zip(&out) {
            assert_eq!(out, &content[*at as usize..*at as usize + n]);
        }
        let (mut a, mut b) = ([0; 100], [0; 101]);
        let mut past = [ReadOp { at: 0, out: &mut a }, ReadOp { at: 100, out: &mut b }];
        assert!(matches!(read_many(&file, &mut past).unwrap_err().kind(), Kind::Truncated));
    }

    #[test]
    fn a_folder_and_a_missing_file_keep_the_system_error() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path().to_owned(), dir.path().join("missing")] {
            let Err(error) = LocalFile::open(&path, &Handles::new(1), Io::Auto) else {
                panic!("opened {path:?}")
            };
            assert!(matches!(error.kind(), Kind::Io(_)));
        }
    }
}
