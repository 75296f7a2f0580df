//! Finding and reading the footer: the list of chunks at the end of the file.

use super::proto::{FooterEntry, MAGIC, Metadata, Postscript, VERSION};
use super::settings::codec_in;
use crate::cx::Cx;
use crate::error::{Error, Kind, Result};
use crate::format::riegeli::block::{BLOCK, is_boundary};
use crate::format::riegeli::chunk::{CHUNK_HEADER, HEADER_SPAN, StoredChunk, kind};
use crate::format::riegeli::entries::Entry;
use crate::format::riegeli::stream::{ChunkData, SimpleStream};
use crate::format::riegeli::table::{Builder, ChunkTable};
use crate::format::{Decoded, Description, ReadOptions};
use crate::storage::Storage;

const CUT: &str = "the file was probably truncated, or its writer never closed it";

/// Footers up to this size are decoded at once. Larger ones are decoded record by record.
#[cfg(not(test))]
const SMALL: u64 = 1 << 20;
#[cfg(test)]
const SMALL: u64 = 1 << 12;

/// The most bytes that a postscript may decode to. Writers store three copies of about 20 bytes.
const POSTSCRIPT_BYTES: u64 = 64 << 10;

/// Where the footer is, according to the postscript.
#[derive(Clone, Copy, Debug)]
pub struct FooterPlace {
    /// Where the footer chunk begins.
    pub footer: u64,
    /// Where the postscript chunk begins. The footer chunk must end by here.
    pub postscript: u64,
}

impl FooterPlace {
    /// Reads the postscript in the last block of the file.
    pub fn find(storage: &dyn Storage, options: &ReadOptions, cx: &Cx<'_>) -> Result<Self> {
        let size = storage.len();
        let Some(at) = size.checked_sub(BLOCK) else {
            return Err(Error::truncated("ArrayRecord postscript is missing: the file is too short")
                .at(size)
                .expected(format_args!("at least {BLOCK} bytes"))
                .found(format_args!("{size} bytes"))
                .hint(CUT));
        };
        let postscript = first_postscript(storage, at, options, cx).map_err(|e| {
            // Every writer ends a file on a block boundary. A file that ends elsewhere has lost its end.
            let cut = !size.is_multiple_of(BLOCK) || !matches!(e.kind(), Kind::Checksum);
            damaged("postscript", e, if cut { Kind::Truncated } else { Kind::Checksum }, at, size)
        })?;
        if postscript.magic != MAGIC {
            return Err(Error::format("ArrayRecord postscript has a wrong magic number")
                .at(at)
                .expected(format_args!("{MAGIC:#x}"))
                .found(format_args!("{:#x}", postscript.magic)));
        }
        let footer = postscript.footer_offset;
        if !(HEADER_SPAN..at).contains(&footer) || !is_boundary(footer) {
            return Err(Error::format("ArrayRecord postscript has an invalid footer offset")
                .at(at)
                .expected(format_args!("an offset from {HEADER_SPAN} to {at}"))
                .found(footer));
        }
        Ok(FooterPlace { footer, postscript: at })
    }

    /// The error for entries that contradict each other or the file.
    pub fn inconsistent(self, error: Error) -> Error {
        if error.is_from_outside() || matches!(error.kind(), Kind::Limit) {
            return error;
        }
        error.seen_as(Kind::Format, "ArrayRecord footer is inconsistent").at(self.footer)
    }
}

fn first_postscript(
    storage: &dyn Storage,
    at: u64,
    options: &ReadOptions,
    cx: &Cx<'_>,
) -> Result<Postscript> {
    let chunk = StoredChunk::fetch(storage, at, storage.len(), options.checksums, cx)?;
    let chunk = chunk.view()?;
    let none =
        || Error::format("the last block holds no postscript").at(at).expected("3 records").found("none");
    let header = &chunk.header;
    if header.records == 0 {
        return Err(none());
    }
    // Format detection calls this for files of any kind. Do not decompress much data only to find no postscript.
    if header.decoded > POSTSCRIPT_BYTES {
        return Err(Error::format("the last block holds records, but no postscript")
            .at(at)
            .expected(format_args!("at most {POSTSCRIPT_BYTES} bytes"))
            .found(header.decoded));
    }
    let decoded = chunk.decode(cx)?;
    let first = decoded.row(0).ok_or_else(none)?;
    let postscript = Postscript::read(first)?;
    postscript.ok_or_else(|| {
        Error::format("the last block holds records, but no postscript")
            .at(at)
            .expected("an offset and a magic number")
            .found("neither")
    })
}

/// Adds to an error which part of the file is bad, and the size of the file. Keeps what the error says.
fn damaged(part: &str, error: Error, kind: Kind, at: u64, size: u64) -> Error {
    // Errors about the machine or the limits do not describe the file.
    if error.is_from_outside() || matches!(error.kind(), Kind::Limit) {
        return error;
    }
    let what = format!("ArrayRecord {part} is missing or damaged in a file of {size} bytes");
    error.seen_as(kind, what).at(at).hint(CUT)
}

/// The footer's records, whole or one at a time.
enum FooterRecords<'a> {
    Whole(Decoded, u64),
    Stream(Box<SimpleStream<'a>>),
}

impl FooterRecords<'_> {
    #[inline]
    fn next_record(&mut self) -> Result<Option<&[u8]>> {
        match self {
            FooterRecords::Whole(decoded, row) => {
                *row += 1;
                Ok(decoded.row(*row - 1))
            }
            FooterRecords::Stream(stream) => stream.next_record(),
        }
    }
}

/// An open footer. Its metadata is read, its entries are not.
pub struct Footer<'a> {
    /// The first record of the footer.
    pub metadata: Metadata,
    place: FooterPlace,
    records: FooterRecords<'a>,
    read: u64,
}

impl<'a> Footer<'a> {
    /// Verifies the footer chunk and reads its first record.
    pub fn open(
        storage: &'a dyn Storage,
        place: FooterPlace,
        options: &ReadOptions,
        cx: &'a Cx<'a>,
    ) -> Result<Self> {
        Self::open_chunk(storage, place, options, cx).map_err(|e| match e.kind() {
            Kind::Checksum => damaged("footer", e, Kind::Checksum, place.footer, storage.len()),
            Kind::Truncated => damaged("footer", e, Kind::Truncated, place.footer, storage.len()),
            // The bytes are as the writer wrote them, so a cut is not the cause.
            Kind::Format => e.seen_as(Kind::Format, "ArrayRecord footer cannot be used").at(place.footer),
            _ => e,
        })
    }

    fn open_chunk(
        storage: &'a dyn Storage,
        place: FooterPlace,
        options: &ReadOptions,
        cx: &'a Cx<'a>,
    ) -> Result<Self> {
        let data = ChunkData::find(storage, place.footer, place.postscript, options.checksums, cx)?;
        let small = data.header.data_size <= SMALL && data.header.decoded <= SMALL;
        let stream = if data.header.kind == kind::SIMPLE && !small {
            data.verify()?;
            SimpleStream::open(data)?
        } else {
            None
        };
        let mut records = match stream {
            Some(stream) => FooterRecords::Stream(Box::new(stream)),
            None => {
                let chunk =
                    StoredChunk::fetch(storage, place.footer, place.postscript, options.checksums, cx)?;
                FooterRecords::Whole(chunk.view()?.decode(cx)?, 0)
            }
        };
        let metadata = records.next_record()?.map(Metadata::read).transpose()?.flatten();
        let metadata = metadata.ok_or_else(|| {
            Error::format("it has no metadata").expected("metadata in its first record").found("none")
        })?;
        let wrong = |what: &'static str, expected: u64, found: u64| {
            Err(Error::format(what).at(place.footer).expected(expected).found(found))
        };
        if metadata.version != VERSION {
            return wrong("unknown version of ArrayRecord", VERSION, metadata.version);
        }
        let entries = data.header.records.saturating_sub(1);
        if metadata.chunks != entries {
            return wrong(
                "the number of chunks differs from the number of entries",
                entries,
                metadata.chunks,
            );
        }
        // Every chunk has a header.
        let most = place.footer / CHUNK_HEADER;
        if metadata.chunks > most {
            return wrong("there are more chunks than the file could hold", most, metadata.chunks);
        }
        Ok(Footer { metadata, place, records, read: 0 })
    }

    /// The next entry. `None` after the last one.
    #[inline]
    pub fn next_entry(&mut self) -> Result<Option<Entry>> {
        let index = self.read;
        self.read += 1;
        let place = self.place;
        let wrong = |what: String| {
            Error::format(format!("ArrayRecord footer entry {index}: {what}")).at(place.footer)
        };
        let seen = |e: Error| {
            if e.is_from_outside() || matches!(e.kind(), Kind::Limit) {
                return e;
            }
            e.seen_as(Kind::Format, format_args!("ArrayRecord footer entry {index}")).at(place.footer)
        };
        let Some(record) = self.records.next_record().map_err(seen)? else { return Ok(None) };
        let entry = FooterEntry::read(record).map_err(seen)?;
        let offset = entry.offset.ok_or_else(|| wrong("the chunk offset is missing".to_owned()))?;
        let records = entry.records.ok_or_else(|| wrong("the number of records is missing".to_owned()))?;
        if !(HEADER_SPAN..place.footer).contains(&offset) {
            return Err(wrong(format!("offset {offset} is not between {HEADER_SPAN} and {}", place.footer)));
        }
        Ok(Some(Entry { offset, records, decoded: entry.decoded }))
    }

    /// Checks that the entries add up to the number of records in the metadata.
    pub fn check_sum(&self, listed: u64) -> Result<()> {
        let claimed = self.metadata.records;
        if listed == claimed {
            return Ok(());
        }
        Err(Error::format(
            "ArrayRecord footer is inconsistent: the record counts of the chunks do not add up to the total",
        )
        .at(self.place.footer)
        .expected(format_args!("{claimed} records"))
        .found(listed))
    }

    /// Reads all entries into a table.
    pub fn into_table(mut self, options: &ReadOptions, cx: &Cx<'_>) -> Result<ChunkTable> {
        let place = self.place;
        let mut builder = Builder::new(options, cx).expecting(self.metadata.chunks);
        let mut pace = cx.pace();
        while let Some(entry) = self.next_entry()? {
            builder.push(entry).map_err(|e| place.inconsistent(e))?;
            pace.step(64)?;
        }
        self.check_sum(builder.records())?;
        let codec = self.metadata.options.as_deref().and_then(codec_in);
        let description = Description {
            codec: codec.map(|codec| codec.name().to_owned()),
            options: self.metadata.options,
            ..Description::default()
        };
        builder.finish(place.footer, description).map_err(|e| place.inconsistent(e))
    }
}
