use super::LEAST;
use crate::cx::{self, Cx};
use crate::error::Error;
use crate::format::options::WriteOptions;
use crate::format::verify_once::VerifyOnce;
use crate::format::{ReadOptions, Table, Undecoded, Way, detect, testing};
use crate::storage::Storage;
use crate::storage::memory::Memory;
use std::cell::Cell;
use std::sync::Arc;

/// Smaller and larger than a block, and in several blocks.
const SIZES: [usize; 9] = [0, 100, LEAST, LEAST + 1, 4000, 30_000, 65_536, 100_000, 200_001];

fn records() -> Vec<Vec<u8>> {
    // Each size several times, so that block headers lie at different places.
    let sizes = (0..4).flat_map(|_| SIZES);
    sizes.enumerate().map(|(seed, size)| (0..size).map(|i| (i * 7 % 251 + seed) as u8).collect()).collect()
}

fn file(options: WriteOptions) -> Arc<dyn Storage> {
    let format = detect::by_name("array_record").unwrap();
    Arc::new(Memory::new("test", testing::write(format, &options, &records())))
}

fn uncompressed() -> Arc<dyn Storage> {
    file(WriteOptions::default().with_text("codec", "none").with_int("group_size", 1))
}

fn table(storage: &dyn Storage, options: &ReadOptions, cx: &Cx<'_>) -> Box<dyn Table> {
    (detect::by_name("array_record").unwrap().open)(storage, options, cx).unwrap()
}

/// The stored bytes of a record.
fn stored(storage: &dyn Storage, table: &dyn Table, record: u64, cx: &Cx<'_>) -> (u64, Vec<u8>) {
    let Way::Alone { stored, .. } = table.way(record).unwrap() else { panic!("not alone") };
    let bytes = crate::storage::read_vec(storage, "chunk", stored.start, stored.end - stored.start, cx);
    (stored.start, bytes.unwrap())
}

/// Both records, if they can be decoded together.
fn two(
    table: &dyn Table,
    numbers: [usize; 2],
    stored: [&(u64, Vec<u8>); 2],
    cx: &Cx<'_>,
) -> Option<[Vec<u8>; 2]> {
    let mut outs = numbers.map(|number| vec![0x55; SIZES[number % SIZES.len()]]);
    let [out, other_out] = &mut outs;
    let one = Undecoded { record: numbers[0] as u64, at: stored[0].0, bytes: &stored[0].1, out };
    let other = Undecoded { record: numbers[1] as u64, at: stored[1].0, bytes: &stored[1].1, out: other_out };
    table.decode_two_into([one, other], cx).unwrap().then_some(outs)
}

#[test]
fn two_records_of_any_sizes_come_out_whole() {
    let storage = uncompressed();
    cx::with_default(|cx| {
        let (table, records) = (table(&*storage, &ReadOptions::default(), cx), records());
        let all: Vec<_> = (0..records.len() as u64).map(|i| stored(&*storage, &*table, i, cx)).collect();
        for i in 0..records.len() {
            for j in 0..records.len() {
                let expected = [records[i].clone(), records[j].clone()];
                assert!(two(&*table, [i, j], [&all[i], &all[j]], cx) == Some(expected), "{i} and {j}");
            }
        }
    });
}

#[test]
fn damage_in_either_record_is_found() {
    let storage = uncompressed();
    cx::with_default(|cx| {
        let (table, records) = (table(&*storage, &ReadOptions::default(), cx), records());
        let other = (4, stored(&*storage, &*table, 4, cx));
        for (i, record) in records.iter().enumerate().take(SIZES.len()) {
            let sound = stored(&*storage, &*table, i as u64, cx);
            // Bytes of the header, of the block headers and of the record.
            for at in (0..sound.1.len())
                .step_by(7919)
                .chain(0..sound.1.len().min(60))
                .chain(sound.1.len() - 9..sound.1.len())
            {
                let mut damaged = sound.clone();
                damaged.1[at] ^= 1;
                // A block header after the record belongs to no record.
                let is_noticed =
                    |one: Option<[Vec<u8>; 2]>, number: usize| one.is_none_or(|outs| outs[number] == *record);
                let first = two(&*table, [i, other.0], [&damaged, &other.1], cx);
                assert!(is_noticed(first, 0), "byte {at} of {i}");
                let second = two(&*table, [other.0, i], [&other.1, &damaged], cx);
                assert!(is_noticed(second, 1), "byte {at} of {i}");
                damaged.1.truncate(at);
                assert!(two(&*table, [i, other.0], [&damaged, &other.1], cx).is_none(), "{at} bytes of {i}");
            }
        }
    });
}

#[test]
fn other_chunks_are_left_to_the_usual_way() {
    cx::with_default(|cx| {
        let storage = uncompressed();
        let options = ReadOptions { checksums: false, ..ReadOptions::default() };
        let unchecked = table(&*storage, &options, cx);
        let all: Vec<_> = (4..6).map(|i| stored(&*storage, &*unchecked, i, cx)).collect();
        assert!(two(&*unchecked, [4, 5], [&all[0], &all[1]], cx).is_none(), "there is no hash to compute");

        let storage = file(WriteOptions::default().with_text("codec", "snappy").with_int("group_size", 1));
        let packed = table(&*storage, &ReadOptions::default(), cx);
        let all: Vec<_> = (4..6).map(|i| stored(&*storage, &*packed, i, cx)).collect();
        assert!(two(&*packed, [4, 5], [&all[0], &all[1]], cx).is_none(), "compressed");
    });
}

#[test]
fn records_that_are_verified_once_count_as_verified_afterwards() {
    let storage = uncompressed();
    cx::with_default(|cx| {
        let inner = table(&*storage, &ReadOptions::default(), cx);
        let all: Vec<_> = (4..6).map(|i| stored(&*storage, &*inner, i, cx)).collect();
        let once = VerifyOnce::of(inner, storage.clone()).unwrap();
        let mut damaged = all[1].clone();
        *damaged.1.last_mut().unwrap() ^= 1;
        let mut out = vec![0; records()[5].len()];
        let mut is_accepted =
            |once: &dyn Table, at: u64, bytes: &[u8]| once.decode_into(5, at, bytes, &mut out, cx).is_ok();

        assert!(two(&*once, [4, 5], [&all[0], &damaged], cx).is_none());
        assert!(!is_accepted(&*once, damaged.0, &damaged.1));
        assert!(two(&*once, [4, 5], [&all[0], &all[1]], cx).is_some());
        assert!(is_accepted(&*once, damaged.0, &damaged.1), "it was verified, so its hash is not looked at");
        assert!(two(&*once, [4, 5], [&all[0], &all[1]], cx).is_none(), "there is no hash to compute");
    });
}

#[test]
fn an_interruption_is_passed_on_even_if_the_check_tells_it_only_once() {
    let options = WriteOptions::default().with_text("codec", "none").with_int("group_size", 1);
    let large = vec![vec![7; 3 << 20], vec![8; 1 << 20]];
    let file = testing::write(detect::by_name("array_record").unwrap(), &options, &large);
    let storage: Arc<dyn Storage> = Arc::new(Memory::new("test", file));
    cx::with_default(|cx| {
        let table = table(&*storage, &ReadOptions::default(), cx);
        let [one, other] = [0, 1].map(|record| stored(&*storage, &*table, record, cx));
        // The first checks are those of both records together, the later ones those of the rest of the longer record.
        for number in 1..=8 {
            let asked = Cell::new(0);
            let stop = || {
                asked.set(asked.get() + 1);
                if asked.get() == number { Err(Error::closed("enough")) } else { Ok(()) }
            };
            let mut outs = large.clone();
            let [out, other_out] = &mut outs[..] else { unreachable!() };
            let two = [
                Undecoded { record: 0, at: one.0, bytes: &one.1, out },
                Undecoded { record: 1, at: other.0, bytes: &other.1, out: other_out },
            ];
            let found = table.decode_two_into(two, &Cx { budget: cx.budget, stop: &stop });
            assert!(found.is_err(), "check {number} of {}", asked.get());
        }
    });
}
