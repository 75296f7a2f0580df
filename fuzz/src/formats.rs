//! Files of each format. The first byte of an input chooses how the rest becomes a file.

use super::build::{self, put_chunk, put_recordio, put_tfrecord};
use super::check::{Checks, LARGE, SMALL, check_file, options, walk_all, with_cx};
use super::input::Input;
use super::repair;
use anyrecord::codec::gzip::Wrapper;
use anyrecord::format::TableHome;
use anyrecord::format::array_record::ARRAY_RECORD;
use anyrecord::format::array_record::proto::{FooterEntry, MAGIC, Metadata, Postscript, VERSION};
use anyrecord::format::detect::{self, FORMATS};
use anyrecord::format::ffrecord::FFRECORD;
use anyrecord::format::recordio::RECORDIO;
use anyrecord::format::riegeli::RIEGELI;
use anyrecord::format::riegeli::block::{BLOCK, is_boundary, left_in_block};
use anyrecord::format::riegeli::chunk::kind;
use anyrecord::format::tfrecord::TFRECORD;
use anyrecord::storage::memory::Memory;

/// How the rest of an input becomes a file, from the first byte.
struct Mode(u8);

impl Mode {
    /// The rest is a file, whose hashes are made right. Else they stay as they are.
    fn is_repaired(&self) -> bool {
        self.0 & 1 != 0
    }

    /// The rest is a list of chunks, from which a file is built. Else it is a file.
    fn is_built(&self) -> bool {
        self.0 & 2 != 0
    }

    /// Two bits that each format uses as it likes.
    fn choice(&self) -> u8 {
        self.0 >> 2 & 3
    }

    fn checks(&self) -> Checks {
        let mut options = options(if self.0 & 0x70 == 0x70 { LARGE } else { SMALL });
        if self.0 & 0x80 != 0 {
            options.table = TableHome::Disk;
        }
        let good_reads = (self.0 & 0x30 == 0x10).then_some(u64::from(self.0 >> 6) * 3);
        Checks { options, good_reads }
    }
}

fn split(data: &[u8]) -> (Mode, Input<'_>) {
    let mut input = Input(data);
    (Mode(input.byte()), input)
}

/// A file of the ArrayRecord format.
pub fn array_record(data: &[u8]) {
    let (mode, mut input) = split(data);
    let file = if mode.is_built() {
        built_array_record(&mut input, mode.choice())
    } else {
        let mut file = repair::expand(input);
        if mode.is_repaired() {
            repair::riegeli(&mut file);
        }
        file
    };
    check_file(&ARRAY_RECORD, file, mode.checks());
}

/// A Riegeli file.
pub fn riegeli(data: &[u8]) {
    let (mode, mut input) = split(data);
    let file = if mode.is_built() {
        let mut file = Vec::new();
        put_chunks(&mut file, &mut input, &mut Vec::new());
        file
    } else {
        let mut file = input.rest().to_vec();
        if mode.is_repaired() {
            repair::riegeli(&mut file);
        }
        file
    };
    check_file(&RIEGELI, file, mode.checks());
}

/// Appends the signature and chunks from the input. Adds an entry for each chunk of records.
fn put_chunks(file: &mut Vec<u8>, input: &mut Input<'_>, entries: &mut Vec<FooterEntry>) {
    put_chunk(file, 0, kind::SIGNATURE, 0, 0, &[]);
    while !input.is_empty() && (file.len() as u64) < build::MOST_BYTES {
        let begin = file.len() as u64;
        if !is_boundary(begin) {
            break;
        }
        let kind = match input.byte() {
            // Padding up to a few bytes before the next block.
            b'p' => {
                let room = left_in_block(begin).saturating_sub(40 + u64::from(input.byte()));
                put_chunk(file, begin, kind::PADDING, 0, 0, &vec![0; room as usize]);
                continue;
            }
            kind => kind,
        };
        let (records, decoded, data) = (input.varint(), input.varint(), input.slice());
        put_chunk(file, begin, kind, records, decoded, data);
        if records > 0 {
            entries.push(FooterEntry { offset: Some(begin), decoded: Some(decoded), records: Some(records) });
        }
    }
}

/// A file with a footer. `choice`: how the footer lies about the chunks.
fn built_array_record(input: &mut Input<'_>, choice: u8) -> Vec<u8> {
    let (mut file, mut entries) = (Vec::new(), Vec::new());
    put_chunks(&mut file, input, &mut entries);
    match choice {
        1 if entries.len().is_multiple_of(2) => drop(entries.pop()),
        // A chunk that is not there.
        1 => entries.extend(
            entries.last().copied().map(|last| FooterEntry { offset: Some(file.len() as u64 - 1), ..last }),
        ),
        2 => entries.iter_mut().step_by(2).for_each(|entry| entry.decoded = None),
        3 if entries.len() < 3 => entries.iter_mut().for_each(|entry| entry.decoded = Some(1)),
        3 => entries.reverse(),
        _ => {}
    }
    let sum = entries.iter().filter_map(|entry| entry.records).fold(0, u64::saturating_add);
    let metadata = Metadata {
        version: VERSION,
        chunks: entries.len() as u64,
        records: sum,
        options: Some("zstd:3".into()),
    };
    let mut records = vec![metadata.to_bytes()];
    records.extend(entries.iter().map(|entry| {
        let mut bytes = Vec::new();
        entry.put(&mut bytes);
        bytes
    }));
    let footer_offset = file.len() as u64;
    if !is_boundary(footer_offset) {
        return file;
    }
    put_simple(&mut file, &records);
    let begin = file.len() as u64;
    let room = left_in_block(begin).checked_sub(40).unwrap_or(left_in_block(begin) + BLOCK - 64);
    put_chunk(&mut file, begin, kind::PADDING, 0, 0, &vec![0; room as usize]);
    let postscript = Postscript { footer_offset, magic: MAGIC }.to_bytes();
    put_simple(&mut file, &[postscript.clone(), postscript.clone(), postscript]);
    let begin = file.len() as u64;
    let room = left_in_block(begin).saturating_sub(40);
    put_chunk(&mut file, begin, kind::PADDING, 0, 0, &vec![0; room as usize]);
    file
}

/// Appends an uncompressed simple chunk of records.
pub fn put_simple(file: &mut Vec<u8>, records: &[Vec<u8>]) {
    let begin = file.len() as u64;
    put_chunk(file, begin, kind::SIMPLE, records.len() as u64, decoded(records), &simple_data(records));
}

/// The size of all records together.
pub fn decoded(records: &[Vec<u8>]) -> u64 {
    records.iter().map(|record| record.len() as u64).sum()
}

/// The data of an uncompressed simple chunk.
pub fn simple_data(records: &[Vec<u8>]) -> Vec<u8> {
    let mut sizes = Vec::new();
    records.iter().for_each(|record| anyrecord::bytes::put_varint(&mut sizes, record.len() as u64));
    let mut data = vec![0];
    anyrecord::bytes::put_varint(&mut data, sizes.len() as u64);
    data.extend(sizes);
    records.iter().for_each(|record| data.extend_from_slice(record));
    data
}

/// A file of the RecordIO format.
pub fn recordio(data: &[u8]) {
    let (mode, mut input) = split(data);
    let mut file = Vec::new();
    if mode.is_built() {
        while !input.is_empty() {
            let (codec, records) = (input.byte(), input.varint() as u32);
            let content = input.slice();
            let payload = match codec % 4 {
                0 => content.to_vec(),
                1 => build::pack_frames(content, usize::from(codec >> 3) * 8 + 4, codec & 4 != 0),
                2 => build::pack_deflate(Wrapper::Gzip, content),
                _ => build::pack_deflate(Wrapper::Zlib, content),
            };
            put_recordio(&mut file, u32::from(codec % 4), records, &payload);
        }
    } else {
        file.extend_from_slice(input.rest());
        if mode.is_repaired() {
            repair::recordio(&mut file);
        }
    }
    check_file(&RECORDIO, file, mode.checks());
}

/// A file of the TFRecord format, compressed or not.
pub fn tfrecord(data: &[u8]) {
    let (mode, mut input) = split(data);
    let mut file = Vec::new();
    if mode.is_built() {
        while !input.is_empty() {
            put_tfrecord(&mut file, input.slice());
        }
    } else {
        file.extend_from_slice(input.rest());
        if mode.is_repaired() {
            repair::tfrecord(&mut file);
        }
    }
    let file = match mode.choice() {
        1 => build::pack_deflate(Wrapper::Gzip, &file),
        2 => build::pack_deflate(Wrapper::Zlib, &file),
        _ => file,
    };
    check_file(&TFRECORD, file, mode.checks());
}

/// A file of the FFRecord format.
pub fn ffrecord(data: &[u8]) {
    let (mode, mut input) = split(data);
    let file = if mode.is_built() {
        let mut samples = Vec::new();
        while !input.is_empty() {
            samples.push(input.slice());
        }
        build::ffrecord(&samples, u64::from(mode.choice()) * 5)
    } else {
        let mut file = input.rest().to_vec();
        if mode.is_repaired() {
            repair::ffrecord(&mut file);
        }
        file
    };
    check_file(&FFRECORD, file, mode.checks());
}

/// Names of files, with and without a suffix that tells the format.
const NAMES: [&str; 8] = [
    "file",
    "file.ffr",
    "file.recordio",
    "file.tfrecord-00000-of-00002",
    "file-00000-of-00002.array_record",
    "file-0-of-00002",
    "file.ffr-1-of-2",
    "",
];

/// Any bytes, read as every format. No hash is made right.
pub fn any_format(data: &[u8]) {
    let options = options(SMALL);
    let name = NAMES[data.len() % NAMES.len()];
    let storage = Memory::new(name, data);
    let detected = with_cx(&SMALL, |cx| detect::named_or_detected(None, &storage, &options, cx));
    let named = with_cx(&SMALL, |cx| detect::named_or_detected(Some(name), &storage, &options, cx));
    assert!(named.is_err(), "the name of a file is not the name of a format");
    for format in FORMATS {
        let opened = with_cx(&SMALL, |cx| (format.open)(&storage, &options, cx).map(|table| table.records()));
        walk_all(format, data, &options);
        if let Err(error) = opened {
            let named =
                with_cx(&SMALL, |cx| detect::name_other_format(error, format, &storage, &options, cx));
            assert!(!named.to_string().is_empty());
        }
    }
    if let Ok(format) = detected {
        check_file(format, data.to_vec(), Checks { options, good_reads: None });
    }
}
