//! Round trips, golden files, damaged files, and crafted files with wrong content.

mod crafted;
mod damage;
mod golden;
mod written;

use super::ARRAY_RECORD;
use crate::Limits;
use crate::cx::for_tests;
use crate::error::{Error, Result};
use crate::format::options::WriteOptions;
use crate::format::walk::{Depth, Span, Walk};
use crate::format::{Decoded, Format, ReadOptions, Table, Way, testing};
use crate::storage::memory::Memory;

fn options(codec: &str, group_size: i128) -> WriteOptions {
    WriteOptions::default().with_text("codec", codec).with_int("group_size", group_size)
}

fn write(options: &WriteOptions, records: &[Vec<u8>]) -> Vec<u8> {
    testing::write(&ARRAY_RECORD, options, records)
}

fn open(format: &Format, file: &[u8], options: &ReadOptions) -> Result<Box<dyn Table>> {
    (format.open)(&Memory::new("test", file), options, &for_tests(options.limits))
}

/// Reads every record in the way that the table returns for it.
fn read_table(table: &dyn Table, file: &[u8], limits: Limits) -> Vec<Result<Vec<u8>>> {
    let mut kept: Option<(u64, Decoded)> = None;
    let mut read = |record| {
        let (chunk, row) = table.locate(record)?;
        let stored = &file[chunk.stored.start as usize..chunk.stored.end as usize];
        let cx = for_tests(limits);
        if let Way::Alone { stored: range, size } = table.way(record)? {
            assert_eq!((range, Some(size as u64)), (chunk.stored.clone(), table.size(record)?));
            let mut out = vec![0xaa; size];
            table.decode_into(record, chunk.stored.start, stored, &mut out, &cx)?;
            assert_eq!(table.decode(&chunk, stored, &cx)?.row(0), Some(&out[..]));
            return Ok(out);
        }
        let decoded = match kept.take() {
            Some((index, decoded)) if index == chunk.index => decoded,
            _ => table.decode(&chunk, stored, &cx)?,
        };
        assert_eq!(decoded.rows() as u64, chunk.records);
        let found = decoded.row(row).unwrap().to_vec();
        kept = Some((chunk.index, decoded));
        Ok(found)
    };
    (0..table.records()).map(&mut read).collect()
}

fn read(format: &Format, file: &[u8], options: &ReadOptions) -> Result<Vec<Vec<u8>>> {
    let table = open(format, file, options)?;
    read_table(&*table, file, options.limits).into_iter().collect()
}

/// What a walk found: records, unused bytes and damage.
struct Walked {
    records: u64,
    unused: u64,
    damage: Vec<(std::ops::Range<u64>, Error)>,
}

fn walk(format: &Format, file: &[u8]) -> Walked {
    let mut walked = Walked { records: 0, unused: 0, damage: Vec::new() };
    let mut at = 0;
    let visit = &mut |span: Span<'_>| {
        assert_eq!(span.range().start, at, "spans tile the file");
        at = span.range().end;
        match span {
            Span::Meta(_) | Span::Filler(_) => {}
            Span::Records(chunk) => walked.records += chunk.records,
            Span::Unused(range) => walked.unused += range.end - range.start,
            Span::Damage(range, error) => walked.damage.push((range, error)),
        }
        Ok(())
    };
    let (memory, options, cx) =
        (Memory::new("test", file), ReadOptions::default(), for_tests(Limits::default()));
    (format.walk)(&Walk::resuming(&memory, &options, Depth::Checked, &cx), visit).unwrap();
    assert_eq!(at, file.len() as u64, "spans tile the file");
    walked
}

fn counter(n: usize) -> Vec<Vec<u8>> {
    (0..n).map(|i| format!("record-{i:06}").into_bytes()).collect()
}

/// Canonical messages with all kinds of fields, and a few records that are not messages.
fn messages(n: u64) -> Vec<Vec<u8>> {
    let mut state = 7u64;
    let mut below = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let mut message = |depth| {
        let mut layers: Vec<Vec<u8>> = vec![Vec::new()];
        for _ in 0..below(20) + depth {
            let out = layers.last_mut().unwrap();
            let field = [1, 2, 3, 15, 16, 300][below(6) as usize];
            let put = crate::bytes::put_varint;
            match below(7) {
                0 => {
                    put(out, field << 3);
                    put(out, below(4));
                }
                1 => {
                    put(out, field << 3);
                    put(out, below(u64::MAX) >> below(40));
                }
                2 => {
                    put(out, field << 3 | 5);
                    out.extend_from_slice(b"1234");
                }
                3 => {
                    put(out, field << 3 | 1);
                    out.extend_from_slice(b"12345678");
                }
                4 => {
                    put(out, field << 3 | 2);
                    let text = "text that is no message ".repeat(below(3) as usize);
                    put(out, text.len() as u64);
                    out.extend_from_slice(text.as_bytes());
                }
                5 => layers.push(Vec::new()),
                _ => {
                    put(out, field << 3 | 3);
                    put(out, field << 3 | 4);
                }
            }
        }
        while let (Some(inner), true) = (layers.pop(), !layers.is_empty()) {
            let out = layers.last_mut().unwrap();
            out.push(0x22);
            crate::bytes::put_varint(out, inner.len() as u64);
            out.extend_from_slice(&inner);
            if layers.len() == 1 {
                return layers.remove(0);
            }
        }
        vec![0xff; depth as usize]
    };
    (0..n).map(|i| message(i % 5)).collect()
}
