//! A local file, read by plain positional reads.
//!
//! A position is part of each read, so that threads and forked children can share one descriptor. The
//! descriptor is opened when it is needed and may be closed and opened again ([`handles`](super::handles));
//! a file that is not the same one any more when it is opened again is an error, not a mixture.

use super::Storage;
use super::handles::{Handle, Handles};
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
    fn a_folder_and_a_missing_file_keep_the_system_error() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path().to_owned(), dir.path().join("missing")] {
            let Err(error) = LocalFile::open(&path, &Handles::new(1)) else { panic!("opened {path:?}") };
            assert!(matches!(error.kind(), Kind::Io(_)));
        }
    }
}
