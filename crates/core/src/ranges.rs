//! A set of numbers, stored as ranges. Neighbouring ranges are merged, so a run of any length takes one entry.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of numbers.
#[derive(Debug, Default)]
pub struct RangeSet {
    /// The end of each range, by its beginning. Ranges neither overlap nor touch.
    ends: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// The end of the range that contains a number.
    pub fn end_of(&self, number: u64) -> Option<u64> {
        let (_, &end) = self.ends.range(..=number).next_back()?;
        (end > number).then_some(end)
    }

    /// Whether it contains a number.
    pub fn contains(&self, number: u64) -> bool {
        self.end_of(number).is_some()
    }

    /// Adds the numbers of a range. They may be in the set already.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        if let Some((&before, &its_end)) = self.ends.range(..=start).next_back()
            && its_end >= start
        {
            (start, end) = (before, end.max(its_end));
        }
        while let Some((&after, &its_end)) = self.ends.range(start..=end).next() {
            end = end.max(its_end);
            self.ends.remove(&after);
        }
        self.ends.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_contains_what_was_inserted_and_merges_what_touches() {
        // Every sequence of three ranges below 7, against a list of flags.
        let ranges: Vec<_> = (0..7u64).flat_map(|start| (start..7).map(move |end| start..end)).collect();
        for first in &ranges {
            for second in &ranges {
                for third in &ranges {
                    let (mut set, mut flags) = (RangeSet::default(), [false; 8]);
                    for range in [first, second, third] {
                        set.insert(range.clone());
                        range.clone().for_each(|number| flags[number as usize] = true);
                    }
                    for number in 0..8u64 {
                        let end = (number..8).find(|&n| !flags[n as usize]).filter(|&end| end > number);
                        assert_eq!(set.end_of(number), end, "{number} in {first:?} {second:?} {third:?}");
                    }
                    let runs =
                        flags.windows(2).filter(|pair| !pair[0] && pair[1]).count() + usize::from(flags[0]);
                    assert_eq!(set.ends.len(), runs);
                }
            }
        }
    }
}
