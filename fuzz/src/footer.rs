//! The footer and the postscript of an ArrayRecord file. The file around them exists only where it is read.

use super::build::put_chunk;
use super::check::{LARGE, SMALL, is_compared, options, with_cx};
use super::formats::{decoded, simple_data};
use super::input::Input;
use super::storages::Sparse;
use anyrecord::format::array_record::footer::{Footer, FooterPlace};
use anyrecord::format::array_record::proto::{FooterEntry, MAGIC, Metadata, Postscript};
use anyrecord::format::riegeli::block::BLOCK;
use anyrecord::format::riegeli::chunk::kind;
use anyrecord::format::{ReadOptions, Table, TableHome, Way};
use anyrecord::{Cx, Kind, Result};

/// Where the postscript begins in a file of three blocks.
const POSTSCRIPT: u64 = 2 * BLOCK;

/// A footer whose records come from the input, and a postscript that points to it.
pub fn footer(data: &[u8]) {
    let mut input = Input(data);
    let mode = input.byte();
    let place = if mode & 1 == 0 { BLOCK + 1000 } else { input.varint() % POSTSCRIPT };
    let message = if mode & 2 == 0 {
        Postscript { footer_offset: place, magic: MAGIC }.to_bytes()
    } else {
        input.slice().to_vec()
    };
    let (mut footer, mut postscript) = (Vec::new(), Vec::new());
    if mode & 4 == 0 {
        let mut records = Vec::new();
        while !input.is_empty() {
            records.push(input.slice().to_vec());
        }
        check_messages(&records, &message);
        put_chunk(
            &mut footer,
            place,
            kind::SIMPLE,
            records.len() as u64,
            decoded(&records),
            &simple_data(&records),
        );
    } else {
        let (records, decoded) = (input.varint(), input.varint());
        let kind = if mode & 8 == 0 { kind::SIMPLE } else { kind::TRANSPOSED };
        put_chunk(&mut footer, place, kind, records, decoded, input.rest());
    }
    let messages = vec![message; 1 + usize::from(mode >> 4 & 1)];
    put_chunk(
        &mut postscript,
        POSTSCRIPT,
        kind::SIMPLE,
        messages.len() as u64,
        decoded(&messages),
        &simple_data(&messages),
    );
    let storage = Sparse { size: 3 * BLOCK, pieces: &[(place, &footer), (POSTSCRIPT, &postscript)] };
    let mut options = options(if mode & 0x60 == 0x60 { LARGE } else { SMALL });
    options.table = if mode & 0x80 == 0 { TableHome::Memory } else { TableHome::Disk };
    let with = with_cx(&options.limits, |cx| open(&storage, &options, cx));
    if let Err(error) = &with {
        assert!(!matches!(error.kind(), Kind::Memory), "{error}");
    }
    if !is_compared(data) {
        return;
    }
    // In a context of its own: what one table has written counts for the limits of all tables of a context.
    let lenient = ReadOptions { checksums: false, ..options };
    let without = with_cx(&lenient.limits, |cx| open(&storage, &lenient, cx));
    // Footer and postscript can overlap, and then not both have right hashes.
    let overlaps = place + footer.len() as u64 > POSTSCRIPT;
    match (with, without) {
        (Ok(()), Ok(())) => {}
        (Err(with), Err(without)) => {
            assert!(overlaps || with.to_string() == without.to_string(), "{with}, {without}");
        }
        (Err(with), Ok(())) => {
            assert!(overlaps && matches!(with.kind(), Kind::Checksum | Kind::Truncated), "{with}")
        }
        (Ok(()), Err(without)) => panic!("only the reader without checksums fails: {without}"),
    }
}

fn open(storage: &Sparse<'_>, options: &ReadOptions, cx: &Cx<'_>) -> Result<()> {
    let place = FooterPlace::find(storage, options, cx)?;
    let table = Footer::open(storage, place, options, cx)?.into_table(options, cx)?;
    check_table(&table, place.footer);
    Ok(())
}

/// Every record that a table locates lies in the part of the file before `end`.
fn check_table(table: &dyn Table, end: u64) {
    let (records, chunks) = (table.records(), table.chunks());
    assert!(chunks <= end / 40 && records <= end, "{records} records in {chunks} chunks");
    let wanted = (0..records.min(64)).chain(records.saturating_sub(8)..records);
    for record in wanted {
        let Ok((chunk, row)) = table.locate(record) else { panic!("record {record} is not located") };
        assert!(chunk.stored.start < chunk.stored.end && chunk.stored.end <= end, "{chunk:?} and {end}");
        assert!(chunk.first_record + row == record && row < chunk.records, "{record}: {row} of {chunk:?}");
        assert!(chunk.index < chunks);
        let (Ok(way), Ok(_)) = (table.way(record), table.size(record)) else {
            panic!("no way to record {record}")
        };
        match way {
            Way::Plain { stored, .. } | Way::Alone { stored, .. } => assert_eq!(stored, chunk.stored),
            Way::Shared(shared, its_row) => assert_eq!((shared, its_row), (chunk.clone(), row)),
        }
        if let Some((index, its_row)) = table.shared_chunk(record) {
            assert_eq!((index, its_row), (chunk.index, row));
        }
    }
    let description = table.describe();
    assert!(description.record_bytes + description.unused_bytes <= end, "{description:?}");
}

/// A message that is read and written reads the same again.
fn check_messages(records: &[Vec<u8>], postscript: &[u8]) {
    if let Ok(Some(read)) = Postscript::read(postscript) {
        assert_eq!(Postscript::read(&read.to_bytes()).ok().flatten(), Some(read));
    }
    for record in records {
        if let Ok(Some(read)) = Metadata::read(record) {
            assert_eq!(Metadata::read(&read.to_bytes()).ok().flatten(), Some(read));
        }
        if let Ok(read) = FooterEntry::read(record) {
            let mut bytes = Vec::new();
            read.put(&mut bytes);
            assert_eq!(FooterEntry::read(&bytes).ok(), Some(read));
        }
    }
}
