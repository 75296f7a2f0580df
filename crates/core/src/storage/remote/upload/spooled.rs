//! Files that are sent only when they are complete: those of web servers, which take no parts, and shards whose names are
//! not known before the last one.

use super::memory::Memory;
use super::{Appearance, Upload, Uploading, finish};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::process;
use crate::storage::output::Output;
use crate::storage::remote::request::Object;
use crate::storage::remote::url::RemoteUrl;
use crate::storage::remote::{runtime, stores};
use bytes::Bytes;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;

/// A file in the folder for temporary files. It has no name.
pub struct Spooled {
    file: BufWriter<File>,
    length: u64,
    /// What errors call it.
    name: String,
}

fn failed(error: std::io::Error) -> Error {
    Error::io("cannot write to a temporary file", error)
        .hint("the file is kept in the folder for temporary files until it is complete; see TMPDIR")
}

impl Spooled {
    /// An empty file. `name` is what errors call it.
    pub fn create(name: &str) -> Result<Self> {
        let file = tempfile::tempfile().map_err(|error| failed(error).in_file(name))?;
        Ok(Spooled { file: BufWriter::with_capacity(256 << 10, file), length: 0, name: name.to_owned() })
    }

    /// Call it when all bytes are written.
    pub fn seal(self) -> Result<SealedSpool> {
        let name = self.name;
        let file = self.file.into_inner().map_err(|error| failed(error.into_error()).in_file(&name))?;
        Ok(SealedSpool { bytes: mapped(&file, self.length)?, generation: process::generation() })
    }
}

impl Output for Spooled {
    fn position(&self) -> u64 {
        self.length
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| failed(error).in_file(&self.name))?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn can_patch(&self) -> bool {
        false
    }

    fn skip(&mut self, _length: u64) -> Result<()> {
        Err(Error::argument("an upload cannot seek").at(self.length))
    }

    fn write_at(&mut self, at: u64, _bytes: &[u8]) -> Result<()> {
        Err(Error::argument("an upload cannot seek").at(at))
    }

    fn flush(&mut self) -> Result<()> {
        self.file.flush().map_err(|error| failed(error).in_file(&self.name))
    }
}

/// A complete file that was not sent yet.
pub struct SealedSpool {
    bytes: Bytes,
    generation: u64,
}

impl SealedSpool {
    /// The size of the file.
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Sends it in parts.
    pub fn upload(
        &self,
        url: &RemoteUrl,
        shared: &Uploading,
        appearance: Appearance,
        cx: &Cx<'_>,
    ) -> Result<super::SealedUpload> {
        let mut upload = Upload::create(url, shared, appearance, cx)?;
        for piece in self.bytes.chunks(1 << 20) {
            upload.write_all(piece)?;
        }
        upload.seal()
    }

    /// Sends it to a web server, with one request.
    pub fn publish(self, url: &RemoteUrl, shared: &Uploading, overwrite: bool, cx: &Cx<'_>) -> Result<()> {
        if self.generation != process::generation() {
            return Err(Error::closed("an upload belongs to the process that began it"));
        }
        let store = stores::of(url, &shared.options)?;
        let object = Object::new(url, store, &Arc::default());
        let bytes = self.bytes.clone();
        let put = async move { finish::put(&object, &bytes, overwrite).await };
        runtime::run(put, cx).map(drop).map_err(|error| error.in_file(url.shown()))
    }
}

/// The bytes of a file without a name. They take no memory that the system cannot free.
pub fn mapped(file: &File, length: u64) -> Result<Bytes> {
    if length == 0 {
        return Ok(Bytes::new());
    }
    let too_large = || Error::limit("the file does not fit into the address space");
    let length = usize::try_from(length).map_err(|_| too_large())?;
    #[cfg(unix)]
    return map::map(file, length).map(Bytes::from_owner).map_err(failed);
    #[cfg(not(unix))]
    {
        use std::io::{Read, Seek};
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| too_large())?;
        let mut file = file.try_clone().map_err(failed)?;
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).map_err(failed)?;
        Ok(bytes.into())
    }
}

#[cfg(unix)]
mod map {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    use std::fs::File;
    use std::ptr::NonNull;

    /// Mapped bytes of a file that nobody else can open.
    pub struct Mapped(NonNull<u8>, usize);

    // SAFETY: the mapping is read-only and stays in place until `drop`.
    unsafe impl Send for Mapped {}
    // SAFETY: as above.
    unsafe impl Sync for Mapped {}

    /// Maps the first `length` bytes of a file that has no name.
    pub fn map(file: &File, length: usize) -> std::io::Result<Mapped> {
        // SAFETY: a new mapping at an address of the system's choice touches no memory that is in use.
        let begin =
            unsafe { mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::PRIVATE, file, 0)? };
        NonNull::new(begin.cast())
            .map(|begin| Mapped(begin, length))
            .ok_or_else(|| std::io::ErrorKind::OutOfMemory.into())
    }

    impl AsRef<[u8]> for Mapped {
        fn as_ref(&self) -> &[u8] {
            // SAFETY: the mapping covers `length` bytes, and the file has them: it has no name, so that no other process
            // truncates it, and nothing is written to it after it was mapped.
            unsafe { std::slice::from_raw_parts(self.0.as_ptr(), self.1) }
        }
    }

    impl Drop for Mapped {
        fn drop(&mut self) {
            // SAFETY: mapped in `map`, and nothing refers to it any more.
            let _ = unsafe { munmap(self.0.as_ptr().cast(), self.1) };
        }
    }
}

/// What the uploads of a writer share, for a test or a caller that writes only one object.
impl Uploading {
    /// The sentences about uploads that could not be aborted.
    pub fn take_notes(&self) -> Vec<String> {
        Memory::take_notes(&self.memory)
    }
}
