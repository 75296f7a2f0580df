//! The side index of a file: `.<name>.index` in the same folder. The name is hidden so that no glob or folder
//! listing takes the index for data.
//!
//! It is a cache. An index that is missing, damaged, or of another or older file is ignored. [`build`] writes a new
//! one.

use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::format::{Format, ReadOptions, Table, detect, side_index};
use crate::storage::buffered::Buffered;
use crate::storage::file::Io;
use crate::storage::location::Location;
use crate::storage::output::Output;
use crate::storage::publish::Staged;
use crate::storage::remote::open::FirstPart;
use crate::storage::remote::put;
use crate::storage::stats::Stats;
use crate::storage::{self, Storage};
use std::path::PathBuf;
use std::sync::Arc;

/// The location of the side index of a file. None if the file has no path.
fn beside(location: &Location) -> Option<Location> {
    location.beside(|name| {
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(".index");
        hidden
    })
}

/// The bytes of the side index of a file of `data_bytes` bytes. None if no file there can be one.
fn read(location: &Location, data_bytes: u64, cx: &Cx<'_>) -> Option<Vec<u8>> {
    // An index entry is smaller than the data it describes, so a larger file is not an index of this data.
    let most = data_bytes.saturating_add(1 << 10);
    let opened = beside(location)?.open(Io::Plain, FirstPart::Beginning, cx).ok()?;
    let storage = &Buffered::of(&opened);
    let begin = storage::read_vec(storage, "side index", 0, storage.len().min(side_index::BEGIN), cx).ok()?;
    if storage.len() > most || !side_index::begins(&begin) {
        return None;
    }
    storage::read_vec(storage, "side index", 0, storage.len(), cx).ok()
}

/// The table of a file: from its side index if that matches the data, else from the data.
pub fn open_table(
    location: &Location,
    storage: &dyn Storage,
    format: &Format,
    options: &ReadOptions,
    cx: &Cx<'_>,
) -> Result<Box<dyn Table>> {
    if let Some(table) = open(location, storage, format, options, cx)? {
        return Ok(table);
    }
    let table = (format.open)(storage, options, cx)?;
    if format.open_indexed.is_some() && !storage.distance().is_local() && !storage.is_empty() {
        let stats = &cx.budget.files().stats;
        Stats::add(&stats.searched_files, 1);
        Stats::add(&stats.searched_bytes, storage.len());
    }
    Ok(table)
}

/// The table of a file from its side index. None if there is no index that matches the data.
fn open(
    location: &Location,
    storage: &dyn Storage,
    format: &Format,
    options: &ReadOptions,
    cx: &Cx<'_>,
) -> Result<Option<Box<dyn Table>>> {
    let Some(open_indexed) = format.open_indexed else { return Ok(None) };
    let Some(index) = read(location, storage.len(), cx) else {
        // The read may have failed because the caller stopped the call.
        return cx.check().map(|()| None);
    };
    open_indexed(storage, &index, options, cx)
}

/// Writes the side index of a file, unless a matching one exists. Returns its path or its URL. None if the file cannot have a side
/// index, for example because its format does not use one.
pub fn build(
    location: &Location,
    format: Option<&str>,
    options: &ReadOptions,
    cx: &Cx<'_>,
) -> Result<Option<PathBuf>> {
    let opened = location.open(Io::Plain, FirstPart::Beginning, cx)?;
    let file = &*opened.storage;
    let build = || {
        let format = detect::named_or_detected(format, file, options, cx)?;
        let index = beside(location).filter(|_| format.open_indexed.is_some());
        let name = match &index {
            Some(Location::Path { path, .. }) => path.clone(),
            Some(Location::Url { url, .. }) => url.as_given().into(),
            Some(Location::Handed(_)) | None => return Ok(None),
        };
        if open(location, file, format, options, cx)?.is_some() {
            return Ok(Some(name));
        }
        let Some(bytes) = (format.open)(file, options, cx)?.index_bytes() else { return Ok(None) };
        if let Some(Location::Url { url, options }) = &index {
            put::put(url, options, bytes, &cx.budget.files().stats, cx)?;
        } else {
            // Not durable, because an index that is lost in a power cut can be built again.
            let mut staged = Staged::create(&name, true, false, &Arc::default())?;
            staged.write_all(&bytes)?;
            staged.seal()?.publish()?;
        }
        Ok(Some(name))
    };
    build().map_err(|e: Error| e.in_file(file.name()))
}
