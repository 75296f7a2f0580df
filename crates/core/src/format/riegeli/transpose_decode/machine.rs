//! The rest of the header: the states.

use super::layout::check_count;
use crate::budget::Held;
use crate::bytes::{self, Cursor};
use crate::cx::Cx;
use crate::error::Result;

/// What a state does.
#[derive(Clone, Copy)]
pub enum Action {
    Nothing,
    NonMessage,
    MessageStart,
    SubmessageStart,
    SubmessageEnd,
    /// Only the tag: groups.
    Tag,
    /// A tag and a byte that the state itself holds.
    Inline(u8),
    /// A tag and a varint of this many bytes.
    Varint(u8),
    /// A tag and this many bytes.
    Fixed(u8),
    String,
}

impl Action {
    fn has_buffer(self) -> bool {
        matches!(self, Action::NonMessage | Action::Varint(_) | Action::Fixed(_) | Action::String)
    }
}

#[derive(Clone, Copy)]
pub struct State {
    pub action: Action,
    pub tag: u32,
    pub buffer: u32,
    pub base: u32,
    /// Only one state can follow, so no transition is stored for it.
    pub implicit: bool,
}

pub struct Machine {
    pub states: Vec<State>,
    pub first: u32,
}

impl Machine {
    pub fn read(header: &mut Cursor<'_>, buffers: usize, held: &mut Held<'_>, cx: &Cx<'_>) -> Result<Self> {
        let count = header.varint32()?;
        check_count(header, u64::from(count) * 2)?;
        // Each state, and the number of the walk that visited it in `has_implicit_cycle`.
        held.grow(u64::from(count) * (size_of::<State>() + size_of::<u32>()) as u64)?;
        let mut states: Vec<State> = bytes::list("states of a chunk", count.into())?;
        let mut pace = cx.pace();
        for _ in 0..count {
            let tag = header.varint32()?;
            states.push(State { action: Action::Nothing, tag, buffer: 0, base: 0, implicit: false });
            pace.step(32)?;
        }
        for state in &mut states {
            let next = header.varint32()?;
            state.implicit = next >= count;
            state.base = if state.implicit { next - count } else { next };
            if state.base >= count {
                return Err(header
                    .error("a state points to a state that does not exist")
                    .expected(format_args!("less than {count}"))
                    .found(state.base));
            }
            pace.step(32)?;
        }
        for state in &mut states {
            (state.action, state.tag) = action(header, state.tag)?;
            pace.step(32)?;
        }
        for state in states.iter_mut().filter(|state| state.action.has_buffer()) {
            state.buffer = header.varint32()?;
            if state.buffer as usize >= buffers {
                return Err(header
                    .error("a state points to a buffer that does not exist")
                    .expected(format_args!("less than {buffers}"))
                    .found(state.buffer));
            }
            pace.step(32)?;
        }
        let first = header.varint32()?;
        if first >= count {
            return Err(header
                .error("the first state does not exist")
                .expected(format_args!("less than {count}"))
                .found(first));
        }
        let machine = Machine { states, first };
        if machine.has_implicit_cycle(cx)? {
            return Err(header.error("states form an endless cycle"));
        }
        Ok(machine)
    }

    /// Whether some states lead to each other in an endless cycle without any transition.
    fn has_implicit_cycle(&self, cx: &Cx<'_>) -> Result<bool> {
        // For each state, the number of the walk that visited it. 0 if none did.
        let mut visited: Vec<u32> = bytes::list("states of a chunk", self.states.len() as u64)?;
        visited.resize(self.states.len(), 0);
        let mut pace = cx.pace();
        for (walk, start) in (1u32..).zip(0..self.states.len()) {
            let mut at = start;
            pace.step(32)?;
            while self.states[at].implicit && visited[at] == 0 {
                visited[at] = walk;
                at = self.states[at].base as usize;
                pace.step(32)?;
            }
            if self.states[at].implicit && visited[at] == walk {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The action of a tag in the header, and the tag to write. For varints, the header also holds a subtype.
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
