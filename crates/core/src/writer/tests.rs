//! Every encoder over an output that fails after each byte, writes little at a time, is interrupted, or fails at the
//! end.

use super::*;
use crate::format::detect::by_name;
use crate::storage::output::{ForwardOutput, Seekable};
use std::io::{Cursor, ErrorKind, Seek, SeekFrom, Write};
use std::sync::Mutex;

/// A disk with room for so many bytes. Its bytes can be looked at while a writer has it.
#[derive(Clone)]
struct Disk {
    bytes: Arc<Mutex<Cursor<Vec<u8>>>>,
    written: Arc<Mutex<u64>>,
    room: u64,
    /// How many bytes one call takes at most.
    most: usize,
    /// Whether every other call is interrupted, as by a signal.
    is_interrupted: bool,
    calls: u64,
    flush_fails: bool,
}

impl Disk {
    fn with_room(room: u64) -> Self {
        let (bytes, written) = (Arc::default(), Arc::default());
        Disk { bytes, written, room, most: usize::MAX, is_interrupted: false, calls: 0, flush_fails: false }
    }

    fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().get_ref().clone()
    }

    fn written(&self) -> u64 {
        *self.written.lock().unwrap()
    }
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.calls += 1;
        if self.is_interrupted && self.calls % 2 == 1 {
            return Err(ErrorKind::Interrupted.into());
        }
        let mut written = self.written.lock().unwrap();
        let room = usize::try_from(self.room - *written).unwrap_or(usize::MAX);
        let length = bytes.len().min(self.most).min(room);
        if length == 0 && !bytes.is_empty() {
            return Err(ErrorKind::StorageFull.into());
        }
        *written += length as u64;
        self.bytes.lock().unwrap().write(&bytes[..length])
    }

    fn flush(&mut self) -> std::io::Result<()> {
        if self.flush_fails { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl Seek for Disk {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.bytes.lock().unwrap().seek(to)
    }
}

/// A format with some options, on an output that can seek or not.
#[derive(Clone, Debug)]
struct Case {
    format: &'static str,
    options: WriteOptions,
    num_records: Option<u64>,
    seeks: bool,
    threads: usize,
}

fn records() -> Vec<Vec<u8>> {
    (0..12_u8).map(|i| vec![i; usize::from(i) * 5]).collect()
}

fn cases() -> Vec<Case> {
    let new = WriteOptions::default;
    let codec = |name| new().with_text("codec", name);
    let formats = [
        ("ffrecord", new()),
        ("array_record", codec("none").with_int("group_size", 4)),
        ("array_record", codec("zstd").with_int("group_size", 4).with_flag("transpose", true)),
        ("recordio", new()),
        ("tfrecord", new()),
        ("tfrecord", codec("gzip")),
        ("tfrecord", codec("zlib")),
    ];
    let mut cases = Vec::new();
    for (format, options) in formats {
        for seeks in [false, true] {
            for num_records in [None, Some(12)] {
                let threads = if num_records.is_none() { 0 } else { 2 };
                cases.push(Case { format, options: options.clone(), num_records, seeks, threads });
            }
        }
    }
    cases
}

impl Case {
    /// Writes everything. After an error it goes on as a careless caller would.
    fn write(&self, disk: &Disk) -> Result<()> {
        let output: Box<dyn Output> = if self.seeks {
            Box::new(Seekable::new(disk.clone())?)
        } else {
            Box::new(ForwardOutput::new("disk", disk.clone()))
        };
        let options = CreateOptions {
            num_records: self.num_records,
            threads: Some(self.threads),
            format_options: self.options.clone(),
            ..CreateOptions::default()
        };
        let mut writer = Writer::over(output, by_name(self.format)?, options)?;
        let mut failed = None;
        for record in records() {
            if let Err(error) = writer.write(&record) {
                failed.get_or_insert(error);
            }
        }
        let sealed = writer.seal();
        match failed {
            Some(error) => {
                assert!(sealed.is_err(), "{self:?}: a write failed, and then all was well");
                Err(error)
            }
            None => sealed.map(drop),
        }
    }

    /// The file, and how many bytes were written for it.
    fn whole(&self) -> (Vec<u8>, u64) {
        let disk = Disk::with_room(u64::MAX);
        self.write(&disk).unwrap();
        (disk.bytes(), disk.written())
    }
}

#[test]
fn a_disk_that_is_full_after_any_byte_is_an_error_and_leaves_a_prefix() {
    let mut tried = 0;
    for case in cases() {
        let (whole, total) = case.whole();
        // The middle of an ArrayRecord file is a long padding.
        for room in
            (0..total).filter(|room| total < 1000 || *room < 300 || total - room < 300 || room % 997 == 0)
        {
            tried += 1;
            let disk = Disk::with_room(room);
            let error = case.write(&disk).expect_err(&format!("{case:?}, room for {room} of {total} bytes"));
            assert!(matches!(error.kind(), Kind::Io(_)), "{case:?}, {room}: {error}");
            assert_eq!(disk.written(), room, "{case:?}: it stopped before the disk was full");
            if !case.seeks {
                assert_eq!(disk.bytes(), whole[..usize::try_from(room).unwrap()], "{case:?}, {room}");
            }
        }
        let disk = Disk::with_room(total);
        case.write(&disk).unwrap();
        assert_eq!(disk.bytes(), whole, "{case:?}");
    }
    println!("{tried} full disks");
    assert!(tried > 3_000, "{tried}");
}

#[test]
fn short_and_interrupted_writes_give_the_same_bytes() {
    for case in cases() {
        let (whole, total) = case.whole();
        for (most, is_interrupted) in [(1, false), (7, true), (usize::MAX, true)] {
            let disk = Disk { most, is_interrupted, ..Disk::with_room(total) };
            case.write(&disk).unwrap();
            assert_eq!(disk.bytes(), whole, "{case:?}, at most {most}");
        }
    }
}

#[test]
fn an_error_that_comes_only_with_the_flush_is_not_lost() {
    for case in cases() {
        let disk = Disk { flush_fails: true, ..Disk::with_room(u64::MAX) };
        assert!(case.write(&disk).is_err(), "{case:?}");
    }
}
