//! The part of an object that is being written: in memory, or in a temporary file.

use super::memory::Room;
use crate::error::{Error, Result};
use bytes::Bytes;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};

/// A part that is being written.
pub enum Buffer {
    Memory(Vec<u8>, Room),
    File(File, u64),
}

fn failed(error: std::io::Error) -> Error {
    Error::io("cannot write to a temporary file", error).hint(
        "parts of an upload that do not fit into upload_memory are kept in the folder for temporary files",
    )
}

impl Buffer {
    pub fn in_memory(room: Room) -> Self {
        Buffer::Memory(Vec::new(), room)
    }

    pub fn in_file() -> Result<Self> {
        tempfile::tempfile().map(|file| Buffer::File(file, 0)).map_err(failed)
    }

    pub fn is_in_memory(&self) -> bool {
        matches!(self, Buffer::Memory(..))
    }

    pub fn len(&self) -> u64 {
        match self {
            Buffer::Memory(bytes, _) => bytes.len() as u64,
            Buffer::File(_, length) => *length,
        }
    }

    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Buffer::Memory(buffer, room) => {
                if buffer.len() + bytes.len() > buffer.capacity() {
                    // No more than the part: a vector that doubles would take more than its room.
                    let most = usize::try_from(room.bytes()).unwrap_or(usize::MAX);
                    let wanted = (2 * buffer.capacity()).max(buffer.len() + bytes.len()).min(most);
                    buffer.reserve_exact(wanted - buffer.len());
                }
                buffer.extend_from_slice(bytes);
                Ok(())
            }
            Buffer::File(file, length) => {
                file.write_all(bytes).map_err(failed)?;
                *length += bytes.len() as u64;
                Ok(())
            }
        }
    }

    /// Appends zeros. In a file they take no room on the disk.
    pub fn append_zeros(&mut self, count: u64) -> Result<()> {
        match self {
            Buffer::Memory(buffer, room) => {
                let length = buffer.len() as u64 + count;
                let length = usize::try_from(length.min(room.bytes())).unwrap_or(usize::MAX);
                buffer.reserve_exact(length - buffer.len());
                buffer.resize(length, 0);
            }
            Buffer::File(file, length) => {
                *length += count;
                file.set_len(*length).and_then(|()| file.seek(SeekFrom::End(0))).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Overwrites bytes that were appended.
    pub fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        match self {
            Buffer::Memory(buffer, _) => {
                let place = usize::try_from(at).ok().and_then(|at| buffer.get_mut(at..at + bytes.len()));
                let outside = || Error::argument("these bytes are not written yet").at(at);
                place.ok_or_else(outside)?.copy_from_slice(bytes);
                Ok(())
            }
            Buffer::File(file, _) => {
                let mut write = || {
                    file.seek(SeekFrom::Start(at))?;
                    file.write_all(bytes)?;
                    file.seek(SeekFrom::End(0))
                };
                write().map(|_| ()).map_err(failed)
            }
        }
    }

    /// The same bytes in a temporary file. Returns the room in memory that this frees, too.
    pub fn moved_to_file(self) -> Result<(Self, Option<Room>)> {
        match self {
            Buffer::Memory(bytes, room) => {
                let mut file = Buffer::in_file()?;
                file.append(&bytes)?;
                Ok((file, Some(room)))
            }
            file @ Buffer::File(..) => Ok((file, None)),
        }
    }

    /// The bytes, and the room that they take in memory. Those of a file are mapped: they take none.
    pub fn into_bytes(self) -> Result<(Bytes, Option<Room>)> {
        match self {
            Buffer::Memory(bytes, room) => Ok((bytes.into(), Some(room))),
            Buffer::File(file, length) => super::spooled::mapped(&file, length).map(|bytes| (bytes, None)),
        }
    }
}
