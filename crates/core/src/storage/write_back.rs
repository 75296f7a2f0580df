//! Lets the disk write a file while the file is still being made. Without that, the disk is idle until the last sync,
//! and the writer is idle during it.
//!
//! A file is divided into pieces. When a piece is complete, the system is asked to write it, without waiting for it. The
//! last sync waits for all of them, so it decides whether the file is on the disk. Only Linux can do this. On
//! other systems nothing happens.

use std::fs::File;
use std::io::{Error, Result};
use std::ops::Range;

/// Large enough that the calls cost nothing, and that most files are smaller, for which there is no call.
pub const PIECE: usize = 8 << 20;

/// Not worth a call for a smaller file of a set: the last sync takes longer than writing so few bytes.
const SMALL: u64 = 1 << 20;

/// Asks the system to write a range of a file to the disk. Tests replace it.
pub type Start = fn(&File, Range<u64>) -> Result<()>;

/// How much of a file the system was asked to write.
#[derive(Debug)]
pub struct WriteBack {
    start: Start,
    /// Where the first piece begins that the system was not asked to write.
    next: u64,
    is_off: bool,
}

impl WriteBack {
    /// Of an empty file.
    pub fn new(start: Start) -> Self {
        WriteBack { start, next: 0, is_off: false }
    }

    /// Call this when everything before `written` was given to the system.
    pub fn advance(&mut self, file: &File, written: u64) -> Result<()> {
        // The last byte of a piece is the last one of a page. Otherwise the page would be written again with the next piece.
        let end = written - written % PIECE as u64;
        if end <= self.next {
            return Ok(());
        }
        let begin = std::mem::replace(&mut self.next, end);
        self.ask(file, begin..end)
    }

    /// Call this when the bytes before `position` are written later. They are left to the last sync, because a page that
    /// changes after it was written must be written again.
    pub fn skip_to(&mut self, position: u64) {
        self.next = self.next.max(position.next_multiple_of(PIECE as u64));
    }

    /// Call this when the file is complete and other files are written before its last sync.
    pub fn finish(&mut self, file: &File, length: u64) -> Result<()> {
        // The whole file, because of the bytes that were skipped. Pages that are on the disk are not written again.
        if length >= SMALL { self.ask(file, 0..length) } else { Ok(()) }
    }

    fn ask(&mut self, file: &File, range: Range<u64>) -> Result<()> {
        if self.is_off {
            return Ok(());
        }
        match (self.start)(file, range) {
            Err(error) if is_loss(&error) => Err(error),
            Err(_) => {
                // A file system or a sandbox that does not know this call. The last sync does all the work.
                self.is_off = true;
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}

/// Whether bytes did not get to the disk. The last sync may not tell: some file systems report a full disk only to the
/// call that found it.
fn is_loss(error: &Error) -> bool {
    #[cfg(unix)]
    {
        use rustix::io::Errno;
        [Errno::IO, Errno::NOSPC, Errno::DQUOT]
            .iter()
            .any(|loss| error.raw_os_error() == Some(loss.raw_os_error()))
    }
    #[cfg(not(unix))]
    {
        let _ = error;
        false
    }
}

/// Asks the system and does not wait, unless the queue of the disk is full.
#[cfg(target_os = "linux")]
pub fn start(file: &File, range: Range<u64>) -> Result<()> {
    use std::os::fd::AsRawFd;
    let (at, length) = (range.start as i64, (range.end - range.start) as i64);
    // No flag that waits. A call that waits reports errors of earlier writes, and then the last sync does not report them.
    // SAFETY: the descriptor is open while `file` is borrowed, and the call touches no memory of this process.
    let done = unsafe { libc::sync_file_range(file.as_raw_fd(), at, length, libc::SYNC_FILE_RANGE_WRITE) };
    if done == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// Other systems have no such call.
#[cfg(not(target_os = "linux"))]
pub fn start(_: &File, _: Range<u64>) -> Result<()> {
    Ok(())
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::cell::RefCell;

    thread_local! {
        static STARTED: RefCell<Vec<(u64, u64)>> = const { RefCell::new(Vec::new()) };
    }

    /// Notes the ranges instead of writing them.
    pub fn note(_: &File, range: Range<u64>) -> Result<()> {
        STARTED.with_borrow_mut(|started| started.push((range.start, range.end)));
        Ok(())
    }

    /// What was noted in this thread since the last call: where each range begins and ends.
    pub fn noted() -> Vec<(u64, u64)> {
        STARTED.take()
    }

    const P: u64 = PIECE as u64;

    #[test]
    fn pieces_follow_each_other_and_only_complete_ones_are_started() {
        let file = tempfile::tempfile().unwrap();
        let mut write_back = WriteBack::new(note);
        for written in [0, 1, P - 1] {
            write_back.advance(&file, written).unwrap();
        }
        assert!(noted().is_empty());
        for written in [P, P + 1, 2 * P - 1, 4 * P + 5, 4 * P + 6] {
            write_back.advance(&file, written).unwrap();
        }
        assert_eq!(noted(), [(0, P), (P, 4 * P)]);
    }

    #[test]
    fn bytes_that_are_written_later_are_started_only_at_the_end() {
        let file = tempfile::tempfile().unwrap();
        let mut write_back = WriteBack::new(note);
        write_back.skip_to(12);
        write_back.advance(&file, 2 * P).unwrap();
        write_back.skip_to(12);
        write_back.advance(&file, 3 * P).unwrap();
        write_back.skip_to(5 * P);
        write_back.advance(&file, 6 * P + 1).unwrap();
        assert_eq!(noted(), [(P, 2 * P), (2 * P, 3 * P), (5 * P, 6 * P)]);
        write_back.finish(&file, 6 * P + 1).unwrap();
        write_back.finish(&file, SMALL - 1).unwrap();
        assert_eq!(noted(), [(0, 6 * P + 1)]);
    }

    #[cfg(unix)]
    #[test]
    fn lost_bytes_are_an_error_and_a_system_without_the_call_is_asked_once() {
        use rustix::io::Errno;
        let file = tempfile::tempfile().unwrap();
        let losses: [Start; 3] =
            [|_, _| Err(Errno::IO.into()), |_, _| Err(Errno::NOSPC.into()), |_, _| Err(Errno::DQUOT.into())];
        for (start, loss) in losses.into_iter().zip([Errno::IO, Errno::NOSPC, Errno::DQUOT]) {
            let error = WriteBack::new(start).advance(&file, P).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(loss.raw_os_error()));
            assert!(WriteBack::new(start).finish(&file, SMALL).is_err());
        }
        let mut write_back = WriteBack::new(|file, range| note(file, range).and(Err(Errno::NOSYS.into())));
        write_back.advance(&file, P).unwrap();
        write_back.advance(&file, 2 * P).unwrap();
        write_back.finish(&file, 2 * P).unwrap();
        assert_eq!(noted(), [(0, P)]);
    }

    #[test]
    fn the_system_takes_the_call() {
        use std::io::Write;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"some bytes").unwrap();
        start(&file, 0..10).unwrap();
        file.sync_all().unwrap();
    }
}
