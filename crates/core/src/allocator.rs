//! Lets glibc's allocator keep the memory of freed batches.
//!
//! By default it gives free memory at the end of its heap back to the system as soon as it is 128 KB, and gets larger
//! blocks from the system each time. The memory of each batch is then new to the process: the kernel fills every page
//! with zeros at its first use, which takes longer than reading the records.

/// The size of the block that is freed: a little less than the largest one that glibc learns from.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const BLOCK: usize = (32 << 20) - (64 << 10);

/// Frees a large block once. From that, glibc learns to take blocks up to this size from its heap, and to keep twice as
/// much free memory there. It does not learn if the user has set its parameters by the environment or by `mallopt`.
///
/// The block is never written, so it needs no memory.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `free` gets what `malloc` returned, once. Null is allowed. Without `black_box`, the compiler would remove
    // both calls.
    unsafe {
        libc::free(std::hint::black_box(libc::malloc(BLOCK)));
    }
}
