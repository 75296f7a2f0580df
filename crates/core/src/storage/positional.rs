//! Positional reads and writes, with the loops that complete short ones.

use crate::cx::Stop;
use crate::error::Error;
use std::fs::File;
use std::io::ErrorKind;

/// Why a range was not read.
#[derive(Debug)]
pub enum Failure {
    /// The file has no byte at this position.
    Ends(u64),
    /// The system returned an error at this position.
    Refused(u64, std::io::Error),
    /// The caller wants to stop.
    Stopped(Error),
}

/// One positional read, which may be short.
pub fn read_some(file: &File, out: &mut [u8], at: u64) -> std::io::Result<usize> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_at(file, out, at);
    #[cfg(windows)]
    return std::os::windows::fs::FileExt::seek_read(file, out, at);
}

/// Fills `out` from `at` on.
#[inline]
pub fn read_exact(file: &File, out: &mut [u8], at: u64, stop: &dyn Stop) -> Result<(), Failure> {
    let mut done = 0;
    while done < out.len() {
        let position = at + done as u64;
        match read_some(file, &mut out[done..], position) {
            Ok(0) => return Err(Failure::Ends(position)),
            Ok(n) => done += n,
            // A signal interrupted the wait for a slow file system. It may be the one that should stop the call.
            Err(e) if e.kind() == ErrorKind::Interrupted => stop.check().map_err(Failure::Stopped)?,
            Err(e) => return Err(Failure::Refused(position, e)),
        }
    }
    Ok(())
}

/// Writes all of `bytes` from `at` on.
pub fn write_all(file: &File, mut bytes: &[u8], mut at: u64) -> std::io::Result<()> {
    while !bytes.is_empty() {
        #[cfg(unix)]
        let written = std::os::unix::fs::FileExt::write_at(file, bytes, at);
        #[cfg(windows)]
        let written = std::os::windows::fs::FileExt::seek_write(file, bytes, at);
        match written {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => (bytes, at) = (&bytes[n..], at + n as u64),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
