//! The numbers of a table, in memory or in a temporary file.

use crate::bytes;
use crate::cx::{Cx, Never};
use crate::error::{Error, Result};
use crate::format::TableHome;
use crate::prefetch;
use crate::storage::spool::{Part, PartWriter};

const WORD: usize = size_of::<u64>();

/// A list of words.
pub enum Words {
    /// In memory.
    Memory(Vec<u64>),
    /// In a temporary file.
    Disk(Part),
}

/// Builds a list of words.
pub enum WordsWriter<'a> {
    /// In memory.
    Memory(Vec<u64>),
    /// In a temporary file.
    Disk(PartWriter<'a>),
}

impl<'a> WordsWriter<'a> {
    /// An empty list.
    pub fn new(home: TableHome, cx: &Cx<'a>) -> Self {
        match home {
            TableHome::Memory => WordsWriter::Memory(Vec::new()),
            TableHome::Disk => WordsWriter::Disk(cx.budget.files().spool.begin()),
        }
    }

    /// Reserves memory for `words` words in all, if the list is in memory. Does nothing if there is not enough memory.
    pub fn reserve(&mut self, words: u64) {
        if let WordsWriter::Memory(memory) = self {
            // If the memory is really needed, `push` reports that it is missing.
            let _ = memory.try_reserve_exact(usize::try_from(words).unwrap_or(0));
        }
    }

    /// Appends a word.
    #[inline]
    pub fn push(&mut self, word: u64) -> Result<()> {
        match self {
            WordsWriter::Memory(words) => bytes::push("table of chunks", words, word),
            WordsWriter::Disk(part) => part.write_all(&word.to_le_bytes()),
        }
    }

    /// The list.
    pub fn finish(self) -> Result<Words> {
        Ok(match self {
            WordsWriter::Memory(mut words) => {
                words.shrink_to_fit();
                Words::Memory(words)
            }
            WordsWriter::Disk(part) => Words::Disk(part.finish()?),
        })
    }
}

impl Words {
    /// Prefetches a word that will be read soon.
    #[inline]
    pub fn prefetch(&self, index: u64) {
        if let Words::Memory(words) = self
            && let Some(word) = words.get(index as usize)
        {
            prefetch::address(word);
        }
    }

    /// Fills `out` with the words from `index` on. They must exist.
    #[inline]
    pub fn get(&self, index: u64, out: &mut [u64]) -> Result<()> {
        let missing = || Error::format(format!("table lookup out of range: {index}"));
        match self {
            Words::Memory(words) => {
                let begin = usize::try_from(index).map_err(|_| missing())?;
                let found = words.get(begin..).and_then(|rest| rest.get(..out.len())).ok_or_else(missing)?;
                out.copy_from_slice(found);
            }
            Words::Disk(part) => {
                let mut stored = [0; 4 * WORD];
                let stored = stored.get_mut(..out.len() * WORD).ok_or_else(missing)?;
                let at = index.checked_mul(WORD as u64).ok_or_else(missing)?;
                part.read_at(at, stored, &Never)?;
                for (word, stored) in out.iter_mut().zip(stored.chunks_exact(WORD)) {
                    *word = bytes::u64_le(stored, 0);
                }
            }
        }
        Ok(())
    }
}
