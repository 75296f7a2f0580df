//! Samples that wait until the table before them can be written.
//!
//! A few of them wait in memory. More of them go to a temporary file, as TFRecord. That file has a name if the output
//! is a file with a name, so that the samples can be saved if the process is killed. A process may write thousands of
//! files at once, so what they hold in memory together is limited.

use crate::bytes;
use crate::error::{Error, Result};
use crate::format::tfrecord::frame;
use crate::storage::output::Output;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tempfile::TempPath;

/// More samples of a file than this move from memory to disk.
const IN_MEMORY: usize = 8 << 20;
/// Fewer samples of a file than this stay in memory, however many others do.
const SMALL: usize = 256 << 10;
/// What the files of this process hold in memory, without those that are small.
static ALL_FILES: Room = Room { most: 64 << 20, taken: AtomicUsize::new(0) };
/// Samples are written in pieces of this size. A larger sample is written without being copied.
const BUFFER: usize = 256 << 10;
/// The samples are copied in pieces of this size.
const PIECE: usize = 1 << 20;

/// Memory that several files share.
struct Room {
    most: usize,
    taken: AtomicUsize,
}

impl Room {
    /// Takes room for more bytes. False if there is none.
    fn take(&self, more: usize) -> bool {
        let grown = |taken: usize| taken.checked_add(more).filter(|taken| *taken <= self.most);
        self.taken.fetch_update(Relaxed, Relaxed, grown).is_ok()
    }
}

/// The samples that were written so far.
pub(super) struct SampleSpool {
    /// As long as there are few: the samples, without framing.
    memory: Vec<u8>,
    room: &'static Room,
    /// How many bytes of the room are taken for this file.
    taken: usize,
    disk: Option<OnDisk>,
}

impl Default for SampleSpool {
    fn default() -> Self {
        Self::sharing(&ALL_FILES)
    }
}

impl Drop for SampleSpool {
    fn drop(&mut self) {
        self.give_back();
    }
}

struct OnDisk {
    file: File,
    /// Samples with their framing, before they are written.
    framed: Vec<u8>,
    /// The name of the file. The file is removed when this is dropped.
    _name: Option<TempPath>,
}

impl SampleSpool {
    fn sharing(room: &'static Room) -> Self {
        SampleSpool { memory: Vec::new(), room, taken: 0, disk: None }
    }

    /// Adds samples. `ends` says where each of them ends in `samples`, `earlier` where each of those before ends.
    pub(super) fn add(
        &mut self,
        samples: &[u8],
        ends: &[usize],
        earlier: &[u64],
        out: &dyn Output,
    ) -> Result<()> {
        if let Some(disk) = &mut self.disk {
            return disk.write(samples, ends.iter().copied()).map_err(failed);
        }
        let length = self.memory.len() + samples.len();
        if self.has_room(length) {
            return self.keep(samples, length);
        }
        let (file, name) = match out.create_spool() {
            // Better more memory than an error.
            Err(error) if is_lack_of_descriptors(&error) && length <= IN_MEMORY => {
                return self.keep(samples, length);
            }
            created => created.map_err(failed)?,
        };
        let disk = self.disk.insert(OnDisk { file, framed: Vec::new(), _name: name });
        let memory = std::mem::take(&mut self.memory);
        disk.write(&memory, earlier.iter().map(|&end| end as usize)).map_err(failed)?;
        disk.write(samples, ends.iter().copied()).map_err(failed)?;
        drop(memory);
        self.give_back();
        Ok(())
    }

    /// Whether that many bytes can be in memory. Takes the room for them.
    fn has_room(&mut self, length: usize) -> bool {
        if length <= SMALL {
            return true;
        }
        let fits = length <= IN_MEMORY && self.room.take(length - self.taken);
        self.taken = if fits { length } else { self.taken };
        fits
    }

    fn give_back(&mut self) {
        self.room.taken.fetch_sub(std::mem::take(&mut self.taken), Relaxed);
    }

    fn keep(&mut self, samples: &[u8], length: usize) -> Result<()> {
        bytes::reserve_bytes("samples to be written", &mut self.memory, length as u64)?;
        self.memory.extend_from_slice(samples);
        Ok(())
    }

    /// Writes all samples to the output. `ends` says where each of them ends.
    pub(super) fn copy_to(mut self, ends: &[u64], out: &mut dyn Output) -> Result<()> {
        match self.disk.take() {
            None => out.write_all(&self.memory),
            Some(disk) => disk.copy_to(ends, out),
        }
    }
}

impl OnDisk {
    fn write(&mut self, samples: &[u8], ends: impl Iterator<Item = usize>) -> std::io::Result<()> {
        let mut begin = 0;
        for end in ends {
            let sample = samples.get(begin..end).unwrap_or_default();
            if sample.len() < BUFFER {
                frame::put(&mut self.framed, sample);
            } else {
                self.framed.extend_from_slice(&frame::header(sample));
                self.flush()?;
                self.file.write_all(sample)?;
                self.framed.extend_from_slice(&frame::trailer(sample));
            }
            if self.framed.len() >= BUFFER {
                self.flush()?;
            }
            begin = end;
        }
        // All samples of the group, so that not more than the next group is lost if the process is killed.
        self.flush()?;
        // There may be thousands of these buffers.
        self.framed = Vec::new();
        Ok(())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.write_all(&self.framed)?;
        self.framed.clear();
        Ok(())
    }

    fn copy_to(self, ends: &[u64], out: &mut dyn Output) -> Result<()> {
        let mut file = self.file;
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let mut buffer = vec![0; PIECE];
        let mut begins = std::iter::once(0).chain(ends.iter().copied());
        let mut sizes = ends.iter().map(|end| end - begins.next().unwrap_or(0));
        // Framing that comes before the next sample, and bytes of that sample.
        let (mut framing, mut sample) = (0, 0);
        let mut rest = ends.last().copied().unwrap_or(0);
        while rest > 0 {
            let length = match file.read(&mut buffer) {
                Ok(0) => return Err(failed(ErrorKind::UnexpectedEof.into())),
                Ok(length) => length,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(failed(e)),
            };
            // The samples are moved to the front of the buffer, over the framing.
            let (mut at, mut kept) = (0, 0);
            while at < length {
                if framing > 0 {
                    let here = framing.min(length - at);
                    (framing, at) = (framing - here, at + here);
                } else if sample > 0 {
                    let here = usize::try_from(sample).map_or(length - at, |sample| sample.min(length - at));
                    buffer.copy_within(at..at + here, kept);
                    (sample, at, kept) = (sample - here as u64, at + here, kept + here);
                    framing = if sample == 0 { frame::TRAILER } else { 0 };
                } else {
                    let Some(size) = sizes.next() else { break };
                    sample = size;
                    framing = frame::HEADER as usize + if size == 0 { frame::TRAILER } else { 0 };
                }
            }
            out.write_all(&buffer[..kept])?;
            rest -= kept as u64;
        }
        Ok(())
    }
}

fn is_lack_of_descriptors(error: &std::io::Error) -> bool {
    #[cfg(unix)]
    return [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE]
        .iter()
        .any(|lack| error.raw_os_error() == Some(lack.raw_os_error()));
    #[cfg(not(unix))]
    {
        let _ = error;
        false
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::io("spooling samples to a temporary file failed", error).hint(
        "pass num_records= to write to a file or a store without one; TMPDIR says where temporary files are",
    )
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::AtomicBool;

    /// Collects what is written. With `fails`, no temporary file can be made.
    #[derive(Default)]
    struct Collected {
        bytes: Vec<u8>,
        fails: bool,
        spooled: AtomicBool,
    }

    impl Output for Collected {
        fn position(&self) -> u64 {
            self.bytes.len() as u64
        }

        fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
            self.bytes.extend_from_slice(bytes);
            Ok(())
        }

        fn can_patch(&self) -> bool {
            false
        }

        fn skip(&mut self, _: u64) -> Result<()> {
            unreachable!("it cannot be patched");
        }

        fn write_at(&mut self, _: u64, _: &[u8]) -> Result<()> {
            unreachable!("it cannot be patched");
        }

        fn flush(&mut self) -> Result<()> {
            Ok(())
        }

        fn create_spool(&self) -> std::io::Result<(File, Option<TempPath>)> {
            self.spooled.store(true, Relaxed);
            match self.fails {
                true => Err(rustix::io::Errno::MFILE.into()),
                false => Ok((tempfile::tempfile()?, None)),
            }
        }
    }

    fn room(most: usize) -> &'static Room {
        Box::leak(Box::new(Room { most, taken: AtomicUsize::new(0) }))
    }

    /// Adds groups of one sample each. Returns where they end.
    fn add(spool: &mut SampleSpool, sizes: &[usize], out: &Collected) -> Result<Vec<u64>> {
        let mut ends = Vec::new();
        for (number, &size) in sizes.iter().enumerate() {
            spool.add(&vec![number as u8; size], &[size], &ends, out)?;
            ends.push(ends.last().copied().unwrap_or(0) + size as u64);
        }
        Ok(ends)
    }

    #[test]
    fn a_thousand_files_hold_little_more_than_their_room_and_a_small_file_needs_no_disk() {
        let room = room(ALL_FILES.most);
        let out = Collected::default();
        let mut spools: Vec<_> = (0..1000).map(|_| SampleSpool::sharing(room)).collect();
        // The first file is small.
        add(&mut spools[0], &[SMALL / 2, SMALL / 2], &out).unwrap();
        for spool in &mut spools[1..200] {
            add(spool, &[SMALL, SMALL, SMALL], &out).unwrap();
        }
        assert!(spools[0].disk.is_none());
        let held: usize = spools.iter().map(|spool| spool.memory.len()).sum();
        assert!(held <= ALL_FILES.most + 1000 * SMALL, "{held}");
        let last = &spools[199];
        assert!(last.disk.is_some() && last.taken == 0, "there was no room left");
        drop(spools);
        assert_eq!(room.taken.load(Relaxed), 0);
    }

    #[test]
    fn samples_stay_in_memory_if_there_are_no_descriptors_but_not_too_many() {
        let out = Collected { fails: true, ..Collected::default() };
        let mut spool = SampleSpool::sharing(room(0));
        add(&mut spool, &[SMALL, IN_MEMORY - SMALL], &out).unwrap();
        assert!(out.spooled.load(Relaxed) && spool.memory.len() == IN_MEMORY);
        assert!(add(&mut spool, &[1], &out).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn what_is_added_comes_out_wherever_it_waits(
            sizes in prop::collection::vec(prop_oneof![0usize..100, 0usize..400_000], 1..12),
            most in 0usize..2_000_000,
        ) {
            let room = room(most);
            let mut out = Collected::default();
            let mut spool = SampleSpool::sharing(room);
            let ends = add(&mut spool, &sizes, &out).unwrap();
            prop_assert_eq!(out.spooled.load(Relaxed), spool.disk.is_some());
            spool.copy_to(&ends, &mut out).unwrap();
            let expected: Vec<u8> =
                (0..).zip(&sizes).flat_map(|(number, &size)| vec![number; size]).collect();
            prop_assert!(out.bytes == expected);
            prop_assert_eq!(room.taken.load(Relaxed), 0);
        }
    }
}
