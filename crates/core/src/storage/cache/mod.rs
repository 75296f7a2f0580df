//! A cache of remote objects in a local folder, shared by all processes of a host.
//!
//! An object is cached in blocks. A block is a file whose name is a hash of the object's place and version, and the
//! number of the block. It appears by a rename and is never changed, so processes share blocks without locks:
//!
//! ```text
//! read -> this process has mapped the block      -> a read of memory           (`file`, `resident`)
//!      -> the folder has the block               -> verified, then mapped      (`resident`, `folder`)
//!      -> neither                                -> fetched whole, then stored (`fetch`, `store`)
//! ```
//!
//! | file | what |
//! |---|---|
//! | `key` | what distinguishes versions of objects |
//! | [`block`] | the content of a block file |
//! | `folder` | the files of the folder |
//! | `space` | the limit: how many bytes there are, and which blocks are deleted first |
//! | [`store`] | a cache: stores blocks, and goes on without if that fails |
//! | `resident` | the blocks of an object that this process has verified and mapped |
//! | [`file`] | an object with a cache as a storage |
//! | `fetch` | reads many ranges: from the cache, or else from servers |
//! | `upkeep` | a thread that releases what other processes deleted |

pub mod block;
mod fetch;
pub mod file;
mod folder;
mod key;
mod resident;
mod space;
pub mod store;
#[cfg(test)]
mod tests;
mod upkeep;

pub use fetch::read;

use std::sync::OnceLock;

/// Shows a warning to the user.
pub type Warn = fn(&str);

static WARN: OnceLock<Warn> = OnceLock::new();

/// Call this once, before threads are started.
pub fn set_warn(warn: Warn) {
    let _ = WARN.set(warn);
}

fn warn(text: &str) {
    if let Some(warn) = WARN.get() {
        warn(text);
    }
}
