//! What the footer tells a walk through the file, and whether it tells the truth.

use super::footer::{Footer, Place};
use super::proto::{FooterEntry, MAGIC, Metadata, Postscript};
use crate::error::{Error, Result};
use crate::format::Decoded;
use crate::format::riegeli::chunk::ChunkView;
use crate::format::riegeli::table::Entry;
use crate::format::riegeli::walk::{Guide, Verdict};

/// The footer, read along with the chunks that it lists.
pub struct Listed<'a> {
    footer: Footer<'a>,
    place: Place,
    next: Option<Entry>,
    /// How many records the chunks before `next` hold.
    passed: u64,
    /// Whether chunks may be missing because there was damage where they should be.
    excused: bool,
    problem: Option<Error>,
}

impl<'a> Listed<'a> {
    /// Along a footer that was just opened.
    pub fn new(mut footer: Footer<'a>, place: Place) -> Result<Self> {
        let next = footer.next_entry()?;
        Ok(Listed { footer, place, next, passed: 0, excused: false, problem: None })
    }

    /// Goes on to the next entry.
    fn pass(&mut self, entry: &Entry) -> Result<()> {
        self.passed = self.passed.saturating_add(entry.records);
        self.next = self.footer.next_entry()?;
        Ok(())
    }

    /// Passes over entries of chunks before `at`, which were not found.
    fn skip_to(&mut self, at: u64) -> Result<()> {
        while let Some(entry) = self.next.filter(|entry| entry.offset < at) {
            if !self.excused {
                let missing = Error::format("footer lists a chunk that is not there").found(entry.offset);
                self.problem.get_or_insert(missing);
            }
            self.pass(&entry)?;
        }
        Ok(())
    }

    fn judge_data(&mut self, chunk: &ChunkView<'_>) -> Result<Verdict> {
        let begin = chunk.range.start;
        self.skip_to(begin)?;
        self.excused = false;
        let Some(entry) = self.next.filter(|entry| entry.offset == begin) else {
            return Err(Error::format("chunk is not in the footer"));
        };
        self.pass(&entry)?;
        let header = &chunk.header;
        if entry.records != header.records || entry.decoded.is_some_and(|decoded| decoded != header.decoded) {
            return Err(Error::format("footer and chunk disagree")
                .expected(format_args!("{} records of {} bytes", header.records, header.decoded))
                .found(format_args!("{} of {:?}", entry.records, entry.decoded)));
        }
        Ok(Verdict::Records)
    }
}

impl Guide for Listed<'_> {
    fn judge(&mut self, chunk: &ChunkView<'_>, decoded: &Decoded) -> Result<Verdict> {
        let begin = chunk.range.start;
        if chunk.header.records == 0 {
            return Ok(Verdict::Meta);
        }
        if begin == self.place.footer {
            self.skip_to(begin)?;
            return self.problem.take().map_or(Ok(Verdict::Meta), Err);
        }
        if begin == self.place.postscript {
            let first = decoded.row(0);
            let same = (0..decoded.rows() as u64).all(|row| decoded.row(row) == first);
            return if same {
                Ok(Verdict::Meta)
            } else {
                Err(Error::format("copies of the postscript differ"))
            };
        }
        self.judge_data(chunk)
    }

    fn resume(&mut self, damage: u64) -> Result<Option<u64>> {
        self.excused = true;
        self.skip_to(damage + 1)?;
        let known =
            [self.next.map(|entry| entry.offset), Some(self.place.footer), Some(self.place.postscript)];
        Ok(known.into_iter().flatten().find(|&offset| offset > damage))
    }

    fn record_at(&mut self, at: u64) -> Result<Option<u64>> {
        self.skip_to(at)?;
        Ok(Some(self.passed))
    }

    fn may_end(&self, at: u64) -> bool {
        at > self.place.postscript
    }

    fn damaged(&mut self) {
        self.excused = true;
    }
}

/// A file whose footer cannot be used; it is recognised by its looks where it is met.
#[derive(Default)]
pub struct Unlisted {
    /// Whether anything was damaged.
    pub any_damage: bool,
    /// Chunks of records so far.
    chunks: u64,
}

impl Guide for Unlisted {
    fn judge(&mut self, chunk: &ChunkView<'_>, decoded: &Decoded) -> Result<Verdict> {
        if self.is_footer(decoded) || is_postscript(chunk, decoded) {
            return Ok(Verdict::Meta);
        }
        self.chunks += 1;
        Ok(Verdict::Records)
    }

    fn resume(&mut self, _damage: u64) -> Result<Option<u64>> {
        Ok(None)
    }

    fn may_end(&self, _at: u64) -> bool {
        false
    }

    fn damaged(&mut self) {
        self.any_damage = true;
    }
}

impl Unlisted {
    /// Metadata and entries in exactly the bytes that a writer makes of them, as many as there are chunks.
    /// Records of the user that are messages of much the same form must not be taken for a footer.
    fn is_footer(&self, decoded: &Decoded) -> bool {
        let first = decoded.row(0).unwrap_or(&[]);
        let Ok(Some(metadata)) = Metadata::read(first) else { return false };
        let as_many = metadata.chunks == self.chunks || (self.any_damage && metadata.chunks > self.chunks);
        let mut again = Vec::new();
        as_many
            && metadata.chunks.checked_add(1) == Some(decoded.rows() as u64)
            && metadata.to_bytes() == first
            && (1..decoded.rows() as u64).filter_map(|row| decoded.row(row)).all(|record| {
                let Ok(entry) = FooterEntry::read(record) else { return false };
                again.clear();
                entry.put(&mut again);
                entry.offset.is_some() && entry.records.is_some() && again == record
            })
    }
}

/// Copies of one postscript that names a footer before it.
fn is_postscript(chunk: &ChunkView<'_>, decoded: &Decoded) -> bool {
    (0..decoded.rows() as u64).all(|row| {
        let postscript = decoded.row(row).and_then(|record| Postscript::read(record).ok().flatten());
        postscript.is_some_and(|p| p.magic == MAGIC && p.footer_offset < chunk.range.start)
    })
}
