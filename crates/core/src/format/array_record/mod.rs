//! ArrayRecord: Riegeli chunks of records, a footer that lists the chunks, and a postscript with the offset of the
//! footer.
//!
//! ```text
//! signature  data chunk ...  footer  padding | postscript  padding
//!                                            64 KiB before the end
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`footer`] | reads the postscript and the footer |
//! | [`encoder`] | writes files |
//! | [`settings`] | options of the writer |
//! | [`guide`] | guides a walk through the file by the footer |
//! | [`proto`] | the messages in the footer and the postscript |

pub mod encoder;
pub mod footer;
pub mod guide;
pub mod proto;
pub mod settings;

#[cfg(test)]
mod tests;

use super::riegeli::{self, chunk::kind};
use super::walk::{Depth, Span, Walk};
use super::{Format, Probe, ReadOptions, Salvage, SalvageTable, Table};
use crate::cx::Cx;
use crate::error::Result;
use crate::storage::Storage;
use encoder::ArrayRecordEncoder;
use footer::{Footer, FooterPlace};
use guide::{Along, FooterGuide, GuideWithoutFooter};
use settings::Settings;

/// The beginning of every Riegeli file: a block header and the signature chunk.
const SIGNATURE: [u8; 64] = [
    0x83, 0xaf, 0x70, 0xd1, 0x0d, 0x88, 0x4a, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0,
    0, //
    0x91, 0xba, 0xc2, 0x3c, 0x92, 0x87, 0xe1, 0xa9, 0, 0, 0, 0, 0, 0, 0, 0, 0xe1, 0x9f, 0x13, 0xc0, 0xe9,
    0xb1, 0xc3, 0x72, 0x73, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

/// The format of the `array_record` package.
pub const ARRAY_RECORD: Format = Format {
    name: "array_record",
    suffixes: &[".array_record", ".arrayrecord"],
    probe,
    has_table_at_end: true,
    open,
    open_indexed: None,
    walk,
    salvage: Salvage { walk, table: SalvageTable::Chunks },
    encoder: |options| Ok(Box::new(ArrayRecordEncoder::new(Settings::new(options)?))),
};

fn probe(storage: &dyn Storage, options: &ReadOptions, cx: &Cx<'_>) -> Result<Probe> {
    let mut head = [0; SIGNATURE.len()];
    if storage.len() >= head.len() as u64 {
        storage.read_at(0, &mut head, cx)?;
        if head == SIGNATURE {
            return Ok(Probe::Yes);
        }
    }
    // A file with a damaged beginning can still be read, because its end has the footer.
    match FooterPlace::find(storage, options, cx) {
        Ok(_) => Ok(Probe::Yes),
        Err(error) if error.is_from_outside() => Err(error),
        Err(_) => Ok(Probe::No),
    }
}

fn open(storage: &dyn Storage, options: &ReadOptions, cx: &Cx<'_>) -> Result<Box<dyn Table>> {
    let place = FooterPlace::find(storage, options, cx)?;
    Ok(Box::new(Footer::open(storage, place, options, cx)?.into_table(options, cx)?))
}

fn walk(walk: &Walk<'_>, visit: &mut dyn FnMut(Span<'_>) -> Result<()>) -> Result<()> {
    let size = walk.storage.len();
    let error = match open_guide(walk) {
        Ok(mut guide) => return riegeli::walk::walk(walk, &mut guide, visit),
        Err(error) => walk.damage(error)?,
    };
    let mut guide = GuideWithoutFooter::default();
    riegeli::walk::walk(walk, &mut guide, visit)?;
    // All chunks may be intact even though the end of the file is missing.
    if guide.any_damage { Ok(()) } else { visit(Span::Damage(size..size, error)) }
}

/// The footer, as a guide for a walk.
fn open_guide<'a>(walk: &Walk<'a>) -> Result<FooterGuide<'a>> {
    let Walk { storage, options, cx, .. } = *walk;
    let place = FooterPlace::find(storage, options, cx)?;
    let footer = || Footer::open(storage, place, options, cx);
    let along = match walk.depth {
        _ if walk.resumes => Along::Everything,
        Depth::Headers => Along::Footer,
        _ => Along::Chunks,
    };
    if walk.resumes {
        // The whole footer is checked before any of it is used.
        FooterGuide::new(footer()?, place, along, None)?.check_all(cx)?;
    }
    let footer = footer()?;
    let carried = match walk.carry_for() {
        Some(write) => carried_kind(&Settings::new(write)?, footer.metadata.options.as_deref()),
        None => None,
    };
    FooterGuide::new(footer, place, along, carried)
}

/// The kind of chunk that a writer with these settings can copy in its stored form. None if the file was written with
/// other settings. Padding between chunks may differ.
fn carried_kind(settings: &Settings, options: Option<&str>) -> Option<u8> {
    let wanted = if settings.transpose.is_some() { kind::TRANSPOSED } else { kind::SIMPLE };
    options.is_some_and(|text| settings.encode_like(text)).then_some(wanted)
}
