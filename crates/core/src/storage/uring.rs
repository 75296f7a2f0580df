//! Many reads in flight at once, of one file or of many, through io_uring.
//!
//! A disk completes a hundred reads in little more time than one. A submission queue starts them all before the first
//! one is complete.
//!
//! A queue belongs to one thread, so there is no lock that a fork could leave held. It also belongs to one process: a
//! forked child never uses or closes the queue of its parent. If the system refuses such queues, as it does in many
//! containers, there is none, and the caller reads in another way.

use crate::process;
use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The most reads in flight. Measured once each on a virtio disk, with random aligned O_DIRECT reads of 8 KiB: 21,000/s
/// with 1, 133,000/s with 32, 136,000/s with 64, 167,000/s with 128, 160,000/s with 256. Between 64 and 256, the order
/// differs from run to run.
pub const DEPTH: usize = 128;

/// A range to read, and the buffer for its bytes.
pub struct Read<'f, 'a> {
    /// The owner's number for this read.
    pub key: usize,
    /// The file.
    pub file: BorrowedFd<'f>,
    /// Offset of the first byte.
    pub at: u64,
    /// The buffer. The first `length` bytes are filled, as far as one read of the system gets.
    pub out: &'a mut [u8],
    /// How many bytes to read.
    pub length: usize,
}

/// A source of reads. It supplies reads as long as there is room in the queue, and gets each one back when it is
/// complete.
pub trait Reads<'f, 'a> {
    /// The error that ends the reads.
    type Error;

    /// The next read. None: there are no more, or none before another read is complete.
    fn next(&mut self) -> Option<Read<'f, 'a>>;

    /// Takes a completed read back, with the number of bytes of one system read, or its error. The owner completes a
    /// short or failed read with ordinary reads that wait. They succeed if the problem was temporary, and report a
    /// lasting problem with the usual error. After an error from this method, no further read is begun.
    fn done(&mut self, read: Read<'f, 'a>, outcome: Result<usize, Errno>) -> Result<(), Self::Error>;
}

/// Makes all `reads` through this thread's queue. When it returns, no read is in flight. None: there is no queue here,
/// and nothing was read.
pub fn read<'f, 'a, R: Reads<'f, 'a>>(reads: &mut R) -> Option<Result<(), R::Error>> {
    let mut queue = Queue::take()?;
    let result = Batch::new(&mut queue).run(reads);
    // An entry that was never submitted would later be read into memory that is not ours by then. A queue with such an
    // entry is not used again.
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

/// The generation of a queue that this process must not use any more.
const FOREIGN: u64 = u64::MAX;

/// Whether the system refused a queue for a reason that will not change.
static REFUSED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The queue of this thread. Empty while the queue is in use. Freed when the thread ends.
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
        // A thread that is ending has freed its queue already.
        let kept = QUEUE.try_with(Cell::take).ok()?;
        match kept {
            Some(queue) if queue.generation == process::generation() => Some(queue),
            _ => Queue::new(),
        }
    }

    fn give_back(self) {
        // If there is another queue by now, it is freed.
        let _ = QUEUE.try_with(|place| place.set(Some(self)));
    }

    fn new() -> Option<Queue> {
        if REFUSED.load(Relaxed) {
            return None;
        }
        let entries = DEPTH as u32;
        // Since Linux 5.19, completions can wait until this thread checks for them, instead of interrupting it.
        let cooperative = IoUring::builder().dontfork().setup_coop_taskrun().build(entries);
        let ring = match cooperative.or_else(|_| IoUring::builder().dontfork().build(entries)) {
            Ok(ring) => ring,
            Err(error) => {
                // Forbidden or not built in. Any other error (no memory, no descriptor) may be temporary.
                if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS)) {
                    REFUSED.store(true, Relaxed);
                }
                return None;
            }
        };
        // Linux 5.6 added plain reads, and also the probe for them.
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
        // In a forked child, the descriptor's number may refer to another file, and the memory is not mapped. Nothing
        // is freed there.
        if self.generation == process::generation() {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.ring) };
        }
    }
}

/// The reads of one call. Dropping it waits until nothing is in flight, also after an error or a panic.
struct Batch<'q, 'f, 'a> {
    queue: &'q mut Queue,
    /// The reads that the system may still write to, by the number that identifies them when they complete.
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
                    // There is no room for it. This cannot happen: there are as many entries as places.
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
                // There is no memory for so many reads.
                Err(Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM)) => return self.go_on_without(reads),
                // Other code in this process has closed the descriptor of the queue, as a program does that closes all
                // descriptors it does not know. The number may refer to another file by now.
                Err(_) => {
                    self.queue.generation = FOREIGN;
                    return self.go_on_without(reads);
                }
            }
        }
    }

    /// Completes the reads without the queue, because the system accepts no more.
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
        /// The system does not read more at once, and the length must fit its 32-bit field.
        const MOST: usize = 1 << 30;
        let length = read.length.min(read.out.len()).min(MOST) as u32;
        let entry = opcode::Read::new(types::Fd(read.file.as_raw_fd()), read.out.as_mut_ptr(), length)
            .offset(read.at)
            .build()
            .user_data(place as u64);
        // SAFETY: `places` keeps the exclusive buffer until the read is complete, and the batch does not end before
        // that (`drop`). The read borrows its file for the same time.
        let pushed = unsafe { self.queue.ring.submission().push(&entry) };
        // The queue has as many entries as there are places. An entry that is left from a failed call takes none of
        // them, because such a queue is not used again.
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

    /// How many reads are in flight.
    fn in_flight(&mut self) -> usize {
        let occupied = self.places.iter().filter(|place| place.is_some()).count();
        let mut submission = self.queue.ring.submission();
        submission.sync();
        occupied.saturating_sub(submission.len())
    }

    /// Waits for a read to complete, and submits nothing.
    fn wait(&mut self) {
        const GETEVENTS: u32 = 1;
        // SAFETY: nothing is submitted and there is no argument, so no memory is accessed.
        let waited = unsafe { self.queue.ring.submitter().enter::<()>(0, 1, GETEVENTS, None) };
        if waited.is_err() {
            // Reads complete even if this thread does not wait for them, as soon as it enters the kernel.
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

/// Calls `act` while this thread gets no queue, as if the system refused it.
#[cfg(test)]
pub(super) fn without<T>(act: impl FnOnce() -> T) -> T {
    FORBIDDEN.set(true);
    let result = act();
    FORBIDDEN.set(false);
    result
}

#[cfg(test)]
mod tests;
