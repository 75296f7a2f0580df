//! A disk that loses what was not synced when the power is cut, and the publishing of files on it.
//!
//! A rename, a creation or a deletion that was not followed by a sync of the folder may survive or not, each on its
//! own. The bytes of a file that was not synced may be there, be missing, be zeros, or be there in part. A rename is
//! atomic: a file never has both names or none because of it.

use super::disk::{Disk, LocalDisk};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tempfile::{TempDir, TempPath};

mod tests;

/// Names and contents.
pub type Files = BTreeMap<String, Vec<u8>>;
/// Names and inodes.
type Names = BTreeMap<String, u64>;

/// A mistake that a program could make, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    None,
    /// The sync of a file with this number does nothing.
    NoFileSync(usize),
    /// The sync of the folder with this number does nothing.
    NoFolderSync(usize),
    /// A file is synced after its next rename.
    LateFileSync,
}

/// Changes of names that survive together or not at all. None: the name is gone.
type Change = Vec<(String, Option<u64>)>;

#[derive(Clone, Default)]
struct State {
    steps: usize,
    is_off: bool,
    file_syncs: usize,
    folder_syncs: usize,
    /// The names when they were last looked at.
    seen: Names,
    /// The names that survive for certain.
    safe_names: Names,
    /// The changes of names since then.
    pending: Vec<Change>,
    /// The bytes that survive for certain.
    safe_bytes: BTreeMap<u64, Vec<u8>>,
    /// The bytes at the moment of the cut.
    last_bytes: BTreeMap<u64, Vec<u8>>,
    late: Vec<u64>,
}

/// A real folder that remembers what was synced.
pub struct PowerCut {
    folder: Rc<TempDir>,
    /// Has each file that ever was in the folder, with its inode as its name, so that no inode is used again.
    inodes: Rc<TempDir>,
    /// Before which step the power is cut.
    at: usize,
    mistake: Mistake,
    state: RefCell<State>,
}

/// What became of the bytes that were not synced.
#[derive(Clone, Copy, Debug)]
enum Unsynced {
    There,
    Missing,
    Zeros,
    Half,
}

/// One of the states that a power cut can leave.
#[derive(Clone, Debug)]
pub struct Remains {
    names: Names,
    bytes: BTreeMap<u64, Vec<u8>>,
}

fn new_folder() -> Rc<TempDir> {
    // In memory, if there is such a folder.
    Rc::new(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap())
}

impl PowerCut {
    /// A folder with these files, all of them safe.
    pub fn new(files: &Files, at: usize, mistake: Mistake) -> Self {
        let (folder, inodes) = (new_folder(), new_folder());
        for (name, bytes) in files {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        Self::over(folder, inodes, at, mistake)
    }

    /// The same folder after a restart, to be cut a second time. What is in it is safe.
    pub fn again(&self, at: usize) -> Self {
        Self::over(self.folder.clone(), self.inodes.clone(), at, Mistake::None)
    }

    fn over(folder: Rc<TempDir>, inodes: Rc<TempDir>, at: usize, mistake: Mistake) -> Self {
        let disk = PowerCut { folder, inodes, at, mistake, state: RefCell::default() };
        disk.look(false);
        let mut state = disk.state.borrow_mut();
        state.safe_names = state.seen.clone();
        state.safe_bytes = disk.bytes_of(state.seen.values());
        state.pending.clear();
        drop(state);
        disk
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// How many steps were made.
    pub fn steps(&self) -> usize {
        self.state.borrow().steps
    }

    /// How many files and how many times the folder was synced.
    pub fn syncs(&self) -> (usize, usize) {
        (self.state.borrow().file_syncs, self.state.borrow().folder_syncs)
    }

    fn inode_path(&self, inode: u64) -> PathBuf {
        self.inodes.path().join(inode.to_string())
    }

    fn bytes_of<'a>(&self, inodes: impl IntoIterator<Item = &'a u64>) -> BTreeMap<u64, Vec<u8>> {
        inodes.into_iter().map(|&inode| (inode, std::fs::read(self.inode_path(inode)).unwrap())).collect()
    }

    /// Notes which names have changed, as one change or as several.
    fn look(&self, together: bool) {
        use std::os::unix::fs::DirEntryExt;
        let entries = std::fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap());
        let names: Names = entries.map(|e| (e.file_name().into_string().unwrap(), e.ino())).collect();
        for (name, &inode) in &names {
            let kept = self.inode_path(inode);
            if !kept.exists() {
                std::fs::hard_link(self.path(name), kept).unwrap();
            }
        }
        let mut state = self.state.borrow_mut();
        let all: BTreeSet<&String> = names.keys().chain(state.seen.keys()).collect();
        let changed: Change = all
            .into_iter()
            .filter(|&name| names.get(name) != state.seen.get(name))
            .map(|name| (name.clone(), names.get(name).copied()))
            .collect();
        if together && !changed.is_empty() {
            state.pending.push(changed);
        } else {
            state.pending.extend(changed.into_iter().map(|one| vec![one]));
        }
        state.seen = names;
    }

    fn cut(&self) {
        self.look(false);
        let mut state = self.state.borrow_mut();
        let pending = state.pending.iter().flatten().filter_map(|(_, inode)| *inode);
        let inodes: BTreeSet<u64> = state.safe_names.values().copied().chain(pending).collect();
        state.last_bytes = self.bytes_of(&inodes);
        state.is_off = true;
    }

    fn step(&self, act: impl FnOnce() -> Result<()>) -> Result<()> {
        if !self.state.borrow().is_off && self.state.borrow().steps == self.at {
            self.cut();
        }
        if self.state.borrow().is_off {
            return Err(Error::other("the power was cut"));
        }
        self.state.borrow_mut().steps += 1;
        self.look(false);
        act()?;
        self.look(true);
        Ok(())
    }

    fn make_safe(&self, inode: u64) {
        let bytes = std::fs::read(self.inode_path(inode)).unwrap();
        self.state.borrow_mut().safe_bytes.insert(inode, bytes);
    }

    /// A rename, after which files are synced whose turn was before it.
    fn rename_step(&self, act: impl FnOnce() -> Result<()>) -> Result<()> {
        self.step(act)?;
        // The power can be cut in between.
        if !self.state.borrow().late.is_empty() {
            self.step(|| Ok(()))?;
        }
        let late = std::mem::take(&mut self.state.borrow_mut().late);
        late.into_iter().for_each(|inode| self.make_safe(inode));
        Ok(())
    }

    /// All states that a cut can leave, at the step where it was made, or now.
    pub fn remains(&self) -> Vec<Remains> {
        if !self.state.borrow().is_off {
            self.cut();
        }
        let state = self.state.borrow();
        let count = state.pending.len();
        assert!(count <= 12, "{count} changes without a sync are too many to try all combinations");
        let mut all = Vec::new();
        for chosen in 0_u32..1 << count {
            let mut names = state.safe_names.clone();
            let kept = state.pending.iter().enumerate().filter(|(bit, _)| chosen >> bit & 1 == 1);
            for (name, inode) in kept.flat_map(|(_, change)| change) {
                match inode {
                    Some(inode) => names.insert(name.clone(), *inode),
                    None => names.remove(name),
                };
            }
            let is_synced = |inode: &u64| state.safe_bytes.get(inode) == state.last_bytes.get(inode);
            let unsynced: &[Unsynced] = if names.values().all(is_synced) {
                &[Unsynced::There]
            } else {
                &[Unsynced::There, Unsynced::Missing, Unsynced::Zeros, Unsynced::Half]
            };
            for &how in unsynced {
                let left = |inode: &u64| (*inode, state.left(*inode, how));
                all.push(Remains { names: names.clone(), bytes: names.values().map(left).collect() });
            }
        }
        all
    }

    /// Makes the folder as the cut left it, with the same inodes.
    pub fn restart(&self, remains: &Remains) {
        for entry in std::fs::read_dir(self.folder.path()).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
        for (&inode, bytes) in &remains.bytes {
            std::fs::write(self.inode_path(inode), bytes).unwrap();
        }
        for (name, &inode) in &remains.names {
            std::fs::hard_link(self.inode_path(inode), self.path(name)).unwrap();
        }
    }

    /// The files that readers see.
    pub fn visible(&self) -> Files {
        let entries = std::fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap());
        let all = entries.map(|e| (e.file_name().into_string().unwrap(), std::fs::read(e.path()).unwrap()));
        all.filter(|(name, _)| !name.starts_with('.')).collect()
    }
}

impl State {
    fn left(&self, inode: u64, how: Unsynced) -> Vec<u8> {
        let last = self.last_bytes.get(&inode).cloned().unwrap_or_default();
        let safe = self.safe_bytes.get(&inode);
        if safe == Some(&last) {
            return last;
        }
        match how {
            Unsynced::There => last,
            Unsynced::Missing => safe.cloned().unwrap_or_default(),
            Unsynced::Zeros => vec![0; last.len()],
            Unsynced::Half => last[..last.len() / 2].to_vec(),
        }
    }
}

/// Syncing is noted here; a real sync would only take time.
const QUICK: LocalDisk = LocalDisk { durable: false };

impl Disk for PowerCut {
    fn publish(&self, temp: TempPath, to: &Path, overwrite: bool) -> Result<()> {
        self.rename_step(|| QUICK.publish(temp, to, overwrite))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.rename_step(|| QUICK.rename(from, to))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        self.rename_step(|| QUICK.rename_new(from, to))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.step(|| QUICK.remove(path))
    }

    fn sync(&self, _: &Path) -> Result<()> {
        self.step(|| {
            let mut state = self.state.borrow_mut();
            let number = state.folder_syncs;
            state.folder_syncs += 1;
            if self.mistake != Mistake::NoFolderSync(number) {
                state.safe_names = state.seen.clone();
                state.pending.clear();
            }
            Ok(())
        })
    }

    fn sync_file(&self, file: &File) -> Result<()> {
        use std::os::unix::fs::MetadataExt;
        let inode = file.metadata()?.ino();
        self.step(|| {
            let number = self.state.borrow().file_syncs;
            self.state.borrow_mut().file_syncs += 1;
            match self.mistake {
                Mistake::NoFileSync(skipped) if skipped == number => {}
                Mistake::LateFileSync => self.state.borrow_mut().late.push(inode),
                _ => self.make_safe(inode),
            }
            Ok(())
        })
    }
}
