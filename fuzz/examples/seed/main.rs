//! Writes the first inputs of every target to `work/`, made from the golden files and from files of our own writers.
//!
//! `cargo run --no-default-features --example seed`, in the folder of the targets.

mod codecs;
mod damage;

use anyrecord::format::detect;
use anyrecord::format::options::WriteOptions;
use anyrecord::format::riegeli::chunk::{ChunkView, Header, kind};
use anyrecord::format::{Format, ReadOptions};
use anyrecord::hash::crc32c;
use anyrecord::storage::file_set::FileSet;
use anyrecord::storage::memory::Memory;
use anyrecord::storage::output::ForwardOutput;
use anyrecord::view::blocks::Shape;
use anyrecord::view::mixture::Until;
use anyrecord::view::{Order, View};
use anyrecord::{Budget, Cx, Limits};
use anyrecord_fuzz::input::Inverse;
use anyrecord_fuzz::{repair, views};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

type Outcome = Result<(), Box<dyn Error>>;

/// Larger golden files are not taken whole. Others that are as small reach the same code.
const MOST_BYTES: usize = 64 << 10;

fn main() -> Outcome {
    let mut files = Vec::new();
    for folder in ["ffrecord", "recordio", "tfrecord", "array_record"] {
        list(&Path::new("../tests/golden").join(folder), &mut files)?;
    }
    files.sort();
    for path in files {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if path.extension().is_some_and(|suffix| suffix == "py" || suffix == "json") {
            continue;
        }
        let format = if path.to_string_lossy().contains("array_record/") { "array_record" } else { "" };
        let format = detect::by_suffix(&name).map_or(format, |format| format.name);
        let bytes = fs::read(&path)?;
        seed_file(format, &name, &bytes)?;
    }
    write_files()?;
    codecs::small()?;
    seed_views()?;
    seed_journal()?;
    codecs::transitions()?;
    damage::wrong_hashes()?;
    damage::salvage()?;
    codecs::large()?;
    seed_options()?;
    damage::layouts()?;
    save("write_options", "codec", &[0, 0, 0, 1, 1, 0x80, 3])?;
    save("transposed_states", "one", &[4, 1, 0, 0, 0, 1, 3, 0, 0, 0, 0])?;
    seed_round_trips()
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Outcome {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { list(&path, files)? } else { files.push(path) }
    }
    Ok(())
}

fn save(target: &str, name: &str, input: &[u8]) -> Outcome {
    if input.len() > MOST_BYTES {
        return Ok(());
    }
    let folder = Path::new("work").join(target);
    fs::create_dir_all(&folder)?;
    Ok(fs::write(folder.join(format!("seed-{name}")), input)?)
}

/// The inputs that one file gives: the file itself, its chunks, its footer, its index.
fn seed_file(format: &str, name: &str, file: &[u8]) -> Outcome {
    if file.len() <= MOST_BYTES {
        save("any_format", name, file)?;
    }
    match format {
        "array_record" => seed_riegeli(name, file),
        "" => Ok(()),
        _ => {
            for mode in [0, 1, 0x11] {
                save(format, &format!("{mode}-{name}"), &[&[mode], file].concat())?;
            }
            if format == "tfrecord" {
                save(format, &format!("gzip-{name}"), &[&[1 | 1 << 2], file].concat())?;
                save(format, &format!("zlib-{name}"), &[&[1 | 2 << 2], file].concat())?;
            }
            seed_index(format, name, file)
        }
    }
}

fn seed_riegeli(name: &str, file: &[u8]) -> Outcome {
    for mode in [0, 1, 0x11, 0x81] {
        let mut short = Inverse(vec![mode]);
        repair::shorten(file, &mut short);
        save("array_record", &format!("{mode}-{name}"), &short.0)?;
        // Without footer and postscript.
        let front = [&[mode], &file[..file.len().min(3500)]].concat();
        save("riegeli", &format!("{mode}-{name}"), &front)?;
    }
    let mut built = Inverse(vec![2]);
    let chunks = repair::riegeli_chunks(file);
    for (i, (header, data)) in chunks.iter().enumerate() {
        let Header { kind, records, decoded, .. } = header;
        let mut chunk = Inverse::default();
        chunk.varint(*records).varint(*decoded).bytes(data);
        let target = if *kind == kind::TRANSPOSED { "transposed_chunk" } else { "simple_chunk" };
        if matches!(*kind, kind::SIMPLE | kind::TRANSPOSED)
            && chunk.0.len() < 4000
            && (i < 4 || i + 3 > chunks.len())
        {
            for mode in [0, 1, 0x3b, 0xc2] {
                save(target, &format!("{i}-{mode}-{name}"), &[&[mode][..], &chunk.0].concat())?;
            }
        }
        if *kind != kind::SIGNATURE && built.0.len() < 3000 {
            built.bytes(&[*kind]).varint(*records).varint(*decoded).slice(data);
        }
        if i + 2 == chunks.len() && data.len() < 4000 {
            let footer = [&[4][..], &chunk.0].concat();
            save("footer", &format!("raw-{name}"), &footer)?;
            if let Some(listed) = chunk_records(header, data) {
                for mode in [0, 0x90] {
                    save("footer", &format!("{mode}-{name}"), &[&[mode][..], &listed].concat())?;
                }
            }
        }
    }
    for mode in [2, 6, 0x0a, 0x0e] {
        built.0[0] = mode;
        save("riegeli", &format!("built-{mode}-{name}"), &built.0)?;
        save("array_record", &format!("built-{mode}-{name}"), &built.0)?;
    }
    Ok(())
}

/// The records of a simple chunk, as slices.
fn chunk_records(header: &Header, data: &[u8]) -> Option<Vec<u8>> {
    let mut chunk = Vec::new();
    anyrecord_fuzz::build::put_chunk(&mut chunk, 64, header.kind, header.records, header.decoded, data);
    let limits = Limits::default();
    let files = FileSet::new(&limits);
    let budget = Budget::new(&limits, &files);
    let whole = ChunkView::read(64, &chunk, true).ok()?.decode(&Cx::new(&budget)).ok()?;
    let mut out = Inverse::default();
    (0..header.records).for_each(|row| {
        out.slice(whole.row(row).unwrap_or_default());
    });
    Some(out.0)
}

fn seed_index(format: &str, name: &str, file: &[u8]) -> Outcome {
    let Ok(format) = detect::by_name(format) else { return Ok(()) };
    let limits = Limits::default();
    let files = FileSet::new(&limits);
    let budget = Budget::new(&limits, &files);
    let Ok(table) = (format.open)(&Memory::new("file", file), &ReadOptions::default(), &Cx::new(&budget))
    else {
        return Ok(());
    };
    let Some(index) = table.index_bytes() else { return Ok(()) };
    let mode = u8::from(format.name == "tfrecord");
    // Without the magic bytes, the version and the checksum.
    let body = &index[9..index.len() - 4];
    save("side_index", &format!("whole-{name}"), &[&Inverse(vec![mode | 2]).slice(body).0, file].concat())?;
    let numbers = 1 + format.name.len();
    let mut short = body[numbers..numbers + 2].to_vec();
    short[1] -= 1;
    // The size of the data follows, which the target writes itself.
    let size = anyrecord::bytes::varint_len(file.len() as u64);
    short.extend(&body[numbers + 2 + size..]);
    save("side_index", name, &[&Inverse(vec![mode]).slice(&short).0, file].concat())
}

/// Small files of every format, codec and grouping.
fn write_files() -> Outcome {
    let text = b"the quick brown fox jumps over the lazy dog, ".repeat(3);
    // A message with a number, a text, a submessage, fixed numbers and a group.
    let message = b"\x08\x96\x01\x12\x05hello\x1a\x08\x08\x07\x12\x04nest\x25abcd\x29abcdefgh\x33\x08\x01\x34\x3d\x00\x00\x80\x3f".to_vec();
    let records = [b"".to_vec(), b"a".to_vec(), message.clone(), text, message[..10].to_vec(), message];
    let new = WriteOptions::default;
    let mut cases: Vec<(&str, String, WriteOptions)> = Vec::new();
    for codec in ["none", "zstd", "brotli", "snappy"] {
        for group in [1, 3, 100] {
            for transpose in [false, true] {
                for padded in [false, true] {
                    let options = new().with_text("codec", codec).with_int("group_size", group);
                    let options =
                        options.with_flag("transpose", transpose).with_flag("pad_to_block_boundary", padded);
                    let name = format!("{codec}-{group}-{transpose}-{padded}");
                    let cut = options.clone().with_int("transpose_bucket_size", 8);
                    cases.push(("array_record", name.clone(), options));
                    if transpose {
                        cases.push(("array_record", format!("{name}-8"), cut));
                    }
                }
            }
        }
    }
    for codec in ["none", "snappy", "gzip"] {
        for bytes in [200, 1000] {
            let options = new().with_text("codec", codec).with_int("chunk_bytes", bytes);
            cases.push(("recordio", format!("{codec}-{bytes}"), options));
        }
    }
    for codec in ["none", "gzip", "zlib"] {
        cases.push(("tfrecord", codec.to_owned(), new().with_text("codec", codec)));
    }
    cases.push(("ffrecord", "plain".to_owned(), new()));
    for (format, name, options) in cases {
        for (count, records) in [("none", &records[..0]), ("one", &records[2..3]), ("all", &records[..])] {
            let file = write(detect::by_name(format)?, &options, records)?;
            seed_file(format, &format!("{name}-{count}"), &file)?;
        }
    }
    Ok(())
}

fn write(format: &Format, options: &WriteOptions, records: &[Vec<u8>]) -> anyrecord::Result<Vec<u8>> {
    let mut encoder = (format.encoder)(options)?;
    let (mut out, job) = (ForwardOutput::new("memory", Vec::new()), encoder.any_job());
    encoder.start(&mut out)?;
    for record in records {
        if let Some(group) = encoder.push(record)? {
            encoder.place_any(job(group)?, &mut out)?;
        }
    }
    if let Some(group) = encoder.flush() {
        encoder.place_any(job(group)?, &mut out)?;
    }
    encoder.finish(&mut out)?;
    Ok(out.into_inner())
}

fn seed_views() -> Outcome {
    let all = View::all(1000);
    let full = |view: &View| Order::new(view.len(), 7, 1, None).and_then(|order| view.shuffle(order));
    let blocks = |view: &View| {
        let shape = Shape { block: 16, window: 4, cuts: vec![100, 300] };
        Order::new(view.len(), 7, 1, Some(shape)).and_then(|order| view.shuffle(order))
    };
    let views = [
        all.clone(),
        all.slice(10, -1, 5)?,
        full(&all)?,
        full(&all)?.slice(3, 2, 100)?,
        blocks(&all)?,
        View::concat([(View::all(400), 0), (full(&View::all(600))?, 400)])?,
        View::mix(vec![(View::all(400), 0), (View::all(600), 400)], &[1, 3], 5, Until::Length(900))?,
        full(&View::concat([(View::all(400).slice(0, 3, 20)?, 0), (blocks(&View::all(600))?, 400)])?)?,
    ];
    for (i, view) in views.iter().enumerate() {
        save("view_numbers", &format!("{i}"), &views::input_for(view, 1000))?;
    }
    Ok(())
}

fn seed_journal() -> Outcome {
    let body = "new .train.ffr.x8f2kq1z.tmp train-00000-of-00002.ffr 4096-1731689000123456789-1835021\n\
                old .train-00000-of-00002.ffr.k3j9aa0p-0.old train%20%25%0a.ffr\n";
    save("journal", "lines", &[b"\x01", body.as_bytes()].concat())?;
    let text = format!("anyrecord publish 1\ninode 7\n{body}");
    save("journal", "whole", &[b"\x00", text.as_bytes()].concat())?;
    let sum = crc32c::append(0, text.as_bytes());
    save("journal", "ended", format!("\0{text}end {sum:08x}\n").as_bytes())
}

/// Each option of each format, with a value of each kind.
fn seed_options() -> Outcome {
    for format in 0..5u8 {
        for keyword in 0..10u8 {
            for (i, value) in [&[0x40, 1][..], &[0x60, 1], &[0x80, 3], &[0x80, 0], &[0, 1]].iter().enumerate()
            {
                for codec in [0u8, 1, 3, 4, 5] {
                    let input = [&[format, 0, 0, codec, keyword][..], value].concat();
                    save("write_options", &format!("{format}-{keyword}-{i}-{codec}"), &input)?;
                }
            }
        }
    }
    Ok(())
}

/// Every format and codec, with short records, long records and none.
fn seed_round_trips() -> Outcome {
    // Messages with submessages and groups, and one with more fields than a state has transitions.
    let nested = b"\x08\x96\x01\x12\x05hello\x1a\x08\x08\x07\x12\x04nest\x25abcd\x29abcdefgh\x33\x08\x01\x34\x3d\x00\x00\x80\x3f";
    let mut wide = Vec::new();
    for field in 1..600u64 {
        anyrecord::bytes::put_varint(&mut wide, field << 3);
        wide.push(field as u8 & 0x7f);
    }
    let mut messages = Inverse::default();
    for record in [&nested[..], &wide, &nested[..21], &wide[..300], &wide, b""] {
        messages.bytes(&[0]).slice(record);
    }
    for choice in [0x10u8, 0x14, 0x18, 0x1c, 0x50] {
        for detail in [0x21u8, 0xf7] {
            let input = [&[0x1c, choice, detail, 3, 0][..], &messages.0].concat();
            save("round_trip", &format!("messages-{choice}-{detail}"), &input)?;
        }
    }
    let mut spooled = Inverse(b"\0\x05hello\0\0".to_vec());
    spooled.bytes(&[0xff]).slice(b"to a temporary file").bytes(b"\0\x03abc\0\0");
    save("round_trip", "spooled", &[&[0, 3, 0, 2, 0], &spooled.0[..]].concat())?;
    for good in [0, 1, 2, 3, 4, 200] {
        save("faulty_output", &format!("spooled-{good}"), &[&[0, good, 3, 0], &spooled.0[..]].concat())?;
    }
    for choice in 0..=0x7fu8 {
        for (name, records) in [
            ("none", &b""[..]),
            ("few", b"\0\x05hello\0\0\0\x03\x08\x96\x01\x90\x03abc"),
            ("long", b"\xff\x02ab\0\x01c\xff\x03xyz"),
        ] {
            let other = choice.wrapping_mul(37) ^ 0x15;
            let options = [choice, 0x21, other, 0x13];
            let mode = choice & 3 | if name == "few" { 0x1c } else { 0 };
            if choice % 5 == 0 || choice < 16 || choice & 0x30 == 0x10 {
                save("round_trip", &format!("{choice}-{name}"), &[&[mode], &options[..], records].concat())?;
            }
            if choice < 32 {
                let good = choice % 8;
                save(
                    "faulty_output",
                    &format!("{choice}-{name}"),
                    &[&[mode, good], &options[..2], records].concat(),
                )?;
            }
        }
    }
    Ok(())
}
