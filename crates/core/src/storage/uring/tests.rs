//! Every read that is submitted completes, and nothing is in flight afterwards.

use super::*;
use std::fs::File;
use std::os::fd::AsFd;

/// Ranges of a file, all of one size, and the results of reading them.
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
        .map(|(key, out)| Read { key, file: file.as_fd(), at: (key * PIECE) as u64, length: out.len(), out })
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
    let expected: Vec<_> = (0..10_001).map(|key| (key, Ok(if key < 10_000 { PIECE } else { 50 }))).collect();
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
        // No read writes to this memory any more.
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
        fn done(&mut self, _read: Read<'f, 'a>, outcome: Result<usize, Errno>) -> Result<(), &'static str> {
            assert_eq!(outcome, Ok(1));
            self.1.send(()).unwrap();
            Err("enough")
        }
    }
    if !is_here() {
        return;
    }
    // A read from a pipe completes when something is written to the pipe, so reads are in flight for as long as we
    // like.
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
        let left = pieces.map(|(key, out)| Read { key, file: file.as_fd(), at: 0, length: 1, out }).collect();
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
        fn done(&mut self, _read: Read<'f, 'a>, _outcome: Result<usize, Errno>) -> Result<(), &'static str> {
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
    // SAFETY: only queries the descriptor, which is leaked on purpose.
    assert!(unsafe { libc::fcntl(descriptor, libc::F_GETFD) } >= 0);
}

#[test]
fn a_queue_that_was_closed_by_somebody_else_is_done_without() {
    let Some(queue) = Queue::take() else { return };
    let (file, mut memory) = (file_of(50_000), vec![0; 50_000]);
    // SAFETY: the descriptor belongs to the queue. A copy of another file takes its number, as may happen in a program
    // that closes all descriptors it does not know.
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
