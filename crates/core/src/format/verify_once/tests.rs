use super::VerifyOnce;
use crate::error::Kind;
use crate::format::options::WriteOptions;
use crate::format::{ReadOptions, detect, testing};
use crate::shard::Shard;
use crate::storage::Storage;
use crate::storage::file::Io;
use crate::storage::location::Location;
use crate::storage::memory::Memory;
use crate::{Reader, cx};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const COUNT: u64 = 200;

/// The records, which are long enough not to be compressed into each other.
fn records() -> Vec<Vec<u8>> {
    (0..COUNT).map(|i| format!("record {i:04} ").repeat(9).into_bytes()).collect()
}

fn open(path: &Path, once: bool, io: Io) -> Reader {
    cx::with_default(|cx| {
        let options = ReadOptions { once, io, ..ReadOptions::default() };
        let location = Location::path(path.to_owned());
        let shard = Shard::open(location, Default::default(), None, options, cx).unwrap();
        // Without a cache of decoded chunks, every read takes the bytes of the file.
        Reader::new(vec![Arc::new(shard)], 0, Some(1)).unwrap()
    })
}

/// Changes one byte of a record in the file.
fn flip(path: &Path, record: &[u8]) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes.windows(record.len()).position(|window| window == record).unwrap();
    bytes[at + 8] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// Makes the system show that the file changed, also if its clock has not moved on.
fn show_change(path: &Path) {
    let later = SystemTime::now() + Duration::from_secs(9);
    std::fs::File::options().write(true).open(path).unwrap().set_modified(later).unwrap();
}

fn written(format: &str, codec: Option<&str>, records: &[Vec<u8>]) -> Vec<u8> {
    let options =
        codec.map_or_else(WriteOptions::default, |codec| WriteOptions::default().with_text("codec", codec));
    testing::write(detect::by_name(format).unwrap(), &options, records)
}

#[test]
fn a_record_is_verified_at_its_first_read_only() {
    let records = records();
    let bytes: Arc<dyn Storage> = Arc::new(Memory::new("test", written("ffrecord", None, &records)));
    cx::with_default(|cx| {
        let open = detect::by_name("ffrecord").unwrap().open;
        let table =
            VerifyOnce::of(open(&*bytes, &ReadOptions::default(), cx).unwrap(), bytes.clone()).unwrap();
        assert!(table.check(3, None, b"wrong").is_err());
        assert!(table.check(3, None, b"wrong").is_err());
        assert!(table.check(3, None, &records[3]).is_ok());
        assert!(table.check(3, None, b"wrong").is_ok());
        assert!(table.check(4, None, b"wrong").is_err());
        assert!(table.check(COUNT - 1, None, b"wrong").is_err());
    });
}

#[test]
fn a_change_that_the_system_shows_is_found_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    for format in ["ffrecord", "array_record", "recordio", "tfrecord"] {
        for io in [Io::Auto, Io::Plain] {
            let records = records();
            let path = folder.path().join(format);
            let codec = matches!(format, "array_record" | "recordio").then_some("none");
            std::fs::write(&path, written(format, codec, &records)).unwrap();
            let reader = open(&path, true, io);
            for _ in 0..2 {
                for i in 0..COUNT {
                    assert_eq!(reader.read(i).unwrap(), records[i as usize], "{format}");
                }
            }
            flip(&path, &records[7]);
            show_change(&path);
            // The reader looks at the times of the file once in a while. At most one pass goes by before it does.
            for i in 0..COUNT {
                let _ = reader.read(i);
            }
            let error = reader.read(7).unwrap_err();
            assert!(matches!(error.kind(), Kind::Checksum), "{format}: {error}");
        }
    }
}

#[test]
fn a_changed_chunk_of_several_records_is_found_at_once_because_what_is_decoded_may_be_cached() {
    let folder = tempfile::tempdir().unwrap();
    let (records, path) = (records(), folder.path().join("grouped"));
    let options = WriteOptions::default().with_text("codec", "none").with_int("group_size", 50);
    std::fs::write(&path, testing::write(detect::by_name("array_record").unwrap(), &options, &records))
        .unwrap();
    let reader = open(&path, true, Io::Auto);
    for _ in 0..2 {
        assert_eq!(reader.read(7).unwrap(), records[7]);
    }
    flip(&path, &records[7]);
    show_change(&path);
    let error = reader.read(8).unwrap_err();
    assert!(matches!(error.kind(), Kind::Checksum), "{error}");
}
