//! Bytes that are already in memory.

use super::{Borrowed, Mapped, Storage};
use crate::bytes;
use crate::cx::Cx;
use crate::error::Result;
use std::ops::Range;

/// A storage over any value that is a slice of bytes.
pub struct Memory<B> {
    name: String,
    bytes: B,
}

impl<B: AsRef<[u8]> + Send + Sync> Memory<B> {
    /// `name` is what errors call it.
    pub fn new(name: impl Into<String>, bytes: B) -> Self {
        Memory { name: name.into(), bytes }
    }
}

impl<B: AsRef<[u8]> + Send + Sync> Storage for Memory<B> {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> u64 {
        self.bytes.as_ref().len() as u64
    }

    fn read_at(&self, at: u64, out: &mut [u8], _cx: &Cx<'_>) -> Result<()> {
        let all = self.bytes.as_ref();
        let range = bytes::range("read", at, out.len() as u64, all.len() as u64)
            .map_err(|e| e.in_file(&self.name))?;
        out.copy_from_slice(&all[range.start as usize..range.end as usize]);
        Ok(())
    }

    #[inline]
    fn mapped(&self) -> Option<&dyn Mapped> {
        Some(self)
    }
}

impl<B: AsRef<[u8]> + Send + Sync> Mapped for Memory<B> {
    fn borrow(&self, at: u64, length: usize) -> Result<Option<Borrowed<'_>>> {
        let all = self.bytes.as_ref();
        let range =
            bytes::range("read", at, length as u64, all.len() as u64).map_err(|e| e.in_file(&self.name))?;
        Ok(Some(Borrowed::Memory(&all[range.start as usize..range.end as usize])))
    }

    fn export(&self, _range: Range<u64>) -> bool {
        true
    }

    fn exported(&self, range: Range<u64>) -> Option<&[u8]> {
        let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
        self.bytes.as_ref().get(range)
    }

    fn is_memory(&self) -> bool {
        true
    }
}
