//! The journal of a set of files that is being published. It lists every rename of the set.
//!
//! While the files are renamed, the journal is in the same folder under a hidden name: `.train.ffr.publish` for the
//! shards of `train.ffr`, and `.anyrecord-folder.publish` for files that become visible together in one folder. Readers
//! that see it refuse the set. The process that publishes holds a lock on it, so a journal without a lock was left by a
//! process that died.
//!
//! ```text
//! anyrecord publish 1
//! inode 1835027
//! new .train.ffr.x8f2kq1z.tmp train-00000-of-00002.ffr 4096-1731689000123456789-1835021
//! old .train-00000-of-00002.ffr.k3j9aa0p-0.old train-00000-of-00002.ffr
//! end 9f3c11d0
//! ```
//!
//! A new file is recognised by its size and inode, under either name. In a copy of the folder, the journal has another
//! inode than the one it states. Then files are recognised by size and time. Names are relative to the folder. Spaces,
//! `%`, and bytes that are not printable ASCII are written as `%` and two hexadecimal digits. The last line is the
//! CRC-32C of everything before it.

use crate::error::{Error, Result};
use crate::hash::crc32c;
use crate::storage::publish::folder_of;
use std::ffi::{OsStr, OsString};
use std::fmt::{Display, Formatter};
use std::fs::{File, Metadata, TryLockError};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

const MAGIC: &str = "anyrecord publish ";
const VERSION: &str = "1";
const SUFFIX: &str = ".publish";
const OF_FOLDER: &str = ".anyrecord-folder.publish";
/// Room for a million shards with the longest names.
const MOST_BYTES: u64 = 1 << 30;

/// A file of the set: its name, and its name while it is hidden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The hidden name: before it is published, or after it was replaced.
    pub hidden: OsString,
    /// The name that readers use.
    pub name: OsString,
}

/// Properties of a file that stay the same when it is renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    bytes: u64,
    /// Nanoseconds since 1970.
    modified: u128,
    /// 0 on systems without inodes.
    inode: u64,
}

fn inode_of(metadata: &Metadata) -> u64 {
    #[cfg(unix)]
    return std::os::unix::fs::MetadataExt::ino(metadata);
    #[cfg(not(unix))]
    {
        let _ = metadata;
        0
    }
}

impl Stamp {
    /// The stamp of a file.
    pub fn of(metadata: &Metadata) -> Self {
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified = modified.unwrap_or_default().as_nanos();
        Stamp { bytes: metadata.len(), modified, inode: inode_of(metadata) }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('-');
        let bytes = numbers.next()?.parse().ok()?;
        let modified = numbers.next()?.parse().ok()?;
        let inode = numbers.next()?.parse().ok()?;
        numbers.next().is_none().then_some(Stamp { bytes, modified, inode })
    }
}

impl Display for Stamp {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}-{}", self.bytes, self.modified, self.inode)
    }
}

/// What is renamed when a set is published: the old files to hidden names, then the new ones to their final names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journal {
    /// The journal's own inode. 0 on systems without inodes.
    pub inode: u64,
    /// Whether the journal has another inode now, because the folder was copied.
    pub is_copy: bool,
    /// The files that become visible, and the stamp that identifies each of them.
    pub new: Vec<(Member, Stamp)>,
    /// The files that they replace.
    pub old: Vec<Member>,
}

/// The journal of the shards of `path`.
pub fn path_for_set(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(SUFFIX);
    path.with_file_name(name)
}

/// The journal of files that are published together into `folder`.
pub fn path_for_folder(folder: &Path) -> PathBuf {
    folder.join(OF_FOLDER)
}

/// The path to which a journal is renamed once the visible set is complete. Then the hidden files that it names can be
/// deleted.
pub fn path_of_leftovers(journal: &Path) -> PathBuf {
    let mut path = journal.as_os_str().to_owned();
    path.push("ed");
    path.into()
}

/// The path that the caller named: the reverse of [`path_for_set`] and [`path_for_folder`].
pub fn target_of(journal: &Path) -> PathBuf {
    let name = journal.file_name().unwrap_or_default().to_string_lossy();
    match name.strip_suffix(SUFFIX).and_then(|name| name.strip_prefix('.')) {
        Some(stem) if name != OF_FOLDER => journal.with_file_name(stem),
        _ => folder_of(journal).to_owned(),
    }
}

/// The error for a reader or a writer of the set that finds a journal.
pub fn unfinished(journal: &Path) -> Error {
    let target = target_of(journal);
    let target = target.to_string_lossy();
    let what = format!("{target} is being published, or publishing it was interrupted; see the journal");
    let hint = format!(
        "if no process is publishing it now, call anyrecord.recover({target:?}, keep=\"new\") to finish, \
         or keep=\"old\" to go back"
    );
    Error::publish(what).in_file(&journal.to_string_lossy()).hint(hint)
}

fn damaged(journal: &Path) -> Error {
    Error::publish("a set of files is being published or was interrupted, and its journal is damaged")
        .in_file(&journal.to_string_lossy())
        .hint("look at the files in its folder, including hidden ones; then delete the journal")
}

/// The result of locking a journal.
pub enum Lock {
    /// This process holds the lock now.
    Ours(File),
    /// A running process holds it.
    Held,
    /// The file system has no locks, so it is unknown whether a process holds it.
    Unknown(File),
    /// There is no journal.
    Gone,
}

/// Locks the journal at `path`, without waiting.
pub fn lock(path: &Path) -> Result<Lock> {
    // On NFS, only a process that may write to a file may lock it.
    let opened = File::options().read(true).write(true).open(path).or_else(|_| File::open(path));
    let file = match opened {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Lock::Gone),
        Err(e) => return Err(Error::io("cannot open", e).in_file(&path.to_string_lossy())),
    };
    match file.try_lock() {
        Ok(()) if is_at(&file, path) => Ok(Lock::Ours(file)),
        Ok(()) => Ok(Lock::Gone),
        Err(TryLockError::WouldBlock) => Ok(Lock::Held),
        Err(TryLockError::Error(_)) => Ok(Lock::Unknown(file)),
    }
}

/// Whether the file is still the one at `path`. The process that held the lock may have removed the file meanwhile.
pub fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(ours), Ok(there)) = (file.metadata(), std::fs::symlink_metadata(path)) else { return false };
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        (ours.dev(), ours.ino()) == (there.dev(), there.ino())
    }
    #[cfg(not(unix))]
    {
        ours.len() == there.len()
            && ours.modified().ok() == there.modified().ok()
            && ours.created().ok() == there.created().ok()
    }
}

impl Journal {
    /// A journal that will be in `file`.
    pub fn new(file: &File) -> std::io::Result<Self> {
        Ok(Journal { inode: inode_of(&file.metadata()?), ..Journal::default() })
    }

    /// Whether a file can be the one with that stamp.
    pub fn is_same(&self, stamp: &Stamp, metadata: &Metadata) -> bool {
        let found = Stamp::of(metadata);
        let is_known = if self.is_copy || self.inode == 0 {
            found.modified == stamp.modified
        } else {
            // Times do not identify files here: many files can be written within one clock tick.
            found.inode == stamp.inode
        };
        is_known && found.bytes == stamp.bytes
    }

    /// The names that readers use, of old and new files.
    pub fn names(&self) -> impl Iterator<Item = &OsStr> {
        let new = self.new.iter().map(|(member, _)| member);
        self.old.iter().chain(new).map(|member| member.name.as_os_str())
    }

    /// The journal at `path`. None if there is no such file, or if another program wrote it.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("cannot open", e).in_file(&path.to_string_lossy())),
        };
        let (journal, bytes) = Self::parse(&file, path)?;
        let is_ours = bytes.starts_with(MAGIC.as_bytes()) || MAGIC.as_bytes().starts_with(&bytes);
        match journal {
            Some(journal) => Ok(Some(journal)),
            None if is_ours => Err(damaged(path)),
            None => Ok(None),
        }
    }

    /// The journal in an open file.
    pub fn from_file(file: &File, path: &Path) -> Result<Self> {
        Self::parse(file, path)?.0.ok_or_else(|| damaged(path))
    }

    /// The journal in a file, or none if it is damaged, and the bytes of the file.
    fn parse(file: &File, path: &Path) -> Result<(Option<Self>, Vec<u8>)> {
        let name = path.to_string_lossy();
        let mut bytes = Vec::new();
        let read = file.take(MOST_BYTES).read_to_end(&mut bytes).and_then(|_| file.metadata());
        let metadata = read.map_err(|e| Error::io("cannot read", e).in_file(&name))?;
        let decoded = Self::decode(&bytes).map(|journal| {
            let is_copy = inode_of(&metadata) != journal.inode;
            Journal { is_copy, ..journal }
        });
        Ok((decoded, bytes))
    }

    /// The bytes of the journal. An error if a name cannot be written.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut text = format!("{MAGIC}{VERSION}\ninode {}\n", self.inode);
        for (Member { hidden, name }, stamp) in &self.new {
            text += &format!("new {} {} {stamp}\n", escaped(hidden)?, escaped(name)?);
        }
        for Member { hidden, name } in &self.old {
            text += &format!("old {} {}\n", escaped(hidden)?, escaped(name)?);
        }
        let sum = crc32c::append(0, text.as_bytes());
        text += &format!("end {sum:08x}\n");
        Ok(text.into_bytes())
    }

    /// Parses a journal. None unless `bytes` are a complete journal.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
        let (body, end) = text.rsplit_once('\n')?;
        let sum = u32::from_str_radix(end.strip_prefix("end ")?, 16).ok()?;
        // The checksum also covers the line break before the last line.
        if crc32c::append(crc32c::append(0, body.as_bytes()), b"\n") != sum {
            return None;
        }
        let mut lines = body.split('\n');
        if lines.next()?.strip_prefix(MAGIC)? != VERSION {
            return None;
        }
        let inode = lines.next()?.strip_prefix("inode ")?.parse().ok()?;
        let mut journal = Journal { inode, ..Journal::default() };
        for line in lines {
            let mut words = line.split(' ');
            let kind = words.next()?;
            let member = Member { hidden: unescaped(words.next()?)?, name: unescaped(words.next()?)? };
            // Renames stay in the folder, and only hidden files are ever deleted. No reader takes a hidden file for
            // data.
            let is_hidden = member.hidden.as_encoded_bytes().starts_with(b".");
            if !is_hidden || !is_file_name(&member.hidden) || !is_file_name(&member.name) {
                return None;
            }
            match (kind, words.next(), words.next()) {
                ("new", Some(stamp), None) => journal.new.push((member, Stamp::parse(stamp)?)),
                ("old", None, None) => journal.old.push(member),
                _ => return None,
            }
        }
        Some(journal)
    }
}

/// Whether this is the name of a file, without any folders.
fn is_file_name(name: &OsStr) -> bool {
    // No file system has a name with a NUL.
    Path::new(name).file_name() == Some(name) && !name.as_encoded_bytes().contains(&0)
}

fn escaped(name: &OsStr) -> Result<String> {
    let bytes = bytes_of(name).ok_or_else(|| {
        Error::argument(format!("{} is not Unicode", name.to_string_lossy())).hint("choose another name")
    })?;
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'%' | ..=b' ' | 0x7f.. => text += &format!("%{byte:02x}"),
            _ => text.push(char::from(byte)),
        }
    }
    Ok(text)
}

fn unescaped(text: &str) -> Option<OsString> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'%' {
            bytes.push(byte);
            rest = after;
            continue;
        }
        let (digits, after) = after.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    name_of(bytes)
}

#[cfg(unix)]
fn bytes_of(name: &OsStr) -> Option<&[u8]> {
    Some(std::os::unix::ffi::OsStrExt::as_bytes(name))
}

#[cfg(not(unix))]
fn bytes_of(name: &OsStr) -> Option<&[u8]> {
    name.to_str().map(str::as_bytes)
}

#[cfg(unix)]
fn name_of(bytes: Vec<u8>) -> Option<OsString> {
    Some(std::os::unix::ffi::OsStringExt::from_vec(bytes))
}

#[cfg(not(unix))]
fn name_of(bytes: Vec<u8>) -> Option<OsString> {
    String::from_utf8(bytes).ok().map(OsString::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(hidden: &str, name: &str) -> Member {
        Member { hidden: hidden.into(), name: name.into() }
    }

    const STAMP: Stamp = Stamp { bytes: 4096, modified: 1_731_689_000_123_456_789, inode: 7 };

    fn new(hidden: &str, name: &str) -> (Member, Stamp) {
        (member(hidden, name), STAMP)
    }

    fn journal() -> Journal {
        Journal {
            inode: 5,
            is_copy: false,
            new: vec![new(".a.tmp", "a b%\n\u{e9}.ffr"), new(".b.tmp", "b.ffr")],
            old: vec![member(".c.old", "b.ffr")],
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for journal in [journal(), Journal::default()] {
            assert_eq!(Journal::decode(&journal.encode().unwrap()), Some(journal));
        }
    }

    #[cfg(unix)]
    #[test]
    fn names_that_are_not_unicode_are_kept() {
        let name = name_of(b"\xff%.ffr".to_vec()).unwrap();
        let member = Member { hidden: ".x".into(), name };
        let journal = Journal { new: vec![(member, STAMP)], ..Journal::default() };
        assert_eq!(Journal::decode(&journal.encode().unwrap()), Some(journal));
    }

    #[test]
    fn a_name_with_a_nul_is_refused() {
        for (hidden, name) in [(".a", "a\0"), (".a\0", "a")] {
            let journal = Journal { old: vec![member(hidden, name)], ..Journal::default() };
            assert_eq!(Journal::decode(&journal.encode().unwrap()), None);
        }
    }

    #[test]
    fn a_journal_that_was_cut_or_changed_anywhere_is_refused() {
        let whole = journal().encode().unwrap();
        for length in 0..whole.len() {
            assert_eq!(Journal::decode(&whole[..length]), None, "cut at {length}");
            let mut changed = whole.clone();
            changed[length] ^= 1;
            assert_eq!(Journal::decode(&changed), None, "changed at {length}");
        }
    }

    #[test]
    fn a_file_of_another_program_is_no_journal_and_a_damaged_one_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".x.publish");
        assert!(Journal::read(&path).unwrap().is_none());
        for (bytes, is_ours) in
            [(&b"npm"[..], false), (b"", true), (b"anyrec", true), (b"anyrecord publish 2", true)]
        {
            std::fs::write(&path, bytes).unwrap();
            let read = Journal::read(&path);
            assert_eq!(read.is_err(), is_ours, "{bytes:?}");
        }
    }

    #[test]
    fn names_that_lead_out_of_the_folder_are_refused() {
        let bad = ["", ".", "..", "/etc/x", "a/b", "../x", "./x", "a/"];
        for name in bad {
            for journal in [
                Journal { new: vec![new(".a", name)], ..Journal::default() },
                Journal { old: vec![member(name, "a")], ..Journal::default() },
            ] {
                assert_eq!(Journal::decode(&journal.encode().unwrap()), None, "{name:?}");
            }
        }
        let visible = Journal { new: vec![new("a.tmp", "a")], ..Journal::default() };
        assert_eq!(Journal::decode(&visible.encode().unwrap()), None, "only hidden files are ever deleted");
    }

    #[test]
    fn a_journal_knows_what_it_is_for() {
        for (target, journal) in [("/d/train.ffr", "/d/.train.ffr.publish"), ("train", ".train.publish")] {
            assert_eq!(path_for_set(Path::new(target)), Path::new(journal));
            assert_eq!(target_of(Path::new(journal)), Path::new(target));
        }
        assert_eq!(target_of(&path_for_folder(Path::new("/d"))), Path::new("/d"));
        assert_eq!(target_of(&path_for_folder(Path::new(""))), Path::new("."));
        let text = unfinished(Path::new("/d/.train.ffr.publish")).to_string();
        for words in [
            "is being published",
            "was interrupted",
            "/d/.train.ffr.publish",
            "anyrecord.recover(\"/d/train.ffr\"",
        ] {
            assert!(text.contains(words), "{text}");
        }
    }
}
