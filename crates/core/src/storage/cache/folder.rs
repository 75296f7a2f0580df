//! The files of the folder. All names are relative to its descriptor, and symbolic links are never followed.

use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps};
use std::ffi::OsStr;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What the names of files begin with that are being written.
pub const TEMPORARY: &str = ".new-";

/// The folder of a cache.
pub struct Folder {
    descriptor: OwnedFd,
    path: PathBuf,
    /// Whether its files can be mapped safely.
    #[cfg(target_os = "linux")]
    pub is_local: bool,
}

/// A file of the folder.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    pub size: u64,
    pub modified: SystemTime,
}

impl Folder {
    /// Opens the folder, and makes it if there is none.
    pub fn open(path: &Path) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        // What is cached may be for the eyes of this user only.
        match std::fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Folder {
            #[cfg(target_os = "linux")]
            is_local: crate::storage::file::is_of_this_machine(&descriptor),
            descriptor,
            path: path.to_owned(),
        })
    }

    /// Its path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is still the folder of that path. Users may delete it, and others may make a new one.
    pub fn is_at_its_path(&self) -> bool {
        let (ours, there) = (rustix::fs::fstat(&self.descriptor), rustix::fs::stat(&self.path));
        ours.ok()
            .zip(there.ok())
            .is_some_and(|(ours, there)| (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino))
    }

    /// Bytes that are free on its file system, and all bytes of the file system.
    pub fn room(&self) -> io::Result<(u64, u64)> {
        let found = rustix::fs::fstatvfs(&self.descriptor)?;
        Ok((found.f_bavail.saturating_mul(found.f_frsize), found.f_blocks.saturating_mul(found.f_frsize)))
    }

    /// Opens a file to read it. None if there is no plain file of that name.
    pub fn read(&self, name: &str) -> io::Result<Option<File>> {
        // A FIFO would block without NONBLOCK.
        self.open_file(name, OFlags::RDONLY | OFlags::NONBLOCK)
    }

    /// Opens a file to read and write it, and makes it if there is none.
    pub fn update(&self, name: &str) -> io::Result<Option<File>> {
        self.open_file(name, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CREATE)
    }

    fn open_file(&self, name: &str, flags: OFlags) -> io::Result<Option<File>> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.descriptor, name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(descriptor) => File::from(descriptor),
            // A file that should be made is missing only if the folder was deleted.
            Err(rustix::io::Errno::NOENT) if !flags.contains(OFlags::CREATE) => return Ok(None),
            Err(rustix::io::Errno::LOOP | rustix::io::Errno::NXIO) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(file.metadata()?.is_file().then_some(file))
    }

    /// The number of the file of that name, which distinguishes it from others on its disk, and its size.
    pub fn identity(&self, name: &str) -> Option<(u64, u64)> {
        let found = rustix::fs::statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((found.st_ino as u64, found.st_size as u64))
    }

    /// Whether there is a plain file of that name.
    pub fn has(&self, name: &str) -> bool {
        let found = rustix::fs::statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|found| rustix::fs::FileType::from_raw_mode(found.st_mode).is_file())
    }

    /// Deletes a file. False if that is not possible.
    pub fn remove(&self, name: &str) -> bool {
        rustix::fs::unlinkat(&self.descriptor, name, AtFlags::empty()).is_ok()
    }

    /// Notes that a file is used. It is no harm if that is not possible.
    pub fn touch(&self, name: &str, now: SystemTime) {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let time = Timespec { tv_sec: since.as_secs() as _, tv_nsec: since.subsec_nanos() as _ };
        let times = Timestamps { last_access: time, last_modification: time };
        let _ = rustix::fs::utimensat(&self.descriptor, name, &times, AtFlags::SYMLINK_NOFOLLOW);
    }

    /// Makes a file with that content. It appears under its name when it is complete. Returns the file. None if something
    /// else has that name.
    pub fn create(&self, name: &str, parts: &[&[u8]]) -> io::Result<Option<File>> {
        // Processes of several containers may have the same number.
        let chance = RandomState::new().hash_one(name);
        let temporary = format!("{TEMPORARY}{}-{chance:016x}", std::process::id());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file: File =
            rustix::fs::openat(&self.descriptor, &temporary, flags, Mode::RUSR | Mode::WUSR)?.into();
        let written = parts.iter().try_for_each(|part| file.write_all(part));
        let renamed = written.and_then(|()| {
            match rustix::fs::renameat(&self.descriptor, &temporary, &self.descriptor, name) {
                // Another process deletes files that were not written to for long.
                Err(rustix::io::Errno::ISDIR | rustix::io::Errno::NOTEMPTY | rustix::io::Errno::NOENT) => {
                    Ok(None)
                }
                renamed => Ok(Some(renamed?)),
            }
        });
        if !matches!(renamed, Ok(Some(()))) {
            self.remove(&temporary);
        }
        Ok(renamed?.map(|()| file))
    }

    /// The files. Those that disappear meanwhile are left out.
    pub fn list(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.descriptor)? {
            let Ok(entry) = entry else { continue };
            let Ok(name) = entry.file_name().to_str() else { continue };
            let Ok(stat) = rustix::fs::statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
                continue;
            }
            let since =
                Duration::new(stat.st_mtime.max(0) as u64, (stat.st_mtime_nsec as u32).min(999_999_999));
            let modified = UNIX_EPOCH + since;
            entries.push(Entry { name: name.to_owned(), size: stat.st_size as u64, modified });
        }
        Ok(entries)
    }
}

/// A path from the root: it stays valid if the working directory changes.
pub fn absolute(path: &OsStr) -> io::Result<PathBuf> {
    std::path::absolute(Path::new(path))
}
