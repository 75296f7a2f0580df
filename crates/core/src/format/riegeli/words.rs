//! Numbers of a table, in memory or in an unlinked temporary file.

use crate::error::{Error, Result};
use crate::format::TableHome;
use crate::prefetch;
use std::fs::File;
use std::io::Write;

const WORD: usize = size_of::<u64>();
/// Bytes gathered before they are written to the file.
const GATHER: usize = 1 << 16;

/// A list of words that only grows.
pub enum Words {
    /// In memory.
    Memory(Vec<u64>),
    /// In a file that has no name and goes away with its handle.
    Disk {
        /// The file.
        file: File,
        /// What is not yet in the file.
        gathered: Vec<u8>,
    },
}

impl Words {
    /// An empty list.
    pub fn new(home: TableHome) -> Result<Self> {
        Ok(match home {
            TableHome::Memory => Words::Memory(Vec::new()),
            TableHome::Disk => {
                let file = tempfile::tempfile().map_err(|e| Error::io("cannot make a temporary file", e))?;
                Words::Disk { file, gathered: Vec::with_capacity(GATHER) }
            }
        })
    }

    /// Makes room for so many words in all, where that takes memory; does nothing if there is none.
    pub fn reserve(&mut self, words: u64) {
        if let Words::Memory(memory) = self {
            // What does not fit fails where it is pushed, if it ever is.
            let _ = memory.try_reserve_exact(usize::try_from(words).unwrap_or(0));
        }
    }

    /// Appends a word.
    pub fn push(&mut self, word: u64) -> Result<()> {
        match self {
            Words::Memory(words) => words.push(word),
            Words::Disk { file, gathered } => {
                gathered.extend_from_slice(&word.to_le_bytes());
                if gathered.len() >= GATHER {
                    file.write_all(gathered).map_err(full)?;
                    gathered.clear();
                }
            }
        }
        Ok(())
    }

    /// Makes all words readable; nothing is pushed after it.
    pub fn seal(&mut self) -> Result<()> {
        match self {
            Words::Memory(words) => words.shrink_to_fit(),
            Words::Disk { file, gathered } => {
                file.write_all(gathered).map_err(full)?;
                *gathered = Vec::new();
            }
        }
        Ok(())
    }

    /// Asks for a word that will be read soon.
    #[inline]
    pub fn prefetch(&self, index: u64) {
        if let Words::Memory(words) = self
            && let Some(word) = words.get(index as usize)
        {
            prefetch::address(word);
        }
    }

    /// Fills `out` with the words from `index` on, which must be there.
    #[inline]
    pub fn get(&self, index: u64, out: &mut [u64]) -> Result<()> {
        let missing = || Error::format(format!("table lookup out of range: {index}"));
        match self {
            Words::Memory(words) => {
                let begin = usize::try_from(index).map_err(|_| missing())?;
                let found = words.get(begin..).and_then(|rest| rest.get(..out.len())).ok_or_else(missing)?;
                out.copy_from_slice(found);
            }
            Words::Disk { file, .. } => {
                let mut bytes = [0; 4 * WORD];
                let bytes = bytes.get_mut(..out.len() * WORD).ok_or_else(missing)?;
                read_at(file, bytes, index * WORD as u64)
                    .map_err(|e| Error::io("reading the table's temporary file failed", e))?;
                for (word, bytes) in out.iter_mut().zip(bytes.chunks_exact(WORD)) {
                    *word = crate::bytes::u64_le(bytes, 0);
                }
            }
        }
        Ok(())
    }
}

fn full(error: std::io::Error) -> Error {
    Error::io("writing the table's temporary file failed", error)
}

#[cfg(unix)]
fn read_at(file: &File, out: &mut [u8], at: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, at)
}

#[cfg(windows)]
fn read_at(file: &File, mut out: &mut [u8], mut at: u64) -> std::io::Result<()> {
    while !out.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, out, at)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            n => (out, at) = (&mut out[n..], at + n as u64),
        }
    }
    Ok(())
}
