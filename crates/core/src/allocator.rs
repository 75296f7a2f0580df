//! Tells the C library's allocator how much memory a batch takes, so that it keeps the memory of the one before.
//!
//! The caller frees the records of a batch before it reads the next ones. glibc returns free memory at the end of a heap
//! to the system, if that is more than 128 KiB. The next batch gets it back, and the system clears every page again.
//! This takes several times as long as reading the records, and threads wait for each other, because the process has
//! one list of pages.
//!
//! glibc adapts: after a block is freed that was mapped by itself, because it was large, it keeps twice as much free
//! memory as the block had. So such a block is mapped and freed, once for each size. Its pages are never touched.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Smaller batches fit into what glibc keeps by default.
const LEAST: usize = 16 << 10;
/// Freed blocks up to this size are kept. glibc does not adapt to blocks of more than 32 MiB.
pub const MOST: usize = 30 << 20;

/// The largest batch that the allocator was told about.
static KNOWN: AtomicUsize = AtomicUsize::new(LEAST);

/// Call it before memory for records is allocated. `bytes` is the size of all that are allocated together.
#[inline]
pub fn expect(bytes: usize) {
    if bytes > KNOWN.load(Relaxed) {
        tell(bytes);
    }
}

#[cold]
fn tell(bytes: usize) {
    if KNOWN.fetch_max(bytes.max(size_for(bytes) / 2), Relaxed) < bytes {
        map_and_free(size_for(bytes));
    }
}

/// The size of the block for batches of `bytes` bytes: glibc keeps twice as much, so two batches fit, each with some
/// room for the headers of its records.
fn size_for(bytes: usize) -> usize {
    bytes.saturating_mul(2).checked_next_power_of_two().unwrap_or(MOST).clamp(1 << 20, MOST)
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn map_and_free(size: usize) {
    // SAFETY: the block is freed once, and nothing uses it. `black_box` keeps the compiler from removing both calls.
    unsafe { libc::free(std::hint::black_box(libc::malloc(size))) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn map_and_free(_size: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_is_large_enough_for_two_batches_and_small_enough_to_count() {
        for bytes in [1, 100_000, 1 << 20, (1 << 20) + 1, 7_000_000] {
            assert!(2 * size_for(bytes) >= 2 * bytes + bytes / 2, "{bytes}");
        }
        for bytes in [0, 1 << 20, 1 << 30, usize::MAX] {
            assert!((1 << 20..=MOST).contains(&size_for(bytes)), "{bytes}");
        }
    }
}
