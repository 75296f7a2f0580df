//! The temporary files of writers: their names, and how a process shows that it still writes them.
//!
//! ```text
//! .train.ffr.1f0c93a77b52de04_5ab0c9d1e03f9aa07c42_0.tmp
//!  ^^^^^^^^^ the target: its first and last characters if its name is long
//!            ^^^^^^^^^^^^^^^^ hash of the whole name of the target
//!                             ^^^^^^^^^^^^^^^^^^^^ token of the writer: 8 characters for its machine since the last
//!                                                  boot, 12 that are different for each writer
//!                                                  ^ number of the file
//! ```
//!
//! A set has thousands of files, so a writer cannot keep all of them open. The files of one [`Owner`] share a token. The
//! first of them, number 0, is the *leader*. Its owner keeps it open and locked until all files of the owner are
//! published or discarded. So a temporary file belongs to a living process if the leader with the same token is locked.
//! [`stale`](super::stale) finds the files of processes that died.
//!
//! The lock belongs to the open file and not to the process (`flock`). A forked child inherits it.

use super::journal::is_at;
use super::publish::folder_of;
use crate::hash::highway;
use once_cell::race::OnceBox;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tempfile::TempPath;

const SUFFIX: &str = ".tmp";
/// The end of the names of samples that are spooled, so that they are read as what they are.
const SAMPLES: &str = ".samples.tfrecord";
/// The mark of files whose owner could not lock them.
const UNLOCKED: &str = "_nolock";
/// A name of more characters is shortened, because a name near the system's limit leaves no room for the rest.
const LONGEST: usize = 40;
const BEGINNING: usize = 24;
const HOST: usize = 8;
const UNIQUE: usize = 12;
/// What earlier versions had in place of all this.
const OLD_RANDOM: usize = 8;
/// How often to try again if another process takes a new file for one that was left behind.
const ATTEMPTS: usize = 100;

/// The name of a temporary file, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name of the target, shortened.
    pub target: String,
    /// None for a file of an earlier version, which had no lock.
    pub mark: Option<Mark>,
}

/// The part of the name that says whose file it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Hash of the target's name.
    pub hash: u64,
    /// The same for all files of one owner.
    pub token: String,
    /// 0 for the leader.
    pub number: u64,
    /// Whether these are samples that are spooled, and not the file itself.
    pub is_samples: bool,
    /// Whether the owner holds a lock while it lives.
    pub is_locked: bool,
}

impl Mark {
    /// Whether the owner ran on this machine, since it was last started.
    pub fn is_of_this_boot(&self) -> bool {
        boot().is_some_and(|boot| self.token.starts_with(boot))
    }

    /// Whether this file has the lock of its owner.
    pub fn leads(&self) -> bool {
        self.number == 0 && !self.is_samples
    }
}

impl Name {
    /// Takes the name of a file apart. None if it is not a name of a temporary file.
    pub fn parse(name: &str) -> Option<Self> {
        let (target, mark) = name.strip_prefix('.')?.strip_suffix(SUFFIX)?.rsplit_once('.')?;
        if target.is_empty() {
            return None;
        }
        let is_old = mark.len() == OLD_RANDOM && mark.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if is_old {
            return Some(Name { target: target.to_owned(), mark: None });
        }
        let mark = parse_mark(mark)?;
        let target = if mark.is_samples { target.strip_suffix(SAMPLES)? } else { target };
        Some(Name { target: target.to_owned(), mark: Some(mark) })
    }
}

/// Targets whose temporary files are looked for.
#[derive(Debug, Default)]
pub struct Targets {
    known: HashSet<(u64, String)>,
    /// As earlier versions shortened them: to the first characters.
    of_earlier_versions: HashSet<String>,
}

impl Targets {
    /// By their file names.
    pub fn new(names: &[OsString]) -> Self {
        let mut targets = Self::default();
        for name in names {
            let text = name.to_string_lossy();
            targets.known.insert((hash_of(name), shortened(&text)));
            targets.of_earlier_versions.insert(text.chars().take(LONGEST).collect());
        }
        targets
    }

    /// Whether the temporary file is one of these targets.
    pub fn include(&self, name: &Name) -> bool {
        match &name.mark {
            Some(mark) => self.known.contains(&(mark.hash, name.target.clone())),
            None => self.of_earlier_versions.contains(&name.target),
        }
    }
}

fn parse_mark(mark: &str) -> Option<Mark> {
    let (mark, is_locked) = match mark.strip_suffix(UNLOCKED) {
        Some(mark) => (mark, false),
        None => (mark, true),
    };
    let mut parts = mark.split('_');
    let (hash, token, number) = (parts.next()?, parts.next()?, parts.next()?);
    let (number, is_samples) = match number.strip_suffix('s') {
        Some(number) => (number, true),
        None => (number, false),
    };
    let is_hex = hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_token = token.len() == HOST + UNIQUE && token.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !is_hex || !is_token || parts.next().is_some() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let hash = u64::from_str_radix(hash, 16).ok()?;
    Some(Mark { hash, token: token.to_owned(), number: number.parse().ok()?, is_samples, is_locked })
}

fn hash_of(target: &OsStr) -> u64 {
    highway::hash(target.as_encoded_bytes())
}

fn shortened(name: &str) -> String {
    let count = name.chars().count();
    if count <= LONGEST {
        return name.to_owned();
    }
    // The end has the suffix, which tells the format.
    let rest = count - (LONGEST - BEGINNING - 1);
    name.chars().take(BEGINNING).chain(['~']).chain(name.chars().skip(rest)).collect()
}

/// Eight characters for this machine since it was last started. None if that is unknown.
fn boot() -> Option<&'static str> {
    // Not a lock that runs an initialiser: a fork during the initialiser would hang the child.
    static BOOT: OnceBox<Option<String>> = OnceBox::new();
    let read = || {
        let id = std::fs::read("/proc/sys/kernel/random/boot_id").ok().filter(|id| !id.is_empty());
        Box::new(id.map(|id| format!("{:08x}", highway::hash(&id) as u32)))
    };
    BOOT.get_or_init(read).as_deref()
}

/// A token that no other writer has.
fn new_token() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // Random numbers alone could repeat: a forked child inherits the state of a generator.
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let mut unique = RandomState::new().hash_one(0).to_le_bytes().to_vec();
    unique.extend(time.to_le_bytes());
    unique.extend(std::process::id().to_le_bytes());
    unique.extend(COUNT.fetch_add(1, Relaxed).to_le_bytes());
    format!("{}{:012x}", boot().unwrap_or("00000000"), highway::hash(&unique) >> 16)
}

/// Locks a file without waiting. Tests replace it.
pub type TryLock = fn(&File) -> Result<(), TryLockError>;

/// Locks a temporary file.
pub fn try_lock(file: &File) -> Result<(), TryLockError> {
    // On Windows, a locked file cannot be read through another handle, but the written file is read again before it is
    // published.
    if cfg!(unix) { file.try_lock() } else { Err(TryLockError::Error(ErrorKind::Unsupported.into())) }
}

/// Whoever writes temporary files that are published together or discarded together.
#[derive(Debug)]
pub struct Owner {
    led: Mutex<Option<Led>>,
    try_lock: TryLock,
}

/// What is known once the leader exists.
#[derive(Debug)]
struct Led {
    folder: PathBuf,
    token: String,
    /// The leader, locked. None if it cannot be locked.
    lock: Option<File>,
    next: u64,
}

impl Default for Owner {
    fn default() -> Self {
        Owner { led: Mutex::new(None), try_lock }
    }
}

impl Owner {
    /// An owner that locks in another way.
    #[cfg(test)]
    pub(super) fn locking(try_lock: TryLock) -> Self {
        Owner { led: Mutex::new(None), try_lock }
    }

    /// Whether it can own a file beside `target`. Its files are all in one folder.
    pub fn takes(&self, target: &Path) -> bool {
        let led = self.led.lock().unwrap_or_else(PoisonError::into_inner);
        led.as_ref().is_none_or(|led| led.folder == folder_of(target))
    }

    /// A new file beside `target`, and its number.
    pub fn create(&self, target: &Path) -> std::io::Result<(File, TempPath, u64)> {
        let mut led = self.led.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *led {
            Some(led) => {
                let number = led.next;
                let (file, temp) = led.create(target, &number.to_string(), "")?;
                led.next += 1;
                Ok((file, temp, number))
            }
            None => {
                let (file, temp, made) = lead(target, self.try_lock, create_file)?;
                *led = Some(made);
                Ok((file, temp, 0))
            }
        }
    }

    /// A new file for the samples of file `number`, beside the same target.
    pub fn create_samples(&self, target: &Path, number: u64) -> std::io::Result<(File, TempPath)> {
        let led = self.led.lock().unwrap_or_else(PoisonError::into_inner);
        let led = led.as_ref().ok_or(ErrorKind::NotFound)?;
        led.create(target, &format!("{number}s"), SAMPLES)
    }

    /// Replaces file `number`, which is at `temp`, by a complete file of the same folder. Returns that file.
    ///
    /// A leader that is replaced would take the lock with it. So the complete file is locked before it becomes the
    /// leader, and the old lock is held until then. An error if another process has locked it: then it is in use there.
    pub fn adopt(&self, complete: &Path, temp: &Path, number: u64) -> std::io::Result<File> {
        let mut led = self.led.lock().unwrap_or_else(PoisonError::into_inner);
        let file = open_to_lock(complete)?;
        let lock = led.as_mut().and_then(|led| led.lock.as_mut()).filter(|_| number == 0);
        let new = match &lock {
            Some(_) => {
                (self.try_lock)(&file)?;
                Some(file.try_clone()?)
            }
            None => None,
        };
        std::fs::rename(complete, temp)?;
        if !is_at(&file, temp) {
            // Another process has put another file there meanwhile. Nobody knows what is in it.
            return Err(ErrorKind::NotFound.into());
        }
        if let Some((lock, new)) = lock.zip(new) {
            *lock = new;
        }
        Ok(file)
    }
}

/// Opens a file to lock it.
pub fn open_to_lock(path: &Path) -> std::io::Result<File> {
    // On NFS, only a process that may write to a file may lock it.
    File::options().read(true).write(true).open(path).or_else(|_| File::open(path))
}

impl Led {
    fn create(&self, target: &Path, number: &str, kind: &str) -> std::io::Result<(File, TempPath)> {
        create_named(target, kind, number, &self.token, self.lock.is_some(), create_file)
    }
}

fn create_named(
    target: &Path,
    kind: &str,
    number: &str,
    token: &str,
    is_locked: bool,
    create: fn(&Path) -> std::io::Result<File>,
) -> std::io::Result<(File, TempPath)> {
    let name = target.file_name().ok_or(ErrorKind::InvalidInput)?;
    let (short, hash) = (shortened(&name.to_string_lossy()), hash_of(name));
    let unlocked = if is_locked { "" } else { UNLOCKED };
    let prefix = format!(".{short}{kind}.{hash:016x}_{token}_{number}{unlocked}");
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(SUFFIX).rand_bytes(0);
    Ok(builder.make_in(folder_of(target), create)?.into_parts())
}

/// Opens a new file. We open it ourselves, because the crate's own function loses the error number of the system. The
/// permissions are those that any program would request, and the system applies the umask.
fn create_file(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).open(path)
}

/// A new leader, locked if locks work.
fn lead(
    target: &Path,
    try_lock: TryLock,
    create: fn(&Path) -> std::io::Result<File>,
) -> std::io::Result<(File, TempPath, Led)> {
    let folder = folder_of(target);
    let mut is_locked = true;
    for _ in 0..ATTEMPTS {
        let token = new_token();
        let (file, temp) = match create_named(target, "", "0", &token, is_locked, create) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
            created => created?,
        };
        let led = |lock| Led { folder: folder.to_owned(), token, lock, next: 1 };
        if !is_locked {
            return Ok((file, temp, led(None)));
        }
        match try_lock(&file) {
            // Before it was locked, a process that cleans up could take it for a file that was left behind.
            Ok(()) if is_at(&file, &temp) => {
                // A second descriptor, because the first one is closed when the file is complete.
                let lock = file.try_clone()?;
                return Ok((file, temp, led(Some(lock))));
            }
            Ok(()) | Err(TryLockError::WouldBlock) => {}
            // The name must say that there is no lock, because it may be possible to lock the file later.
            Err(TryLockError::Error(_)) => is_locked = false,
        }
        // A file is removed when `temp` is dropped, a folder is not.
        let _ = std::fs::remove_dir(&temp);
    }
    Err(ErrorKind::WouldBlock.into())
}

/// A new, locked folder beside `target`, and the lock. The caller removes the folder.
pub fn create_folder(target: &Path) -> std::io::Result<(PathBuf, Option<File>)> {
    fn create(path: &Path) -> std::io::Result<File> {
        // The standard library does not repeat this call if a signal interrupts it.
        while let Err(error) = std::fs::create_dir(path) {
            if error.kind() != ErrorKind::Interrupted {
                return Err(error);
            }
        }
        let mut options = OpenOptions::new();
        #[cfg(windows)]
        std::os::windows::fs::OpenOptionsExt::custom_flags(&mut options, 0x0200_0000); // needed to open a folder
        options.read(true).open(path)
    }
    let (_, temp, led) = lead(target, try_lock, create)?;
    // A folder is not removed like a file.
    Ok((temp.keep().map_err(|e| e.error)?, led.lock))
}
