//! Whether a memory map may be taken away, although other threads read it.
//!
//! A reader that checks the mark of its map loses nothing when the map is taken away. A caller of `buffer` checks
//! nothing. So the map stays as long as it is exported.

use super::map_registry::{MapState, Slot};
use crate::sync::atomic::{AtomicUsize, Ordering::SeqCst, fence};

/// How many buffers access a map directly, without checks.
#[derive(Default)]
pub struct Exports(AtomicUsize);

impl Exports {
    /// Counts one more, if the map is intact. `touch` accesses the map, and marks it if the file was truncated.
    pub fn begin(&self, slot: &Slot, touch: impl FnOnce()) -> bool {
        self.0.fetch_add(1, SeqCst);
        touch();
        // Count first, then read the mark. `retire` does it in the opposite order, so at least one of the two sees the
        // other.
        fence(SeqCst);
        let is_there = slot.state() == MapState::Intact;
        if !is_there {
            self.end();
        }
        is_there
    }

    /// Ends one successful [`begin`](Self::begin).
    pub fn end(&self) {
        self.0.fetch_sub(1, SeqCst);
    }

    /// Whether there are any.
    pub fn is_any(&self) -> bool {
        self.0.load(SeqCst) > 0
    }

    /// Marks the map as closed. True: it can be taken away now. False: it is exported, and stays as it is, or another
    /// thread closed it.
    pub fn retire(&self, slot: &Slot) -> bool {
        if !slot.mark_retired() {
            return false;
        }
        fence(SeqCst);
        let is_exported = self.0.load(SeqCst) > 0;
        if is_exported {
            slot.mark_open_again();
        }
        !is_exported
    }
}
