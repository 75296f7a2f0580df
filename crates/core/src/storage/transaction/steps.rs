//! The steps of a transaction, forward and back. Each step checks which names exist, so it can begin at any point.

use super::Keep;
use crate::error::{Error, Result};
use crate::storage::disk::Disk;
use crate::storage::journal::{self, Journal, Member, Stamp};
use crate::storage::publish::{folder_of, found, publish_failed};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A journal that is in place, and the operations on it.
pub struct Transaction<'a> {
    pub disk: &'a dyn Disk,
    /// Where the journal is.
    pub path: &'a Path,
    pub journal: Journal,
    /// The lock on the journal, held as long as this value lives.
    pub lock: File,
}

impl Transaction<'_> {
    fn at(&self, name: &OsStr) -> PathBuf {
        self.path.with_file_name(name)
    }

    fn failed(&self, name: &OsStr) -> impl Fn(std::io::Error) -> Error + use<> {
        let path = self.at(name);
        move |e| publish_failed(&path, e)
    }

    fn is_there(&self, name: &OsStr) -> Result<bool> {
        Ok(found(&self.at(name)).map_err(self.failed(name))?.is_some())
    }

    /// Whether a new file has its final name.
    pub fn is_in(&self, member: &Member, stamp: &Stamp) -> Result<bool> {
        let metadata = found(&self.at(&member.name)).map_err(self.failed(&member.name))?;
        Ok(metadata.is_some_and(|metadata| self.journal.is_same(stamp, &metadata))
            && !self.is_there(&member.hidden)?)
    }

    /// Makes the renames so far survive a power cut.
    pub fn sync(&self) -> Result<()> {
        let failed = |e| Error::io("cannot sync the folder of", e).in_file(&self.path.to_string_lossy());
        self.disk.sync(folder_of(self.path)).map_err(failed)
    }

    /// The names of the new files that are in place.
    fn in_place(&self) -> Result<HashSet<&OsStr>> {
        let mut names = HashSet::new();
        for (member, stamp) in &self.journal.new {
            if self.is_in(member, stamp)? {
                names.insert(member.name.as_os_str());
            }
        }
        Ok(names)
    }

    /// Goes to the new set, from any intermediate state.
    pub fn advance(&self) -> Result<()> {
        // The journal must be on disk before the first rename, and each step before the next.
        self.sync()?;
        let in_place = self.in_place()?;
        for member in &self.journal.old {
            if !in_place.contains(member.name.as_os_str()) && self.is_there(&member.name)? {
                self.hide(member)?;
            }
        }
        if !self.journal.old.is_empty() {
            self.sync()?;
        }
        for (member, _) in &self.journal.new {
            if !in_place.contains(member.name.as_os_str()) {
                self.show(member)?;
            }
        }
        self.sync()?;
        self.end(self.journal.old.is_empty())
    }

    /// Goes back to the old set, from any intermediate state.
    pub fn restore(&self) -> Result<()> {
        let in_place = self.in_place()?;
        for (member, _) in &self.journal.new {
            if in_place.contains(member.name.as_os_str()) {
                self.hide(member)?;
            }
        }
        self.sync()?;
        for member in &self.journal.old {
            if self.is_there(&member.hidden)? {
                self.show(member)?;
            }
        }
        self.sync()?;
        self.end(false)
    }

    fn hide(&self, member: &Member) -> Result<()> {
        let renamed = self.disk.rename_new(&self.at(&member.name), &self.at(&member.hidden));
        renamed.map_err(self.failed(&member.name))
    }

    fn show(&self, member: &Member) -> Result<()> {
        let renamed = self.disk.rename_new(&self.at(&member.hidden), &self.at(&member.name));
        renamed.map_err(self.failed(&member.name))
    }

    /// Ends the transaction. The visible set is complete, and the journal no longer makes readers refuse it.
    fn end(&self, nothing_to_delete: bool) -> Result<()> {
        let ended = if nothing_to_delete {
            self.disk.remove(self.path)
        } else {
            self.disk.rename(self.path, &journal::path_of_leftovers(self.path))
        };
        ended.map_err(|e| Error::io("cannot remove the journal", e).in_file(&self.path.to_string_lossy()))
    }

    /// Deletes the new files after going back.
    pub fn delete_new(&self) -> Result<()> {
        self.delete(self.journal.new.iter().map(|(member, _)| member))
    }

    /// Deletes the old files after they were replaced.
    pub fn delete_old(&self) -> Result<()> {
        self.delete(&self.journal.old)
    }

    /// Deletes all hidden files. It does not matter which set is visible.
    pub fn delete_all(&self) -> Result<()> {
        self.delete(self.journal.new.iter().map(|(member, _)| member).chain(&self.journal.old))
    }

    /// Deletes files that are no longer needed, then the rest of the journal. Until the end of the transaction is on
    /// disk, they may be needed: call [`sync`](Self::sync) before.
    fn delete<'a>(&self, members: impl IntoIterator<Item = &'a Member>) -> Result<()> {
        let mut first = None;
        let leftovers = journal::path_of_leftovers(self.path);
        for path in members.into_iter().map(|member| self.at(&member.hidden)) {
            match self.disk.remove(&path) {
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    first.get_or_insert(Error::io("cannot delete", e).in_file(&path.to_string_lossy()));
                }
                _ => {}
            }
        }
        if let Some(error) = first {
            return Err(error);
        }
        // Another process may have published since, and left its own journal there.
        if !journal::is_at(&self.lock, &leftovers) {
            return Ok(());
        }
        match self.disk.remove(&leftovers) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                Err(Error::io("cannot delete", e).in_file(&leftovers.to_string_lossy()))
            }
            _ => Ok(()),
        }
    }

    /// Returns an error if a file of the set to keep is missing, or if another file has taken one of its names.
    pub fn refuse_lost(&self, keep: Keep) -> Result<()> {
        let in_place = self.in_place()?;
        let new: Vec<&Member> = self.journal.new.iter().map(|(member, _)| member).collect();
        let old: Vec<&Member> = self.journal.old.iter().collect();
        let mut still_old = HashSet::new();
        for member in &old {
            let name = member.name.as_os_str();
            if !self.is_there(&member.hidden)? && self.is_there(name)? && !in_place.contains(name) {
                still_old.insert(name);
            }
        }
        for member in if keep == Keep::New { new } else { old } {
            let name = member.name.as_os_str();
            let is_visible = if keep == Keep::New { &in_place } else { &still_old }.contains(name);
            if is_visible {
                continue;
            }
            if !self.is_there(&member.hidden)? {
                let (this, other) = if keep == Keep::New { ("new", "old") } else { ("old", "new") };
                return Err(Error::publish(format!("a file of the {this} set is missing"))
                    .in_file(&self.at(&member.hidden).to_string_lossy())
                    .hint(format!("call recover with keep={other:?}")));
            }
            if self.is_there(name)? && !in_place.contains(name) && !still_old.contains(name) {
                return Err(Error::publish(
                    "another file has taken the name since the publish was interrupted",
                )
                .in_file(&self.at(name).to_string_lossy())
                .hint("move it away and call recover again"));
            }
        }
        Ok(())
    }

    /// The files that readers find.
    pub fn visible(&self, keep: Keep) -> Vec<PathBuf> {
        match keep {
            Keep::New => self.journal.new.iter().map(|(member, _)| self.at(&member.name)).collect(),
            Keep::Old => self.journal.old.iter().map(|member| self.at(&member.name)).collect(),
        }
    }
}
