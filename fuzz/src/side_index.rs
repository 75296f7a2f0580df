//! A side index beside a file. Its checksum is right, and some headers of the file too.

use super::check::{SMALL, options, with_cx};
use super::input::Input;
use anyrecord::format::recordio::RECORDIO;
use anyrecord::format::tfrecord::TFRECORD;
use anyrecord::format::{Format, Table};
use anyrecord::hash::crc32;
use anyrecord::storage::Storage;
use anyrecord::storage::memory::Memory;
use anyrecord::{Cx, Kind};

/// The index is the first slice of the input, without its magic bytes and its checksum. The rest is the file.
pub fn side_index(data: &[u8]) {
    let mut input = Input(data);
    let (mode, mut index) = (input.byte(), b"anyr-idx\x01".to_vec());
    let format: &Format = if mode & 1 == 0 { &RECORDIO } else { &TFRECORD };
    let mut body = Input(input.slice());
    let mut file = input.rest().to_vec();
    if mode & 2 == 0 {
        index.push(format.name.len() as u8);
        index.extend(format.name.bytes());
        index.extend([body.byte(), 1 + (body.byte() & 1)]);
        anyrecord::bytes::put_varint(&mut index, file.len() as u64);
    }
    index.extend(body.rest());
    index.extend(crc32::hash(&index).to_le_bytes());
    if mode & 4 == 0 {
        match format.name {
            "recordio" => super::repair::recordio(&mut file),
            _ => super::repair::tfrecord(&mut file),
        }
    }
    let Some(open_indexed) = format.open_indexed else { return };
    let (options, storage) = (options(SMALL), Memory::new("file", file));
    with_cx(&SMALL, |cx| match open_indexed(&storage, &index, &options, cx) {
        Ok(Some(table)) => check_table(&*table, &storage, cx),
        Ok(None) => {}
        Err(error) => panic!("a bad index is an error: {error}"),
    });
}

/// An index is a claim. Reading through it gives records or errors, and stays inside the file.
fn check_table(table: &dyn Table, storage: &dyn Storage, cx: &Cx<'_>) {
    for record in 0..table.records().min(64) {
        let Ok((chunk, row)) = table.locate(record) else { continue };
        assert!(chunk.stored.start <= chunk.stored.end && chunk.stored.end <= storage.len(), "{chunk:?}");
        assert!(row < chunk.records);
        let mut stored = vec![0; (chunk.stored.end - chunk.stored.start) as usize];
        let read = storage.read_at(chunk.stored.start, &mut stored, cx);
        match read.and_then(|()| table.decode(&chunk, &stored, cx)) {
            Ok(decoded) => assert_eq!(decoded.rows() as u64, chunk.records),
            Err(error) => assert!(!matches!(error.kind(), Kind::Memory), "{error}"),
        }
        let (way, size) = (table.way(record), table.size(record));
        assert_eq!(way.is_ok(), size.is_ok());
    }
    let description = table.describe();
    assert!(description.record_bytes <= storage.len());
}
