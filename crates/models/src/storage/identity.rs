//! A descriptor that only counts how many are open.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A descriptor.
pub struct OpenFile(Arc<AtomicUsize>);

impl OpenFile {
    /// Opens one more.
    pub fn new(open: &Arc<AtomicUsize>) -> Arc<Self> {
        open.fetch_add(1, Relaxed);
        Arc::new(OpenFile(open.clone()))
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
