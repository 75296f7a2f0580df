//! Offsets and sizes of chunks of one record, in 8 bytes per chunk.

use crate::bytes;
use crate::error::Result;
use crate::prefetch;

/// How many chunks share one base offset.
const RUN: usize = 64;
/// Stands for an unknown size.
const UNKNOWN: u32 = u32::MAX;

/// A list that only grows. It holds the offset of every 64th chunk, and for each chunk its distance from that offset
/// and its size.
#[derive(Default)]
pub struct Compact {
    bases: Vec<u64>,
    chunks: Vec<[u32; 2]>,
}

impl Compact {
    /// Reserves memory for `chunks` chunks in all. Does nothing if there is not enough memory.
    pub fn reserve(&mut self, chunks: u64) {
        // If the memory is really needed, `push` reports that it is missing.
        let chunks = usize::try_from(chunks).unwrap_or(0);
        let _ = self.chunks.try_reserve_exact(chunks);
        let _ = self.bases.try_reserve_exact(chunks.div_ceil(RUN));
        advise_huge_pages(&mut self.chunks);
    }

    /// Appends a chunk, which must lie after all others. Returns false if its numbers are too large.
    #[inline]
    pub fn push(&mut self, offset: u64, size: Option<u64>) -> Result<bool> {
        let base = match self.bases.last() {
            Some(&base) if !self.chunks.len().is_multiple_of(RUN) => base,
            _ => offset,
        };
        let size = match size {
            None => Some(UNKNOWN),
            Some(size) => u32::try_from(size).ok().filter(|&size| size != UNKNOWN),
        };
        let (Some(size), Ok(distance)) = (size, u32::try_from(offset - base)) else { return Ok(false) };
        if self.chunks.len().is_multiple_of(RUN) {
            bytes::push("table of chunks", &mut self.bases, base)?;
        }
        bytes::push("table of chunks", &mut self.chunks, [distance, size])?;
        Ok(true)
    }

    /// Releases unused memory. Nothing may be pushed afterwards.
    pub fn seal(&mut self) {
        self.bases.shrink_to_fit();
        self.chunks.shrink_to_fit();
    }

    /// How many chunks there are.
    pub fn count(&self) -> u64 {
        self.chunks.len() as u64
    }

    /// Prefetches the entry of a chunk that will be looked up soon.
    #[inline]
    pub fn prefetch(&self, index: u64) {
        if let Some(chunk) = self.chunks.get(index as usize) {
            prefetch::address(chunk);
        }
    }

    /// Offset and size of a chunk. `None` if there is no such chunk.
    #[inline]
    pub fn get(&self, index: u64) -> Option<(u64, Option<u64>)> {
        let index = usize::try_from(index).ok()?;
        let &[distance, size] = self.chunks.get(index)?;
        let base = self.bases.get(index / RUN)?;
        Some((base + u64::from(distance), (size != UNKNOWN).then_some(size.into())))
    }
}

/// Asks for huge pages. Random lookups then cause fewer TLB misses.
#[cfg(target_os = "linux")]
fn advise_huge_pages(chunks: &mut Vec<[u32; 2]>) {
    const HUGE: usize = 2 << 20;
    let bytes = chunks.capacity() * size_of::<[u32; 2]>();
    let skip = chunks.as_ptr().addr().wrapping_neg() % HUGE;
    let inside = bytes.saturating_sub(skip) / HUGE * HUGE;
    if bytes < 2 * HUGE || inside == 0 {
        return;
    }
    // SAFETY: the range lies inside the vector's own memory, and the advice does not change its content.
    let _ = unsafe {
        rustix::mm::madvise(
            chunks.as_mut_ptr().cast::<u8>().add(skip).cast(),
            inside,
            rustix::mm::Advice::LinuxHugepage,
        )
    };
}

#[cfg(not(target_os = "linux"))]
fn advise_huge_pages(_chunks: &mut Vec<[u32; 2]>) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        let mut compact = Compact::default();
        compact.reserve(1_000_000);
        let size = |i: u64| (!i.is_multiple_of(3)).then_some(i % 7 * 1_000);
        for i in 0..1_000_000 {
            assert!(compact.push(64 + i * 50_000_000, size(i)).unwrap());
        }
        compact.seal();
        for i in 0..1_000_000 {
            assert_eq!(compact.get(i), Some((64 + i * 50_000_000, size(i))));
        }
        assert_eq!((compact.count(), compact.get(1_000_000)), (1_000_000, None));
    }

    #[test]
    fn what_does_not_fit_is_refused_and_changes_nothing() {
        let mut compact = Compact::default();
        let mut push = |offset, size| compact.push(offset, size).unwrap();
        assert!(!push(64, Some(u32::MAX.into())) && !push(64, Some(1 << 40)));
        assert!(push(64, Some(u64::from(u32::MAX) - 1)) && !push(65 + (1 << 32), Some(1)));
        assert!(push(63 + (1 << 32), None));
        assert_eq!(compact.get(0), Some((64, Some(u64::from(u32::MAX) - 1))));
        assert_eq!((compact.get(1), compact.count()), (Some((63 + (1 << 32), None)), 2));
    }
}
