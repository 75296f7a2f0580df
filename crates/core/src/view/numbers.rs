//! A view as a flat list of numbers, and back: what a pickle holds and what a fingerprint is made of.
//!
//! The numbers come from pickles and checkpoints, so they are as untrusted as numbers from files. For any numbers, a
//! view that is made from them has only records that exist.

use super::blocks::Shape;
use super::mixture::Until;
use super::{DEEPEST, Order, View};
use crate::error::{Error, Result};
use crate::permutation::digest;

// The first number of each view is its kind. Pickles and checkpoints contain these numbers, so they never change.
const RANGE: i128 = 0;
const SLICE: i128 = 1;
const CONCAT: i128 = 2;
const SHUFFLED: i128 = 3;
const SHUFFLED_BLOCKS: i128 = 4;
const MIXED: i128 = 5;

impl Order {
    /// The order as a flat list of numbers: all but its length.
    pub fn to_numbers(&self) -> Vec<i128> {
        match self {
            Order::Full { seed, epoch, .. } => vec![SHUFFLED, (*seed).into(), (*epoch).into()],
            Order::Blocks(blocks) => {
                let ((seed, epoch), Shape { block, window, cuts }) = (blocks.key(), blocks.shape());
                let mut numbers =
                    vec![SHUFFLED_BLOCKS, seed.into(), epoch.into(), (*block).into(), (*window).into()];
                numbers.push(cuts.len() as i128);
                numbers.extend(cuts.iter().copied().map(i128::from));
                numbers
            }
        }
    }
}

impl View {
    /// The view as a flat list of numbers.
    pub fn to_numbers(&self) -> Vec<i128> {
        match self {
            View::Range { start, step, len } => vec![RANGE, (*start).into(), (*step).into(), (*len).into()],
            View::Slice { of, start, step, len } => {
                let mut numbers = vec![SLICE, (*start).into(), (*step).into(), (*len).into()];
                numbers.extend(of.to_numbers());
                numbers
            }
            View::Concat(parts) => {
                let mut numbers = vec![CONCAT, parts.len() as i128];
                for part in parts.iter() {
                    numbers.push(part.base.into());
                    numbers.extend(part.view.to_numbers());
                }
                numbers
            }
            View::Shuffled { of, order } => {
                let mut numbers = order.to_numbers();
                numbers.extend(of.to_numbers());
                numbers
            }
            View::Mixed(mixed) => {
                let mut numbers =
                    vec![MIXED, mixed.mixture.seed().into(), mixed.len.into(), mixed.parts.len() as i128];
                for ((view, base), weight) in mixed.parts.iter().zip(mixed.mixture.weights()) {
                    numbers.extend([i128::from(weight), (*base).into()]);
                    numbers.extend(view.to_numbers());
                }
                numbers
            }
        }
    }

    /// The inverse of [`to_numbers`](Self::to_numbers), for a data set of `records` records.
    pub fn from_numbers(numbers: &[i128], records: u64) -> Result<Self> {
        let mut numbers = Numbers(numbers.iter());
        let view = numbers.view(records, 0)?;
        if numbers.0.next().is_some() { Err(bad()) } else { Ok(view) }
    }
}

/// A hash of a list of numbers. It has 53 bits, so every reader of JSON can represent it.
pub fn fingerprint(numbers: impl IntoIterator<Item = i128>) -> u64 {
    digest(numbers.into_iter().flat_map(|number| [number as u64, (number >> 64) as u64])) >> 11
}

fn bad() -> Error {
    Error::argument("not a pickled view of these records")
}

struct Numbers<'a>(std::slice::Iter<'a, i128>);

impl Numbers<'_> {
    fn any(&mut self) -> Result<i128> {
        self.0.next().copied().ok_or_else(bad)
    }

    fn next<T: TryFrom<i128>>(&mut self) -> Result<T> {
        T::try_from(self.any()?).map_err(|_| bad())
    }

    /// How many things follow, each of at least one number.
    fn count(&mut self) -> Result<usize> {
        self.next::<usize>().and_then(|count| if count <= self.0.len() { Ok(count) } else { Err(bad()) })
    }

    /// Where the files of a part begin among `records` records, and how many there are from there on.
    fn base(&mut self, records: u64) -> Result<(u64, u64)> {
        let base = self.next()?;
        Ok((base, records.checked_sub(base).ok_or_else(bad)?))
    }

    fn view(&mut self, records: u64, depth: usize) -> Result<View> {
        if depth > DEEPEST {
            return Err(bad());
        }
        match self.any()? {
            RANGE => {
                let (start, step, len) = (self.next()?, self.next()?, self.next()?);
                View::all(records).slice(start, step, len)
            }
            SLICE => {
                let (start, step, len) = (self.next()?, self.next()?, self.next()?);
                self.view(records, depth + 1)?.slice(start, step, len)
            }
            CONCAT => {
                let mut parts = Vec::new();
                for _ in 0..self.count()? {
                    let (base, left) = self.base(records)?;
                    parts.push((self.view(left, depth + 1)?, base));
                }
                View::concat(parts)
            }
            SHUFFLED => {
                let (seed, epoch) = (self.next()?, self.next()?);
                let of = self.view(records, depth + 1)?;
                of.shuffle(Order::new(of.len(), seed, epoch, None)?)
            }
            SHUFFLED_BLOCKS => {
                let (seed, epoch, block, window) = (self.next()?, self.next()?, self.next()?, self.next()?);
                let cuts = (0..self.count()?).map(|_| self.next()).collect::<Result<_>>()?;
                let of = self.view(records, depth + 1)?;
                of.shuffle(Order::new(of.len(), seed, epoch, Some(Shape { block, window, cuts }))?)
            }
            MIXED => {
                let (seed, len) = (self.next()?, self.next()?);
                let (mut weights, mut parts) = (Vec::new(), Vec::new());
                for _ in 0..self.count()? {
                    weights.push(self.next()?);
                    let (base, left) = self.base(records)?;
                    parts.push((self.view(left, depth + 1)?, base));
                }
                View::mix(parts, &weights, seed, Until::Length(len))
            }
            _ => Err(bad()),
        }
    }
}
