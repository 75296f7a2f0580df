//! Damages files, byte by byte, and looks at what comes of reading, verifying and opening them.
//!
//! ```text
//! damage read|verify|cut all|some FILE...
//! ```
//!
//! - `read` changes one byte and reads the file: an error or the same records.
//! - `verify` changes one byte and verifies the file: it is reported.
//! - `cut` cuts the file and opens it: an error, or the cut is exactly between two chunks of a format without an end.
//!
//! Each byte has each of its bits flipped, and is set to 0xFF. In files of more than 64 KiB, bytes that are only content have
//! one of their bits flipped. With `some`, only the bytes of structure and some of the others are changed in files of more
//! than 4 KiB. `checks/flips.py` and `checks/cuts.py` run this and read its lines:
//!
//! ```text
//! tried FILE COUNT      changes that were tried
//! unseen FILE AT BYTE   a change that `verify` did not report
//! between FILE COUNT    cuts between two chunks
//! renumbered FILE COUNT changes of the number of records in the header of a RecordIO chunk
//! violation FILE TEXT   anything that must not happen
//! ```

#[path = "damage/calls.rs"]
mod calls;
#[path = "damage/cutting.rs"]
mod cutting;
#[path = "damage/patched.rs"]
mod patched;
#[path = "damage/places.rs"]
mod places;
#[path = "damage/reading.rs"]
mod reading;
#[path = "damage/verifying.rs"]
mod verifying;
#[path = "damage/whole.rs"]
mod whole;

use cutting::Cut;
use reading::ReadCheck;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use verifying::Verified;
use whole::Whole;

/// Bytes of a file that one thread damages at a time.
const PIECE: usize = 8192;
/// Violations printed for one piece.
const SHOWN: usize = 3;

/// What is done to a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Read,
    Verify,
    Cut,
}

/// What came of damaging a part of a file.
#[derive(Default)]
struct Counts {
    tried: u64,
    renumbered: u64,
    between: u64,
    lines: Vec<String>,
    violations: usize,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, amount, files @ ..] = arguments.as_slice() else {
        panic!("usage: damage read|verify|cut all|some FILE...");
    };
    let mode = match mode.as_str() {
        "read" => Mode::Read,
        "verify" => Mode::Verify,
        "cut" => Mode::Cut,
        other => panic!("there is no mode {other}"),
    };
    let is_all = amount == "all";
    let wholes: Vec<Whole> = files.iter().flat_map(|file| wholes(file, mode, is_all)).collect();
    // Panics are caught and counted. Their messages are in the violations.
    std::panic::set_hook(Box::new(|_| {}));
    let pieces: Vec<(usize, Range<u64>)> = wholes
        .iter()
        .enumerate()
        .flat_map(|(number, whole)| {
            let starts = (0..whole.len()).step_by(PIECE);
            starts.map(move |start| (number, start..(start + PIECE as u64).min(whole.len())))
        })
        .collect();
    // For each file, what came of it so far, and how many of its pieces are left.
    let counts: Vec<Mutex<(Counts, usize)>> = wholes
        .iter()
        .enumerate()
        .map(|(number, _)| pieces.iter().filter(|piece| piece.0 == number).count())
        .map(|left| Mutex::new((Counts::default(), left)))
        .collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((number, piece)) = pieces.get(next.fetch_add(1, Relaxed)) {
                    let whole = &wholes[*number];
                    let found = match mode {
                        Mode::Read => read(whole, piece.clone(), is_all),
                        Mode::Verify => verify(whole, piece.clone(), is_all),
                        Mode::Cut => cut(whole, piece.clone(), is_all),
                    };
                    let (counts, left) = &mut *counts[*number].lock().unwrap_or_else(PoisonError::into_inner);
                    counts.add(found);
                    *left -= 1;
                    if *left == 0 {
                        print(whole, counts, mode);
                    }
                }
            });
        }
    });
}

/// The file, and an ArrayRecord file also as plain Riegeli, which needs no footer.
fn wholes(file: &str, mode: Mode, is_all: bool) -> Vec<Whole> {
    let read = |format| Whole::new(Path::new(file), format).unwrap_or_else(|error| panic!("{file}: {error}"));
    let mut wholes = vec![read(None)];
    if file.contains(".array_record") && (mode == Mode::Cut || mode == Mode::Read) && is_all {
        wholes.push(read(Some("riegeli")));
    }
    wholes
}

fn read(whole: &Whole, piece: Range<u64>, is_all: bool) -> Counts {
    let (mut counts, mut check) = (Counts::default(), ReadCheck::new(whole, is_all));
    for (at, byte) in places::changes(whole, piece, is_all) {
        counts.tried += 1;
        match catch_unwind(AssertUnwindSafe(|| check.violation(at, byte))) {
            Ok(None) => {}
            Ok(Some(text)) => counts.violation(whole, format_args!("byte {at} = {byte:#04x}: {text}")),
            Err(panic) => {
                counts.violation(whole, format_args!("byte {at} = {byte:#04x}: panic: {}", message(&*panic)));
                check = ReadCheck::new(whole, is_all);
            }
        }
    }
    counts.renumbered = check.renumbered;
    counts
}

fn verify(whole: &Whole, piece: Range<u64>, is_all: bool) -> Counts {
    let mut counts = Counts::default();
    if !verifying::is_in_order(whole) {
        counts.violation(whole, format_args!("is not in order before it is changed"));
    }
    let mut bytes = Vec::clone(&whole.bytes);
    for (at, byte) in places::changes(whole, piece, is_all) {
        counts.tried += 1;
        match catch_unwind(AssertUnwindSafe(|| verifying::verified(whole, &mut bytes, at, byte))) {
            Ok(Verified::Seen) => {}
            Ok(Verified::Unseen) => counts.lines.push(format!("unseen\t{}\t{at}\t{byte}", whole.name)),
            Ok(Verified::Wrong(text)) => {
                counts.violation(whole, format_args!("byte {at} = {byte:#04x}: {text}"));
            }
            Err(panic) => {
                counts.violation(whole, format_args!("byte {at} = {byte:#04x}: panic: {}", message(&*panic)));
                bytes = Vec::clone(&whole.bytes);
            }
        }
    }
    counts
}

fn cut(whole: &Whole, piece: Range<u64>, is_all: bool) -> Counts {
    let (mut counts, storage) = (Counts::default(), Arc::new(whole.patched()));
    if whole.units.is_none() {
        return counts;
    }
    for size in places::cuts(whole, piece, is_all) {
        for &format in &whole.formats {
            counts.tried += 1;
            match catch_unwind(AssertUnwindSafe(|| cutting::opened(whole, &storage, format, size))) {
                Ok(Cut::Refused) => {}
                Ok(Cut::BetweenChunks) => counts.between += 1,
                Ok(Cut::Wrong(text)) => counts.violation(whole, format_args!("cut at {size}: {text}")),
                Err(panic) => {
                    counts.violation(whole, format_args!("cut at {size}: panic: {}", message(&*panic)));
                }
            }
        }
    }
    counts
}

impl Counts {
    fn violation(&mut self, whole: &Whole, text: std::fmt::Arguments<'_>) {
        self.violations += 1;
        if self.violations <= SHOWN {
            self.lines.push(format!("violation\t{}\t{}", whole.name, text.to_string().replace('\n', " ")));
        }
    }

    fn add(&mut self, other: Counts) {
        self.tried += other.tried;
        self.renumbered += other.renumbered;
        self.between += other.between;
        self.lines.extend(other.lines);
    }
}

/// Prints what came of a file, in one piece.
fn print(whole: &Whole, counts: &Counts, mode: Mode) {
    let mut lines = vec![format!("tried\t{}\t{}", whole.name, counts.tried)];
    match mode {
        Mode::Read => lines.push(format!("renumbered\t{}\t{}", whole.name, counts.renumbered)),
        Mode::Cut => lines.push(format!("between\t{}\t{}", whole.name, counts.between)),
        Mode::Verify => {}
    }
    println!("{}", lines.iter().chain(&counts.lines).map(String::as_str).collect::<Vec<_>>().join("\n"));
}

fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
