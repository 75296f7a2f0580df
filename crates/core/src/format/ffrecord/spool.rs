//! Samples that wait until the table before them can be written.
//!
//! A few of them wait in memory. More of them go to a temporary file, as TFRecord. That file has a name if the output
//! is a file with a name, so that the samples can be saved if the process is killed.

use crate::bytes;
use crate::error::{Error, Result};
use crate::format::tfrecord::frame;
use crate::storage::output::Output;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use tempfile::TempPath;

/// More samples than this move from memory to disk.
const IN_MEMORY: usize = 8 << 20;
/// Samples are written in pieces of this size. A larger sample is written without being copied.
const BUFFER: usize = 256 << 10;
/// The samples are copied in pieces of this size.
const PIECE: usize = 1 << 20;

/// The samples that were written so far.
#[derive(Default)]
pub(super) struct SampleSpool {
    /// As long as there are few: the samples, without framing.
    memory: Vec<u8>,
    disk: Option<OnDisk>,
}

struct OnDisk {
    file: File,
    /// Samples with their framing, before they are written.
    framed: Vec<u8>,
    /// The name of the file. The file is removed when this is dropped.
    _name: Option<TempPath>,
}

impl SampleSpool {
    /// Adds samples. `ends` says where each of them ends in `samples`, `earlier` where each of those before ends.
    pub(super) fn add(
        &mut self,
        samples: &[u8],
        ends: &[usize],
        earlier: &[u64],
        out: &dyn Output,
    ) -> Result<()> {
        let length = self.memory.len() + samples.len();
        let disk = match &mut self.disk {
            Some(disk) => disk,
            None if length <= IN_MEMORY => {
                bytes::reserve_bytes("samples to be written", &mut self.memory, length as u64)?;
                self.memory.extend_from_slice(samples);
                return Ok(());
            }
            None => {
                let (file, name) = out.create_spool().map_err(failed)?;
                let disk = OnDisk { file, framed: Vec::new(), _name: name };
                let disk = self.disk.insert(disk);
                let memory = std::mem::take(&mut self.memory);
                disk.write(&memory, earlier.iter().map(|&end| end as usize)).map_err(failed)?;
                disk
            }
        };
        disk.write(samples, ends.iter().copied()).map_err(failed)
    }

    /// Writes all samples to the output. `ends` says where each of them ends.
    pub(super) fn copy_to(self, ends: &[u64], out: &mut dyn Output) -> Result<()> {
        match self.disk {
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
        self.flush()
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

fn failed(error: std::io::Error) -> Error {
    Error::io("spooling samples to a temporary file failed", error).hint(
        "pass num_records= to write to a file or a store without one; TMPDIR says where temporary files are",
    )
}
