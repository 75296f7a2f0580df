//! Record files that machine learning trains on, read and written exactly, safe on hostile bytes.
//!
//! A record file is a table of chunks. A *format* says where the chunks are and how to decode one; a *codec*
//! packs the bytes of a chunk; a *storage* reads and writes bytes. The three vary independently, and everything
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
//! | [`cx`] | what every call carries with it: its budget, and the way to stop it |
//! | [`bytes`] | the only arithmetic on numbers read from a file |
//! | [`storage`] | where bytes come from and go |
//! | [`codec`], [`hash`] | compression and checksums |
//! | [`format`] | the formats, and which one a file is of |
//! | [`shard`], [`open`] | one file of a data set; opening many at once |
//! | [`reader`], [`cache`] | reading records |
//! | [`view`] | which records, in which order: slices, shuffles, concatenations, mixtures |
//! | [`permutation`] | a shuffle that is computed, not stored |
//! | [`writer`] | writing records |
//! | [`convert`] | from files of any format to files of any other |
//! | [`index_file`] | where chunks are, kept in a file beside the data |
//! | [`verify`] | every byte of a file accounted for |
//! | [`parallel`] | the same work on many things at once |
//! | [`pool`] | threads that decode |
//! | [`prefetch`] | memory asked for before it is needed |
//! | [`process`] | what a forked child must not inherit |

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
pub mod open;
pub mod parallel;
pub mod permutation;
pub mod pool;
pub mod prefetch;
pub mod process;
pub mod reader;
pub mod shard;
pub mod storage;
pub mod verify;
pub mod view;
pub mod writer;

pub use budget::Budget;
pub use cx::{Cx, Stop};
pub use error::{Error, Kind, Result};
pub use limits::Limits;
pub use reader::Reader;
