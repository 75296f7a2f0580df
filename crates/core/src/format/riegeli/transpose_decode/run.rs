//! Executes the state machine.

use super::machine::{Action, Machine, State};
use super::output::Backward;
use super::transitions::Transitions;
use crate::budget::Held;
use crate::bytes::{self, Cursor};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::format::Decoded;

/// Steps that every chunk may take.
const FREE_STEPS: u64 = 1 << 16;
/// Further steps for every stored byte, every produced byte and every started record. Encoders arrange the states in a
/// tree with the frequent ones near the root. Even a hostile distribution of fields stays far below this.
const STEPS_PER_BYTE: u64 = 32;
/// How deep submessages may be nested before stored or produced bytes allow more. Encoders stop at about 100.
const FREE_DEPTH: usize = 1 << 10;

/// A run of the state machine, with its output so far.
pub struct TransposedRun<'a> {
    out: Backward<'a>,
    /// For each record, from the last to the first: how many bytes were produced when it started.
    starts: Vec<usize>,
    /// Submessages whose end is written and whose start is not: how many bytes were produced at the end, and the tag.
    open: Vec<(usize, u32)>,
    /// The part of each buffer that is not yet taken.
    buffers: Vec<&'a [u8]>,
    records: u64,
    stored: u64,
    at: u64,
    cx: &'a Cx<'a>,
    /// The memory of `starts` in the budget.
    _held: Held<'a>,
}

impl<'a> TransposedRun<'a> {
    pub fn new(
        buffers: Vec<&'a [u8]>,
        records: u64,
        decoded: u64,
        stored: u64,
        at: u64,
        cx: &'a Cx<'a>,
    ) -> Result<Self> {
        let out = Backward::new(decoded, stored, at, cx)?;
        let held = cx.budget.hold(records.saturating_mul(size_of::<usize>() as u64))?;
        Ok(TransposedRun {
            out,
            starts: Vec::new(),
            open: Vec::new(),
            buffers,
            records,
            stored,
            at,
            cx,
            _held: held,
        })
    }

    pub fn go(&mut self, machine: &Machine, transitions: &mut Transitions<'_>) -> Result<()> {
        let states = &machine.states;
        let mut state = states[machine.first as usize];
        let mut pending = u32::from(state.implicit);
        let (mut steps, mut allowed, mut pace) = (0, FREE_STEPS, self.cx.pace());
        loop {
            if steps == allowed {
                allowed = self.allowed_steps();
                if steps >= allowed {
                    return Err(Error::format("transposed chunk takes too many steps").at(self.at).expected(
                        format_args!("at most {allowed} for {} bytes of output", self.out.made()),
                    ));
                }
            }
            steps += 1;
            pace.step(32)?;
            self.execute(&state)?;
            if pending > 0 {
                state = states[state.base as usize];
                pending -= u32::from(!state.implicit);
                continue;
            }
            let Some(transition) = transitions.next()? else { return Ok(()) };
            let next = state.base as usize + usize::from(transition >> 2);
            state = *states.get(next).ok_or_else(|| {
                Error::format("transposed chunk goes to a state that does not exist").at(self.at).found(next)
            })?;
            pending = u32::from(transition & 3) + u32::from(state.implicit);
        }
    }

    /// How many steps are allowed so far.
    fn allowed_steps(&self) -> u64 {
        let work = self.stored.saturating_add((self.out.made() + self.starts.len()) as u64);
        work.saturating_mul(STEPS_PER_BYTE).saturating_add(FREE_STEPS)
    }

    fn execute(&mut self, state: &State) -> Result<()> {
        let tag = u64::from(state.tag);
        let buffer = state.buffer as usize;
        match state.action {
            Action::Nothing => return Ok(()),
            Action::MessageStart => return self.start_record(),
            Action::NonMessage => {
                let lengths = self.buffers.len() - 1;
                let length = self.take(lengths, |buffer| buffer.varint32())?;
                let record = self.take(buffer, |buffer| buffer.take(length.into()))?;
                self.out.prepend(record)?;
                return self.start_record();
            }
            Action::SubmessageEnd => return self.end_submessage(state.tag),
            Action::SubmessageStart => return self.start_submessage(),
            Action::Tag => {}
            Action::Inline(byte) => self.out.prepend(&[byte])?,
            Action::Varint(length) => {
                let mut varint = [0; bytes::MAX_VARINT64];
                let varint = &mut varint[..usize::from(length)];
                varint.copy_from_slice(self.take(buffer, |buffer| buffer.take(length.into()))?);
                let last = varint.len() - 1;
                varint[..last].iter_mut().for_each(|byte| *byte |= 0x80);
                self.out.prepend(varint)?;
            }
            Action::Fixed(length) => {
                let value = self.take(buffer, |buffer| buffer.take(length.into()))?;
                self.out.prepend(value)?;
            }
            Action::String => {
                let string = self.take(buffer, |buffer| {
                    let mut look = buffer.clone();
                    let length = look.varint32()?;
                    look.take(length.into())?;
                    buffer.take((look.position() - buffer.position()) as u64)
                })?;
                self.out.prepend(string)?;
            }
        }
        self.out.prepend_varint(tag)
    }

    /// Takes something from the front of a buffer.
    #[inline]
    fn take<T>(&mut self, buffer: usize, take: impl FnOnce(&mut Cursor<'a>) -> Result<T>) -> Result<T> {
        let rest = &mut self.buffers[buffer];
        let mut cursor = Cursor::new("transposed buffer", rest, self.at);
        let taken = take(&mut cursor)?;
        *rest = cursor.rest();
        Ok(taken)
    }

    fn end_submessage(&mut self, tag: u32) -> Result<()> {
        // The start of each open submessage still takes at least two bytes. A declared size alone must not allow more
        // submessages than there are stored and produced bytes.
        let there = self.out.made().saturating_add(usize::try_from(self.stored).unwrap_or(usize::MAX));
        if self.open.len() > (self.out.left() / 2).min(there.saturating_add(FREE_DEPTH)) {
            return Err(Error::format("transposed chunk opens too many submessages").at(self.at));
        }
        bytes::push("open submessages", &mut self.open, (self.out.made(), tag))
    }

    fn start_submessage(&mut self) -> Result<()> {
        let (end, tag) = self.open.pop().ok_or_else(|| {
            Error::format("transposed chunk starts a submessage that has no end").at(self.at)
        })?;
        let length = (self.out.made() - end) as u64;
        if length > u64::from(u32::MAX) {
            return Err(Error::format("transposed submessage is too long").at(self.at).found(length));
        }
        self.out.prepend_varint(length)?;
        self.out.prepend_varint(u64::from(tag))
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
        bytes::push("records of a chunk", &mut self.starts, self.out.made())
    }

    /// The records, after all transitions were taken.
    pub fn finish(mut self) -> Result<Decoded> {
        let wrong = |what: &'static str| Err(Error::format(what).at(self.at));
        if !self.open.is_empty() {
            return wrong("transposed chunk ends inside a submessage");
        }
        if self.starts.len() as u64 != self.records {
            return wrong("transposed chunk holds too few records");
        }
        let bytes = self.out.finish()?;
        if self.starts.last().is_some_and(|&start| start != bytes.len()) {
            return wrong("transposed chunk holds less than it declares");
        }
        // A record ends where the next one starts. The last record ends where all bytes end.
        if let Some(first) = self.starts.pop() {
            self.starts.insert(0, bytes.len() - first);
        }
        self.starts.iter_mut().for_each(|made| *made = bytes.len() - *made);
        self.starts.reverse();
        Decoded::new(bytes, self.starts)
    }
}
