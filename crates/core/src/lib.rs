//! Reads and writes record files for machine learning, exactly, and safely on hostile bytes.
//!
//! A record file is a table of chunks. A *format* knows where the chunks are and how to decode one. A *codec*
//! compresses the bytes of a chunk. A *storage* reads and writes bytes. The three vary independently, and everything
//! else is written once:
//!
//! ```text
//! read:   indices -> plan -> fetch -> decode -> deliver          (reader.rs, reader/batch.rs)
//! write:  records -> group -> encode -> sequence -> publish      (writer.rs, storage/publish.rs)
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`error`] | one error: what, file, offset, record, expected, found |
//! | [`limits`], [`budget`] | every cap on untrusted input; what one call may hold at once |
//! | [`cx`] | the context of a call: its budget and its interruption check |
//! | [`bytes`] | all arithmetic on numbers read from a file |
//! | [`storage`] | where bytes are read from and written to |
//! | [`codec`], [`hash`] | compression and checksums |
//! | [`mod@format`] | the formats, and how the format of a file is detected |
//! | [`shard`], [`open`] | one file of a data set; opening many at once |
//! | [`reader`], [`cache`] | reading records |
//! | [`view`] | which records, in which order: slices, shuffles, concatenations, mixtures |
//! | [`permutation`] | a shuffle that is computed, not stored |
//! | [`writer`] | writing records |
//! | [`convert`] | converts files of any format to files of any other |
//! | [`index_file`] | the side index: where chunks are, stored in a hidden file in the same folder |
//! | [`verify`] | checks every byte of a file |
//! | [`salvage`] | saves what can still be read from a damaged file |
//! | [`memory`] | blocks of memory for whole batches |
//! | [`parallel`] | runs a function on many items in several threads |
//! | [`pool`] | the thread pools that decode |
//! | [`prefetch`] | loads memory into the processor's cache before it is needed |
//! | [`sync`] | atomics and locks, from one place so that a model checker can replace them |
//! | [`turn`] | threads that watch for a lock a moment before they sleep |
//! | [`ranges`] | a set of numbers, stored as ranges |
//! | [`allocator`] | lets the allocator keep the memory of freed batches |
//! | [`process`] | the fork generation, and what a forked child must not inherit |

pub mod allocator;
pub mod available;
pub mod budget;
pub mod bytes;
pub mod cache;
pub mod codec;
pub mod convert;
pub mod cx;
pub mod error;
pub mod format;
pub mod hash;
pub mod index_file;
pub mod limits;
pub mod memory;
pub mod open;
pub mod parallel;
pub mod permutation;
pub mod pool;
pub mod prefetch;
pub mod process;
pub mod ranges;
pub mod reader;
pub mod salvage;
pub mod series;
pub mod shard;
pub mod storage;
pub mod sync;
pub mod turn;
pub mod verify;
pub mod view;
pub mod writer;

pub use budget::Budget;
pub use cx::{Cx, Stop};
pub use error::{Error, Kind, Result};
pub use limits::Limits;
pub use reader::Reader;
