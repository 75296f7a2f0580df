//! One byte is changed: `verify` reports it.

use crate::calls;
use crate::whole::Whole;
use anyrecord::format::detect;
use anyrecord::storage::memory::Memory;

/// What `verify` made of a change.
pub enum Verified {
    /// It reported the change.
    Seen,
    /// It found nothing.
    Unseen,
    /// It failed, or its report lacks something.
    Wrong(String),
}

/// Verifies the file with another byte at `at`: as the format of its name, and a small one also as the detected one.
pub fn verified(whole: &Whole, bytes: &mut [u8], at: u64, byte: u8) -> Verified {
    let before = std::mem::replace(&mut bytes[at as usize], byte);
    let storage = Memory::new(whole.name.clone(), &*bytes);
    let mut result = Verified::Seen;
    for &format in &whole.formats {
        if format.is_none() && !whole.is_small() {
            continue;
        }
        match calls::verify(&storage, format) {
            Ok(false) => {}
            Ok(true) => result = Verified::Unseen,
            // The detected format of damaged bytes may be none. That is an error, and says so.
            Err(error) if calls::due(&error, &whole.name, None).is_none() && format.is_none() => {}
            Err(error) => {
                result = Verified::Wrong(error.to_string());
                break;
            }
        }
    }
    bytes[at as usize] = before;
    result
}

/// Whether the file is in order before it is changed.
pub fn is_in_order(whole: &Whole) -> bool {
    let storage = Memory::new(whole.name.clone(), &**whole.bytes);
    let format = detect::by_suffix(&whole.name).map(|format| format.name);
    matches!(calls::verify(&storage, format), Ok(true))
}
