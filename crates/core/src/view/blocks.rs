//! A shuffle that keeps neighbours together: blocks in permuted order, records permuted within a window of blocks.
//!
//! If a record can only be read by fetching and decoding its whole chunk, a full permutation reads every chunk once for
//! each of its records. Here a chunk is read once for each pass, because all of its records occur within one window.
//! The price is weaker mixing: two records of one block are never further apart than a window.
//!
//! Blocks start where a run of equal chunks starts (`cuts`: where files begin), so the last block before a cut may be
//! short. Only these short blocks are kept in memory, with the slot that the permutation gave them. Everything else is
//! computed.

use crate::error::{Error, Result};
use crate::permutation::{MOST, Permutation};

/// Makes the keys of blocks and of windows differ from each other and from those of a full permutation.
const FOR_BLOCKS: u64 = 1;
const FOR_WINDOWS: u64 = 2;

/// A bijection of `0..len` that keeps neighbours near each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    shape: Shape,
    len: u64,
    seed: u64,
    epoch: u64,
    /// Slot -> block.
    order: Permutation,
    /// Runs of blocks without a short one in between, in the order of the records.
    runs: Vec<BlockRun>,
    /// The short blocks in the order of their slots.
    short: Vec<Short>,
}

/// How the records are divided into blocks, and how many blocks are mixed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Records in a block.
    pub block: u64,
    /// Blocks in a window.
    pub window: u64,
    /// Where a block must begin, in addition to 0. The numbers increase, and are above 0 and below the number of
    /// records.
    pub cuts: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct BlockRun {
    first_record: u64,
    first_block: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Short {
    slot: u64,
    /// How many records this block and the short blocks before it have fewer than full blocks.
    missing: u64,
    /// The position after its last record, if blocks are laid out slot after slot.
    end: u64,
}

/// The window of a position. The following positions are often in it too.
struct ShuffleWindow {
    start: u64,
    end: u64,
    order: Permutation,
}

impl Blocks {
    /// The order of `len` records in one epoch of the shuffle with this seed.
    pub fn new(len: u64, seed: u64, epoch: u64, shape: Shape) -> Result<Self> {
        let Shape { block, window, cuts } = &shape;
        if *block == 0 || *window == 0 {
            return Err(Error::argument("a block needs at least 1 record, and a window at least 1 block"));
        }
        let rising = cuts.windows(2).all(|pair| pair[0] < pair[1]);
        if !rising || cuts.first() == Some(&0) || cuts.last().is_some_and(|&last| last >= len) {
            return Err(Error::argument(
                "the cuts between blocks must increase, and be above 0 and below the number of records",
            ));
        }
        let (mut runs, mut short, mut blocks) = (Vec::new(), Vec::new(), 0u64);
        let begins = std::iter::once(0).chain(cuts.iter().copied());
        let ends = cuts.iter().copied().chain([len]);
        for (begin, end) in begins.zip(ends) {
            runs.push(BlockRun { first_record: begin, first_block: blocks });
            blocks += (end - begin).div_ceil(*block);
            let over = (end - begin) % block;
            if over > 0 {
                short.push((blocks - 1, block - over));
            }
        }
        // The number of records if every block were full. All arithmetic below stays under it.
        if len > MOST || blocks.checked_mul(*block).is_none_or(|all| all > MOST) {
            return Err(Error::argument(format!(
                "blocks of {block} records are too large for {len} records in {} parts",
                runs.len()
            )));
        }
        let order = Permutation::keyed(blocks, &[seed, epoch, FOR_BLOCKS]);
        let mut short: Vec<_> =
            short.into_iter().map(|(block, missing)| (order.inverse(block), missing)).collect();
        short.sort_unstable();
        let mut missing = 0;
        let short = short.into_iter().map(|(slot, here)| {
            missing += here;
            Short { slot, missing, end: (slot + 1) * block - missing }
        });
        let short = short.collect();
        Ok(Blocks { len, seed, epoch, order, runs, short, shape })
    }

    /// How many records there are.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The seed and the epoch.
    pub fn key(&self) -> (u64, u64) {
        (self.seed, self.epoch)
    }

    /// How the records are divided into blocks.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The record number at a position, which must be below [`len`](Self::len).
    pub fn forward(&self, position: u64) -> u64 {
        let window = self.window_at(position);
        let (slot, row) = self.slot_at(window.start + window.order.forward(position - window.start));
        self.record_at(self.order.forward(slot), row)
    }

    /// The position of a record number, which must be below [`len`](Self::len).
    pub fn inverse(&self, record: u64) -> u64 {
        let run = &self.runs[self.runs.partition_point(|run| run.first_record <= record) - 1];
        let within = record - run.first_record;
        let slot = self.order.inverse(run.first_block + within / self.shape.block);
        let laid = self.start_of(slot) + within % self.shape.block;
        let window = self.window_of(slot);
        window.start + window.order.inverse(laid - window.start)
    }

    /// Replaces positions by record numbers. Fast if neighbouring positions are in the same window.
    pub fn forward_many(&self, positions: &mut [u64]) {
        let (mut rest, mut slots, mut rows) = (positions, Vec::new(), Vec::new());
        while let Some(&first) = rest.first() {
            let window = self.window_at(first);
            let same =
                rest.iter().take_while(|position| (window.start..window.end).contains(position)).count();
            let (here, after) = rest.split_at_mut(same);
            here.iter_mut().for_each(|position| *position -= window.start);
            window.order.forward_many(here);
            slots.clear();
            rows.clear();
            for (slot, row) in here.iter().map(|within| self.slot_at(window.start + within)) {
                slots.push(slot);
                rows.push(row);
            }
            self.order.forward_many(&mut slots);
            for ((record, block), row) in here.iter_mut().zip(&slots).zip(&rows) {
                *record = self.record_at(*block, *row);
            }
            rest = after;
        }
    }

    /// Where the window of a position ends. The records before it are in few places, those after it in others.
    pub fn window_end(&self, position: u64) -> u64 {
        self.window_at(position).end
    }

    fn record_at(&self, block: u64, row: u64) -> u64 {
        let run = &self.runs[self.runs.partition_point(|run| run.first_block <= block) - 1];
        run.first_record + (block - run.first_block) * self.shape.block + row
    }

    /// The slot and row at a position, if blocks are laid out slot after slot.
    fn slot_at(&self, position: u64) -> (u64, u64) {
        let before = self.short.partition_point(|short| short.end <= position);
        let full = position + before.checked_sub(1).map_or(0, |last| self.short[last].missing);
        (full / self.shape.block, full % self.shape.block)
    }

    /// The position of the first record of a slot, or the length for the slot after the last.
    fn start_of(&self, slot: u64) -> u64 {
        let before = self.short.partition_point(|short| short.slot < slot);
        slot * self.shape.block - before.checked_sub(1).map_or(0, |last| self.short[last].missing)
    }

    fn window_at(&self, position: u64) -> ShuffleWindow {
        self.window_of(self.slot_at(position).0)
    }

    fn window_of(&self, slot: u64) -> ShuffleWindow {
        let number = slot / self.shape.window;
        let first = number * self.shape.window;
        let start = self.start_of(first);
        let end = self.start_of(first.saturating_add(self.shape.window).min(self.order.len()));
        let order = Permutation::keyed(end - start, &[self.seed, self.epoch, FOR_WINDOWS, number]);
        ShuffleWindow { start, end, order }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shape(block: u64, window: u64, cuts: &[u64]) -> Shape {
        Shape { block, window, cuts: cuts.to_vec() }
    }

    fn listed(blocks: &Blocks) -> Vec<u64> {
        let mut list: Vec<u64> = (0..blocks.len()).collect();
        blocks.forward_many(&mut list);
        list
    }

    proptest! {
        #[test]
        fn any_shape_is_a_bijection(
            len in 0u64..600, block in 1u64..50, window in 1u64..20, seed: u64, epoch: u64,
            cuts in prop::collection::btree_set(1u64..600, 0..6),
        ) {
            let cuts: Vec<u64> = cuts.into_iter().filter(|&cut| cut < len).collect();
            let blocks = Blocks::new(len, seed, epoch, shape(block, window, &cuts)).unwrap();
            let list = listed(&blocks);
            for (position, &record) in list.iter().enumerate() {
                prop_assert_eq!(blocks.forward(position as u64), record);
                prop_assert_eq!(blocks.inverse(record), position as u64);
            }
            for position in 0..len {
                let end = blocks.window_end(position);
                prop_assert!(position < end && end <= len);
                prop_assert!(end == len || blocks.window_end(end) > end);
            }
            let mut sorted = list.clone();
            sorted.sort_unstable();
            prop_assert!(sorted.into_iter().eq(0..len));

            // All records of a block occur within as many positions as one window has.
            let block_of = |record: u64| {
                let begin = cuts.iter().rev().find(|&&cut| cut <= record).copied().unwrap_or(0);
                (begin, (record - begin) / block)
            };
            let mut span = std::collections::HashMap::new();
            for (position, &record) in list.iter().enumerate() {
                let (first, last) = span.entry(block_of(record)).or_insert((position, position));
                (*first, *last) = ((*first).min(position), (*last).max(position));
            }
            for (first, last) in span.into_values() {
                prop_assert!((last - first) as u64 <= block * window);
            }
        }

        #[test]
        fn both_directions_undo_each_other_when_large(
            len in 1u64..1 << 62, block in 1u64..1 << 20, window in 1u64..1 << 20, at: u64,
        ) {
            let blocks = Blocks::new(len, 1, 2, shape(block, window, &[])).unwrap();
            let record = blocks.forward(at % len);
            prop_assert!(record < len);
            prop_assert_eq!(blocks.inverse(record), at % len);
        }
    }

    #[test]
    fn golden_vectors() {
        let blocks = Blocks::new(23, 42, 3, shape(4, 2, &[10])).unwrap();
        assert_eq!(
            listed(&blocks),
            [22, 9, 8, 16, 14, 18, 21, 20, 19, 15, 17, 1, 5, 7, 2, 3, 6, 0, 4, 10, 13, 11, 12]
        );
    }

    #[test]
    fn windows_are_shuffled_on_their_own() {
        // The same window number of two epochs, and two windows of one epoch, are in different orders.
        let blocks = Blocks::new(2000, 1, 0, shape(100, 10, &[])).unwrap();
        let next = Blocks::new(2000, 1, 1, shape(100, 10, &[])).unwrap();
        let rows = |list: &[u64]| list.iter().map(|r| r % 100).collect::<Vec<_>>();
        let (this, next) = (listed(&blocks), listed(&next));
        assert_ne!(rows(&this[..1000]), rows(&this[1000..]));
        assert_ne!(rows(&this[..1000]), rows(&next[..1000]));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for bad in [
            shape(0, 1, &[]),
            shape(1, 0, &[]),
            shape(1, 1, &[0]),
            shape(1, 1, &[10]),
            shape(1, 1, &[5, 5]),
            shape(1, 1, &[5, 4]),
            shape(MOST, 1, &[5]),
        ] {
            assert!(Blocks::new(10, 0, 0, bad.clone()).is_err(), "{bad:?}");
        }
        assert!(Blocks::new(10, 0, 0, shape(MOST, u64::MAX, &[])).is_ok());
        assert!(Blocks::new(MOST + 1, 0, 0, shape(1, 1, &[])).is_err());
    }
}
