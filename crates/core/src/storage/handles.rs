//! Limits the number of open file descriptors, for data sets of more files than a process may open.
//!
//! Every open descriptor has one cell of a ring. When the ring is full, opening one more file closes one that was not
//! used recently (CLOCK eviction). The hand moves around the ring. It clears the mark of each cell that is marked as
//! used, and evicts the first cell that is not marked. There is no lock, so a fork at any moment leaves nothing locked
//! in the child.

use super::identity::OpenFile;
use crate::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
    fence,
};
use crate::sync::{Arc, ArcSwapOption, Guard, OnceBox};

/// The descriptor of one file. Empty until it is needed, and after an eviction.
#[derive(Default)]
pub struct Handle {
    file: ArcSwapOption<OpenFile>,
    used: AtomicBool,
}

impl Handle {
    /// The descriptor, if it is open. The caller can still use it after it was closed here.
    pub fn get(&self) -> Guard<Option<Arc<OpenFile>>> {
        let file = self.file.load();
        // Stored only if it changes: a store in every read would make threads compete for the cache line.
        if file.is_some() && !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
        file
    }

    /// Closes the descriptor as soon as no thread uses it.
    pub fn close(&self) {
        self.file.store(None);
    }
}

type Cell = ArcSwapOption<Handle>;

/// Takes the file out of a cell, and closes it.
fn empty(cell: &Cell) {
    if let Some(handle) = cell.swap(None) {
        handle.close();
    }
}

/// A bounded set of open descriptors, shared by the files of one data set.
pub struct Handles {
    /// A cell is made when it is first used. Most data sets use few of them, and dropping one takes up to 0.5 us.
    ring: Box<[OnceBox<Cell>]>,
    hand: AtomicUsize,
    /// How many cells at the end of the ring are not used, because something else holds a descriptor.
    occupied: AtomicUsize,
}

impl Handles {
    /// Keeps at most `limit` descriptors open, and at least one.
    pub fn new(limit: usize) -> Arc<Self> {
        let ring = (0..limit.max(1)).map(|_| OnceBox::new()).collect();
        Arc::new(Handles { ring, hand: AtomicUsize::new(0), occupied: AtomicUsize::new(0) })
    }

    /// Puts an opened file into its handle, and closes another file if too many are open.
    pub fn admit(&self, handle: &Arc<Handle>, file: Arc<OpenFile>) {
        // Two rounds are enough: the first one clears all marks.
        let cells = self.cells();
        for _ in 0..2 * cells {
            let at = self.hand.fetch_add(1, Relaxed) % cells;
            let cell = self.ring[at].get_or_init(|| Box::new(Cell::empty()));
            let spare = match &*cell.load() {
                None => true,
                Some(other) => !other.used.swap(false, Relaxed),
            };
            if spare {
                handle.file.store(Some(file));
                if let Some(other) = cell.swap(Some(handle.clone()))
                    && !Arc::ptr_eq(&other, handle)
                {
                    other.close();
                }
                // Another thread may have reserved the descriptor of this cell before it saw the file in it.
                fence(SeqCst);
                if at >= self.cells() {
                    empty(cell);
                }
                return;
            }
        }
        // Other threads marked every cell meanwhile. This descriptor is used once and not kept.
    }

    /// How many descriptors may be open at once: at least one.
    pub fn limit(&self) -> usize {
        self.cells()
    }

    /// How many cells are in use: at least one.
    fn cells(&self) -> usize {
        self.ring.len().saturating_sub(self.occupied.load(Relaxed)).max(1)
    }

    /// Reserves one descriptor of the limit for another use. Closes a file if necessary.
    pub fn occupy(&self) {
        self.occupied.fetch_add(1, Relaxed);
        fence(SeqCst);
        self.ring[self.cells()..].iter().filter_map(OnceBox::get).for_each(empty);
    }

    /// Ends one [`occupy`](Self::occupy).
    pub fn vacate(&self) {
        self.occupied.fetch_sub(1, Relaxed);
    }

    #[cfg(test)]
    fn open(&self) -> usize {
        let handles: Vec<_> = self.ring.iter().filter_map(|cell| cell.get()?.load_full()).collect();
        handles.iter().filter(|h| h.file.load().is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::file::Io;

    #[test]
    fn at_most_the_limit_is_open_and_the_unused_one_is_closed() {
        let handles = Handles::new(3);
        let file = || Arc::new(OpenFile::new(tempfile::tempfile().unwrap(), Io::Plain));
        let all: Vec<_> = (0..10).map(|_| Arc::new(Handle::default())).collect();
        for handle in &all {
            handles.admit(handle, file());
            assert!(handle.file.load().is_some());
            assert!(all[0].get().is_some(), "a handle in use keeps its descriptor");
            assert!(handles.open() <= 3);
        }
        assert_eq!(handles.open(), 3);
        handles.occupy();
        assert_eq!(handles.open(), 2);
        all.iter().for_each(|handle| handles.admit(handle, file()));
        assert_eq!(handles.open(), 2);
        handles.vacate();
        all.iter().for_each(|handle| handles.admit(handle, file()));
        assert_eq!(handles.open(), 3);
    }
}
