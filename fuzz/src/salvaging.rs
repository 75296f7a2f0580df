//! Salvage of any bytes. It ends with a report, whatever the bytes are:
//!
//! - The skipped ranges are in order and in the file.
//! - `strict` saves no more than the others.
//! - From a file in which every record can be read, every record is saved.

use super::check::{SMALL, options, with_cx};
use super::input::Input;
use super::repair;
use anyrecord::convert::Shards;
use anyrecord::format::{Format, detect::FORMATS, walk};
use anyrecord::salvage::{Salvage, report::Report};
use anyrecord::storage::memory::Memory;

/// The first byte of an input chooses the format and whether hashes are made right. The rest is the file.
pub fn salvage(data: &[u8]) {
    let mut input = Input(data);
    let mode = input.byte();
    let format = FORMATS[usize::from(mode >> 1) % FORMATS.len()];
    let mut file = input.rest().to_vec();
    if mode & 1 != 0 {
        match format.name {
            "recordio" => repair::recordio(&mut file),
            "tfrecord" => repair::tfrecord(&mut file),
            "ffrecord" => repair::ffrecord(&mut file),
            _ => repair::riegeli(&mut file),
        }
    }
    let lenient = saved(Some(format), &file, false);
    let strict = saved(Some(format), &file, true);
    let (Ok(lenient), Ok(strict)) = (lenient, strict) else {
        panic!("the format is given, so there is a report")
    };
    assert_eq!(strict.found_by_search, 0);
    assert!(strict.records <= lenient.records);
    if let Some(count) = count(format, &file) {
        assert_eq!(lenient.records, count, "every record of a sound file is saved");
        assert_eq!(strict.records, count, "nothing of a sound file is found by search");
    }
    // Which format it is, is found out.
    let _ = saved(None, &file, false);
}

/// How many records a file has in which every record can be read.
fn count(format: &'static Format, file: &[u8]) -> Option<u64> {
    let (storage, mut count) = (Memory::new("file", file), 0);
    let options = options(SMALL);
    let scanned = with_cx(&SMALL, |cx| {
        walk::scan(format, &storage, &options, cx, &mut |_| {
            count += 1;
            Ok(())
        })
    });
    scanned.is_ok().then_some(count)
}

fn saved(format: Option<&'static Format>, file: &[u8], strict: bool) -> anyrecord::Result<Report> {
    let storage = Memory::new("file", file);
    let report = with_cx(&SMALL, |cx| {
        let mut salvage = Salvage {
            writer: None,
            shards: Shards::default(),
            strict,
            threads: 1,
            progress: &mut |_| Ok(()),
            saved: 0,
            before: 0,
        };
        let report = salvage.file(&storage, format.map(|format| format.name), &options(SMALL), cx)?;
        assert_eq!(salvage.saved, report.records);
        Ok(report)
    })?;
    let mut reached = 0;
    for range in &report.skipped {
        assert!(reached <= range.start && range.start <= range.end, "{range:?} follows {reached}");
        reached = range.end;
    }
    assert!(reached <= file.len() as u64 && report.lost_bytes <= file.len() as u64);
    assert!(report.found_by_search <= report.records);
    assert_eq!(report.skipped.len(), report.problems.len());
    Ok(report)
}
