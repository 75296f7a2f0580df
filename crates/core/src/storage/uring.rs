//! Many reads in flight at once, of one file or of many, through io_uring.
//!
//! A disk answers a read in the time it takes, but it answers a hundred of them in little more than that. A queue has
//! them all on their way before the first one is back.
//!
//! A queue belongs to one thread, so that there is no lock that a fork could leave closed, and to one process: in a
//! forked child it is the parent's, and is left alone for ever. Where the system refuses queues, as many containers
//! do, there is none, and whoever asked reads in another way.

use crate::process;
use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Reads in flight at the most. Measured once each on a virtio disk, random aligned reads of 8 KiB past the page
/// cache: 21,000/s with 1, 133,000/s with 32, 136,000/s with 64, 167,000/s with 128, 160,000/s with 256. Between 64
/// and 256 other runs come out in another order.
pub const DEPTH: usize = 128;

/// A range to read, and the place its bytes go.
pub struct Read<'f, 'a> {
    /// Whatever helps its owner to know it again.
    pub key: usize,
    /// The file.
    pub file: BorrowedFd<'f>,
    /// Offset of the first byte.
    pub at: u64,
    /// Where they go. The first `length` bytes are filled, as far as the system comes with one read.
    pub out: &'a mut [u8],
    /// How many are wanted.
    pub length: usize,
}

/// What is to be read: asked for reads as long as there is room in the queue, and given each one back.
pub trait Reads<'f, 'a> {
    /// What ends it.
    type Error;

    /// The next one. None: there is none, or none before another one comes back.
    fn next(&mut self) -> Option<Read<'f, 'a>>;

    /// Takes one back, with how many bytes one read of the system gave or why it failed. What it left undone is the
    /// owner's to finish, by reads that wait: they pass where trouble has passed, and tell of lasting trouble in the
    /// same words as always. After an error no further read is begun.
    fn done(&mut self, read: Read<'f, 'a>, outcome: Result<usize, Errno>) -> Result<(), Self::Error>;
}

/// Makes all `reads` through this thread's queue. Returns with nothing in flight. None: there is no queue here, and
/// nothing was read.
pub fn read<'f, 'a, R: Reads<'f, 'a>>(reads: &mut R) -> Option<Result<(), R::Error>> {
    let mut queue = Queue::take()?;
    let result = Batch::new(&mut queue).run(reads);
    // What was never handed over would be read into memory that is somebody else's by then.
    if queue.ring.submission().is_empty() {
        queue.give_back();
    }
    Some(result)
}

/// The queue of one thread.
struct Queue {
    ring: ManuallyDrop<IoUring>,
    generation: u64,
}

/// The generation of a queue that is not ours any more.
const FOREIGN: u64 = u64::MAX;

/// Whether the system refused a queue in a way that will not change.
static REFUSED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Taken out while it is used. Freed with its thread.
    static QUEUE: Cell<Option<Queue>> = const { Cell::new(None) };
    #[cfg(test)]
    static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
}

impl Queue {
    fn take() -> Option<Queue> {
        #[cfg(test)]
        if FORBIDDEN.get() {
            return None;
        }
        // A thread that is ending has given its queue back already.
        let kept = QUEUE.try_with(Cell::take).ok()?;
        match kept {
            Some(queue) if queue.generation == process::generation() => Some(queue),
            _ => Queue::new(),
        }
    }

    fn give_back(self) {
        // Another one, if there is one by now, is freed.
        let _ = QUEUE.try_with(|place| place.set(Some(self)));
    }

    fn new() -> Option<Queue> {
        if REFUSED.load(Relaxed) {
            return None;
        }
        let entries = DEPTH as u32;
        // Completions may wait until this thread looks for them, instead of interrupting it: since Linux 5.19.
        let cooperative = IoUring::builder().dontfork().setup_coop_taskrun().build(entries);
        let ring = match cooperative.or_else(|_| IoUring::builder().dontfork().build(entries)) {
            Ok(ring) => ring,
            Err(error) => {
                // Forbidden or not built in. Anything else (no memory, no descriptor) may be better next time.
                if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS)) {
                    REFUSED.store(true, Relaxed);
                }
                return None;
            }
        };
        // Plain reads came with Linux 5.6, as did the means to ask for them.
        let mut probe = io_uring::Probe::new();
        let has_reads =
            ring.submitter().register_probe(&mut probe).is_ok() && probe.is_supported(opcode::Read::CODE);
        if !has_reads {
            REFUSED.store(true, Relaxed);
            return None;
        }
        Some(Queue { ring: ManuallyDrop::new(ring), generation: process::generation() })
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // In a forked child the descriptor's number may mean another file, and the memory is not there: left alone.
        if self.generation == process::generation() {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.ring) };
        }
    }
}

/// The reads of one call. Dropping it waits until nothing is in flight, whatever happened.
struct Batch<'q, 'f, 'a> {
    queue: &'q mut Queue,
    /// What the system may still write to, by the number it will come back under.
    places: Vec<Option<Read<'f, 'a>>>,
    free: Vec<usize>,
}

impl<'q, 'f, 'a> Batch<'q, 'f, 'a> {
    fn new(queue: &'q mut Queue) -> Self {
        let places = (0..DEPTH).map(|_| None).collect();
        Batch { queue, places, free: (0..DEPTH).rev().collect() }
    }

    fn run<R: Reads<'f, 'a>>(&mut self, reads: &mut R) -> Result<(), R::Error> {
        loop {
            while let Some(place) = self.free.pop() {
                let Some(read) = reads.next() else {
                    self.free.push(place);
                    break;
                };
                if let Err(read) = self.push(place, read) {
                    // No room for it, which cannot be: there are as many entries as places.
                    self.free.push(place);
                    reads.done(read, Err(Errno::AGAIN))?;
                }
            }
            if self.free.len() == DEPTH {
                return Ok(());
            }
            let handed_over = self.queue.ring.submit_and_wait(1);
            while let Some((read, outcome)) = self.completed() {
                reads.done(read, outcome)?;
            }
            match handed_over.map_err(|error| error.raw_os_error()) {
                Ok(_) | Err(Some(libc::EINTR)) => {}
                // No memory for so many.
                Err(Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM)) => return self.go_on_without(reads),
                // Somebody closed every descriptor that he did not know, and the number may mean his file by now.
                Err(_) => {
                    self.queue.generation = FOREIGN;
                    return self.go_on_without(reads);
                }
            }
        }
    }

    /// The system takes no more reads.
    fn go_on_without<R: Reads<'f, 'a>>(&mut self, reads: &mut R) -> Result<(), R::Error> {
        while self.in_flight() > 0 {
            self.wait();
            while let Some((read, outcome)) = self.completed() {
                reads.done(read, outcome)?;
            }
        }
        for place in 0..DEPTH {
            if let Some(read) = self.places[place].take() {
                reads.done(read, Err(Errno::AGAIN))?;
            }
        }
        while let Some(read) = reads.next() {
            reads.done(read, Err(Errno::AGAIN))?;
        }
        Ok(())
    }

    fn push(&mut self, place: usize, read: Read<'f, 'a>) -> Result<(), Read<'f, 'a>> {
        /// More than that the system does not read at once, and it must fit its own counts.
        const MOST: usize = 1 << 30;
        let length = read.length.min(read.out.len()).min(MOST) as u32;
        let entry = opcode::Read::new(types::Fd(read.file.as_raw_fd()), read.out.as_mut_ptr(), length)
            .offset(read.at)
            .build()
            .user_data(place as u64);
        // SAFETY: `places` keeps the buffer, which is ours alone, until the read has come back; nothing ends this
        // batch before (`drop`). The read borrows its file for as long.
        let pushed = unsafe { self.queue.ring.submission().push(&entry) };
        // The queue has as many entries as there are places. One that is left from a failed call takes none of them:
        // such a queue is not used again.
        debug_assert!(pushed.is_ok(), "a place without an entry");
        if pushed.is_err() {
            return Err(read);
        }
        self.places[place] = Some(read);
        Ok(())
    }

    fn completed(&mut self) -> Option<(Read<'f, 'a>, Result<usize, Errno>)> {
        let entry = self.queue.ring.completion().next()?;
        let place = entry.user_data() as usize;
        let read = self.places.get_mut(place)?.take()?;
        self.free.push(place);
        let outcome = match usize::try_from(entry.result()) {
            Ok(length) => Ok(length.min(read.length)),
            Err(_) => Err(Errno::from_raw_os_error(-entry.result())),
        };
        Some((read, outcome))
    }

    /// How many reads the system has.
    fn in_flight(&mut self) -> usize {
        let occupied = self.places.iter().filter(|place| place.is_some()).count();
        let mut submission = self.queue.ring.submission();
        submission.sync();
        occupied.saturating_sub(submission.len())
    }

    /// Waits for a read to come back, and hands over nothing.
    fn wait(&mut self) {
        const GETEVENTS: u32 = 1;
        // SAFETY: no reads are handed over and there is no argument, so that no memory is looked at.
        let waited = unsafe { self.queue.ring.submitter().enter::<()>(0, 1, GETEVENTS, None) };
        if waited.is_err() {
            // Reads come back also without being waited for, as soon as this thread enters the system.
            std::thread::yield_now();
        }
    }
}

impl Drop for Batch<'_, '_, '_> {
    fn drop(&mut self) {
        while self.in_flight() > 0 {
            self.wait();
            while self.completed().is_some() {}
        }
    }
}

/// Calls `act` in a thread that gets no queue, as where the system forbids it.
#[cfg(test)]
pub(super) fn without<T>(act: impl FnOnce() -> T) -> T {
    FORBIDDEN.set(true);
    let result = act();
    FORBIDDEN.set(false);
    result
}

#[cfg(test)]
mod tests;
