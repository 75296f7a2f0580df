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
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    /// Ranges of a file, all of one size, and what came of them.
    struct Pieces<'f, 'a> {
        left: Vec<Read<'f, 'a>>,
        back: Vec<(usize, Result<usize, Errno>)>,
        fails_after: usize,
    }

    impl<'f, 'a> Reads<'f, 'a> for Pieces<'f, 'a> {
        type Error = &'static str;

        fn next(&mut self) -> Option<Read<'f, 'a>> {
            self.left.pop()
        }

        fn done(&mut self, read: Read<'f, 'a>, outcome: Result<usize, Errno>) -> Result<(), &'static str> {
            self.back.push((read.key, outcome));
            match self.back.len() == self.fails_after {
                true => Err("enough"),
                false => Ok(()),
            }
        }
    }

    fn content(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at % 251) as u8).collect()
    }

    fn file_of(length: usize) -> File {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &content(length)).unwrap();
        file
    }

    const PIECE: usize = 100;

    fn pieces<'f, 'a>(file: &'f File, memory: &'a mut [u8]) -> Pieces<'f, 'a> {
        let pieces = memory.chunks_mut(PIECE).enumerate();
        let left = pieces
            .map(|(key, out)| Read {
                key,
                file: file.as_fd(),
                at: (key * PIECE) as u64,
                length: out.len(),
                out,
            })
            .collect();
        Pieces { left, back: Vec::new(), fails_after: usize::MAX }
    }

    fn is_here() -> bool {
        Queue::new().is_some()
    }

    #[test]
    fn many_more_ranges_than_the_queue_holds_all_come_back() {
        let (file, mut memory) = (file_of(1_000_050), vec![0; 1_000_050]);
        let mut reads = pieces(&file, &mut memory);
        let Some(result) = read(&mut reads) else { return };
        result.unwrap();
        let mut back = reads.back;
        back.sort_unstable_by_key(|(key, _)| *key);
        let expected: Vec<_> =
            (0..10_001).map(|key| (key, Ok(if key < 10_000 { PIECE } else { 50 }))).collect();
        assert_eq!(back, expected);
        assert_eq!(memory, content(1_000_050));
    }

    #[test]
    fn ranges_at_and_behind_the_end_come_back_short() {
        let (file, mut memory) = (file_of(250), vec![0; 400]);
        let mut reads = pieces(&file, &mut memory);
        let Some(result) = read(&mut reads) else { return };
        result.unwrap();
        reads.back.sort_unstable_by_key(|(key, _)| *key);
        assert_eq!(reads.back, [(0, Ok(100)), (1, Ok(100)), (2, Ok(50)), (3, Ok(0))]);
    }

    #[test]
    fn an_error_of_the_system_comes_back_as_it_is() {
        let (folder, mut memory) = (File::open("/").unwrap(), vec![0; 400]);
        let mut reads = pieces(&folder, &mut memory);
        let Some(result) = read(&mut reads) else { return };
        result.unwrap();
        assert!(reads.back.iter().all(|(_, outcome)| *outcome == Err(Errno::ISDIR)), "{:?}", reads.back);
        assert_eq!(reads.back.len(), 4);
    }

    #[test]
    fn an_error_of_the_owner_ends_it_and_the_queue_is_as_good_as_new() {
        for fails_after in [1, 7, 1000] {
            let (file, mut memory) = (file_of(1_000_000), vec![0; 1_000_000]);
            let mut reads = pieces(&file, &mut memory);
            reads.fails_after = fails_after;
            let Some(result) = read(&mut reads) else { return };
            assert_eq!(result, Err("enough"));
            assert_eq!(reads.back.len(), fails_after);
            // Nothing writes there any more.
            memory.fill(1);
            let (other, mut memory_of_other) = (file_of(50_000), vec![0; 50_000]);
            read(&mut pieces(&other, &mut memory_of_other)).unwrap().unwrap();
            assert_eq!(memory_of_other, content(50_000));
            assert!(memory.iter().all(|&byte| byte == 1));
        }
    }

    #[test]
    fn an_error_of_the_owner_waits_for_what_is_in_flight() {
        use std::sync::mpsc;
        struct Fails<'f, 'a>(Vec<Read<'f, 'a>>, mpsc::Sender<()>);
        impl<'f, 'a> Reads<'f, 'a> for Fails<'f, 'a> {
            type Error = &'static str;
            fn next(&mut self) -> Option<Read<'f, 'a>> {
                self.0.pop()
            }
            fn done(
                &mut self,
                _read: Read<'f, 'a>,
                outcome: Result<usize, Errno>,
            ) -> Result<(), &'static str> {
                assert_eq!(outcome, Ok(1));
                self.1.send(()).unwrap();
                Err("enough")
            }
        }
        if !is_here() {
            return;
        }
        // A pipe answers when somebody writes to it, so that reads of it are in flight for as long as we like.
        let (reader, mut writer) = std::io::pipe().unwrap();
        let (file, mut memory) = (File::from(std::os::fd::OwnedFd::from(reader)), vec![0; 3]);
        let (failed, has_failed) = mpsc::channel();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let is_over = &is_over;
            let writes = scope.spawn(move || {
                std::io::Write::write_all(&mut writer, b"a").unwrap();
                has_failed.recv().unwrap();
                (0..10_000).for_each(|_| std::thread::yield_now());
                let was_over = is_over.load(Relaxed);
                std::io::Write::write_all(&mut writer, b"bc").unwrap();
                was_over
            });
            let pieces = memory.chunks_mut(1).enumerate();
            let left =
                pieces.map(|(key, out)| Read { key, file: file.as_fd(), at: 0, length: 1, out }).collect();
            assert_eq!(read(&mut Fails(left, failed)), Some(Err("enough")));
            is_over.store(true, Relaxed);
            assert!(!writes.join().unwrap(), "it was over while two reads were in flight");
        });
        memory.sort_unstable();
        assert_eq!(memory, b"abc");
    }

    #[test]
    fn a_panic_of_the_owner_leaves_nothing_in_flight() {
        struct Panics<'f, 'a>(Pieces<'f, 'a>);
        impl<'f, 'a> Reads<'f, 'a> for Panics<'f, 'a> {
            type Error = &'static str;
            fn next(&mut self) -> Option<Read<'f, 'a>> {
                self.0.next()
            }
            fn done(
                &mut self,
                _read: Read<'f, 'a>,
                _outcome: Result<usize, Errno>,
            ) -> Result<(), &'static str> {
                std::panic::resume_unwind(Box::new("mine"))
            }
        }
        if !is_here() {
            return;
        }
        let (file, mut memory) = (file_of(1_000_000), vec![0; 1_000_000]);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            read(&mut Panics(pieces(&file, &mut memory))).map(|result| result.is_ok())
        }));
        assert!(ended.is_err());
        memory.fill(1);
        let mut again = vec![0; 50_000];
        read(&mut pieces(&file, &mut again)).unwrap().unwrap();
        assert_eq!(again, content(50_000));
        assert!(memory.iter().all(|&byte| byte == 1));
    }

    #[test]
    fn threads_read_at_once_each_through_its_own() {
        let file = file_of(300_000);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        let mut memory = vec![0; 300_000];
                        let Some(result) = read(&mut pieces(&file, &mut memory)) else { return };
                        result.unwrap();
                        assert_eq!(memory, content(300_000));
                    }
                });
            }
        });
    }

    #[test]
    fn a_queue_of_another_process_is_neither_used_nor_closed() {
        let Some(mut queue) = Queue::take() else { return };
        let descriptor = queue.ring.as_raw_fd();
        queue.generation = FOREIGN;
        queue.give_back();
        let own = Queue::take().unwrap();
        assert_ne!(own.ring.as_raw_fd(), descriptor);
        // SAFETY: only looks at the descriptor, which is leaked on purpose.
        assert!(unsafe { libc::fcntl(descriptor, libc::F_GETFD) } >= 0);
    }

    #[test]
    fn a_queue_that_was_closed_by_somebody_else_is_done_without() {
        let Some(queue) = Queue::take() else { return };
        let (file, mut memory) = (file_of(50_000), vec![0; 50_000]);
        // SAFETY: the descriptor is the queue's own; a copy of another file takes its number, as may happen to a
        // program that closes all that it does not know.
        unsafe { libc::dup2(file.as_raw_fd(), queue.ring.as_raw_fd()) };
        queue.give_back();
        let mut reads = pieces(&file, &mut memory);
        read(&mut reads).unwrap().unwrap();
        assert_eq!(reads.back.len(), 500);
        assert!(reads.back.iter().all(|(_, outcome)| outcome.is_err()));
        let mut reads = pieces(&file, &mut memory);
        read(&mut reads).unwrap().unwrap();
        assert_eq!(memory, content(50_000), "the next one is a new one");
    }
}
