//! A file in memory of which one byte can be changed, or the end cut off, while a reader has it open.

use anyrecord::storage::Storage;
use anyrecord::{Cx, Result, bytes};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// No byte is changed.
const NOWHERE: u64 = u64::MAX;

/// The storage. It notes which bytes are read, if asked to.
pub struct Patched {
    name: String,
    bytes: Arc<Vec<u8>>,
    length: AtomicU64,
    at: AtomicU64,
    byte: AtomicU8,
    noted: Mutex<Option<Vec<Range<u64>>>>,
}

impl Patched {
    /// The bytes as they are.
    pub fn new(name: &str, bytes: Arc<Vec<u8>>) -> Self {
        Patched {
            name: name.to_owned(),
            length: AtomicU64::new(bytes.len() as u64),
            bytes,
            at: AtomicU64::new(NOWHERE),
            byte: AtomicU8::new(0),
            noted: Mutex::new(None),
        }
    }

    /// Changes one byte. All others are what they were at first.
    pub fn change(&self, at: u64, byte: u8) {
        self.byte.store(byte, Relaxed);
        self.at.store(at, Relaxed);
    }

    /// Cuts the file.
    pub fn cut(&self, length: u64) {
        self.length.store(length, Relaxed);
    }

    /// Calls `act`. Returns its result and the ranges that were read meanwhile.
    pub fn noting<T>(&self, act: impl FnOnce() -> T) -> (T, Vec<Range<u64>>) {
        *self.noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
        let result = act();
        let noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner).take();
        (result, noted.unwrap_or_default())
    }
}

impl Storage for Patched {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> u64 {
        self.length.load(Relaxed)
    }

    fn read_at(&self, at: u64, out: &mut [u8], _cx: &Cx<'_>) -> Result<()> {
        let range =
            bytes::range("read", at, out.len() as u64, self.len()).map_err(|e| e.in_file(&self.name))?;
        out.copy_from_slice(&self.bytes[range.start as usize..range.end as usize]);
        let changed = self.at.load(Relaxed);
        if range.contains(&changed) {
            out[(changed - at) as usize] = self.byte.load(Relaxed);
        }
        if let Some(noted) = &mut *self.noted.lock().unwrap_or_else(PoisonError::into_inner) {
            noted.push(range);
        }
        Ok(())
    }
}
