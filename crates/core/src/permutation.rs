//! Position -> record number: a shuffle of any number of records that is computed, not stored.
//!
//! [`Permutation`] is a bijection of `0..len`, chosen by a key. It takes a few hundred bytes for any `len`. Both
//! directions can be computed for any single element. Golden vectors freeze its output: a checkpoint of today continues
//! in the same order under every later version.
//!
//! Algorithm: a number is split into a row and a column of a nearly square table of `rows * columns >= len` cells. Each
//! round rotates every column by an amount that depends on the column's number and a key of that round, or every row
//! likewise. A rotation can be undone, so any number of rounds is a bijection of the cells (a Feistel network on two
//! different moduli). A cell at or above `len` is permuted again until it is below `len` (cycle walking). This keeps
//! the bijection. It almost never happens, because the table is hardly larger than `len`.
//!
//! Both sides of the table are even. Rotating an odd number of cells by one is an even permutation, so with two odd
//! sides half of all orders could never occur.

use crate::error::{Error, Result};

/// The most elements that a permutation can have.
pub const MOST: u64 = 1 << 63;

/// Rounds for few elements. With few elements, a round chooses among few rotations, so it takes more rounds until all
/// orders are equally likely: with 16 rounds, 7 elements are measurably uneven.
const ROUNDS_FEW: usize = 24;
/// Rounds for many elements.
const ROUNDS_MANY: usize = 12;
/// From this number of elements on, `ROUNDS_MANY` rounds are enough.
const MANY: u64 = 1 << 16;

/// How many positions are computed at once. A round is a chain of dependent multiplications, and the processor waits
/// less when it can interleave several chains.
const LANES: usize = 8;

/// 2^64 divided by the golden ratio. Its multiples are far apart from each other.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A bijection of 64-bit numbers under which every bit of the input flips every bit of the output with
/// probability one half (the finaliser of SplitMix64, with Stafford's 13th set of constants).
pub(crate) fn scramble(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// A number that depends on all of `words` and on their order. Not for secrets.
pub(crate) fn digest(words: impl IntoIterator<Item = u64>) -> u64 {
    words
        .into_iter()
        .fold(STEP, |state, word| scramble(scramble(word.wrapping_add(STEP)) ^ state.rotate_left(23)))
}

/// A random 64-bit number as one below `bound`, each as likely as the others to within `bound / 2^64`.
pub(crate) fn below(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

/// A keyed bijection of `0..len`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permutation {
    len: u64,
    rows: u64,
    columns: u64,
    rounds: usize,
    keys: [u64; ROUNDS_FEW],
}

impl Permutation {
    /// The order of `len` records in one epoch of the shuffle with this seed.
    pub fn new(len: u64, seed: u64, epoch: u64) -> Result<Self> {
        if len > MOST {
            return Err(Error::argument(format!("{len} records cannot be shuffled: the limit is 2^63")));
        }
        Ok(Self::keyed(len, &[seed, epoch]))
    }

    /// The permutation that belongs to a key of any length. `len` is at most [`MOST`].
    pub(crate) fn keyed(len: u64, key: &[u64]) -> Self {
        // The smallest even numbers of rows and columns, about equal, that give at least `len` cells.
        let rows = len.saturating_sub(1).isqrt().saturating_add(1).next_multiple_of(2);
        let columns = len.div_ceil(rows).next_multiple_of(2).max(2);
        let state = digest(key.iter().copied().chain([len]));
        let mut keys = [0; ROUNDS_FEW];
        for (round, key) in keys.iter_mut().enumerate() {
            *key = scramble(state.wrapping_add(STEP.wrapping_mul(round as u64 + 1)));
        }
        let rounds = if len < MANY { ROUNDS_FEW } else { ROUNDS_MANY };
        Permutation { len, rows, columns, rounds, keys }
    }

    /// How many elements it has.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The record number at a position, which must be below [`len`](Self::len).
    pub fn forward(&self, position: u64) -> u64 {
        debug_assert!(position < self.len);
        self.walk_on(self.cells_forward([position])[0])
    }

    /// The position of a record number, which must be below [`len`](Self::len).
    pub fn inverse(&self, record: u64) -> u64 {
        debug_assert!(record < self.len);
        let mut at = self.cell_inverse(record);
        while at >= self.len {
            at = self.cell_inverse(at);
        }
        at
    }

    /// Replaces positions by record numbers.
    pub fn forward_many(&self, positions: &mut [u64]) {
        let (lanes, rest) = positions.as_chunks_mut::<LANES>();
        for lane in lanes {
            *lane = self.cells_forward(*lane).map(|cell| self.walk_on(cell));
        }
        rest.iter_mut().for_each(|position| *position = self.forward(*position));
    }

    /// Cycle walking: permutes a cell until it is the number of a record.
    fn walk_on(&self, mut cell: u64) -> u64 {
        while cell >= self.len {
            [cell] = self.cells_forward([cell]);
        }
        cell
    }

    fn cells_forward<const N: usize>(&self, cells: [u64; N]) -> [u64; N] {
        let mut rows = cells.map(|cell| cell / self.columns);
        let mut columns = cells.map(|cell| cell % self.columns);
        for keys in self.keys[..self.rounds].chunks_exact(2) {
            for (row, column) in rows.iter_mut().zip(&columns) {
                *row = turn(*row, below(scramble(*column ^ keys[0]), self.rows), self.rows);
            }
            for (column, row) in columns.iter_mut().zip(&rows) {
                *column = turn(*column, below(scramble(*row ^ keys[1]), self.columns), self.columns);
            }
        }
        std::array::from_fn(|lane| rows[lane] * self.columns + columns[lane])
    }

    fn cell_inverse(&self, cell: u64) -> u64 {
        let (mut row, mut column) = (cell / self.columns, cell % self.columns);
        for keys in self.keys[..self.rounds].chunks_exact(2).rev() {
            column = turn_back(column, below(scramble(row ^ keys[1]), self.columns), self.columns);
            row = turn_back(row, below(scramble(column ^ keys[0]), self.rows), self.rows);
        }
        row * self.columns + column
    }
}

// Both functions use `min` and not a branch, which would be mispredicted every other time. A result that wraps around
// is the larger one.

fn turn(at: u64, by: u64, around: u64) -> u64 {
    (at + by).min((at + by).wrapping_sub(around))
}

fn turn_back(at: u64, by: u64, around: u64) -> u64 {
    at.wrapping_sub(by).min(at.wrapping_sub(by).wrapping_add(around))
}

#[cfg(test)]
mod tests;
