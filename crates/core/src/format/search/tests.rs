//! A file of false headers is read a few times, and not once for each of them. The bytes that are read are counted.

use crate::cx::{Cx, for_tests};
use crate::error::Result;
use crate::format::walk::{Depth, Span, Walk};
use crate::format::{ReadOptions, detect};
use crate::hash::crc32c;
use crate::limits::Limits;
use crate::storage::Storage;
use crate::storage::memory::Memory;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Each header claims all bytes after it. Reading every claim would be 50 passes over the file.
const HEADERS: usize = 100;
/// Far more than a window holds altogether, so that every claim has to be read from the storage again.
const GAP: usize = 24_000;
const SIZE: usize = HEADERS * GAP;
/// Passes over the file that are allowed. Budgets allow up to eight, and the search itself takes a few.
const MOST_PASSES: u64 = 16;

/// A file of false headers. `header` makes one that claims so many bytes, itself included.
fn file(header: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    let mut file = vec![0; SIZE];
    // The first bytes are none, so the others have to be searched for.
    for at in (100..SIZE - GAP).step_by(GAP) {
        let header = header(SIZE - at);
        file[at..at + header.len()].copy_from_slice(&header);
    }
    file
}

fn recordio() -> Vec<u8> {
    file(|claimed| {
        let fields = [0x0102_0304, 7, 0, claimed as u32 - 20, 1];
        fields.into_iter().flat_map(u32::to_le_bytes).collect()
    })
}

fn tfrecord() -> Vec<u8> {
    file(|claimed| {
        let length = (claimed as u64 - 16).to_le_bytes();
        [&length[..], &crc32c::masked(&length).to_le_bytes()].concat()
    })
}

/// Every second sample is all of the data.
fn ffrecord() -> Vec<u8> {
    let begin = 12 + 12 * HEADERS as u64;
    let mut file = [&7u32.to_le_bytes()[..], &(HEADERS as u64).to_le_bytes()].concat();
    file.extend([7; 4 * HEADERS]);
    (0..HEADERS).for_each(|i| file.extend([begin, SIZE as u64][i % 2].to_le_bytes()));
    file.resize(SIZE, 0);
    file
}

/// Counts the bytes that are read.
struct Counting {
    file: Memory<Vec<u8>>,
    bytes: AtomicU64,
}

impl Storage for Counting {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_at(&self, at: u64, out: &mut [u8], cx: &Cx<'_>) -> Result<()> {
        self.bytes.fetch_add(out.len() as u64, Relaxed);
        self.file.read_at(at, out, cx)
    }
}

#[test]
fn false_headers_cost_no_more_than_a_few_passes() {
    let files = [("recordio", recordio()), ("tfrecord", tfrecord()), ("ffrecord", ffrecord())];
    let mut wrong = Vec::new();
    for (name, file) in files {
        let (format, options, cx) =
            (detect::by_name(name).unwrap(), ReadOptions::default(), for_tests(Limits::default()));
        let storage = Counting { file: Memory::new(name, file), bytes: AtomicU64::new(0) };
        let walks = [
            ("verify", format.walk, Walk::resuming(&storage, &options, Depth::Checked, &cx)),
            ("salvage", format.salvage.walk, Walk::salvaging(&storage, &options, &cx)),
        ];
        for (verb, act, walk) in walks {
            storage.bytes.store(0, Relaxed);
            let mut covered = 0;
            let visit = &mut |span: Span<'_>| {
                covered += span.range().end - span.range().start;
                Ok(())
            };
            act(&walk, visit).unwrap();
            let passes = storage.bytes.load(Relaxed) / SIZE as u64;
            if !(1..=MOST_PASSES).contains(&passes) || covered != SIZE as u64 {
                wrong.push(format!(
                    "{verb} of {name}: {passes} passes over the file, {covered} bytes visited"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
