//! Loads memory into the processor's cache before it is needed.
//!
//! A random read of a large file misses every cache of the processor twice: for the table's entry and for the bytes. In
//! a batch, the misses of many records can overlap.

/// The size of a cache line on the processors that matter here.
const LINE: usize = 64;
/// The processor does not prefetch beyond a page by itself.
const PAGE: usize = 4096;
/// How many bytes of a record are prefetched. The processor detects sequential access and prefetches the rest itself.
const BEGINNING: usize = 1024;

/// Prefetches the beginning of a record, and the beginning of its second page.
#[inline]
pub fn record(stored: &[u8]) {
    bytes(stored, BEGINNING);
    if let Some(second_page) = stored.get(PAGE - stored.as_ptr().addr() % PAGE..) {
        bytes(second_page, LINE);
    }
}

/// Prefetches the first bytes, up to `most` of them.
#[inline]
pub fn bytes(bytes: &[u8], most: usize) {
    for line in bytes[..bytes.len().min(most)].chunks(LINE) {
        address(line.as_ptr());
    }
}

/// Prefetches the cache line that holds an address.
#[inline]
pub fn address<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: only a hint. The processor ignores an address that cannot be read.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch(at.cast::<i8>(), _MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
