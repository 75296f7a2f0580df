//! While one large chunk is decoded, the interruption check runs often, and can stop the call.

use anyrecord::budget::Budget;
use anyrecord::bytes::put_varint;
use anyrecord::codec::gzip::{self, Wrapper};
use anyrecord::codec::snappy_frames::{self, Compressor, IDENTIFIER};
use anyrecord::codec::{AT_ONCE, Codec, Compression};
use anyrecord::format::riegeli::chunk::{ChunkView, kind};
use anyrecord::format::riegeli::encode::Encoding;
use anyrecord::format::riegeli::writer;
use anyrecord::format::{encode::Group, spare::Spare};
use anyrecord::storage::file_set::FileSet;
use anyrecord::storage::output::ForwardOutput;
use anyrecord::{Cx, Error, Limits, Result};
use std::cell::Cell;

/// The most bytes decompressed between two checks.
const OFTEN: usize = 1 << 20;

/// Calls `act` with a context that stops at check number `last`. Returns how many checks there were.
fn asked<T>(last: usize, act: impl FnOnce(&Cx<'_>) -> Result<T>) -> (Result<T>, usize) {
    let limits = Limits::default();
    let files = FileSet::new(&limits);
    let budget = Budget::new(&limits, &files);
    let questions = Cell::new(0);
    let stop = || {
        questions.set(questions.get() + 1);
        if questions.get() >= last { Err(Error::closed("stopped")) } else { Ok(()) }
    };
    let result = act(&Cx { budget: &budget, stop: &stop });
    assert_eq!(budget.held(), 0, "something is still held");
    (result, questions.get())
}

/// Checks that `act` returns `expected`, runs the interruption check often, and ends at any check that stops it.
fn check(name: &str, expected: &[u8], act: impl Fn(&Cx<'_>) -> Result<Vec<u8>>) {
    let (found, questions) = asked(usize::MAX, &act);
    assert!(found.unwrap() == expected, "{name}: other bytes");
    assert!(questions >= expected.len() / OFTEN, "{name}: only {questions} questions");
    for last in [1, questions] {
        let (stopped, questions) = asked(last, &act);
        let error = stopped.err().unwrap_or_else(|| panic!("{name}: it went on"));
        assert!(error.to_string().contains("stopped") && questions == last, "{name}: {error}");
    }
}

/// Data that is neither random nor a single run: copies, literals and changing distances.
fn text(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut out = Vec::with_capacity(length + 64);
    while out.len() < length {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let word = state.to_le_bytes();
        (0..1 + state % 5).for_each(|_| out.extend_from_slice(&word));
    }
    out.truncate(length);
    out
}

fn inputs() -> [Vec<u8>; 2] {
    [text(AT_ONCE + 1_345_678), vec![7; 2 * AT_ONCE + 1]]
}

#[test]
fn every_codec_asks_and_is_heard() {
    for (codec, window_log) in
        [(Codec::None, 0), (Codec::Brotli, 22), (Codec::Zstd, 20), (Codec::Zstd, 27), (Codec::Snappy, 0)]
    {
        for input in inputs() {
            let mut packed = Vec::new();
            Compression { codec, level: 1, window_log }.compress(&input, &mut packed).unwrap();
            check(codec.name(), &input, |cx| {
                let (mut out, mut held) = (Vec::new(), cx.budget.nothing());
                codec.append(&packed, input.len() as u64, &mut out, &mut held, cx)?;
                assert!(held.bytes() >= input.len() as u64);
                Ok(out)
            });
            check(codec.name(), &input, |cx| {
                let mut out = vec![1; input.len()];
                codec.decompress_paced(&packed, &mut out, cx).map(|()| out)
            });
        }
    }
}

#[test]
fn wrong_sizes_cuts_and_trailing_bytes_are_errors_in_pieces_too() {
    let input = text(AT_ONCE + 100_000);
    for codec in [Codec::None, Codec::Brotli, Codec::Zstd, Codec::Snappy] {
        let mut packed = Vec::new();
        Compression { codec, level: 1, window_log: 22 }.compress(&input, &mut packed).unwrap();
        let append = |packed: &[u8], size: usize| {
            let (result, _) = asked(usize::MAX, |cx| {
                let mut out = b"before".to_vec();
                codec.append(packed, size as u64, &mut out, &mut cx.budget.nothing(), cx).map(|()| out)
            });
            let (same, _) = asked(usize::MAX, |cx| codec.decompress_paced(packed, &mut vec![0; size], cx));
            assert_eq!(result.is_ok(), same.is_ok(), "{}", codec.name());
            result
        };
        assert!(append(&packed, input.len()).unwrap()[6..] == input);
        assert!(append(&packed, input.len() + 1).is_err() && append(&packed, input.len() - 1).is_err());
        assert!(append(&[&packed[..], b"\0"].concat(), input.len()).is_err());
        for cut in [0, 1, 5, packed.len() / 2, packed.len() - 1] {
            assert!(append(&packed[..cut], input.len()).is_err(), "{} cut at {cut}", codec.name());
        }
    }
}

#[test]
fn data_that_expands_more_than_is_expected_comes_out_whole() {
    let input = vec![3; 40 << 20];
    let mut packed = Vec::new();
    Compression { codec: Codec::Zstd, level: 1, window_log: 20 }.compress(&input, &mut packed).unwrap();
    check("zstd", &input, |cx| {
        let (mut out, mut held) = (Vec::new(), cx.budget.nothing());
        Codec::Zstd.append(&packed, input.len() as u64, &mut out, &mut held, cx)?;
        assert!(out.capacity() < 2 * input.len());
        Ok(out)
    });
}

#[test]
fn streams_of_unknown_size_ask_and_are_heard() {
    for input in inputs() {
        for wrapper in [Wrapper::Gzip, Wrapper::Zlib] {
            let packed = gzip::compress(wrapper, &input, 1).unwrap();
            check("gzip", &input, |cx| {
                gzip::decompress(wrapper, &packed, 0, 1 << 30, &mut cx.budget.nothing(), cx)
            });
        }
        let mut packed = IDENTIFIER.to_vec();
        Compressor::default().write(&input, &mut packed).unwrap();
        check("snappy frames", &input, |cx| {
            let held = &mut cx.budget.nothing();
            snappy_frames::decompress(&packed, 0, 1 << 30, true, held, cx).map(|(bytes, _)| bytes)
        });
    }
}

/// Records that are messages of one string each.
fn messages(bytes: &[u8]) -> Vec<Vec<u8>> {
    let message = |part: &[u8]| {
        let mut record = vec![0x0a];
        put_varint(&mut record, part.len() as u64);
        record.extend(part);
        record
    };
    bytes.chunks(1 << 20).map(message).collect()
}

#[test]
fn whole_chunks_ask_and_are_heard() {
    let records = messages(&text(6 << 20));
    for (codec, transpose) in [
        (Codec::None, None),
        (Codec::Zstd, None),
        (Codec::Snappy, None),
        (Codec::None, Some(1 << 20)),
        (Codec::Zstd, Some(1 << 20)),
        (Codec::Snappy, Some(16 << 20)),
    ] {
        let mut group = Group::default();
        records.iter().for_each(|record| group.push(record).unwrap());
        let compression = Compression { codec, level: 1, window_log: 20 };
        let encoding = Encoding { group_size: u64::MAX, compression, transpose };
        let encoded = encoding.encode(group, &Spare::default()).unwrap();
        let mut out = ForwardOutput::new("memory", Vec::new());
        writer::write_signature(&mut out).unwrap();
        let begin = writer::write_encoded(&mut out, &encoded.head, &encoded.body).unwrap();
        let file = out.into_inner();
        let view = ChunkView::read(begin, &file[begin as usize..], true).unwrap();
        assert_eq!(view.header.kind, if transpose.is_some() { kind::TRANSPOSED } else { kind::SIMPLE });
        check(codec.name(), &records.concat(), |cx| view.decode(cx).map(|decoded| decoded.bytes().to_vec()));
    }
}
