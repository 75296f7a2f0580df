//! ArrayRecord: Riegeli chunks of records, a footer that lists them, and a postscript that finds it.
//!
//! ```text
//! signature  data chunk ...  footer  padding | postscript  padding
//!                                            64 KiB before the end
//! ```
//!
//! | file | what |
//! |---|---|
//! | [`footer`] | postscript and footer, read |
//! | [`encoder`] | files, written |
//! | [`settings`] | options of the writer |
//! | [`scan`] | all chunks in order, without a table |
//! | [`guide`] | what the footer tells a walk through the file |
//! | [`proto`] | the messages in footer and postscript |

pub mod encoder;
pub mod footer;
pub mod guide;
pub mod proto;
pub mod scan;
pub mod settings;

#[cfg(test)]
mod tests;

use super::options::WriteOptions;
use super::riegeli::walk::walk;
use super::{Carried, Encoder, Format, Probe, ReadOptions, Span, Table};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::storage::Storage;
use encoder::ArrayRecordEncoder;
use footer::{Footer, Place};
use guide::{Listed, Unlisted};
use settings::Settings;

/// How every Riegeli file begins: a block header and the signature chunk.
const SIGNATURE: [u8; 64] = [
    0x83, 0xaf, 0x70, 0xd1, 0x0d, 0x88, 0x4a, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0,
    0, //
    0x91, 0xba, 0xc2, 0x3c, 0x92, 0x87, 0xe1, 0xa9, 0, 0, 0, 0, 0, 0, 0, 0, 0xe1, 0x9f, 0x13, 0xc0, 0xe9,
    0xb1, 0xc3, 0x72, 0x73, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

/// Files of the `array_record` package.
pub struct ArrayRecord;

impl Format for ArrayRecord {
    fn name(&self) -> &'static str {
        "array_record"
    }

    fn suffixes(&self) -> &'static [&'static str] {
        &[".array_record", ".arrayrecord"]
    }

    fn probe(&self, storage: &dyn Storage, options: &ReadOptions, cx: &Cx<'_>) -> Result<Probe> {
        let mut head = [0; SIGNATURE.len()];
        if storage.len() >= head.len() as u64 {
            storage.read_at(0, &mut head, cx)?;
            if head == SIGNATURE {
                return Ok(Probe::Yes);
            }
        }
        // A damaged beginning does not keep a file from being read.
        match Place::find(storage, options, cx) {
            Ok(_) => Ok(Probe::Yes),
            Err(error) if is_io(&error) => Err(error),
            Err(_) => Ok(Probe::No),
        }
    }

    fn open(&self, storage: &dyn Storage, options: &ReadOptions, cx: &Cx<'_>) -> Result<Box<dyn Table>> {
        let place = Place::find(storage, options, cx)?;
        Ok(Box::new(Footer::open(storage, place, options, cx)?.into_table(options, cx)?))
    }

    fn scan(
        &self,
        storage: &dyn Storage,
        options: &ReadOptions,
        cx: &Cx<'_>,
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        scan::scan(storage, options, cx, visit)
    }

    fn scan_chunks(
        &self,
        storage: &dyn Storage,
        options: &ReadOptions,
        write: &WriteOptions,
        cx: &Cx<'_>,
        visit: &mut dyn FnMut(Carried<'_>) -> Result<()>,
    ) -> Result<bool> {
        scan::scan_chunks(storage, options, &Settings::new(write)?, cx, visit)
    }

    fn count(&self, storage: &dyn Storage, options: &ReadOptions, cx: &Cx<'_>) -> Result<u64> {
        let place = Place::find(storage, options, cx)?;
        Footer::open(storage, place, options, cx)?.count(cx)
    }

    fn walk(
        &self,
        storage: &dyn Storage,
        options: &ReadOptions,
        cx: &Cx<'_>,
        visit: &mut dyn FnMut(Span) -> Result<()>,
    ) -> Result<()> {
        let opened = Place::find(storage, options, cx).and_then(|place| {
            // The whole footer is checked before any of it is believed.
            Footer::open(storage, place, options, cx)?.into_table(options, cx)?;
            Listed::new(Footer::open(storage, place, options, cx)?, place)
        });
        match opened {
            Ok(mut guide) => walk(storage, options, &mut guide, cx, visit),
            Err(error) if is_io(&error) => Err(error),
            Err(error) => {
                let mut guide = Unlisted::default();
                walk(storage, options, &mut guide, cx, visit)?;
                // All chunks may be sound and the file still lack its end.
                if guide.any_damage {
                    Ok(())
                } else {
                    visit(Span::Damage(storage.len()..storage.len(), error))
                }
            }
        }
    }

    fn encoder(&self, options: &WriteOptions) -> Result<Box<dyn Encoder>> {
        Ok(Box::new(ArrayRecordEncoder::new(Settings::new(options)?)))
    }
}

fn is_io(error: &Error) -> bool {
    error.is_from_outside()
}
