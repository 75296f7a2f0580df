//! Damaged, cut and unfinished files, and files with layouts that our writers do not choose.

use super::{Outcome, save, write};
use anyrecord::format::detect;
use anyrecord::format::options::WriteOptions;
use anyrecord_fuzz::input::Inverse;
use anyrecord_fuzz::repair;

/// Damaged files whose hashes are not made right.
pub fn wrong_hashes() -> Outcome {
    let records: Vec<_> = (0..20u8).map(|i| vec![i; 50]).collect();
    let options = WriteOptions::default().with_text("codec", "none").with_int("group_size", 3);
    let file = write(detect::by_name("array_record")?, &options, &records)?;
    for at in [0, 30, 70, 110, 300, 500, 1200, 66_000, 131_000] {
        let mut damaged = file.clone();
        damaged[at] ^= 0x10;
        let mut short = Inverse(vec![0]);
        repair::shorten(&damaged, &mut short);
        save("array_record", &format!("damaged-{at}"), &short.0)?;
        save("riegeli", &format!("damaged-{at}"), &[&[0], &damaged[..3000]].concat())?;
    }
    Ok(())
}

/// Small files with damage at every byte, cut at every byte, and unfinished.
pub fn salvage() -> Outcome {
    let records: Vec<Vec<u8>> = (1..5u8).map(|i| vec![i * 7; 5 + usize::from(i)]).collect();
    let new = WriteOptions::default;
    let cases = [
        ("ffrecord", new()),
        ("recordio", new().with_text("codec", "none").with_int("chunk_bytes", 20)),
        ("recordio", new().with_text("codec", "snappy").with_int("chunk_bytes", 20)),
        ("tfrecord", new()),
        ("tfrecord", new().with_text("codec", "gzip")),
        ("array_record", new().with_text("codec", "none")),
    ];
    for (i, (name, options)) in cases.iter().enumerate() {
        let number = detect::FORMATS.iter().position(|format| format.name == *name).unwrap_or_default();
        let mode = 2 * number as u8;
        let file = write(detect::by_name(name)?, options, &records)?;
        for at in (0..file.len().min(300)).step_by(if i == 0 { 1 } else { 3 }) {
            let mut damaged = file.clone();
            damaged[at] ^= 0x41;
            save("salvage", &format!("{i}-damaged-{at}"), &[&[mode], &damaged[..]].concat())?;
            save("salvage", &format!("{i}-cut-{at}"), &[&[mode], &file[..at]].concat())?;
        }
    }
    let file = write(detect::by_name("ffrecord")?, &new(), &records)?;
    let number = detect::FORMATS.iter().position(|format| format.name == "ffrecord").unwrap_or_default();
    let mode = 2 * number as u8;
    let edited = |name: &str, edit: &dyn Fn(&mut Vec<u8>)| {
        let mut edited = file.clone();
        edit(&mut edited);
        save("salvage", &format!("edited-{name}"), &[&[mode], &edited[..]].concat())
    };
    let entries = |n: usize| {
        // The entries of the first `n` samples, as a killed writer leaves them.
        move |file: &mut Vec<u8>| {
            file[..4].fill(0);
            file[12 + 4 * n..12 + 16].fill(0);
            file[28 + 8 * n..28 + 32].fill(0);
        }
    };
    for n in 0..=4 {
        edited(&format!("unfinished-{n}"), &entries(n))?;
        edited(&format!("unfinished-cut-{n}"), &|file| {
            entries(n)(file);
            file.truncate(file.len() - 9);
        })?;
        edited(&format!("unfinished-longer-{n}"), &|file| {
            entries(n)(file);
            file.extend([0; 30]);
        })?;
    }
    edited("count", &|file| file[4] = 3)?;
    edited("count-and-checksum", &|file| file[..5].fill(9))?;
    edited("two-offsets", &|file| file[28 + 8..28 + 24].fill(1))?;
    edited("two-checksums", &|file| file[12..20].fill(1))?;
    edited("two-checksums-apart", &|file| {
        file[12] ^= 1;
        file[20] ^= 1;
    })?;
    edited("checksum-and-sample", &|file| {
        file[12] ^= 1;
        file[62] ^= 1;
        file[80] ^= 1;
    })?;
    edited("all-offsets", &|file| file[28..60].fill(1))?;
    edited("last-offset", &|file| file[28 + 24..60].fill(1))?;
    // Samples that begin after a gap, and a damaged first one.
    let samples: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
    for at in [0, 12, 16, 28, 36, 80] {
        let mut moved = anyrecord_fuzz::build::ffrecord(&samples, 15);
        moved[at] ^= 0x41;
        save("salvage", &format!("moved-{at}"), &[&[mode], &moved[..]].concat())?;
    }
    Ok(())
}

/// Chunks of one record, of all sizes for which there is code.
pub fn layouts() -> Outcome {
    for size in [0usize, 1, 100, 300, 3000, 9000, 40_000] {
        for mode in [0, 1, 2, 3] {
            let mut chunk = Inverse(vec![mode]);
            let mut sizes = Inverse::default();
            sizes.varint(size as u64);
            chunk.varint(1).varint(size as u64).bytes(&[0]).slice(&sizes.0).bytes(&vec![7; size]);
            save("simple_chunk", &format!("lone-{size}-{mode}"), &chunk.0)?;
        }
    }
    // A Riegeli file with zeros after its last chunk, and an ArrayRecord file with zeros after its last block.
    let records: Vec<Vec<u8>> = (0..5u8).map(|i| vec![i; 30]).collect();
    let options = WriteOptions::default().with_text("codec", "none");
    let file = write(detect::by_name("array_record")?, &options, &records)?;
    for zeros in [8, 100, 4096] {
        let mut short = Inverse(vec![0]);
        repair::shorten(&[&file[..], &vec![0; zeros]].concat(), &mut short);
        save("array_record", &format!("zeros-{zeros}"), &short.0)?;
        save("riegeli", &format!("zeros-{zeros}"), &[&[0], &file[..400], &vec![0; zeros]].concat())?;
    }
    Ok(())
}
