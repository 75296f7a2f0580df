//! The journal of a set of objects that appear together.
//!
//! It is an object beside them, with the name that a local journal would have: `.train.ffr.publish`. While it exists,
//! readers that list refuse the set. It says enough to finish the set, or to remove what has appeared of it:
//!
//! ```json
//! {"anyrecord": "publish 1", "host": "node-7", "process": 4711, "seconds": 1731689000,
//!  "new": [{"name": "train-00000-of-00002.ffr", "upload": "2~x8f2", "parts": ["\"9f3c\""], "bytes": 4096}],
//!  "old": [{"name": "train-00000-of-00003.ffr", "stamp": "2048 \"11d0\""}]}
//! ```

use super::Pieces;
use crate::error::Error;
use crate::storage::remote::request::Identity;
use crate::storage::remote::url::RemoteUrl;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::time::{SystemTime, UNIX_EPOCH};

const VERSION: &str = "publish 1";

/// An object that appears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewObject {
    /// Its name in the folder of the journal.
    pub name: String,
    /// What the store has of it.
    pub pieces: Pieces,
}

/// An object that is replaced or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldObject {
    /// Its name in the folder of the journal.
    pub name: String,
    /// What distinguishes it from the new object of that name. None if there is no such new object.
    pub stamp: Option<String>,
}

/// What appears and what disappears, and who publishes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// The machine of the process that publishes.
    pub host: String,
    /// The process that publishes.
    pub process: u64,
    /// When it began, in seconds since 1970.
    pub seconds: u64,
    /// The objects that appear.
    pub new: Vec<NewObject>,
    /// The objects that they replace.
    pub old: Vec<OldObject>,
}

impl Journal {
    /// A journal of this process.
    pub fn new(new: Vec<NewObject>, old: Vec<OldObject>) -> Self {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Journal { host: host(), process: std::process::id().into(), seconds, new, old }
    }

    /// The names that readers use, of old and new objects.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let new = self.new.iter().map(|member| member.name.as_str());
        self.old.iter().map(|member| member.name.as_str()).chain(new)
    }

    /// The bytes of the journal.
    pub fn encode(&self) -> Vec<u8> {
        let new = |NewObject { name, pieces }: &NewObject| json!({"name": name, "upload": pieces.id, "parts": pieces.parts, "bytes": pieces.size});
        let old = |OldObject { name, stamp }: &OldObject| json!({"name": name, "stamp": stamp});
        let journal = json!({
            "anyrecord": VERSION,
            "host": self.host,
            "process": self.process,
            "seconds": self.seconds,
            "new": self.new.iter().map(new).collect::<Vec<_>>(),
            "old": self.old.iter().map(old).collect::<Vec<_>>(),
        });
        format!("{journal}\n").into_bytes()
    }

    /// Whether bytes begin as a journal does. Else another program wrote them.
    pub fn is_one(bytes: &[u8]) -> bool {
        const BEGIN: &[u8] = b"{\"anyrecord\":";
        let length = bytes.len().min(BEGIN.len());
        bytes.get(..length) == BEGIN.get(..length)
    }

    /// Reads a journal. None unless the bytes are a whole one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        if value.get("anyrecord")?.as_str()? != VERSION {
            return None;
        }
        // Everything stays in the folder of the journal.
        let name = |member: &Value| {
            let name = member.get("name")?.as_str()?;
            (!name.is_empty() && !name.contains('/') && name != "." && name != "..").then(|| name.to_owned())
        };
        let new = |member: &Value| {
            let part = |part: &Value| part.as_str().map(str::to_owned);
            let parts = member.get("parts")?.as_array()?.iter().map(part).collect::<Option<_>>()?;
            let (id, size) = (member.get("upload")?.as_str()?.to_owned(), member.get("bytes")?.as_u64()?);
            Some(NewObject { name: name(member)?, pieces: Pieces { id, parts, size } })
        };
        let old = |member: &Value| {
            let stamp = member.get("stamp")?;
            let is_valid = stamp.is_null() || stamp.is_string();
            is_valid.then_some(OldObject { name: name(member)?, stamp: stamp.as_str().map(str::to_owned) })
        };
        Some(Journal {
            host: value.get("host")?.as_str()?.to_owned(),
            process: value.get("process")?.as_u64()?,
            seconds: value.get("seconds")?.as_u64()?,
            new: value.get("new")?.as_array()?.iter().map(new).collect::<Option<_>>()?,
            old: value.get("old")?.as_array()?.iter().map(old).collect::<Option<_>>()?,
        })
    }

    /// Who publishes the set, and since when.
    pub fn who(&self) -> String {
        // Nothing that moves the cursor of a terminal.
        let host: String = self.host.chars().filter(|c| !c.is_control()).take(100).collect();
        format!("by process {} on {host} since {}", self.process, utc(self.seconds))
    }
}

/// What distinguishes an object from another one of the same name.
pub fn stamp_of(identity: &Identity) -> String {
    identity.text()
}

/// The URL that the caller named, of a set or of a folder.
pub fn target_of(journal: &RemoteUrl) -> String {
    let name = journal.path.filename().unwrap_or_default();
    match name.strip_suffix(".publish").and_then(|name| name.strip_prefix('.')) {
        Some(stem) if stem != "anyrecord-folder" => {
            let named = |_: &OsStr| stem.into();
            journal.beside(&named).map_or_else(String::new, |url| url.shown().to_owned())
        }
        _ => journal.shown().strip_suffix(name).unwrap_or_default().to_owned(),
    }
}

/// The error for a reader or a writer of the set `target` that finds a journal at `name`. None: the journal is damaged.
pub fn unfinished(name: &str, target: &str, journal: Option<&Journal>) -> Error {
    let who = journal.map_or_else(|| "(its journal is damaged)".to_owned(), Journal::who);
    let what = format!("{target} is being published, or was interrupted, {who}; see the journal");
    let hint = if journal.is_some() {
        format!(
            "if that process is gone, call anyrecord.recover({target:?}, keep=\"new\") to finish, or keep=\"old\" to \
             go back"
        )
    } else {
        "look at the objects in its folder, including hidden ones; then delete the journal".to_owned()
    };
    Error::publish(what).in_file(name).hint(hint)
}

fn host() -> String {
    #[cfg(unix)]
    return rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "an unknown host".to_owned())
}

/// A time as text: `2024-11-15 16:43:20 UTC`.
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March have their leap day at the end, and 400 of them have 146,097 days.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal() -> Journal {
        let pieces = Pieces { id: "2~x".into(), parts: vec!["\"a\"".into(), "b".into()], size: 7 };
        let new = vec![NewObject { name: "a b.ffr".into(), pieces }];
        let old =
            |name: &str, stamp: Option<&str>| OldObject { name: name.into(), stamp: stamp.map(Into::into) };
        Journal::new(new, vec![old("a b.ffr", Some("5 x")), old("c.ffr", None)])
    }

    #[test]
    fn what_is_written_is_read_back() {
        for journal in [journal(), Journal::new(vec![], vec![])] {
            assert!(Journal::is_one(&journal.encode()));
            assert_eq!(Journal::decode(&journal.encode()), Some(journal));
        }
        assert!(!Journal::is_one(b"notes") && !Journal::is_one(b"anyrecord publish 1\n"));
    }

    #[test]
    fn a_journal_that_is_cut_off_or_leaves_its_folder_is_refused() {
        let whole = journal().encode();
        for end in 0..whole.len() - 1 {
            assert_eq!(Journal::decode(&whole[..end]), None);
        }
        for name in ["", ".", "..", "a/b", "/a"] {
            let mut bad = journal();
            bad.new[0].name = name.to_owned();
            assert_eq!(Journal::decode(&bad.encode()), None, "{name:?}");
        }
    }

    #[test]
    fn times_are_shown() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_731_689_000, "2024-11-15 16:43:20 UTC"),
            (4_107_542_399, "2100-02-28 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }

    #[test]
    fn the_error_names_what_the_caller_named() {
        for (url, target) in [
            ("s3://bucket/a/.train.ffr.publish", "s3://bucket/a/train.ffr"),
            ("memory://.train.ffr.publish", "memory://train.ffr"),
            ("s3://bucket/a/.anyrecord-folder.publish", "s3://bucket/a/"),
        ] {
            assert_eq!(target_of(&RemoteUrl::parse(url).unwrap()), target);
        }
    }
}
