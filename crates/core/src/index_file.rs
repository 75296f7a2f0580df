//! The side index of a local file: `.<name>.index` beside it, hidden so that no glob or folder takes it for data.
//!
//! It is a cache. One that is missing, damaged, of another file or of an older one is done without, and
//! [`build`] makes a new one.

use crate::error::{Error, Result};
use crate::format::{Format, ReadOptions, Table, detect};
use crate::storage::Storage;
use crate::storage::file::{Io, LocalFile};
use crate::storage::handles::Handles;
use crate::storage::output::Output;
use crate::storage::publish::Staged;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Where the side index of a file lies.
pub fn path_of(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".index");
    path.with_file_name(name)
}

/// The bytes of the side index of a file of `data_bytes` bytes; none if there is nothing that could be one.
fn read(path: &Path, data_bytes: u64) -> Option<Vec<u8>> {
    // An entry takes less room than what it stands for, so a larger file is no index of this data.
    let most = data_bytes.saturating_add(1 << 10);
    let path = path_of(path);
    // Looked at before it is opened: opening a pipe would wait for somebody to write to it.
    let size = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?.len();
    if size > most {
        return None;
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).ok()?);
    std::fs::File::open(path).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The table of a file, from its side index if that fits the data.
pub fn open(
    path: &Path,
    storage: &dyn Storage,
    format: &dyn Format,
    options: &ReadOptions,
) -> Result<Option<Box<dyn Table>>> {
    let Some(index) = read(path, storage.len()) else { return Ok(None) };
    format.open_indexed(storage, &index, options)
}

/// Makes the side index of a file, unless there is one that fits. Tells where it is; none where the format of the
/// file has no use for one.
pub fn build(path: &Path, format: Option<&str>, options: &ReadOptions) -> Result<Option<PathBuf>> {
    let file = LocalFile::open(path, &Handles::new(1), Io::Plain, true)?;
    let build = || {
        let format = match format {
            Some(name) => detect::by_name(name)?,
            None => detect::detect(&file)?,
        };
        if !format.has_side_index() {
            return Ok(None);
        }
        let index = path_of(path);
        if open(path, &file, format, options)?.is_some() {
            return Ok(Some(index));
        }
        let Some(bytes) = format.open(&file, options)?.index_bytes() else { return Ok(None) };
        // What is lost in a power cut can be built again.
        let mut staged = Staged::create(&index, true, false)?;
        staged.write_all(&bytes)?;
        staged.seal()?.publish()?;
        Ok(Some(index))
    };
    build().map_err(|e: Error| e.in_file(file.name()))
}
