//! Decodes transposed chunks: a state machine writes the records from the last byte to the first.
//!
//! ```text
//! compression type (1)  length of header (varint)  header  buckets  transitions
//! ```
//!
//! Buckets hold buffers. Each buffer holds the values of one field. States say which field comes next. Transitions
//! choose among the states. No number from the file is trusted:
//!
//! | what | is bounded by |
//! |---|---|
//! | the header, and so the number of buckets, buffers and states | the stored bytes |
//! | the buckets, all together | the size that the chunk declares |
//! | transitions | nothing: they are unpacked in pieces |
//! | steps of the machine | the stored bytes and the bytes produced so far |
//! | the output | the size that the chunk declares. It grows with the bytes that are produced |
//!
//! | file | what |
//! |---|---|
//! | `layout` | the front of the header: how the bytes after it are divided into buffers |
//! | `machine` | the rest of the header: the states |
//! | `transitions` | the choices among states |
//! | `output` | the records, from the last byte to the first |
//! | `run` | the execution of the state machine |

mod layout;
mod machine;
mod output;
mod run;
mod transitions;

use super::simple::{codec_of, unpack};
use crate::bytes::{Cursor, MAX_VARINT64};
use crate::cx::Cx;
use crate::error::Result;
use crate::format::Decoded;
use layout::Layout;
use machine::Machine;
use run::TransposedRun;
use std::borrow::Cow;
use transitions::Transitions;

/// The header of any chunk may decode to this many bytes.
const FREE_HEADER: u64 = 256 << 10;
/// In addition, the header may decode to this many times the stored bytes of the chunk. A header consists of ascending
/// numbers, which hardly compress.
const HEADER_RATIO: u64 = 16;

/// Decodes the data of a chunk that begins at `at`.
pub fn decode(data: &[u8], at: u64, records: u64, decoded: u64, cx: &Cx<'_>) -> Result<Decoded> {
    cx.budget.check_chunk(decoded, at)?;
    let (stored, mut held) = (data.len() as u64, cx.budget.nothing());
    let mut cursor = Cursor::new("transposed chunk", data, at);
    let codec = codec_of(cursor.u8()?)?;
    let header_length = cursor.varint64()?;
    let stored_header = Cow::Borrowed(cursor.take(header_length)?);
    let most = stored.saturating_mul(HEADER_RATIO).saturating_add(FREE_HEADER);
    let header = unpack(codec, stored_header, most, at, &mut held, cx)?;
    let mut header = Cursor::new("transposed header", &header, at);
    let layout = Layout::read(&mut header, cx)?;
    // Every buffer byte ends up in the output, except for the lengths of records that are not messages.
    let most = decoded.saturating_add(records.saturating_mul(MAX_VARINT64 as u64));
    let buckets = layout.unpack(codec, &mut cursor, most, at, &mut held, cx)?;
    let buffers = layout.buffers(&buckets, at, &mut held, cx)?;
    let machine = Machine::read(&mut header, buffers.len(), &mut held, cx)?;
    if !header.is_empty() {
        return Err(header.error("bytes follow the first state"));
    }
    let mut transitions = Transitions::open(codec, cursor.rest(), stored, at, &mut held, cx)?;
    let mut run = TransposedRun::new(buffers, records, decoded, stored, at, cx)?;
    run.go(&machine, &mut transitions)?;
    run.finish()
}
