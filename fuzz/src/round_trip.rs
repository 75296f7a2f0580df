//! Records and options from the input are written, read back, verified and converted.

use super::check::{Checks, LARGE, check_file, options, with_cx};
use super::input::Input;
use anyrecord::convert::{self, Pour};
use anyrecord::format::array_record::ARRAY_RECORD;
use anyrecord::format::ffrecord::FFRECORD;
use anyrecord::format::options::WriteOptions;
use anyrecord::format::recordio::RECORDIO;
use anyrecord::format::tfrecord::TFRECORD;
use anyrecord::format::{Format, detect, walk};
use anyrecord::shard::RecordRange;
use anyrecord::storage::Storage;
use anyrecord::storage::location::Location;
use anyrecord::storage::memory::Memory;
use anyrecord::storage::output::{ForwardOutput, Output, Seekable};
use anyrecord::verify::verify;
use anyrecord::writer::{CreateOptions, Writer};
use anyrecord::{Error, Kind, Result};
use std::io::Cursor;
use std::sync::{Arc, Mutex};

const FORMATS: [&Format; 4] = [&ARRAY_RECORD, &RECORDIO, &TFRECORD, &FFRECORD];

/// The bytes that [`target`] takes.
fn two_bytes(mut input: Input<'_>) -> [u8; 2] {
    [input.byte(), input.byte()]
}

/// A format and its options.
fn target(input: &mut Input<'_>, count: u64) -> (&'static Format, WriteOptions) {
    let (choice, detail) = (input.byte(), input.byte());
    let (format, new) = (FORMATS[usize::from(choice & 3)], WriteOptions::default());
    let detail_of = |n: u8| i128::from(detail % n);
    let options = match (format.name, choice >> 2 & 3) {
        ("array_record", codec) => {
            let new = match codec {
                0 => new.with_text("codec", "none"),
                1 => new.with_text("codec", "zstd").with_int("level", detail_of(9) - 4),
                2 => new.with_text("codec", "brotli").with_int("level", detail_of(6)),
                _ => new.with_text("codec", "snappy"),
            };
            let new = new.with_int("group_size", 1 + i128::from(detail >> 4));
            let new = new.with_flag("pad_to_block_boundary", choice & 0x40 != 0);
            if choice & 0x30 == 0x10 {
                return (
                    format,
                    new.with_flag("transpose", true).with_int("transpose_bucket_size", 1 + detail_of(64)),
                );
            }
            new
        }
        ("recordio", codec) => {
            let new = match codec {
                0 => new.with_text("codec", "none"),
                1 => new.with_text("codec", "gzip").with_int("level", detail_of(10)),
                _ => new.with_text("codec", "snappy"),
            };
            if choice & 0x10 != 0 { new.with_int("chunk_bytes", 1 + i128::from(detail)) } else { new }
        }
        ("tfrecord", 1) => new.with_text("codec", "gzip").with_int("level", detail_of(10)),
        ("tfrecord", 2) => new.with_text("codec", "zlib").with_int("level", detail_of(10)),
        ("ffrecord", 1) => new.with_int("num_records", count),
        _ => new,
    };
    (format, options)
}

/// A record of this text is repeated until it does not fit into memory. That is slow, so few inputs shall find it.
const SPOOLED: &[u8] = b"to a temporary file";

/// The records of an input. Some are longer than the input, so that blocks and groups are filled.
fn records(input: &mut Input<'_>) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    while !input.is_empty() && records.len() < 512 {
        let (kind, record) = (input.byte(), input.slice());
        let times = match kind {
            0..0x80 => 1,
            0x80..0xff => usize::from(kind & 0xf),
            0xff if record == SPOOLED => (9 << 20) / record.len(),
            0xff => (90_000 / record.len().max(1)).min(90_000),
        };
        records.push(record.repeat(times));
        // One record that does not fit into memory is enough: two in one chunk would exceed the limits of the check.
        if records.iter().map(Vec::len).sum::<usize>() > 300_000 {
            break;
        }
    }
    records
}

/// An output whose bytes can be taken after the writer is gone, and which fails after some calls.
struct Kept<O> {
    inner: Arc<Mutex<O>>,
    good: u64,
}

impl<O: Output> Kept<O> {
    fn call(&mut self) -> Result<()> {
        self.good = self
            .good
            .checked_sub(1)
            .ok_or_else(|| Error::io("the disk is full", std::io::ErrorKind::StorageFull.into()))?;
        Ok(())
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, O> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<O: Output> Output for Kept<O> {
    fn position(&self) -> u64 {
        self.inner().position()
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.call()?;
        self.inner().write_all(bytes)
    }

    fn can_patch(&self) -> bool {
        self.inner().can_patch()
    }

    fn skip(&mut self, length: u64) -> Result<()> {
        self.call()?;
        self.inner().skip(length)
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        self.call()?;
        self.inner().write_at(at, bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.call()?;
        self.inner().flush()
    }
}

/// Runs `write` with a writer of the format. Returns the file.
fn written(
    format: &'static Format,
    format_options: WriteOptions,
    can_seek: bool,
    good: u64,
    write: impl FnOnce(&mut Writer) -> Result<()>,
) -> Result<Vec<u8>> {
    let create = CreateOptions { threads: Some(1), format_options, ..CreateOptions::default() };
    let over = |output: Box<dyn Output>| -> Result<()> {
        let mut writer = Writer::over(output, format, create)?;
        write(&mut writer)?;
        writer.seal().map(drop)
    };
    if can_seek {
        let inner = Arc::new(Mutex::new(Seekable::new(Cursor::new(Vec::new()))?));
        over(Box::new(Kept { inner: inner.clone(), good }))?;
        let bytes = inner.lock().map(|output| output.inner().get_ref().clone());
        return Ok(bytes.unwrap_or_default());
    }
    let inner = Arc::new(Mutex::new(ForwardOutput::new("file", Vec::new())));
    over(Box::new(Kept { inner: inner.clone(), good }))?;
    let mut output = inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    Ok(std::mem::replace(&mut *output, ForwardOutput::new("file", Vec::new())).into_inner())
}

fn write_all(writer: &mut Writer, records: &[Vec<u8>]) -> Result<()> {
    records.iter().try_for_each(|record| writer.write(record))
}

fn scanned(format: &Format, file: &[u8]) -> Result<Vec<Vec<u8>>> {
    let (storage, mut records) = (Memory::new("file", file), Vec::new());
    with_cx(&LARGE, |cx| {
        walk::scan(format, &storage, &options(LARGE), cx, &mut |record| {
            records.push(record.to_vec());
            Ok(())
        })
    })?;
    Ok(records)
}

/// Whether a record does not fit into a chunk of RecordIO, whose size is an option. Nothing else may be refused.
fn is_refused(error: &Error, format: &Format, options: [u8; 2], records: &[Vec<u8>]) -> bool {
    let [choice, detail] = options;
    let most = if format.name == "recordio" && choice & 0x10 != 0 { usize::from(detail) } else { usize::MAX };
    matches!(error.kind(), Kind::Argument)
        && error.what().contains("is too large")
        && records.iter().any(|record| record.len() > most)
}

/// Writes records in one format, reads them back, and converts them to another one.
pub fn round_trip(data: &[u8]) {
    let mut input = Input(data);
    let mode = input.byte();
    let mut options_input = Input(input.take(4));
    let [first, second] = [options_input, Input(options_input.0.get(2..).unwrap_or_default())].map(two_bytes);
    let records = records(&mut input);
    let count = records.len() as u64;
    let (format, format_options) = target(&mut options_input, count);
    let (other, other_options) = target(&mut options_input, count);
    let file = written(format, format_options.clone(), mode & 1 != 0, u64::MAX, |writer| {
        write_all(writer, &records)
    });
    let file = match file {
        Ok(file) => file,
        Err(error) if is_refused(&error, format, first, &records) => return,
        Err(error) => panic!("{} {format_options:?}: {error}", format.name),
    };
    check_written(format, &file, &records);
    let converted =
        written(other, other_options.clone(), mode & 2 != 0, u64::MAX, |writer| pour(format, &file, writer));
    match converted {
        Ok(converted) => check_written(other, &converted, &records),
        Err(error) if is_refused(&error, other, second, &records) => {}
        Err(error) => panic!("{} to {} {other_options:?}: {error}", format.name, other.name),
    }
    if mode & 0x1c == 0x1c {
        check_file(format, file, Checks { options: options(LARGE), good_reads: Some(u64::from(mode >> 5)) });
    }
}

fn pour(format: &Format, file: &[u8], writer: &mut Writer) -> Result<()> {
    let storage: Arc<dyn Storage> = Arc::new(Memory::new("file", file.to_vec()));
    let inputs = [convert::Input { location: Location::Handed(storage), range: RecordRange::default() }];
    let job = Pour { writer, split: None, map: None, progress: &mut |_| Ok(()) };
    with_cx(&LARGE, |cx| convert::pour(&inputs, Some(format.name), &options(LARGE), job, cx).map(drop))
}

/// A written file holds the records, and nothing is wrong with it.
fn check_written(format: &Format, file: &[u8], records: &[Vec<u8>]) {
    match scanned(format, file) {
        Ok(found) => assert!(found == records, "{}: other records", format.name),
        Err(error) => panic!("{}: {error}", format.name),
    }
    let storage = Memory::new("file", file);
    let report = with_cx(&LARGE, |cx| {
        verify(&storage, Some(format.name), &[RecordRange::default()], &options(LARGE), cx, &mut |_| Ok(()))
    });
    match report {
        Ok(report) => assert!(report.is_ok() && report.records == [records.len() as u64], "{report:?}"),
        Err(error) => panic!("{}: {error}", format.name),
    }
}

/// An output that fails at any call makes writing fail, and the writer reports it.
pub fn faulty_output(data: &[u8]) {
    let mut input = Input(data);
    let (mode, good) = (input.byte(), u64::from(input.byte()));
    let mut options_input = Input(input.take(2));
    let chosen = two_bytes(options_input);
    let records = records(&mut input);
    let (format, format_options) = target(&mut options_input, records.len() as u64);
    let file = written(format, format_options, mode & 1 != 0, good, |writer| write_all(writer, &records));
    match file {
        Ok(file) => check_written(format, &file, &records),
        Err(error) => {
            assert!(error.is_from_outside() || is_refused(&error, format, chosen, &records), "{error}")
        }
    }
}

/// Keywords and values of any kind make an encoder, or an error about the arguments.
pub fn write_options(data: &[u8]) {
    const KEYWORDS: [&str; 10] = [
        "codec",
        "level",
        "window_log",
        "group_size",
        "transpose",
        "transpose_bucket_size",
        "pad_to_block_boundary",
        "num_records",
        "chunk_bytes",
        "unknown",
    ];
    const WORDS: [&str; 8] = ["none", "zstd", "brotli", "snappy", "gzip", "zlib", "", "a'\n"];
    let mut input = Input(data);
    let format = detect::FORMATS[usize::from(input.byte()) % detect::FORMATS.len()];
    let mut options = WriteOptions::default();
    while !input.is_empty() {
        let keyword = KEYWORDS[usize::from(input.byte()) % KEYWORDS.len()];
        options = match input.byte() {
            0..0x40 => options.with_text(keyword, WORDS[usize::from(input.byte() & 7)]),
            0x40..0x60 => options.with_flag(keyword, input.byte() & 1 != 0),
            0x60..0x80 => options.with_int(keyword, -i128::from(input.varint())),
            _ => options.with_int(keyword, input.varint()),
        };
    }
    match (format.encoder)(&options) {
        Ok(encoder) => assert!(!encoder.compresses() || format.name != "ffrecord"),
        Err(error) => {
            assert!(matches!(error.kind(), Kind::Argument) && !error.to_string().is_empty(), "{error}")
        }
    }
}
