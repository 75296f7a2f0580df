//! A local file, read by plain positional reads.
//!
//! A position is part of each read, so that threads and forked children can share one descriptor. The
//! descriptor is opened when it is needed and may be closed and opened again ([`handles`](super::handles));
//! a file that is not the same one any more when it is opened again is an error, not a mixture.

use super::handles::{Handle, Handles};
use super::{ReadOp, Storage};
use crate::error::{Error, Result};
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::Arc;
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
}

/// A local file.
pub struct LocalFile {
    path: PathBuf,
    name: String,
    identity: Identity,
    handle: Arc<Handle>,
    handles: Arc<Handles>,
}

impl LocalFile {
    /// Opens a file; its descriptor counts against the bound of `handles`.
    pub fn open(path: &Path, handles: &Arc<Handles>) -> Result<Self> {
        let name = path.to_string_lossy().into_owned();
        let (file, metadata) = open(path, &name)?;
        let handle = Arc::new(Handle::default());
        handles.admit(&handle, Arc::new(file));
        let identity = Identity::of(&metadata);
        Ok(LocalFile { path: path.to_owned(), name, identity, handle, handles: handles.clone() })
    }

    /// Gives the descriptor back until the next read.
    pub fn release(&self) {
        self.handle.close();
    }

    fn file(&self) -> Result<Arc<std::fs::File>> {
        if let Some(file) = self.handle.get() {
            return Ok(file);
        }
        let (file, metadata) = open(&self.path, &self.name)?;
        let found = Identity::of(&metadata);
        if found != self.identity {
            return Err(Error::format("file changed since it was opened")
                .in_file(&self.name)
                .expected(format_args!("{:?}", self.identity))
                .found(format_args!("{found:?}"))
                .hint("open it again to read the new one"));
        }
        let file = Arc::new(file);
        self.handles.admit(&self.handle, file.clone());
        Ok(file)
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
        let file = self.file()?;
        let mut done = 0;
        while done < out.len() {
            let position = at + done as u64;
            match read_some(&file, &mut out[done..], position) {
                Ok(0) => {
                    return Err(Error::truncated("the file ends early")
                        .in_file(&self.name)
                        .at(position)
                        .expected(format_args!("{} bytes in the file, as when it was opened", self.len()))
                        .found(format_args!("its end at or before byte {position}"))
                        .hint("was it cut or written to meanwhile?"));
                }
                Ok(n) => done += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::io("reading failed", e).in_file(&self.name).at(position)),
            }
        }
        Ok(())
    }

    #[cfg(unix)]
    fn read_many(&self, ops: &mut [ReadOp<'_>]) -> Result<()> {
        // Records that lie one behind the other, as they do when a file is read in order, come in one system call
        // and still go straight to their places.
        let mut rest = ops;
        while !rest.is_empty() {
            let (run, behind) = rest.split_at_mut(neighbours(rest));
            if let [op] = run {
                self.read_at(op.at, op.out)?;
            } else {
                self.read_run(run)?;
            }
            rest = behind;
        }
        Ok(())
    }
}

/// How many of the first ranges lie one behind the other: at least 1, at most what one call takes.
#[cfg(unix)]
fn neighbours(ops: &[ReadOp<'_>]) -> usize {
    // The least that POSIX systems allow in one call is 16; Linux and macOS take 1024.
    const MOST: usize = 1024;
    let follows = |pair: &[ReadOp<'_>]| pair[0].at.checked_add(pair[0].out.len() as u64) == Some(pair[1].at);
    1 + ops.windows(2).take(MOST - 1).take_while(|pair| follows(pair)).count()
}

#[cfg(unix)]
impl LocalFile {
    /// Reads neighbouring ranges with one call; what it leaves undone is read range by range.
    fn read_run(&self, run: &mut [ReadOp<'_>]) -> Result<()> {
        let file = self.file()?;
        let at = run[0].at;
        let mut places: Vec<_> = run.iter_mut().map(|op| std::io::IoSliceMut::new(op.out)).collect();
        let mut done = match rustix::io::preadv(&*file, &mut places, at) {
            Ok(done) => done,
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => return Err(Error::io("reading failed", error.into()).in_file(&self.name).at(at)),
        };
        for op in run {
            let here = done.min(op.out.len());
            done -= here;
            self.read_at(op.at + here as u64, &mut op.out[here..])?;
        }
        Ok(())
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
        let file = LocalFile::open(temp.path(), &Handles::new(4)).unwrap();
        std::fs::OpenOptions::new().write(true).open(temp.path()).unwrap().set_len(4).unwrap();
        let error = file.read_at(2, &mut [0; 8]).unwrap_err();
        assert!(matches!(error.kind(), Kind::Truncated));
        assert_eq!(error.offset(), Some(4));
    }

    #[test]
    fn a_replaced_file_keeps_its_bytes_while_open_and_is_refused_when_opened_again() {
        let temp = temp(b"old bytes");
        let file = LocalFile::open(temp.path(), &Handles::new(4)).unwrap();
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
        let file = LocalFile::open(temp.path(), &Handles::new(4)).unwrap();
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
            let Err(error) = LocalFile::open(&path, &Handles::new(1)) else { panic!("opened {path:?}") };
            assert!(matches!(error.kind(), Kind::Io(_)));
        }
    }
}
