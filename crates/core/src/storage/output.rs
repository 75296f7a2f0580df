//! What a writer writes to. Bytes are appended. Some outputs can also overwrite earlier bytes.

use crate::error::{Error, Result};
use std::fs::{File, Metadata};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use tempfile::TempPath;

/// The destination for the bytes of one file.
pub trait Output: Send {
    /// How many bytes have been written, counted from the beginning of the file.
    fn position(&self) -> u64;

    /// Appends all of `bytes`.
    fn write_all(&mut self, bytes: &[u8]) -> Result<()>;

    /// Whether [`write_at`](Output::write_at) and [`skip`](Output::skip) work here.
    fn can_patch(&self) -> bool;

    /// Leaves room for bytes that are written later. Until then they are zeros.
    fn skip(&mut self, length: u64) -> Result<()>;

    /// Overwrites bytes that were written before.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<()>;

    /// Writes out everything that is buffered.
    fn flush(&mut self) -> Result<()>;

    /// A new file for samples that cannot be written to their place yet, and its name if it has one. A file beside the
    /// output has a name, so that the samples can be saved if the process is killed.
    fn create_spool(&self) -> std::io::Result<(File, Option<TempPath>)> {
        Ok((tempfile::tempfile()?, None))
    }
}

/// Opens a pipe or a device for writing. It is an error if no process opens the pipe for reading within a second.
pub fn open_special(path: &Path, metadata: &Metadata) -> Result<File> {
    let failed = |e| Error::io("cannot open", e).in_file(&path.to_string_lossy());
    #[cfg(unix)]
    if std::os::unix::fs::FileTypeExt::is_fifo(&metadata.file_type()) {
        return open_fifo(path);
    }
    #[cfg(not(unix))]
    let _ = metadata;
    File::options().write(true).open(path).map_err(failed)
}

/// A plain open would wait for a reader forever, and no signal would end it.
#[cfg(unix)]
fn open_fifo(path: &Path) -> Result<File> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    use rustix::io::Errno;
    use std::os::unix::fs::OpenOptionsExt;
    use std::time::{Duration, Instant};

    let failed = |e| Error::io("cannot open", e).in_file(&path.to_string_lossy());
    let deadline = Instant::now() + Duration::from_secs(1);
    loop {
        let is_late = Instant::now() >= deadline;
        let mut options = File::options();
        match options.write(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path) {
            Ok(file) => {
                let flags = fcntl_getfl(&file).map_err(|e| failed(e.into()))?;
                fcntl_setfl(&file, flags - OFlags::NONBLOCK).map_err(|e| failed(e.into()))?;
                return Ok(file);
            }
            Err(e) if e.raw_os_error() != Some(Errno::NXIO.raw_os_error()) => return Err(failed(e)),
            Err(e) if is_late => {
                return Err(failed(e).hint("no process opened the pipe for reading within a second"));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// An output over anything that implements [`Write`]: a pipe, a socket, a vector. Forward only.
pub struct ForwardOutput<W> {
    inner: W,
    name: String,
    position: u64,
}

impl<W: Write + Send> ForwardOutput<W> {
    /// Starts at position 0, even if bytes were written to `inner` before. `name` is what errors call it.
    pub fn new(name: impl Into<String>, inner: W) -> Self {
        ForwardOutput { inner, name: name.into(), position: 0 }
    }

    fn failed(&self, error: std::io::Error) -> Error {
        Error::io("writing failed", error).in_file(&self.name).at(self.position)
    }

    /// Returns the inner writer.
    pub fn into_inner(self) -> W {
        self.inner
    }
}

impl<W: Write + Send> Output for ForwardOutput<W> {
    fn position(&self) -> u64 {
        self.position
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.inner.write_all(bytes).map_err(|e| self.failed(e))?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    fn can_patch(&self) -> bool {
        false
    }

    fn skip(&mut self, _length: u64) -> Result<()> {
        Err(Error::argument("this output cannot seek").at(self.position))
    }

    fn write_at(&mut self, at: u64, _bytes: &[u8]) -> Result<()> {
        Err(Error::argument("this output cannot seek").at(at))
    }

    fn flush(&mut self) -> Result<()> {
        self.inner.flush().map_err(|e| self.failed(e))
    }
}

/// An output that can seek: a local file, a cursor over a vector. Its position 0 is the position of `inner` when this
/// was created.
pub struct Seekable<W> {
    inner: W,
    position: u64,
    base: u64,
}

impl<W: Write + Seek + Send> Seekable<W> {
    /// Takes the current position of `inner` as the beginning of the file.
    pub fn new(mut inner: W) -> Result<Self> {
        let base = inner.stream_position().map_err(|e| Error::io("seeking failed", e))?;
        Ok(Seekable { inner, position: 0, base })
    }

    /// Returns the inner writer.
    pub fn into_inner(self) -> W {
        self.inner
    }

    /// The inner writer.
    pub fn inner(&self) -> &W {
        &self.inner
    }

    fn seek(&mut self, at: u64) -> Result<()> {
        let target =
            self.base.checked_add(at).ok_or_else(|| Error::argument("position out of range").at(at))?;
        self.inner.seek(SeekFrom::Start(target)).map_err(|e| Error::io("seeking failed", e).at(at))?;
        Ok(())
    }
}

impl<W: Write + Seek + Send> Output for Seekable<W> {
    fn position(&self) -> u64 {
        self.position
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.inner.write_all(bytes).map_err(|e| Error::io("writing failed", e).at(self.position))?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    fn can_patch(&self) -> bool {
        true
    }

    fn skip(&mut self, length: u64) -> Result<()> {
        let position = self.position.checked_add(length);
        self.position = position.ok_or_else(|| Error::argument("position out of range").at(self.position))?;
        self.seek(self.position)
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        self.seek(at)?;
        self.inner.write_all(bytes).map_err(|e| Error::io("writing failed", e).at(at))?;
        self.seek(self.position)
    }

    fn flush(&mut self) -> Result<()> {
        self.inner.flush().map_err(|e| Error::io("writing failed", e).at(self.position))
    }
}
