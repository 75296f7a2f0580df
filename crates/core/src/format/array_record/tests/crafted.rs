//! Footers, postscripts and chunks with right hashes and wrong content.

use super::super::proto::{FooterEntry, MAGIC, Metadata, Postscript};
use super::*;
use crate::codec::{Codec, Compression};
use crate::cx::for_tests;
use crate::error::Kind;
use crate::format::encode::Group;
use crate::format::riegeli::chunk::{CHUNK_HEADER, ChunkView, kind};
use crate::format::riegeli::encode::{EncodedChunks, Encoding, encode_parts};
use crate::format::riegeli::{transpose_decode, writer};
use crate::format::spare::Spare;
use crate::limits::Limits;
use crate::storage::output::{ForwardOutput, Output};
use proptest::prelude::*;

const STORED: Compression = Compression { codec: Codec::None, level: 0, window_log: 0 };

fn encode(records: &[Vec<u8>], compression: Compression, transpose: Option<u64>) -> EncodedChunks {
    let mut group = Group::default();
    records.iter().for_each(|record| group.push(record).unwrap());
    Encoding { group_size: u64::MAX, compression, transpose }.encode(group, &Spare::default()).unwrap()
}

/// Writes records as one uncompressed chunk, even if there are no records.
fn put(out: &mut dyn Output, records: &[Vec<u8>]) -> u64 {
    let encoded = match records {
        [] => encode_parts(&[], Vec::new(), 0, &STORED).unwrap(),
        _ => encode(records, STORED, None),
    };
    writer::write_encoded(out, &encoded.head, &encoded.body).unwrap()
}

/// A file of three chunks with two records each, and the content of its footer and postscript.
struct File {
    entries: Vec<FooterEntry>,
    metadata: Metadata,
    footer_offset: Option<u64>,
    postscripts: usize,
    footer_kind: u8,
    compression: Compression,
    last_padding: bool,
}

const OFFSETS: [u64; 3] = [64, 64 + 40 + 4 + 26, 64 + 2 * (40 + 4 + 26)];

impl Default for File {
    fn default() -> Self {
        let entry = |offset| FooterEntry { offset: Some(offset), decoded: Some(26), records: Some(2) };
        File {
            entries: OFFSETS.map(entry).to_vec(),
            metadata: Metadata { version: 1, chunks: 3, records: 6, options: None },
            footer_offset: None,
            postscripts: 3,
            footer_kind: kind::SIMPLE,
            compression: STORED,
            last_padding: true,
        }
    }
}

impl File {
    fn bytes(&self) -> Vec<u8> {
        let mut out = ForwardOutput::new("memory", Vec::new());
        writer::write_signature(&mut out).unwrap();
        for (pair, offset) in counter(6).chunks(2).zip(OFFSETS) {
            assert_eq!(put(&mut out, pair), offset);
        }
        let mut records = vec![self.metadata.to_bytes()];
        for entry in &self.entries {
            let mut record = Vec::new();
            entry.put(&mut record);
            records.push(record);
        }
        let transpose = (self.footer_kind != kind::SIMPLE).then_some(256);
        let footer = encode(&records, self.compression, transpose);
        let offset = writer::write_encoded(&mut out, &footer.head, &footer.body).unwrap();
        writer::pad_to_block(&mut out).unwrap();
        let footer_offset = self.footer_offset.unwrap_or(offset);
        let postscript = Postscript { footer_offset, magic: MAGIC }.to_bytes();
        put(&mut out, &vec![postscript; self.postscripts]);
        if self.last_padding {
            writer::pad_to_block(&mut out).unwrap();
        }
        let mut file = out.into_inner();
        file.resize(file.len().next_multiple_of(65_536), 0);
        file
    }
}

#[track_caller]
fn refused(file: &File, expected: &str) {
    let bytes = file.bytes();
    let error = open(&ARRAY_RECORD, &bytes, &ReadOptions::default()).err().expect("it opens");
    assert!(error.offset().is_some() && error.to_string().contains(expected), "{error}");
    let counted = count(&bytes).expect_err("it counts");
    assert_eq!(counted.to_string(), error.to_string());
    assert!(!walk(&ARRAY_RECORD, &bytes).damage.is_empty(), "the walk sees nothing");
}

fn count(file: &[u8]) -> crate::Result<u64> {
    let options = ReadOptions::default();
    crate::format::walk::count(
        &ARRAY_RECORD,
        &Memory::new("test", file),
        &options,
        &for_tests(options.limits),
    )
}

#[test]
fn counts_that_only_the_entries_can_refute_are_refused() {
    for records in [1 << 55, 1 << 63, u64::MAX - 4] {
        let mut file = File::default();
        file.entries[2].records = Some(records);
        file.metadata.records = records.saturating_add(4);
        refused(&file, "cannot hold the records");
    }
}

#[test]
fn a_last_block_that_unpacks_to_much_is_no_postscript() {
    let records = vec![vec![0; 1 << 20]; 64];
    let zstd = Compression { codec: Codec::Zstd, level: 3, window_log: 20 };
    let mut out = ForwardOutput::new("memory", Vec::new());
    writer::write_signature(&mut out).unwrap();
    writer::pad_to_block(&mut out).unwrap();
    let encoded = encode(&records, zstd, None);
    writer::write_encoded(&mut out, &encoded.head, &encoded.body).unwrap();
    writer::pad_to_block(&mut out).unwrap();
    let file = out.into_inner();
    let limits = Limits { decoded_chunk_bytes: 1 << 20, decoded_bytes: 1 << 20, ..Limits::default() };
    for limits in [limits, Limits::default()] {
        let options = ReadOptions { limits, ..ReadOptions::default() };
        let error = open(&ARRAY_RECORD, &file, &options).err().unwrap();
        assert!(error.to_string().contains("no postscript"), "{error}");
    }
}

#[test]
fn unusual_but_true_files_are_read() {
    let other = |codec| Compression { codec, level: 3, window_log: 20 };
    let files = [
        File::default(),
        File { footer_kind: kind::TRANSPOSED, ..File::default() },
        File { footer_kind: kind::TRANSPOSED, compression: other(Codec::Zstd), ..File::default() },
        File { compression: other(Codec::Snappy), ..File::default() },
        File { compression: other(Codec::Brotli), ..File::default() },
        File { postscripts: 1, ..File::default() },
        File { last_padding: false, ..File::default() },
    ];
    for file in files {
        let bytes = file.bytes();
        assert_eq!(read(&ARRAY_RECORD, &bytes, &ReadOptions::default()).unwrap(), counter(6));
        let walked = walk(&ARRAY_RECORD, &bytes);
        assert!(walked.damage.is_empty(), "{:?}", walked.damage);
        assert_eq!((walked.records, walked.unused > 0), (6, !file.last_padding));
    }
}

#[test]
fn footers_that_lie_are_refused() {
    type Change<'a> = &'a dyn Fn(&mut File);
    let cases: [(Change<'_>, &str); 19] = [
        (&|f| f.metadata.chunks = 4, "number of chunks differs from the number of entries"),
        (&|f| f.metadata.chunks = u64::MAX, "number of chunks differs from the number of entries"),
        (&|f| f.metadata.records = 7, "do not add up"),
        (&|f| f.metadata.records = u64::MAX, "do not add up"),
        (&|f| f.metadata.version = 0, "unknown version"),
        (&|f| f.entries.swap(0, 1), "offsets do not increase"),
        (&|f| f.entries[1].offset = Some(64), "offsets do not increase"),
        (&|f| f.entries[2].offset = Some(60_000), "footer entry 2: offset 60000"),
        (&|f| f.entries[2].offset = Some(u64::MAX), "footer entry 2: offset"),
        (&|f| f.entries[0].offset = Some(0), "footer entry 0: offset 0"),
        (&|f| f.entries[1].offset = None, "footer entry 1: the chunk offset is missing"),
        (&|f| f.entries[1].records = None, "footer entry 1: the number of records is missing"),
        (&|f| f.entries[1].records = Some(0), "holds no records"),
        (&|f| f.entries[1].records = Some(1 << 40), "cannot hold the records"),
        (&|f| f.entries[2].records = Some(u64::MAX), "do not add up|too many records|cannot hold"),
        (&|f| f.footer_offset = Some(64), "footer"),
        (&|f| f.footer_offset = Some(0), "invalid footer offset"),
        (&|f| f.footer_offset = Some(u64::MAX), "invalid footer offset"),
        (&|f| f.footer_offset = Some(65_536), "invalid footer offset"),
    ];
    for (change, expected) in cases {
        let mut file = File::default();
        change(&mut file);
        if expected.contains('|') {
            assert!(open(&ARRAY_RECORD, &file.bytes(), &ReadOptions::default()).is_err());
        } else {
            refused(&file, expected);
        }
    }
    refused(&File { postscripts: 0, ..File::default() }, "postscript is missing");
}

#[test]
fn lies_that_only_a_chunk_can_tell_are_found_when_it_is_read() {
    let mut file = File::default();
    file.entries[0].records = Some(1);
    file.entries[1].records = Some(3);
    let bytes = file.bytes();
    let table = open(&ARRAY_RECORD, &bytes, &ReadOptions::default()).unwrap();
    let found = read_table(&*table, &bytes, Limits::default());
    assert!(found[0].as_ref().unwrap_err().to_string().contains("number of records in a chunk differs"));
    assert_eq!(found[4].as_ref().unwrap(), b"record-000004");
    assert_eq!(walk(&ARRAY_RECORD, &bytes).damage.len(), 2);

    // An offset between two chunks.
    let mut file = File::default();
    file.entries[1].offset = Some(OFFSETS[1] + 1);
    let bytes = file.bytes();
    let table = open(&ARRAY_RECORD, &bytes, &ReadOptions::default()).unwrap();
    assert!(matches!(
        read_table(&*table, &bytes, Limits::default())[2].as_ref().unwrap_err().kind(),
        Kind::Checksum
    ));
    assert!(!walk(&ARRAY_RECORD, &bytes).damage.is_empty());

    // Reading groups does not need the decoded sizes, but a walk checks them.
    let mut file = File::default();
    file.entries[1].decoded = Some(27);
    let bytes = file.bytes();
    assert_eq!(read(&ARRAY_RECORD, &bytes, &ReadOptions::default()).unwrap(), counter(6));
    assert_eq!(walk(&ARRAY_RECORD, &bytes).damage.len(), 1);
    file.entries[1].decoded = None;
    let bytes = file.bytes();
    assert!(walk(&ARRAY_RECORD, &bytes).damage.is_empty());
    assert_eq!(open(&ARRAY_RECORD, &bytes, &ReadOptions::default()).unwrap().describe().decoded_bytes, None);
}

#[test]
fn a_chunk_left_out_of_the_footer_is_damage() {
    let mut file = File::default();
    file.entries.remove(1);
    file.metadata = Metadata { chunks: 2, records: 4, ..file.metadata };
    let walked = walk(&ARRAY_RECORD, &file.bytes());
    assert_eq!((walked.records, walked.damage.len()), (4, 1));
    assert!(walked.damage[0].1.to_string().contains("not in the footer"));
}

#[test]
fn a_wrong_size_of_a_single_record_is_an_error_not_an_allocation() {
    for decoded in [Some(0), Some(27), Some(1 << 50), Some(u64::MAX), None] {
        let mut out = ForwardOutput::new("memory", Vec::new());
        writer::write_signature(&mut out).unwrap();
        put(&mut out, &counter(1));
        let metadata = Metadata { version: 1, chunks: 1, records: 1, options: None }.to_bytes();
        let mut entry = Vec::new();
        FooterEntry { offset: Some(64), decoded, records: Some(1) }.put(&mut entry);
        let offset = put(&mut out, &[metadata, entry]);
        writer::pad_to_block(&mut out).unwrap();
        let postscript = Postscript { footer_offset: offset, magic: MAGIC }.to_bytes();
        put(&mut out, &[postscript]);
        writer::pad_to_block(&mut out).unwrap();
        let file = out.into_inner();
        let found = read(&ARRAY_RECORD, &file, &ReadOptions::default());
        // `u64::MAX` stands for an unknown size.
        let unknown = decoded.is_none() || decoded == Some(u64::MAX);
        assert_eq!(found.is_ok(), unknown, "{decoded:?}: {found:?}");
    }
}

#[test]
fn transposed_chunks_that_run_in_circles_are_refused() {
    // No buckets, no buffers, two states that do nothing and lead to each other without a transition.
    let data = [0, 8, 0, 0, 2, 0, 0, 3, 2, 0];
    let error = transpose_decode::decode(&data, 64, 0, 0, &for_tests(Limits::default())).unwrap_err();
    assert!(error.to_string().contains("endless cycle"), "{error}");
    // One state that starts a record again and again.
    let data = [0, 6, 0, 0, 1, 3, 0, 0, 3, 3, 3, 3];
    let error = transpose_decode::decode(&data, 64, 5, 0, &for_tests(Limits::default())).unwrap_err();
    assert!(error.to_string().contains("too many records"), "{error}");
    assert!(
        transpose_decode::decode(&[0, 6, 0, 0, 1, 3, 0, 0], 64, 1, 0, &for_tests(Limits::default())).is_ok()
    );
}

proptest! {
    #[test]
    fn no_chunk_data_makes_a_decoder_panic(
        data: Vec<u8>, seed in 0usize..40, at: prop::sample::Index, byte: u8, decoded in 0u64..5000, records in 0u64..50,
    ) {
        let limits = Limits { decoded_chunk_bytes: 1 << 20, ..Limits::default() };
        let _ = transpose_decode::decode(&data, 64, records, decoded, &for_tests(limits));
        // A valid chunk with one wrong byte gets further into the decoder.
        let records = messages(seed as u64 + 1);
        let encoded = encode(&records, STORED, Some(256));
        let mut data = [&encoded.head[CHUNK_HEADER as usize..], &encoded.body].concat();
        let at = at.index(data.len());
        data[at] = byte;
        let decoded = records.iter().map(|record| record.len() as u64).sum();
        let _ = transpose_decode::decode(&data, 64, encoded.records, decoded, &for_tests(limits));
    }

    #[test]
    fn no_stored_bytes_make_a_chunk_panic(bytes: Vec<u8>, begin in 0u64..200_000) {
        for checksums in [true, false] {
            if let Ok(view) = ChunkView::read(begin, &bytes, checksums) {
                let _ = view.decode(&for_tests(Limits { decoded_chunk_bytes: 1 << 20, ..Limits::default() }));
                let _ = view.verify_padding();
            }
        }
    }
}
