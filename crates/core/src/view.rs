//! Which records, in which order: a function from position to record number that costs no memory.
//!
//! Views stack: a slice of a concatenation of slices is still one function, and reading through it is one
//! batched read of the records underneath.

use crate::error::{Error, Result};
use std::sync::Arc;

/// A view of a sequence of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    /// `start`, `start + step`, ...: `len` record numbers.
    Range {
        /// The first record.
        start: u64,
        /// From one record to the next; may be negative, never 0.
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
        /// From one position to the next; may be negative, never 0.
        step: i64,
        /// How many.
        len: u64,
    },
}

/// One part of a concatenation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The view.
    pub view: View,
    /// Added to its record numbers: where its files begin among all files.
    pub base: u64,
    /// The position behind its last one.
    pub end: u64,
}

fn along(start: u64, step: i64, position: u64) -> u64 {
    // Wrapping gives the right answer for every position below `len`: the constructors see to that.
    start.wrapping_add((step as u64).wrapping_mul(position))
}

impl View {
    /// All of `len` records.
    pub fn all(len: u64) -> Self {
        View::Range { start: 0, step: 1, len }
    }

    /// How many positions it has.
    pub fn len(&self) -> u64 {
        match self {
            View::Range { len, .. } | View::Slice { len, .. } => *len,
            View::Concat(parts) => parts.last().map_or(0, |p| p.end),
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The record number at a position, which must be below [`len`](Self::len).
    pub fn get(&self, position: u64) -> u64 {
        match self {
            View::Range { start, step, .. } => along(*start, *step, position),
            View::Slice { of, start, step, .. } => of.get(along(*start, *step, position)),
            View::Concat(parts) => {
                let at = parts.partition_point(|p| p.end <= position);
                let begin = if at == 0 { 0 } else { parts[at - 1].end };
                parts[at].base + parts[at].view.get(position - begin)
            }
        }
    }

    /// `len` positions from `start` on, `step` apart; all of them must be positions of this view.
    pub fn slice(&self, start: u64, step: i64, len: u64) -> Result<Self> {
        let last = i128::from(start) + i128::from(step) * (i128::from(len) - 1);
        let inside = |p: i128| (0..i128::from(self.len())).contains(&p);
        if step == 0 || (len > 0 && !(inside(i128::from(start)) && inside(last))) {
            return Err(Error::argument("slice outside of the view"));
        }
        // Where there is no next position the step means nothing, and might not fit.
        let (start, step) = (if len == 0 { 0 } else { start }, if len < 2 { 1 } else { step });
        Ok(match self {
            View::Range { start: first, step: by, .. } => {
                let step = by.checked_mul(step).ok_or_else(|| Error::argument("slice step is too large"))?;
                View::Range { start: along(*first, *by, start), step, len }
            }
            View::Slice { of, start: first, step: by, .. } => {
                let step = by.checked_mul(step).ok_or_else(|| Error::argument("slice step is too large"))?;
                View::Slice { of: of.clone(), start: along(*first, *by, start), step, len }
            }
            View::Concat(_) => View::Slice { of: Arc::new(self.clone()), start, step, len },
        })
    }

    /// One view after the other; each comes with where its files begin among all files.
    pub fn concat(views: impl IntoIterator<Item = (View, u64)>) -> Self {
        let mut end = 0;
        let parts = views.into_iter().map(|(view, base)| {
            end += view.len();
            Part { view, base, end }
        });
        View::Concat(parts.collect())
    }

    /// The view as a flat list of numbers, for a pickle of a few bytes.
    pub fn to_numbers(&self) -> Vec<i128> {
        match self {
            View::Range { start, step, len } => vec![0, (*start).into(), (*step).into(), (*len).into()],
            View::Slice { of, start, step, len } => {
                let mut numbers = vec![1, (*start).into(), (*step).into(), (*len).into()];
                numbers.extend(of.to_numbers());
                numbers
            }
            View::Concat(parts) => {
                let mut numbers = vec![2, parts.len() as i128];
                for part in parts.iter() {
                    numbers.push(part.base.into());
                    numbers.extend(part.view.to_numbers());
                }
                numbers
            }
        }
    }

    /// The inverse of [`to_numbers`](Self::to_numbers), for a data set of `records` records.
    pub fn from_numbers(numbers: &[i128], records: u64) -> Result<Self> {
        let mut numbers = numbers.iter().copied();
        let view = parse(&mut numbers, records, 0)?;
        if numbers.next().is_some() { Err(bad()) } else { Ok(view) }
    }
}

fn bad() -> Error {
    Error::argument("not a pickled view of these records")
}

fn parse(numbers: &mut impl Iterator<Item = i128>, records: u64, depth: usize) -> Result<View> {
    if depth > 100 {
        return Err(bad());
    }
    let kind = numbers.next().ok_or_else(bad)?;
    if kind == 2 {
        let count = u32::try_from(numbers.next().ok_or_else(bad)?).map_err(|_| bad())?;
        let mut parts = Vec::new();
        for _ in 0..count {
            let base = u64::try_from(numbers.next().ok_or_else(bad)?).map_err(|_| bad())?;
            let left = records.checked_sub(base).ok_or_else(bad)?;
            parts.push((parse(numbers, left, depth + 1)?, base));
        }
        return Ok(View::concat(parts));
    }
    let start = u64::try_from(numbers.next().ok_or_else(bad)?).map_err(|_| bad())?;
    let step = i64::try_from(numbers.next().ok_or_else(bad)?).map_err(|_| bad())?;
    let len = u64::try_from(numbers.next().ok_or_else(bad)?).map_err(|_| bad())?;
    let of = match kind {
        0 => View::all(records),
        1 => parse(numbers, records, depth + 1)?,
        _ => return Err(bad()),
    };
    of.slice(start, step, len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn listed(view: &View) -> Vec<u64> {
        (0..view.len()).map(|p| view.get(p)).collect()
    }

    fn sliced(list: &[u64], start: usize, step: i64, len: usize) -> Vec<u64> {
        (0..len).map(|i| list[(start as i64 + step * i as i64) as usize]).collect()
    }

    proptest! {
        #[test]
        fn stacked_views_agree_with_slicing_lists(n in 1u64..40, ops in prop::collection::vec((0usize..3, any::<u32>(), any::<u32>(), -3i64..4), 0..6)) {
            let mut view = View::all(n);
            let mut list: Vec<u64> = (0..n).collect();
            for (kind, a, b, step) in ops {
                if kind == 0 {
                    view = View::concat([(view.clone(), 0), (view.clone(), 0)]);
                    list = [list.clone(), list].concat();
                    if list.len() > 2000 { break; }
                } else if step != 0 && !list.is_empty() {
                    let start = a as usize % list.len();
                    let room = if step > 0 { (list.len() - 1 - start) / step as usize } else { start / -step as usize };
                    let len = b as usize % (room + 2);
                    view = view.slice(start as u64, step, len as u64).unwrap();
                    list = sliced(&list, start, step, len);
                }
                prop_assert_eq!(listed(&view), list.clone());
                let again = View::from_numbers(&view.to_numbers(), n).unwrap();
                prop_assert_eq!(listed(&again), list.clone());
            }
        }

        #[test]
        fn hostile_numbers_are_refused_or_stay_inside(numbers in prop::collection::vec(prop_oneof![0i128..5, any::<i128>()], 0..30)) {
            if let Ok(view) = View::from_numbers(&numbers, 10) {
                for position in (0..view.len()).take(50) {
                    prop_assert!(view.get(position) < 10);
                }
            }
        }
    }

    #[test]
    fn a_slice_outside_is_refused() {
        assert!(View::all(10).slice(5, 1, 6).is_err());
        assert!(View::all(10).slice(0, -1, 2).is_err());
        assert!(View::all(10).slice(0, 0, 1).is_err());
        assert!(View::all(10).slice(10, 1, 0).is_ok());
    }
}
