//! Compares views with lists: however views are stacked, both give the same records.

use super::*;
use proptest::prelude::*;

fn listed(view: &View) -> Vec<u64> {
    (0..view.len()).map(|p| view.get(p)).collect()
}

fn sliced(list: &[u64], start: usize, step: i64, len: usize) -> Vec<u64> {
    (0..len).map(|i| list[(start as i64 + step * i as i64) as usize]).collect()
}

/// One more layer on a view, and the same done to a list.
#[derive(Clone, Debug)]
enum Op {
    Slice(u32, u32, i64),
    Twice,
    Shuffle(u64),
    Blocks(u64, u64, u64),
    Mix(u64, u64, u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (any::<u32>(), any::<u32>(), -3i64..4).prop_map(|(a, b, step)| Op::Slice(a, b, step)),
        Just(Op::Twice),
        any::<u64>().prop_map(Op::Shuffle),
        (any::<u64>(), 1u64..9, 1u64..5).prop_map(|(seed, block, window)| Op::Blocks(seed, block, window)),
        (any::<u64>(), 1u64..5, 1u64..5).prop_map(|(seed, one, two)| Op::Mix(seed, one, two)),
    ]
}

fn apply(op: &Op, view: &View, list: &[u64]) -> Option<(View, Vec<u64>)> {
    let len = list.len() as u64;
    let ordered = |order: Order| (0..len).map(|p| list[order.forward(p) as usize]).collect();
    Some(match *op {
        Op::Slice(a, b, step) if step != 0 && !list.is_empty() => {
            let start = a as usize % list.len();
            let room =
                if step > 0 { (list.len() - 1 - start) / step as usize } else { start / -step as usize };
            let len = b as usize % (room + 2);
            (view.slice(start as u64, step, len as u64).unwrap(), sliced(list, start, step, len))
        }
        Op::Twice if list.len() < 1000 => {
            (View::concat([(view.clone(), 0), (view.clone(), 0)]).unwrap(), [list, list].concat())
        }
        Op::Shuffle(seed) => {
            let order = Order::new(len, seed, 1, None).unwrap();
            (view.shuffle(order.clone()).unwrap(), ordered(order))
        }
        Op::Blocks(seed, block, window) => {
            let cuts = (1..len).filter(|cut| cut % 17 == 0).collect();
            let order = Order::new(len, seed, 1, Some(Shape { block, window, cuts })).unwrap();
            (view.shuffle(order.clone()).unwrap(), ordered(order))
        }
        Op::Mix(seed, one, two) if !list.is_empty() => {
            let backwards = view.slice(len - 1, -1, len).unwrap();
            let reversed: Vec<u64> = list.iter().rev().copied().collect();
            let views = vec![(view.clone(), 0), (backwards, 0)];
            let mixed = View::mix(views, &[one, two], seed, Until::All).unwrap();
            let mixture = Mixture::new(&[one, two], seed).unwrap();
            let drawn = (0..mixed.len()).map(|position| {
                let (source, number) = mixture.draw(position);
                [list, &reversed][source][(number % len) as usize]
            });
            let drawn = drawn.collect();
            (mixed, drawn)
        }
        _ => return None,
    })
}

proptest! {
    #[test]
    fn stacked_views_agree_with_lists(n in 1u64..40, ops in prop::collection::vec(op(), 0..6)) {
        let mut view = View::all(n);
        let mut list: Vec<u64> = (0..n).collect();
        for op in ops {
            let Some(next) = apply(&op, &view, &list).filter(|(_, list)| list.len() < 3000) else { continue };
            (view, list) = next;
            prop_assert_eq!(view.len(), list.len() as u64);
            prop_assert_eq!(listed(&view), list.clone());
            let again = View::from_numbers(&view.to_numbers(), n).unwrap();
            prop_assert_eq!(&again, &view);
            // Many positions at once, in another order and with repeats.
            let mut many: Vec<u64> = (0..100).map(|i| i * 37 % view.len().max(1)).filter(|p| *p < view.len()).collect();
            let expected: Vec<u64> = many.iter().map(|&p| list[p as usize]).collect();
            view.get_many(&mut many);
            prop_assert_eq!(many, expected);
        }
    }

    #[test]
    fn hostile_numbers_are_refused_or_stay_inside(
        numbers in prop::collection::vec(prop_oneof![4 => 0i128..12, 1 => any::<i128>(), 1 => any::<u64>().prop_map(i128::from)], 0..40),
    ) {
        stays_inside(&numbers)?;
    }

    #[test]
    fn a_true_view_with_a_number_changed_is_refused_or_stays_inside(
        n in 1u64..11, ops in prop::collection::vec(op(), 0..5), at: usize,
        number in prop_oneof![-2i128..12, any::<i128>(), any::<u64>().prop_map(i128::from)],
    ) {
        let mut view = View::all(n);
        let mut list: Vec<u64> = (0..n).collect();
        for op in ops {
            let Some(next) = apply(&op, &view, &list).filter(|(_, list)| list.len() < 300) else { continue };
            (view, list) = next;
        }
        let mut numbers = view.to_numbers();
        let at = at % numbers.len();
        numbers[at] = number;
        stays_inside(&numbers)?;
    }
}

#[test]
fn a_view_that_is_reversed_twice_is_the_view_again() {
    let shuffled = View::all(9).shuffle(Order::new(9, 1, 0, None).unwrap()).unwrap();
    let reversed = shuffled.slice(8, -1, 9).unwrap();
    assert_ne!(reversed, shuffled);
    assert_eq!(reversed.slice(8, -1, 9).unwrap(), shuffled);
}

fn stays_inside(numbers: &[i128]) -> std::result::Result<(), TestCaseError> {
    if let Ok(view) = View::from_numbers(numbers, 10) {
        let ends = (0..view.len()).take(50).chain((0..view.len()).rev().take(50));
        for position in ends {
            prop_assert!(view.get(position) < 10);
            let mut one = [position];
            view.get_many(&mut one);
            prop_assert_eq!(one[0], view.get(position));
        }
    }
    Ok(())
}

#[test]
fn numbers_of_each_kind_never_change() {
    let all = View::all(100);
    let full = all.shuffle(Order::new(100, 7, 2, None).unwrap()).unwrap();
    assert_eq!(full.to_numbers(), [3, 7, 2, 0, 0, 1, 100]);
    let shape = Shape { block: 8, window: 4, cuts: vec![50] };
    let blocks = all.shuffle(Order::new(100, 7, 2, Some(shape)).unwrap()).unwrap();
    assert_eq!(blocks.to_numbers(), [4, 7, 2, 8, 4, 1, 50, 0, 0, 1, 100]);
    let part = full.slice(1, 2, 50).unwrap();
    assert_eq!(part.to_numbers(), [1, 1, 2, 50, 3, 7, 2, 0, 0, 1, 100]);
    let both = View::concat([(part, 0), (all.clone(), 100)]).unwrap();
    assert_eq!(both.to_numbers(), [2, 2, 0, 1, 1, 2, 50, 3, 7, 2, 0, 0, 1, 100, 100, 0, 0, 1, 100]);
    let mixed = View::mix(vec![(all.clone(), 0), (all, 100)], &[1, 3], 9, Until::Length(5)).unwrap();
    assert_eq!(mixed.to_numbers(), [5, 9, 5, 2, 1, 0, 0, 0, 1, 100, 3, 100, 0, 0, 1, 100]);
    assert_eq!(fingerprint(mixed.to_numbers()), 4_787_276_593_964_222);
}

#[test]
fn a_long_sum_is_flat_and_a_deep_stack_is_refused() {
    let mut sum = View::all(1);
    for _ in 0..1000 {
        sum = View::concat([(sum, 0), (View::all(1), 0)]).unwrap();
    }
    assert_eq!(sum.len(), 1001);
    assert_eq!(View::from_numbers(&sum.to_numbers(), 1).unwrap(), sum);

    let mut stack = View::all(10);
    for layer in 0..DEEPEST - 1 {
        stack = stack.shuffle(Order::new(10, layer as u64, 0, None).unwrap()).unwrap();
    }
    assert_eq!(View::from_numbers(&stack.to_numbers(), 10).unwrap(), stack);
    assert!(stack.shuffle(Order::new(10, 0, 0, None).unwrap()).is_err());
}

#[test]
fn an_order_of_another_length_is_refused() {
    assert!(View::all(10).shuffle(Order::new(9, 0, 0, None).unwrap()).is_err());
}

#[test]
fn a_slice_of_one_or_none_is_the_same_however_it_was_made() {
    let one = View::all(12).slice(4, 2, 4).unwrap().slice(0, -1, 1).unwrap();
    assert_eq!(one, View::all(12).slice(4, 1, 1).unwrap());
    assert_eq!(
        View::all(12).slice(4, 2, 4).unwrap().slice(2, i64::MIN, 1).unwrap(),
        View::all(12).slice(8, 1, 1).unwrap()
    );
    assert_eq!(View::all(12).slice(4, 2, 4).unwrap().slice(3, 5, 0).unwrap(), View::all(0));
}

#[test]
fn a_slice_outside_is_refused() {
    assert!(View::all(10).slice(5, 1, 6).is_err());
    assert!(View::all(10).slice(0, -1, 2).is_err());
    assert!(View::all(10).slice(0, 0, 1).is_err());
    assert!(View::all(10).slice(10, 1, 0).is_ok());
}

#[test]
fn slicing_and_putting_together_again_and_again_stays_small() {
    let plain = View::all(50);
    let shuffled = plain.shuffle(Order::new(50, 3, 0, None).unwrap()).unwrap();
    let mixed = View::mix(vec![(plain.clone(), 0), (shuffled.clone(), 0)], &[1, 2], 7, Until::First).unwrap();
    for first in [plain, shuffled, mixed] {
        let (expected, mut view) = (listed(&first), first.clone());
        for round in 0..200 {
            let at = 1 + round % (view.len() - 1);
            let parts = [view.slice(0, 1, at).unwrap(), view.slice(at, 1, view.len() - at).unwrap()];
            view = View::concat(parts.map(|part| (part, 0))).unwrap();
        }
        assert_eq!(listed(&view), expected);
        assert!(view.size().depth < DEEPEST / 2 && view.size().parts < 5000, "{:?}", view.size());
        assert_eq!(View::from_numbers(&view.to_numbers(), 50).unwrap(), view);
    }
}

#[test]
fn a_view_that_doubles_again_and_again_is_refused_before_it_is_too_large() {
    let doubled = |view: &View| View::mix(vec![(view.clone(), 0), (view.clone(), 0)], &[1, 1], 1, Until::All);
    let mut view = View::all(2);
    let rounds = (0..100).take_while(|_| doubled(&view).map(|twice| view = twice).is_ok()).count();
    assert!((10..30).contains(&rounds), "{rounds}");
    let twice = |view: &View| View::concat([(view.clone(), 0), (view.clone(), 0)]);
    let mut view = View::all(2);
    let rounds = (0..100).take_while(|_| twice(&view).map(|twice| view = twice).is_ok()).count();
    assert!((10..30).contains(&rounds), "{rounds}");
}
