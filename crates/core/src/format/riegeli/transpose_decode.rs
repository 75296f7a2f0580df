//! Transposed chunks, decoding: a state machine that writes the records from the last byte to the first.
//!
//! ```text
//! compression type (1)  length of header (varint)  header  buckets  transitions
//! ```
//!
//! Buckets hold buffers, buffers hold the values of one field each, states say which field comes next, and
//! transitions choose among the states. Nothing here trusts a number: output goes into a buffer of exactly
//! the declared size, and the work is bounded by that size.

use super::simple::{codec_of, declared, unpack};
use crate::bytes::{self, Cursor};
use crate::codec::Codec;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::format::Decoded;
use std::borrow::Cow;

/// Steps that one byte of output may take. The layout of an encoder is a tree of states in which frequent
/// ones are near the root; even a hostile distribution of fields stays far below this.
const STEPS_PER_BYTE: u64 = 128;
/// Steps that every chunk may take.
const FREE_STEPS: u64 = 1 << 16;

/// Decodes the data of a chunk that begins at `at`.
pub fn decode(data: &[u8], at: u64, records: u64, decoded: u64, cx: &Cx<'_>) -> Result<Decoded> {
    cx.budget.check_chunk(decoded, at)?;
    let mut cursor = Cursor::new("transposed chunk", data, at);
    let codec = codec_of(cursor.u8()?)?;
    let header_length = cursor.varint64()?;
    let stored_header = cursor.take(header_length)?;
    let header = unpack(codec, Cow::Borrowed(stored_header), cx.budget.limits().decoded_chunk_bytes, at)?;
    let mut header = Cursor::new("transposed header", &header, at);
    // Every buffer byte ends up in the output, except for the lengths of records that are no messages.
    let most = decoded.saturating_add(records.saturating_mul(bytes::MAX_VARINT64 as u64));
    let layout = Layout::read(&mut header)?;
    let buckets = layout.buckets(codec, &mut cursor, most, at)?;
    let buffers = layout.buffers(&buckets, at)?;
    let machine = Machine::read(&mut header, buffers.len())?;
    if !header.is_empty() {
        return Err(header.error("bytes follow the first state"));
    }
    let steps = decoded.saturating_add(records).saturating_mul(STEPS_PER_BYTE).saturating_add(FREE_STEPS);
    let transitions = unpack(codec, Cow::Borrowed(cursor.rest()), steps, at)?;
    let mut run = Run {
        out: Backward { bytes: bytes::zeroed("chunk", decoded)?, head: 0, at },
        starts: Vec::new(),
        open: Vec::new(),
        buffers,
        records,
        at,
    };
    run.out.head = run.out.bytes.len();
    run.go(&machine, &transitions, steps)?;
    run.finish()
}

/// The front of the header: how the bytes behind it are cut.
struct Layout {
    bucket_lengths: Vec<u64>,
    buffer_lengths: Vec<u64>,
}

impl Layout {
    fn read(header: &mut Cursor<'_>) -> Result<Self> {
        let (buckets, buffers) = (header.varint32()?, header.varint32()?);
        if buckets == 0 && buffers != 0 {
            return Err(header.error("there are buffers but no buckets"));
        }
        Ok(Layout { bucket_lengths: lengths(header, buckets)?, buffer_lengths: lengths(header, buffers)? })
    }

    fn buckets<'a>(
        &self,
        codec: Codec,
        cursor: &mut Cursor<'a>,
        most: u64,
        at: u64,
    ) -> Result<Vec<Cow<'a, [u8]>>> {
        let mut left = most;
        let mut buckets = Vec::with_capacity(self.bucket_lengths.len());
        for &length in &self.bucket_lengths {
            let blob = cursor.take(length)?;
            let (size, _) = declared(codec, blob, at)?;
            left = left.checked_sub(size).ok_or_else(|| {
                Error::format("transposed chunk has more bytes in buckets than in records").at(at).found(size)
            })?;
            buckets.push(unpack(codec, Cow::Borrowed(blob), size, at)?);
        }
        Ok(buckets)
    }

    fn buffers<'a>(&self, buckets: &'a [Cow<'a, [u8]>], at: u64) -> Result<Vec<Cursor<'a>>> {
        let mut rest = buckets.iter().map(|bucket| &bucket[..]);
        let mut bucket: &[u8] = rest.next().unwrap_or(&[]);
        let mut buffers = Vec::with_capacity(self.buffer_lengths.len());
        for &length in &self.buffer_lengths {
            while bucket.is_empty() && length > 0 {
                bucket = rest
                    .next()
                    .ok_or_else(|| Error::format("transposed chunk has too few buckets").at(at))?;
            }
            let split = usize::try_from(length).ok().and_then(|n| bucket.split_at_checked(n));
            let (buffer, left) = split.ok_or_else(|| {
                Error::format("transposed buffer reaches past its bucket")
                    .at(at)
                    .expected(bucket.len())
                    .found(length)
            })?;
            buffers.push(Cursor::new("transposed buffer", buffer, at));
            bucket = left;
        }
        if !bucket.is_empty() || rest.any(|bucket| !bucket.is_empty()) {
            return Err(Error::format("transposed chunk has bytes that belong to no buffer").at(at));
        }
        Ok(buffers)
    }
}

/// `count` varints; each takes a byte at least, so the count is bounded by what is there.
fn lengths(header: &mut Cursor<'_>, count: u32) -> Result<Vec<u64>> {
    check_count(header, u64::from(count))?;
    (0..count).map(|_| header.varint64()).collect()
}

fn check_count(header: &Cursor<'_>, count: u64) -> Result<()> {
    let left = header.rest().len();
    if count > left as u64 {
        return Err(header.error("declares more than it holds").expected(left).found(count));
    }
    Ok(())
}

/// What a state does.
#[derive(Clone, Copy)]
enum Action {
    Nothing,
    NonMessage,
    MessageStart,
    SubmessageStart,
    SubmessageEnd,
    /// Only the tag: groups.
    Tag,
    /// A tag and a byte that the state itself holds.
    Inline(u8),
    /// A tag and a varint of so many bytes.
    Varint(u8),
    /// A tag and so many bytes.
    Fixed(u8),
    String,
}

impl Action {
    fn has_buffer(self) -> bool {
        matches!(self, Action::NonMessage | Action::Varint(_) | Action::Fixed(_) | Action::String)
    }
}

#[derive(Clone, Copy)]
struct State {
    action: Action,
    tag: u32,
    buffer: u32,
    base: u32,
    /// The one state that can follow needs no transition.
    implicit: bool,
}

struct Machine {
    states: Vec<State>,
    first: u32,
}

impl Machine {
    fn read(header: &mut Cursor<'_>, buffers: usize) -> Result<Self> {
        let count = header.varint32()?;
        check_count(header, u64::from(count) * 2)?;
        let tags: Vec<u32> = (0..count).map(|_| header.varint32()).collect::<Result<_>>()?;
        let nexts: Vec<u32> = (0..count).map(|_| header.varint32()).collect::<Result<_>>()?;
        let mut states = Vec::with_capacity(tags.len());
        for (tag, next) in tags.into_iter().zip(nexts) {
            let implicit = next >= count;
            let base = if implicit { next - count } else { next };
            if base >= count {
                return Err(header.error("a state leads nowhere").expected(count).found(base));
            }
            let (action, tag) = action(header, tag)?;
            states.push(State { action, tag, buffer: 0, base, implicit });
        }
        for state in states.iter_mut().filter(|state| state.action.has_buffer()) {
            state.buffer = header.varint32()?;
            if state.buffer as usize >= buffers {
                return Err(header.error("a state has no buffer").expected(buffers).found(state.buffer));
            }
        }
        let first = header.varint32()?;
        if first >= count {
            return Err(header.error("the first state is none").expected(count).found(first));
        }
        let machine = Machine { states, first };
        if machine.has_implicit_cycle() {
            return Err(header.error("states lead in a circle"));
        }
        Ok(machine)
    }

    /// Whether some states lead to each other for ever without any transition.
    fn has_implicit_cycle(&self) -> bool {
        // For each state, the walk that visited it; 0 for none.
        let mut visited = vec![0u32; self.states.len()];
        for (walk, start) in (1u32..).zip(0..self.states.len()) {
            let mut at = start;
            while self.states[at].implicit && visited[at] == 0 {
                visited[at] = walk;
                at = self.states[at].base as usize;
            }
            if self.states[at].implicit && visited[at] == walk {
                return true;
            }
        }
        false
    }
}

/// What a tag in the header means, and the tag to write. Varints have their subtype in the header, too.
fn action(header: &mut Cursor<'_>, tag: u32) -> Result<(Action, u32)> {
    let action = match (tag, tag & 7) {
        (0, _) => Action::Nothing,
        (1, _) => Action::NonMessage,
        (2, _) => Action::SubmessageStart,
        (3, _) => Action::MessageStart,
        (8.., 0) => match header.u8()? {
            subtype @ 0..=9 => Action::Varint(subtype + 1),
            subtype @ 10..=137 => Action::Inline(subtype - 10),
            other => return Err(header.error(format_args!("unknown kind of varint {other}"))),
        },
        (8.., 1) => Action::Fixed(8),
        (8.., 2) => Action::String,
        (8.., 3 | 4) => Action::Tag,
        (8.., 5) => Action::Fixed(4),
        (8.., 6) => return Ok((Action::SubmessageEnd, tag - 4)),
        _ => return Err(header.error(format_args!("unknown tag {tag}"))),
    };
    Ok((action, tag))
}

/// Output that grows from its end to its beginning.
struct Backward {
    bytes: Vec<u8>,
    head: usize,
    at: u64,
}

impl Backward {
    fn prepend(&mut self, bytes: &[u8]) -> Result<()> {
        let head = self.head.checked_sub(bytes.len()).ok_or_else(|| {
            Error::format("transposed chunk holds more than it declares")
                .at(self.at)
                .expected(self.bytes.len())
        })?;
        self.bytes[head..self.head].copy_from_slice(bytes);
        self.head = head;
        Ok(())
    }

    fn prepend_varint(&mut self, mut value: u64) -> Result<()> {
        let mut buffer = [0; bytes::MAX_VARINT64];
        let length = bytes::varint_len(value);
        for byte in &mut buffer[..length] {
            *byte = value as u8 | 0x80;
            value >>= 7;
        }
        buffer[length - 1] &= 0x7f;
        self.prepend(&buffer[..length])
    }
}

/// The machine at work.
struct Run<'a> {
    out: Backward,
    /// Where records start, from the last to the first.
    starts: Vec<usize>,
    /// Submessages whose end is written: where it is, and the tag.
    open: Vec<(usize, u32)>,
    buffers: Vec<Cursor<'a>>,
    records: u64,
    at: u64,
}

impl Run<'_> {
    fn go(&mut self, machine: &Machine, transitions: &[u8], most_steps: u64) -> Result<()> {
        let states = &machine.states;
        let mut transitions = transitions.iter();
        let mut state = states[machine.first as usize];
        let mut pending = u32::from(state.implicit);
        for _ in 0..most_steps {
            self.execute(&state)?;
            if pending > 0 {
                state = states[state.base as usize];
                pending -= u32::from(!state.implicit);
                continue;
            }
            let Some(&transition) = transitions.next() else { return Ok(()) };
            let next = state.base as usize + usize::from(transition >> 2);
            state = *states.get(next).ok_or_else(|| {
                Error::format("transposed chunk goes to a state that is none").at(self.at).found(next)
            })?;
            pending = u32::from(transition & 3) + u32::from(state.implicit);
        }
        Err(Error::format("transposed chunk takes too many steps").at(self.at).expected(most_steps))
    }

    fn execute(&mut self, state: &State) -> Result<()> {
        let tag = u64::from(state.tag);
        let buffer = state.buffer as usize;
        match state.action {
            Action::Nothing => return Ok(()),
            Action::MessageStart => return self.start_record(),
            Action::NonMessage => {
                let lengths = self.buffers.len() - 1;
                let length = self.buffers[lengths].varint32()?;
                let record = self.buffers[buffer].take(u64::from(length))?;
                self.out.prepend(record)?;
                return self.start_record();
            }
            Action::SubmessageEnd => {
                // Its start takes two bytes at least, so this many can be open at most.
                if self.open.len() > self.out.head / 2 {
                    return Err(Error::format("transposed chunk opens too many submessages").at(self.at));
                }
                self.open.push((self.out.head, state.tag));
                return Ok(());
            }
            Action::SubmessageStart => {
                let (end, tag) = self.open.pop().ok_or_else(|| {
                    Error::format("transposed chunk starts a submessage that has no end").at(self.at)
                })?;
                let length = (end - self.out.head) as u64;
                if length > u64::from(u32::MAX) {
                    return Err(Error::format("transposed submessage is too long").at(self.at).found(length));
                }
                self.out.prepend_varint(length)?;
                return self.out.prepend_varint(u64::from(tag));
            }
            Action::Tag => {}
            Action::Inline(byte) => self.out.prepend(&[byte])?,
            Action::Varint(length) => {
                let mut varint = [0; bytes::MAX_VARINT64];
                let varint = &mut varint[..usize::from(length)];
                varint.copy_from_slice(self.buffers[buffer].take(u64::from(length))?);
                let last = varint.len() - 1;
                varint[..last].iter_mut().for_each(|byte| *byte |= 0x80);
                self.out.prepend(varint)?;
            }
            Action::Fixed(length) => {
                let value = self.buffers[buffer].take(u64::from(length))?;
                self.out.prepend(value)?;
            }
            Action::String => {
                let stored = self.buffers[buffer].rest();
                let before = self.buffers[buffer].position();
                let length = self.buffers[buffer].varint32()?;
                self.buffers[buffer].take(u64::from(length))?;
                let taken = self.buffers[buffer].position() - before;
                self.out.prepend(&stored[..taken])?;
            }
        }
        self.out.prepend_varint(tag)
    }

    fn start_record(&mut self) -> Result<()> {
        if !self.open.is_empty() {
            return Err(Error::format("transposed chunk starts a record inside a submessage").at(self.at));
        }
        if self.starts.len() as u64 == self.records {
            return Err(Error::format("transposed chunk holds too many records")
                .at(self.at)
                .expected(self.records));
        }
        self.starts.push(self.out.head);
        Ok(())
    }

    fn finish(mut self) -> Result<Decoded> {
        let wrong = |what: &'static str| Err(Error::format(what).at(self.at));
        if !self.open.is_empty() {
            return wrong("transposed chunk ends inside a submessage");
        }
        if self.starts.len() as u64 != self.records {
            return wrong("transposed chunk holds too few records");
        }
        if self.out.head != 0 || self.starts.last().is_some_and(|&start| start != 0) {
            return wrong("transposed chunk holds less than it declares");
        }
        // Where a record starts, the one before it ends.
        self.starts.reverse();
        let mut ends = self.starts;
        if !ends.is_empty() {
            ends.remove(0);
            ends.push(self.out.bytes.len());
        }
        Decoded::new(self.out.bytes, ends)
    }
}
