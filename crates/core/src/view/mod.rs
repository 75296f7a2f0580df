//! Which records, in which order: a function from position to record number that needs no list in memory.
//!
//! Views can be stacked: a shuffle of a concatenation of slices is still one function, and reading through it is one
//! batched read of the underlying records.
//!
//! | file | what |
//! |---|---|
//! | [`blocks`] | the shuffle that keeps the records of a chunk together |
//! | [`mixture`] | several sources by weight |
//! | [`layout`] | where chunks begin in a view |
//! | `numbers` | a view as a few numbers, and back |

pub mod blocks;
pub mod layout;
pub mod mixture;
mod numbers;
#[cfg(test)]
mod tests;

use crate::bytes;
use crate::error::{Error, Result};
use crate::permutation::{MOST, Permutation};
use blocks::{Blocks, Shape};
use mixture::{Mixture, Until};
pub use numbers::fingerprint;
use std::sync::Arc;

/// How many views may be stacked: more than anyone needs, and a bound on recursion.
const DEEPEST: usize = 64;
/// How many views one view may be made of: a bound on the size of its pickle.
const MOST_PARTS: u64 = 1 << 20;
/// A slice of a concatenation with more layers than this is turned into a concatenation of slices. So slicing and
/// concatenating again and again adds no layers. Concatenations with fewer layers are not turned, because the block
/// shuffles of their slices are frozen.
const SHALLOW: usize = 8;

/// A view of a sequence of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    /// `start`, `start + step`, ...: `len` record numbers.
    Range {
        /// The first record.
        start: u64,
        /// The distance from one record to the next. May be negative, never 0.
        step: i64,
        /// How many.
        len: u64,
    },
    /// One view after the other.
    Concat(Arc<[Part]>),
    /// `len` positions of another view.
    Slice {
        /// The view that is sliced.
        of: Arc<View>,
        /// The first position.
        start: u64,
        /// The distance from one position to the next. May be negative, never 0.
        step: i64,
        /// How many.
        len: u64,
    },
    /// All positions of another view, in another order.
    Shuffled {
        /// The view that is shuffled.
        of: Arc<View>,
        /// The order.
        order: Arc<Order>,
    },
    /// Several views by weight.
    Mixed(Arc<Mixed>),
}

/// One part of a concatenation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The view.
    pub view: View,
    /// Added to its record numbers: where its files begin among all files.
    pub base: u64,
    /// The position after its last one.
    pub end: u64,
    /// The size of the view. Stored here, because views share parts: counting them again would take time exponential in
    /// the number of layers.
    size: Size,
}

/// How many layers and how many parts a view is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    depth: usize,
    parts: u64,
}

impl Size {
    /// The size of a view on top of others.
    fn over(below: impl Iterator<Item = Size>) -> Self {
        let (mut depth, mut parts) = (0, 1u64);
        for size in below {
            depth = depth.max(size.depth);
            parts = parts.saturating_add(size.parts);
        }
        Size { depth: depth + 1, parts }
    }
}

/// Several views by weight. After its end, a view begins again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mixed {
    mixture: Mixture,
    /// Each view, and where its files begin among all files.
    parts: Vec<(View, u64)>,
    len: u64,
    size: Size,
}

/// A pseudo-random order, chosen by a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Any record at any position.
    Full {
        /// The seed.
        seed: u64,
        /// The epoch.
        epoch: u64,
        /// The order that belongs to the seed and the epoch.
        permutation: Permutation,
    },
    /// Neighbours stay near each other.
    Blocks(Blocks),
}

impl Order {
    /// The order of `len` records in an epoch: a full permutation, or, given a shape, a block shuffle.
    pub fn new(len: u64, seed: u64, epoch: u64, shape: Option<Shape>) -> Result<Self> {
        Ok(match shape {
            None => Order::Full { seed, epoch, permutation: Permutation::new(len, seed, epoch)? },
            Some(shape) => Order::Blocks(Blocks::new(len, seed, epoch, shape)?),
        })
    }

    /// How many positions it has.
    pub fn len(&self) -> u64 {
        match self {
            Order::Full { permutation, .. } => permutation.len(),
            Order::Blocks(blocks) => blocks.len(),
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is at a position, which must be below [`len`](Self::len).
    pub fn forward(&self, position: u64) -> u64 {
        match self {
            Order::Full { permutation, .. } => permutation.forward(position),
            Order::Blocks(blocks) => blocks.forward(position),
        }
    }

    /// The position of `found`, which must be below [`len`](Self::len).
    pub fn inverse(&self, found: u64) -> u64 {
        match self {
            Order::Full { permutation, .. } => permutation.inverse(found),
            Order::Blocks(blocks) => blocks.inverse(found),
        }
    }

    /// Replaces positions by what is there.
    pub fn forward_many(&self, positions: &mut [u64]) {
        match self {
            Order::Full { permutation, .. } => permutation.forward_many(positions),
            Order::Blocks(blocks) => blocks.forward_many(positions),
        }
    }
}

fn along(start: u64, step: i64, position: u64) -> u64 {
    // Wrapping arithmetic is correct for every position below `len`, because the constructors check the bounds.
    start.wrapping_add((step as u64).wrapping_mul(position))
}

impl View {
    /// All of `len` records.
    pub fn all(len: u64) -> Self {
        View::Range { start: 0, step: 1, len }
    }

    /// How many positions it has.
    #[inline]
    pub fn len(&self) -> u64 {
        // Plain files have their own branch, which comes first: reading one of their records takes less time than a
        // call and a jump table.
        match self {
            View::Range { len, .. } => *len,
            _ => self.len_of_layers(),
        }
    }

    #[inline(never)]
    fn len_of_layers(&self) -> u64 {
        match self {
            View::Range { len, .. } | View::Slice { len, .. } => *len,
            View::Concat(parts) => parts.last().map_or(0, |p| p.end),
            View::Shuffled { order, .. } => order.len(),
            View::Mixed(mixed) => mixed.len,
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The record number at a position, which must be below [`len`](Self::len).
    #[inline]
    pub fn get(&self, position: u64) -> u64 {
        match self {
            View::Range { start, step, .. } => along(*start, *step, position),
            _ => self.get_through_layers(position),
        }
    }

    #[inline(never)]
    fn get_through_layers(&self, position: u64) -> u64 {
        match self {
            View::Range { start, step, .. } => along(*start, *step, position),
            View::Slice { of, start, step, .. } => of.get(along(*start, *step, position)),
            View::Concat(parts) => {
                let (part, begin) = part_at(parts, position);
                part.base + part.view.get(position - begin)
            }
            View::Shuffled { of, order } => of.get(order.forward(position)),
            View::Mixed(mixed) => {
                let (source, number) = mixed.mixture.draw(position);
                let (view, base) = &mixed.parts[source];
                base + view.get(number % view.len())
            }
        }
    }

    /// The first position from `position` on at which neighbouring positions lead to other places: where a window of a
    /// block shuffle ends. `position` itself if the order has no such places.
    pub fn window_end(&self, position: u64) -> u64 {
        match self {
            View::Shuffled { order, .. } if position > 0 && position < order.len() => match &**order {
                Order::Blocks(blocks) => blocks.window_end(position - 1),
                Order::Full { .. } => position,
            },
            View::Slice { of, start, step: 1, len } if position < *len => {
                (of.window_end(start + position) - start).min(*len)
            }
            _ => position,
        }
    }

    /// Replaces positions, each below [`len`](Self::len), by record numbers: layer by layer, which is faster than
    /// position by position.
    pub fn get_many(&self, positions: &mut [u64]) {
        match self {
            View::Range { start: 0, step: 1, .. } => {}
            View::Range { start, step, .. } => {
                positions.iter_mut().for_each(|position| *position = along(*start, *step, *position));
            }
            View::Slice { of, start, step, .. } => {
                positions.iter_mut().for_each(|position| *position = along(*start, *step, *position));
                of.get_many(positions);
            }
            View::Shuffled { of, order } => {
                order.forward_many(positions);
                of.get_many(positions);
            }
            View::Concat(parts) => {
                let mut rest = positions;
                while let Some(&first) = rest.first() {
                    let (part, begin) = part_at(parts, first);
                    let same =
                        rest.iter().take_while(|position| (begin..part.end).contains(position)).count();
                    let (here, after) = rest.split_at_mut(same);
                    here.iter_mut().for_each(|position| *position -= begin);
                    part.view.get_many(here);
                    here.iter_mut().for_each(|record| *record += part.base);
                    rest = after;
                }
            }
            View::Mixed(_) => positions.iter_mut().for_each(|position| *position = self.get(*position)),
        }
    }

    /// `len` positions from `start` on, `step` apart; all of them must be positions of this view.
    pub fn slice(&self, start: u64, step: i64, len: u64) -> Result<Self> {
        let last = i128::from(start) + i128::from(step) * (i128::from(len) - 1);
        let inside = |p: i128| (0..i128::from(self.len())).contains(&p);
        if step == 0 || (len > 0 && !(inside(i128::from(start)) && inside(last))) {
            return Err(Error::argument("slice is out of range"));
        }
        if len == 0 {
            return Ok(View::all(0));
        }
        // Without a next position, the step means nothing and might overflow.
        let step = if len == 1 { 1 } else { step };
        if (start, step, len) == (0, 1, self.len()) {
            return Ok(self.clone());
        }
        let times = |by: i64| match len {
            1 => Ok(1),
            _ => by.checked_mul(step).ok_or_else(|| Error::argument("slice step is too large")),
        };
        Ok(match self {
            View::Range { start: first, step: by, .. } => {
                View::Range { start: along(*first, *by, start), step: times(*by)?, len }
            }
            View::Slice { of, start: first, step: by, .. } => {
                let (start, step) = (along(*first, *by, start), times(*by)?);
                match (start, step, len) == (0, 1, of.len()) {
                    // Reversed twice. A pickle has no number for it, so there must be no layer for it either.
                    true => (**of).clone(),
                    false => View::Slice { of: of.clone(), start, step, len },
                }
            }
            View::Concat(parts) if step == 1 && self.size().depth > SHALLOW => cut(parts, start, len)?,
            View::Concat(_) | View::Shuffled { .. } | View::Mixed(_) => {
                View::Slice { of: self.below()?, start, step, len }
            }
        })
    }

    /// One view after the other. Each comes with the record number where its files begin among all files.
    pub fn concat(views: impl IntoIterator<Item = (View, u64)>) -> Result<Self> {
        let (mut parts, mut end, mut total) = (Vec::new(), 0u64, 0u64);
        let mut add = |view: View, base| -> Result<()> {
            end = end.checked_add(view.len()).filter(|&end| end < MOST).ok_or_else(too_long)?;
            let size = view.size();
            total = total.saturating_add(size.parts);
            if total > MOST_PARTS {
                return Err(Error::argument(format!("a view of more than {MOST_PARTS} parts")));
            }
            bytes::push("parts of a view", &mut parts, Part { view, base, end, size })
        };
        for (view, base) in views {
            match view {
                // Flattened, so that a sum of a thousand views is not a thousand layers.
                View::Concat(inner) => {
                    for part in inner.iter() {
                        add(part.view.clone(), base + part.base)?;
                    }
                }
                view => add((*view.below()?).clone(), base)?,
            }
        }
        Ok(View::Concat(parts.into()))
    }

    /// The same positions in another order, which must have the same length.
    pub fn shuffle(&self, order: Order) -> Result<Self> {
        if order.len() != self.len() {
            return Err(Error::argument("the order and the view have different lengths"));
        }
        Ok(View::Shuffled { of: self.below()?, order: Arc::new(order) })
    }

    /// Views by weight. Each comes with the record number where its files begin among all files.
    pub fn mix(views: Vec<(View, u64)>, weights: &[u64], seed: u64, until: Until) -> Result<Self> {
        let mixture = Mixture::new(weights, seed)?;
        let lengths: Vec<u64> = views.iter().map(|(view, _)| view.len()).collect();
        let len = mixture.length(&lengths, until)?;
        views.iter().try_for_each(|(view, _)| view.below().map(drop))?;
        let size = Size::over(views.iter().map(|(view, _)| view.size()));
        if size.parts > MOST_PARTS {
            return Err(Error::argument(format!("a view of more than {MOST_PARTS} parts")));
        }
        Ok(View::Mixed(Arc::new(Mixed { mixture, parts: views, len, size })))
    }

    /// This view as the base of another one. An error if there are too many layers.
    fn below(&self) -> Result<Arc<Self>> {
        if self.size().depth >= DEEPEST {
            return Err(Error::argument(format!("more than {DEEPEST} views on top of each other")));
        }
        Ok(Arc::new(self.clone()))
    }

    fn size(&self) -> Size {
        match self {
            View::Range { .. } => Size::over(std::iter::empty()),
            View::Slice { of, .. } | View::Shuffled { of, .. } => Size::over([of.size()].into_iter()),
            View::Concat(parts) => Size::over(parts.iter().map(|part| part.size)),
            View::Mixed(mixed) => mixed.size,
        }
    }
}

/// `len` positions of a concatenation from `start` on, as a concatenation.
fn cut(parts: &[Part], start: u64, len: u64) -> Result<View> {
    let (mut begin, end) = (0, start + len);
    let mut pieces = Vec::new();
    for part in parts {
        let (from, to) = (start.max(begin), end.min(part.end));
        if from < to {
            bytes::push(
                "parts of a view",
                &mut pieces,
                (part.view.slice(from - begin, 1, to - from)?, part.base),
            )?;
        }
        begin = part.end;
    }
    match &*pieces {
        [(View::Range { start, step, len }, base)] => {
            Ok(View::Range { start: start + base, step: *step, len: *len })
        }
        [(view, 0)] => Ok(view.clone()),
        _ => View::concat(pieces),
    }
}

/// The part that a position is in, and the position of its first record.
fn part_at(parts: &[Part], position: u64) -> (&Part, u64) {
    let at = parts.partition_point(|part| part.end <= position);
    (&parts[at], if at == 0 { 0 } else { parts[at - 1].end })
}

fn too_long() -> Error {
    Error::argument("more than 2^63 records in one view")
}
