//! The permutation is a bijection in both directions, is well mixed for few and for many elements, and never changes.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

/// Record numbers at these positions of `Permutation::new(len, seed, epoch)`, computed by a separate program from the
/// description in the module's documentation. They never change: checkpoints depend on them.
#[expect(clippy::type_complexity, reason = "a table, written out")]
const GOLDEN: &[((u64, u64, u64), &[(u64, u64)])] = &[
    ((1, 0, 0), &[(0, 0)]),
    ((2, 0, 0), &[(0, 0), (1, 1)]),
    ((3, 1, 0), &[(0, 2), (1, 1), (2, 0)]),
    ((10, 0, 0), &[(0, 0), (1, 5), (2, 9), (3, 3), (4, 6), (5, 4), (6, 1), (7, 2), (8, 8), (9, 7)]),
    ((10, 0, 1), &[(0, 5), (1, 3), (2, 8), (3, 6), (4, 7), (5, 9), (6, 1), (7, 2), (8, 4), (9, 0)]),
    ((10, 1, 0), &[(0, 0), (1, 8), (2, 3), (3, 9), (4, 6), (5, 4), (6, 2), (7, 7), (8, 5), (9, 1)]),
    ((1000, 42, 3), &[(0, 585), (1, 635), (2, 42), (3, 828), (500, 298), (998, 165), (999, 629)]),
    ((65_535, 7, 1), &[(0, 28_872), (1, 30_627), (2, 14_302), (32_767, 48_443), (65_534, 54_173)]),
    ((65_536, 7, 1), &[(0, 25_320), (1, 29_987), (2, 11_039), (32_768, 55_062), (65_535, 45_376)]),
    (
        (1_000_000_000, 42, 3),
        &[(0, 678_463_446), (1, 551_718_409), (500_000_000, 232_908_193), (999_999_999, 14_093_457)],
    ),
    (
        (1_000_000_000_000, u64::MAX, u64::MAX),
        &[(0, 361_887_792_905), (1, 651_904_856_117), (999_999_999_999, 605_201_189_382)],
    ),
    (
        (1 << 63, 0, 0),
        &[
            (0, 8_181_882_597_503_114_594),
            (1 << 62, 2_304_518_343_215_436_562),
            ((1 << 63) - 1, 2_819_737_065_698_262_629),
        ],
    ),
    (((1 << 63) - 1, 1, 2), &[(0, 1_034_139_761_542_105_385), ((1 << 63) - 2, 3_113_651_379_835_000_014)]),
];

#[test]
fn golden_vectors() {
    for ((len, seed, epoch), pairs) in GOLDEN {
        let permutation = Permutation::new(*len, *seed, *epoch).unwrap();
        for (position, record) in *pairs {
            assert_eq!(permutation.forward(*position), *record, "position {position} of {len}");
            assert_eq!(permutation.inverse(*record), *position, "record {record} of {len}");
        }
    }
}

fn listed(len: u64, seed: u64, epoch: u64) -> Vec<u64> {
    let mut list: Vec<u64> = (0..len).collect();
    Permutation::new(len, seed, epoch).unwrap().forward_many(&mut list);
    list
}

#[test]
fn every_small_length_is_a_bijection() {
    for len in 0..300 {
        let mut list = listed(len, 5, len);
        list.sort_unstable();
        assert!(list.into_iter().eq(0..len), "{len}");
    }
}

#[test]
fn more_than_the_maximum_is_refused() {
    assert!(Permutation::new(MOST, 0, 0).is_ok());
    assert!(Permutation::new(MOST + 1, 0, 0).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn any_length_is_a_bijection(len in prop_oneof![0u64..3000, 65_000u64..66_000], seed: u64, epoch: u64) {
        let mut list = listed(len, seed, epoch);
        list.sort_unstable();
        prop_assert!(list.into_iter().eq(0..len));
    }

    #[test]
    fn both_directions_undo_each_other(len in 1u64..=MOST, bits in 0u32..63, seed: u64, epoch: u64, at: u64) {
        let len = (len >> bits).max(1);
        let permutation = Permutation::new(len, seed, epoch).unwrap();
        let record = permutation.forward(at % len);
        prop_assert!(record < len);
        prop_assert_eq!(permutation.inverse(record), at % len);
        prop_assert_eq!(permutation.forward(permutation.inverse(at % len)), at % len);
    }
}

/// How far counts are from equal: chi-square, in standard deviations from what chance would give.
fn unevenness(counts: impl IntoIterator<Item = u64>, cells: u64, degrees: u64, total: u64) -> f64 {
    let expected = total as f64 / cells as f64;
    let (mut chi, mut seen) = (0.0, 0);
    for count in counts {
        chi += (count as f64 - expected).powi(2) / expected;
        seen += 1;
    }
    chi += (cells - seen) as f64 * expected; // cells that never came up
    (chi - degrees as f64) / (2.0 * degrees as f64).sqrt()
}

/// Everything here is computed from fixed seeds, so the result is the same in every run.
fn fair(unevenness: f64, what: &str) {
    assert!(unevenness.abs() < 4.0, "{what}: {unevenness:.1} standard deviations from chance");
}

#[test]
fn all_orders_of_a_few_are_equally_likely() {
    let mut orders = 1;
    for len in 2..=7u64 {
        orders *= len;
        for (seed_step, epoch_step, what) in [(1, 0, "seeds"), (0, 1, "epochs")] {
            let total = orders * 12;
            let mut counts: HashMap<Vec<u64>, u64> = HashMap::new();
            for key in 0..total {
                *counts.entry(listed(len, key * seed_step, key * epoch_step)).or_default() += 1;
            }
            assert_eq!(counts.len() as u64, orders, "orders of {len} that {what} reach");
            fair(unevenness(counts.into_values(), orders, orders - 1, total), &format!("{len}, {what}"));
        }
    }
}

#[test]
fn half_of_all_orders_are_odd() {
    // For squares of odd numbers, a table with odd sides would have exactly as many cells as there are records.
    for len in [9u64, 25, 49] {
        let epochs = 2000;
        let is_odd = |epoch: &u64| {
            let list = listed(len, 6, *epoch);
            let inversions = (0..list.len())
                .flat_map(|i| list[i + 1..].iter().map(|r| u64::from(*r < list[i])).collect::<Vec<_>>());
            inversions.sum::<u64>() % 2 == 1
        };
        let odd = (0..epochs).filter(is_odd).count() as f64;
        fair((odd - epochs as f64 / 2.0) / (epochs as f64 / 4.0).sqrt(), &format!("odd orders of {len}"));
    }
}

#[test]
fn every_record_is_equally_likely_at_every_position() {
    for len in [10u64, 16, 25, 36, 97] {
        let epochs = 4000;
        let mut table = vec![0; (len * len) as usize];
        for epoch in 0..epochs {
            for (position, record) in listed(len, 3, epoch).into_iter().enumerate() {
                table[position * len as usize + record as usize] += 1;
            }
        }
        // The sums of rows and columns are fixed, so there are only (len - 1)^2 degrees of freedom.
        let free = (len - 1) * (len - 1);
        let found = unevenness(table, len * len, free, epochs * len);
        fair(found, &format!("positions and records of {len}"));
    }
}

#[test]
fn neighbouring_positions_get_independent_records() {
    for len in [30u64, 81] {
        // (where position 0 went, where position 1 went), for all possible pairs.
        let total = len * (len - 1) * 20;
        let mut pairs: HashMap<(u64, u64), u64> = HashMap::new();
        for epoch in 0..total {
            let permutation = Permutation::new(len, 8, epoch).unwrap();
            *pairs.entry((permutation.forward(0), permutation.forward(1))).or_default() += 1;
        }
        let cells = len * (len - 1);
        fair(unevenness(pairs.into_values(), cells, cells - 1, total), &format!("pairs of {len}"));
    }
}

#[test]
fn a_long_order_looks_like_chance() {
    for len in [50_000u64, 250_000] {
        let (this, next) = (listed(len, 1, 0), listed(len, 1, 1));
        let (n, root) = (len as f64, (len as f64).sqrt());
        // The mean distance of neighbouring records is a third of the length. The distances spread by n / sqrt(18).
        let apart: u64 = this.windows(2).map(|w| w[0].abs_diff(w[1])).sum();
        fair((apart as f64 / n - n / 3.0) / (n / 18f64.sqrt() / root), "mean distance of neighbours");
        let rising = this.windows(2).filter(|w| w[0] < w[1]).count() as f64;
        fair((rising - n / 2.0) / (n / 12.0).sqrt(), "rising neighbours");
        // On average, one record stays in place, and one has the same place in another epoch or seed.
        let stayed = this.iter().enumerate().filter(|&(position, &record)| position as u64 == record).count();
        assert!(stayed < 6, "{stayed} stayed");
        let other_seed = listed(len, 2, 0);
        for other in [&next, &other_seed] {
            let same = this.iter().zip(other).filter(|(a, b)| a == b).count();
            assert!(same < 6, "{same} at the same place in another order");
        }
        // Tables of coarse positions and records: of one order, of two epochs, of two seeds.
        let place: Vec<u64> = (0..len).collect();
        for (one, two, what) in [
            (&place, &this, "position and record"),
            (&this, &next, "two epochs"),
            (&this, &other_seed, "two seeds"),
        ] {
            let mut table = vec![0; 64 * 64];
            for (a, b) in one.iter().zip(two) {
                table[(a * 64 / len * 64 + b * 64 / len) as usize] += 1;
            }
            fair(unevenness(table, 64 * 64, 63 * 63, len), what);
        }
    }
}

#[test]
fn fixed_points_are_as_many_as_chance_makes() {
    for len in [5u64, 12, 40] {
        let epochs = 20_000;
        let stayed =
            |epoch| listed(len, 4, epoch).into_iter().enumerate().filter(|&(p, r)| p as u64 == r).count();
        let all: usize = (0..epochs).map(stayed).sum();
        // Mean 1 and variance 1 for each order, whatever the length.
        fair((all as f64 - epochs as f64) / (epochs as f64).sqrt(), &format!("fixed points of {len}"));
    }
}

#[test]
fn a_billion_positions_spread_evenly_and_rarely_need_cycle_walking() {
    let len = 1_000_000_000;
    let permutation = Permutation::new(len, 42, 0).unwrap();
    assert!(permutation.rows * permutation.columns - len < len / 1000);
    let (mut table, total) = (vec![0; 1000], 200_000);
    for position in 0..total {
        table[(permutation.forward(position) / 1_000_000) as usize] += 1;
    }
    fair(unevenness(table, 1000, 999, total), "where the first positions go");
}
