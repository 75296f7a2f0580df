//! One error type for everything that can go wrong. It includes the place of the error.
//!
//! An [`Error`] says what is wrong, in which file, at which byte, for which record, what was
//! expected and what was found, and ends with what to try. Layers add what they know on the way
//! up: a format knows the offset, the reader knows the file and the record's number.

use std::borrow::Cow;
use std::fmt;

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

const ELSEWHERE: &str = "the bytes are on a server";
const CANCELLED: &str = "stopped because another part of the call failed";

/// The kind of an error. It decides the exception class in Python.
#[derive(Debug)]
#[non_exhaustive]
pub enum Kind {
    /// Not this format, or an invalid structure.
    Format,
    /// The file ends before it should.
    Truncated,
    /// A stored hash does not match the bytes.
    Checksum,
    /// A declared size is over a limit.
    Limit,
    /// There is not enough memory.
    Memory,
    /// Used after it was closed.
    Closed,
    /// A set of files is being published, or publishing it was interrupted.
    Publish,
    /// An argument of the caller is wrong.
    Argument,
    /// A record number outside the file.
    Index,
    /// The operating system returned an error.
    Io(std::io::Error),
    /// A storage outside this crate failed. Its own error is kept unchanged.
    External(Box<dyn std::error::Error + Send + Sync>),
}

/// What went wrong, and where. Boxed, so that a `Result` stays one word wide.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: Kind,
    what: Cow<'static, str>,
    file: Option<String>,
    offset: Option<u64>,
    record: Option<u64>,
    expected: Option<String>,
    found: Option<String>,
    hint: Option<Cow<'static, str>>,
    is_change: bool,
}

/// The errors of a disk that cannot read some of its blocks: EIO, and on Windows ERROR_CRC and ERROR_IO_DEVICE.
const DISK_ERRORS: &[i32] = if cfg!(windows) { &[23, 1117] } else { &[5] };

fn is_of_disk(error: &std::io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| DISK_ERRORS.contains(&code))
}

/// The system's error that an error of another storage stands for, if it says so as its source.
fn io_source<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a std::io::Error> {
    error.source()?.downcast_ref()
}

impl Error {
    /// A new error of the given kind.
    pub fn new(kind: Kind, what: impl Into<Cow<'static, str>>) -> Self {
        Error(Box::new(Inner {
            kind,
            what: what.into(),
            file: None,
            offset: None,
            record: None,
            expected: None,
            found: None,
            hint: None,
            is_change: false,
        }))
    }

    /// Not this format, or an invalid structure.
    pub fn format(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Format, what)
    }

    /// The file ends before it should.
    pub fn truncated(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Truncated, what)
    }

    /// A stored hash does not match the bytes.
    pub fn checksum(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Checksum, what)
    }

    /// A declared size is over a limit.
    pub fn limit(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Limit, what)
    }

    /// The bytes would have to be fetched, and the caller does not want to wait.
    #[cold]
    pub fn elsewhere() -> Self {
        Self::new(Kind::Closed, ELSEWHERE)
    }

    /// Whether this is [`elsewhere`](Self::elsewhere).
    pub fn is_elsewhere(&self) -> bool {
        matches!(self.0.kind, Kind::Closed) && self.0.what == ELSEWHERE
    }

    /// An argument of the caller is wrong.
    pub fn argument(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Argument, what)
    }

    /// Used after it was closed.
    pub fn closed(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Closed, what)
    }

    /// A set of files is being published, or publishing it was interrupted.
    pub fn publish(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Publish, what)
    }

    /// For a thread that stops because another part of the same call has failed.
    pub fn cancellation() -> Self {
        Self::closed(CANCELLED)
    }

    /// Whether this error only reports that another part of the same call has failed.
    pub fn is_cancellation(&self) -> bool {
        matches!(self.0.kind, Kind::Closed) && self.0.what == CANCELLED
    }

    /// The operating system returned an error.
    pub fn io(what: impl Into<Cow<'static, str>>, error: std::io::Error) -> Self {
        Self::new(Kind::Io(error), what)
    }

    /// Wraps the error for an outer layer: replaces the kind, puts `what` in front of the message, and keeps the rest.
    #[must_use]
    pub fn seen_as(mut self, kind: Kind, what: impl fmt::Display) -> Self {
        self.0.kind = kind;
        self.0.what = format!("{what}: {}", self.0.what).into();
        self
    }

    /// Names the file, unless a deeper layer already did.
    #[must_use]
    pub fn in_file(mut self, file: &str) -> Self {
        self.0.file.get_or_insert_with(|| file.to_owned());
        self
    }

    /// Names the byte offset, unless a deeper layer already did.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }

    /// Moves the byte offset, for a layer that knows where the bytes of a deeper one begin in the file.
    #[must_use]
    pub fn moved_by(mut self, base: u64) -> Self {
        self.0.offset = self.0.offset.map(|offset| offset.saturating_add(base));
        self
    }

    /// Moves a byte offset that is missing or outside a range to the beginning of the range.
    #[must_use]
    pub fn moved_into(mut self, range: &std::ops::Range<u64>) -> Self {
        let is_inside = self.0.offset.is_some_and(|offset| (range.start..=range.end).contains(&offset));
        self.0.offset = if is_inside { self.0.offset } else { Some(range.start) };
        self
    }

    /// Names the record. The outermost layer wins: it knows the number the caller used.
    #[must_use]
    pub fn for_record(mut self, record: u64) -> Self {
        self.0.record = Some(record);
        self
    }

    /// What should have been there.
    #[must_use]
    pub fn expected(mut self, expected: impl fmt::Display) -> Self {
        self.0.expected = Some(expected.to_string());
        self
    }

    /// What was there.
    #[must_use]
    pub fn found(mut self, found: impl fmt::Display) -> Self {
        self.0.found = Some(found.to_string());
        self
    }

    /// Adds a note in brackets to what is wrong.
    #[must_use]
    pub fn noting(mut self, note: impl fmt::Display) -> Self {
        self.0.what = format!("{} ({note})", self.0.what).into();
        self
    }

    /// What to try next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// The kind of the error.
    pub fn kind(&self) -> &Kind {
        &self.0.kind
    }

    /// Whether the read failed, memory ran out, the caller stopped the call, or the file changed while it was open. Such
    /// an error says nothing about the bytes of the file.
    pub fn is_from_outside(&self) -> bool {
        self.0.is_change
            || matches!(self.0.kind, Kind::Io(_) | Kind::External(_) | Kind::Memory | Kind::Closed)
    }

    /// Says that the file changed while it was open. Such an error is never taken for damage.
    #[must_use]
    pub fn as_change(mut self) -> Self {
        self.0.is_change = true;
        self
    }

    /// Whether bytes of the file are wrong, or the disk cannot read them. Other records may still be readable.
    pub fn is_damage(&self) -> bool {
        match &self.0.kind {
            _ if self.0.is_change => false,
            Kind::Format | Kind::Truncated | Kind::Checksum | Kind::Limit => true,
            Kind::Io(error) => is_of_disk(error),
            Kind::External(error) => io_source(&**error).is_some_and(is_of_disk),
            _ => false,
        }
    }

    /// The same damage as an error of another record. Of an error of another storage, only the system's error is kept.
    #[must_use]
    pub fn copy_for_record(&self, record: u64) -> Self {
        let copy = |error: &std::io::Error| match error.raw_os_error() {
            Some(code) => std::io::Error::from_raw_os_error(code),
            None => std::io::Error::new(error.kind(), error.to_string()),
        };
        let (kind, what) = match &self.0.kind {
            Kind::Format => (Kind::Format, self.0.what.clone()),
            Kind::Truncated => (Kind::Truncated, self.0.what.clone()),
            Kind::Checksum => (Kind::Checksum, self.0.what.clone()),
            Kind::Limit => (Kind::Limit, self.0.what.clone()),
            Kind::Memory => (Kind::Memory, self.0.what.clone()),
            Kind::Closed => (Kind::Closed, self.0.what.clone()),
            Kind::Publish => (Kind::Publish, self.0.what.clone()),
            Kind::Argument => (Kind::Argument, self.0.what.clone()),
            Kind::Index => (Kind::Index, self.0.what.clone()),
            Kind::Io(error) => (Kind::Io(copy(error)), self.0.what.clone()),
            Kind::External(error) => match io_source(&**error) {
                Some(error) => (Kind::Io(copy(error)), "reading failed".into()),
                None => (Kind::Io(std::io::Error::other(error.to_string())), self.0.what.clone()),
            },
        };
        Error(Box::new(Inner {
            kind,
            what,
            file: self.0.file.clone(),
            offset: self.0.offset,
            record: Some(record),
            expected: self.0.expected.clone(),
            found: self.0.found.clone(),
            hint: self.0.hint.clone(),
            is_change: self.0.is_change,
        }))
    }

    /// Returns the kind by value, for a caller that needs the wrapped error.
    pub fn into_kind(self) -> Kind {
        self.0.kind
    }

    /// What is wrong, without the file and the offset.
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// The file it happened in.
    pub fn file(&self) -> Option<&str> {
        self.0.file.as_deref()
    }

    /// The byte offset it happened at.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// The record it happened to.
    pub fn record(&self) -> Option<u64> {
        self.0.record
    }

    /// What should have been there, as text.
    pub fn expected_text(&self) -> Option<&str> {
        self.0.expected.as_deref()
    }

    /// What was there, as text.
    pub fn found_text(&self) -> Option<&str> {
        self.0.found.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let e = &*self.0;
        f.write_str(&e.what)?;
        if let Some(file) = &e.file {
            write!(f, " in {file}")?;
        }
        if let Some(offset) = e.offset {
            write!(f, " at byte {offset}")?;
        }
        if let Some(record) = e.record {
            write!(f, " (record {record})")?;
        }
        match (&e.expected, &e.found) {
            (Some(expected), Some(found)) => write!(f, ": expected {expected}, found {found}")?,
            (Some(expected), None) => write!(f, ": expected {expected}")?,
            (None, Some(found)) => write!(f, ": found {found}")?,
            (None, None) => {}
        }
        match &e.kind {
            Kind::Io(error) => write!(f, ": {error}")?,
            Kind::External(error) => write!(f, ": {error}")?,
            _ => {}
        }
        if let Some(hint) = &e.hint {
            write!(f, "; {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sentence_in_the_order_what_file_offset_record_expected_found_hint() {
        let error = Error::checksum("sample checksum mismatch")
            .at(181_204)
            .expected(format_args!("{:#010x}", 7))
            .found(format_args!("{:#010x}", 8))
            .hint("other samples are readable")
            .in_file("train.ffr")
            .for_record(412);
        assert_eq!(
            error.to_string(),
            "sample checksum mismatch in train.ffr at byte 181204 (record 412): \
             expected 0x00000007, found 0x00000008; other samples are readable"
        );
    }

    #[test]
    fn a_changed_file_and_errors_from_outside_are_no_damage() {
        let io = |code| Error::io("x", std::io::Error::from_raw_os_error(code));
        let damage = [Error::format("x"), Error::truncated("x"), Error::checksum("x"), Error::limit("x")];
        assert!(damage.iter().all(Error::is_damage));
        assert!(!damage.iter().any(Error::is_from_outside));
        let changed = damage.map(Error::as_change);
        assert!(changed.iter().all(|error| !error.is_damage() && error.is_from_outside()));
        assert!(io(DISK_ERRORS[0]).is_damage() && !io(2).is_damage());
        let others = [Kind::Memory, Kind::Closed, Kind::Publish, Kind::Argument, Kind::Index];
        assert!(others.into_iter().all(|kind| !Error::new(kind, "x").is_damage()));
    }

    #[test]
    fn a_copy_is_the_same_error_of_another_record() {
        let error = Error::checksum("x").at(5).in_file("a").for_record(1).expected(2).found(3).hint("h");
        let text = error.to_string();
        let copy = error.copy_for_record(7);
        assert!(matches!(copy.kind(), Kind::Checksum));
        assert_eq!(copy.to_string(), text.replace("record 1", "record 7"));
    }

    #[test]
    fn the_deepest_place_and_the_outermost_record_win() {
        let error = Error::format("x").at(5).at(9).in_file("a").in_file("b").for_record(1);
        let error = error.for_record(2);
        assert_eq!((error.offset(), error.file(), error.record()), (Some(5), Some("a"), Some(2)));
    }
}
