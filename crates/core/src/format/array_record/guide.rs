//! Guides a walk through the file by the footer, and checks the footer against the chunks.

use super::footer::{Footer, FooterPlace};
use super::proto::{FooterEntry, MAGIC, Metadata, Postscript};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::format::Decoded;
use crate::format::riegeli::Plain;
use crate::format::riegeli::chunk::Header;
use crate::format::riegeli::entries::{Entry, check_room};
use crate::format::riegeli::walk::{Guide, Next, Verdict};

/// The footer, read entry by entry while the walk visits the chunks.
pub struct FooterGuide<'a> {
    footer: Footer<'a>,
    place: FooterPlace,
    next: Option<Entry>,
    /// Number of the first record of the next chunk.
    record: u64,
    /// How much of the file the walk reads.
    along: Along,
    /// The kind of chunk that is copied to another file in its stored form.
    carried: Option<u8>,
    /// Whether damage explains why the walk does not find listed chunks.
    excused: bool,
    problem: Option<Error>,
}

/// How a walk uses the footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Along {
    /// The walk reads everything and compares it with the footer.
    Everything,
    /// The walk reads only the chunks that the footer lists.
    Chunks,
    /// The walk reads no chunk. It trusts the footer.
    Footer,
}

impl<'a> FooterGuide<'a> {
    /// A guide from a footer that was just opened.
    pub fn new(footer: Footer<'a>, place: FooterPlace, along: Along, carried: Option<u8>) -> Result<Self> {
        let (next, problem) = (None, None);
        let mut listed =
            FooterGuide { footer, place, next, record: 0, along, carried, excused: false, problem };
        listed.advance()?;
        Ok(listed)
    }

    /// Reads all entries. Each is checked, and their sum. No table is made, so a limit of tables says nothing here.
    pub fn check_all(mut self, cx: &Cx<'_>) -> Result<()> {
        let mut pace = cx.pace();
        while self.next.is_some() {
            self.advance()?;
            pace.step(64)?;
        }
        Ok(())
    }

    /// Moves to the next entry, and checks that it can follow the one before it.
    fn advance(&mut self) -> Result<()> {
        let last = self.next.take();
        let next = self.footer.next_entry()?;
        let wrong = |error: Error| self.place.inconsistent(error);
        if let Some(last) = last {
            let too_many = || wrong(Error::format("chunks hold too many records").found(last.offset));
            self.record = self.record.checked_add(last.records).ok_or_else(too_many)?;
        }
        let last = last.map(|last| (last.offset, last.records));
        match (next, last) {
            (Some(next), last) => next.check(last).map_err(wrong)?,
            (None, Some(last)) => check_room(last, self.place.footer).map_err(wrong)?,
            (None, None) => {}
        }
        if next.is_none() {
            self.footer.check_sum(self.record)?;
        }
        self.next = next;
        Ok(())
    }

    /// Skips the entries of chunks before `at`. The walk did not find these chunks.
    fn skip_to(&mut self, at: u64) -> Result<()> {
        while let Some(entry) = self.next.filter(|entry| entry.offset < at) {
            if !self.excused {
                self.problem.get_or_insert(not_there(entry));
            }
            self.advance()?;
        }
        Ok(())
    }

    fn check_data_chunk(&mut self, begin: u64, header: &Header) -> Result<Verdict> {
        self.skip_to(begin)?;
        self.excused = false;
        let first = self.record;
        let Some(entry) = self.next.filter(|entry| entry.offset == begin) else {
            return Err(Error::format("chunk is not in the footer").for_record(first));
        };
        self.advance()?;
        if entry.records != header.records || entry.decoded.is_some_and(|decoded| decoded != header.decoded) {
            return Err(Error::format("footer and chunk disagree")
                .at(begin)
                .for_record(first)
                .expected(format_args!("{} records of {} bytes", header.records, header.decoded))
                .found(format_args!("{} of {:?}", entry.records, entry.decoded)));
        }
        Ok(Verdict::Records(first))
    }
}

fn not_there(entry: Entry) -> Error {
    Error::format("footer lists a chunk that does not exist").found(entry.offset)
}

impl Guide for FooterGuide<'_> {
    fn next(&mut self, at: u64) -> Result<Next> {
        if self.along == Along::Everything {
            return Ok(Next::Look);
        }
        let Some(entry) = self.next else {
            let footer = self.place.footer;
            return Ok(if at < footer { Next::Pass(footer) } else { Next::End });
        };
        if at > entry.offset {
            return Err(not_there(entry).at(self.place.footer).for_record(self.record));
        }
        if at < entry.offset {
            return Ok(Next::Pass(entry.offset));
        }
        if self.along == Along::Chunks {
            return Ok(Next::Look);
        }
        let first = self.record;
        self.advance()?;
        let end = self.next.map_or(self.place.footer, |next| next.offset);
        Ok(Next::Trust(entry.offset..end, first, entry.records))
    }

    fn check_chunk(&mut self, begin: u64, header: &Header, decoded: Option<&Decoded>) -> Result<Verdict> {
        if begin == self.place.footer {
            self.skip_to(begin)?;
            return self.problem.take().map_or(Ok(Verdict::Meta), Err);
        }
        if let Some(decoded) = decoded.filter(|_| begin == self.place.postscript) {
            let first = decoded.row(0);
            let same = (0..decoded.rows() as u64).all(|row| decoded.row(row) == first);
            return if same {
                Ok(Verdict::Meta)
            } else {
                Err(Error::format("copies of the postscript differ"))
            };
        }
        self.check_data_chunk(begin, header)
    }

    fn damaged(&mut self, at: u64, _header: Option<&Header>) -> Result<Option<u64>> {
        self.excused = true;
        self.skip_to(at)?;
        Ok(self.next.filter(|entry| entry.offset == at).map(|_| self.record))
    }

    fn resume(&mut self, damage: u64) -> Result<Option<u64>> {
        self.skip_to(damage + 1)?;
        let known =
            [self.next.map(|entry| entry.offset), Some(self.place.footer), Some(self.place.postscript)];
        Ok(known.into_iter().flatten().find(|&offset| offset > damage))
    }

    fn may_end(&self, at: u64) -> bool {
        at > self.place.postscript
    }

    fn carried_kind(&self) -> Option<u8> {
        self.carried
    }
}

/// The guide for a file whose footer cannot be used. It recognises the footer and the postscript by their content.
#[derive(Default)]
pub struct GuideWithoutFooter {
    /// Whether anything was damaged.
    pub any_damage: bool,
    /// Chunks of records so far.
    chunks: u64,
    records: Plain,
}

impl Guide for GuideWithoutFooter {
    fn check_chunk(&mut self, begin: u64, header: &Header, decoded: Option<&Decoded>) -> Result<Verdict> {
        // Where bytes are missing before the footer, its offsets are too large.
        let limit = if self.any_damage { u64::MAX } else { begin };
        if decoded.is_some_and(|decoded| self.is_footer(limit, decoded) || is_postscript(limit, decoded)) {
            return Ok(Verdict::Meta);
        }
        self.chunks += 1;
        self.records.check_chunk(begin, header, decoded)
    }

    fn damaged(&mut self, at: u64, header: Option<&Header>) -> Result<Option<u64>> {
        self.any_damage = true;
        self.records.damaged(at, header)
    }

    fn resume(&mut self, damage: u64) -> Result<Option<u64>> {
        self.records.resume(damage)
    }
}

impl GuideWithoutFooter {
    /// Whether the records are a footer: metadata and entries in exactly the bytes that a writer produces, one entry
    /// per chunk before `limit`, in the order of the file. The check is strict because a user's records can be messages
    /// of a similar form. After damage, chunks may have been lost or found by mistake, so their number is not compared.
    fn is_footer(&self, limit: u64, decoded: &Decoded) -> bool {
        let first = decoded.row(0).unwrap_or(&[]);
        let Ok(Some(metadata)) = Metadata::read(first) else { return false };
        let (mut again, mut last) = (Vec::new(), 0);
        (metadata.chunks == self.chunks || self.any_damage)
            && metadata.chunks.checked_add(1) == Some(decoded.rows() as u64)
            && metadata.to_bytes() == first
            && (1..decoded.rows() as u64).filter_map(|row| decoded.row(row)).all(|record| {
                let Ok(entry) = FooterEntry::read(record) else { return false };
                again.clear();
                entry.put(&mut again);
                let offset = entry.offset.filter(|&offset| offset > last && offset < limit);
                last = offset.unwrap_or(limit);
                offset.is_some() && entry.records.is_some() && again == record
            })
    }
}

/// Whether all records are postscripts that name a footer before `limit`.
fn is_postscript(limit: u64, decoded: &Decoded) -> bool {
    (0..decoded.rows() as u64).all(|row| {
        let postscript = decoded.row(row).and_then(|record| Postscript::read(record).ok().flatten());
        postscript.is_some_and(|p| p.magic == MAGIC && p.footer_offset < limit)
    })
}
