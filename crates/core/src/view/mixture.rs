//! Mixes several sources into one sequence by weight: which source each position draws from, and which of its records.
//!
//! Two sources: the sequence is divided into stretches, one for each record of the lighter source, as equal as whole
//! numbers allow. That record gets a pseudo-random place in its stretch. So the shares are exact at any position (to
//! within one record), and the records of each source keep their order. Yet a rank that takes every k-th position does
//! not see one source only, as it would with a fixed pattern. More sources: the list of sources is halved. The sequence
//! is divided between the two halves in this way, and then each half among its own sources.

use crate::error::{Error, Result};
use crate::permutation::{MOST, below, digest, scramble};

/// Where a mixture ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Before the first source would have to begin again.
    First,
    /// When every source was delivered completely. Sources that end earlier begin again.
    All,
    /// At this length. Sources begin again as needed.
    Length(u64),
}

/// Which source, and which of its records, for every position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mixture {
    /// The sum of the weights before each source, and at the end the sum of all weights.
    sums: Vec<u64>,
    seed: u64,
}

impl Mixture {
    /// A mixture by whole weights.
    pub fn new(weights: &[u64], seed: u64) -> Result<Self> {
        let mut sums = vec![0u64];
        for &weight in weights {
            let sum = sums[sums.len() - 1].checked_add(weight).filter(|&sum| weight > 0 && sum < MOST);
            sums.push(
                sum.ok_or_else(|| Error::argument("weights must be at least 1, and their sum below 2^63"))?,
            );
        }
        if weights.is_empty() {
            return Err(Error::argument("a mixture needs at least one source"));
        }
        Ok(Mixture { sums, seed })
    }

    /// The weights.
    pub fn weights(&self) -> impl Iterator<Item = u64> {
        self.sums.windows(2).map(|pair| pair[1] - pair[0])
    }

    /// The seed of the pseudo-random places.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The source that a position draws from, and how many earlier positions draw from it.
    pub fn draw(&self, position: u64) -> (usize, u64) {
        let (mut first, mut last, mut position) = (0, self.sums.len() - 1, position);
        while last - first > 1 {
            let middle = first.midpoint(last);
            let (to_left, at) = self.deal(first, middle, last).at(position);
            (first, last) = if to_left { (first, middle) } else { (middle, last) };
            position = at;
        }
        (first, position)
    }

    /// How many of the first `length` positions draw from each source.
    pub fn counts(&self, length: u64) -> Vec<u64> {
        let mut counts = vec![0; self.sums.len() - 1];
        let mut halves = vec![(0, self.sums.len() - 1, length)];
        while let Some((first, last, length)) = halves.pop() {
            if last - first == 1 {
                counts[first] = length;
            } else {
                let middle = first.midpoint(last);
                let left = self.deal(first, middle, last).left_before(length);
                halves.extend([(first, middle, left), (middle, last, length - left)]);
            }
        }
        counts
    }

    /// How long the mixture of sources of these lengths is.
    pub fn length(&self, sources: &[u64], until: Until) -> Result<u64> {
        if sources.len() != self.sums.len() - 1 {
            return Err(Error::argument(format!(
                "there are {} sources but {} weights",
                sources.len(),
                self.sums.len() - 1
            )));
        }
        if let Some(empty) = sources.iter().position(|&length| length == 0) {
            return Err(Error::argument(format!("source {empty} has no records")).hint("leave it out"));
        }
        let too_long = || Error::argument("the mixture would have more than 2^63 records");
        let holds = |length: u64| {
            let counts = self.counts(length);
            let mut pairs = counts.into_iter().zip(sources);
            match until {
                Until::First => pairs.all(|(count, &source)| count <= source),
                _ => !pairs.all(|(count, &source)| count >= source),
            }
        };
        // Search for the last length at which `holds` is true. It is true up to that length and false after it.
        let (mut holding, mut broken) = match until {
            Until::Length(length) => return if length < MOST { Ok(length) } else { Err(too_long()) },
            // If each record is drawn at most once, there are no more positions than records.
            Until::First => (0, sources.iter().fold(0u64, |sum, &n| sum.saturating_add(n)).min(MOST - 1) + 1),
            Until::All => (0, MOST - 1),
        };
        if holds(broken) {
            return if until == Until::First { Ok(broken) } else { Err(too_long()) };
        }
        while broken - holding > 1 {
            let middle = holding.midpoint(broken);
            *(if holds(middle) { &mut holding } else { &mut broken }) = middle;
        }
        Ok(if until == Until::First { holding } else { broken })
    }

    fn deal(&self, first: usize, middle: usize, last: usize) -> Deal {
        let left = self.sums[middle] - self.sums[first];
        let all = self.sums[last] - self.sums[first];
        Deal {
            light: left.min(all - left),
            all,
            left_is_light: left <= all - left,
            key: self.key(first, last),
        }
    }

    fn key(&self, first: usize, last: usize) -> u64 {
        digest([self.seed, first as u64, last as u64])
    }
}

/// One sequence divided between two sides.
struct Deal {
    /// The weight of the lighter side.
    light: u64,
    /// The weight of both.
    all: u64,
    left_is_light: bool,
    key: u64,
}

impl Deal {
    /// The stretch that a position is in, and the position in it that belongs to the lighter side.
    fn stretch(&self, position: u64) -> (u64, u64) {
        let stretch = ((u128::from(position) + 1) * u128::from(self.light) - 1) / u128::from(self.all);
        let begin = |stretch: u128| (stretch * u128::from(self.all) / u128::from(self.light)) as u64;
        let (from, to) = (begin(stretch), begin(stretch + 1));
        let stretch = stretch as u64;
        (stretch, from + below(scramble(self.key ^ scramble(stretch)), to - from))
    }

    /// Whether a position belongs to the left side, and its number there.
    fn at(&self, position: u64) -> (bool, u64) {
        let (stretch, place) = self.stretch(position);
        let light = position == place;
        let number = if light { stretch } else { position - stretch - u64::from(position > place) };
        (light == self.left_is_light, number)
    }

    /// How many of the first `length` positions belong to the left side.
    fn left_before(&self, length: u64) -> u64 {
        let (stretch, place) = self.stretch(length);
        let light = stretch + u64::from(length > place);
        if self.left_is_light { light } else { length - light }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_source_is_drawn_in_its_own_order_and_to_its_share(
            weights in prop::collection::vec(prop_oneof![1u64..5, 1u64..1000], 1..9), seed: u64, length in 0u64..3000,
        ) {
            let mixture = Mixture::new(&weights, seed).unwrap();
            let all: u64 = weights.iter().sum();
            let mut drawn = vec![0u64; weights.len()];
            for position in 0..length {
                prop_assert_eq!(mixture.counts(position), drawn.clone());
                let (source, number) = mixture.draw(position);
                prop_assert_eq!(number, drawn[source]);
                drawn[source] += 1;
                for (count, weight) in drawn.iter().zip(&weights) {
                    let share = (position + 1) as f64 * *weight as f64 / all as f64;
                    // Each time the list is halved, the rounding error is less than one record.
                    let halvings = f64::from(weights.len().next_power_of_two().ilog2());
                    prop_assert!((*count as f64 - share).abs() < halvings.max(1.0) + 1e-9);
                }
            }
        }

        #[test]
        fn far_positions_do_not_overflow(
            weights in prop::collection::vec(1u64..1 << 60, 1..7), seed: u64, position in 0u64..MOST,
        ) {
            let mixture = Mixture::new(&weights, seed).unwrap();
            let (source, number) = mixture.draw(position);
            let counts = mixture.counts(position);
            prop_assert_eq!(counts[source], number);
            prop_assert_eq!(counts.iter().sum::<u64>(), position);
        }

        #[test]
        fn it_ends_where_it_says(
            sources in prop::collection::vec((1u64..30, 1u64..60), 1..6), seed: u64,
        ) {
            let (weights, lengths): (Vec<u64>, Vec<u64>) = sources.into_iter().unzip();
            let mixture = Mixture::new(&weights, seed).unwrap();
            let first = mixture.length(&lengths, Until::First).unwrap();
            let fits = |length| mixture.counts(length).iter().zip(&lengths).all(|(count, n)| count <= n);
            prop_assert!(fits(first) && !fits(first + 1));
            let all = mixture.length(&lengths, Until::All).unwrap();
            let whole = |length| mixture.counts(length).iter().zip(&lengths).all(|(count, n)| count >= n);
            prop_assert!(whole(all) && !whole(all - 1));
            prop_assert_eq!(mixture.length(&lengths, Until::Length(5)).unwrap(), 5);
        }
    }

    #[test]
    fn two_equal_sources_do_not_alternate() {
        let mixture = Mixture::new(&[1, 1], 1).unwrap();
        let to_rank_0 = (0..1000).filter(|i| mixture.draw(2 * i).0 == 0).count();
        assert!((400..600).contains(&to_rank_0), "{to_rank_0}");
    }

    #[test]
    fn golden_vectors() {
        let drawn = |weights: &[u64], seed| {
            let mixture = Mixture::new(weights, seed).unwrap();
            (0..20).map(|position| mixture.draw(position).0).collect::<Vec<_>>()
        };
        assert_eq!(drawn(&[7, 3], 0), [0, 0, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0]);
        assert_eq!(drawn(&[1, 2, 3], 42), [2, 0, 1, 2, 2, 1, 1, 2, 0, 1, 2, 2, 2, 1, 1, 2, 0, 2, 2, 1]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(Mixture::new(&[], 0).is_err());
        assert!(Mixture::new(&[1, 0], 0).is_err());
        assert!(Mixture::new(&[MOST - 1, 1], 0).is_err());
        let mixture = Mixture::new(&[1, MOST - 2], 0).unwrap();
        assert!(mixture.length(&[1], Until::First).is_err());
        assert!(mixture.length(&[1, 0], Until::First).is_err());
        assert!(mixture.length(&[5, 5], Until::All).is_err());
        assert!(mixture.length(&[5, 5], Until::Length(MOST)).is_err());
    }
}
