//! The disk alone: how many ranges of a file it reads in a second with O_DIRECT, with DEPTH reads in flight.
//!
//! ```text
//! raw_disk FILE RANGES DEPTH...
//! ```
//!
//! RANGES is a file of aligned `(offset, length)` pairs, 64 bits each, little-endian. Prints a line `DEPTH RATE` for
//! each depth. Nothing is checked, copied or delivered, so this is an upper bound for reading.

#[cfg(not(target_os = "linux"))]
fn main() {
    panic!("only on Linux");
}

#[cfg(target_os = "linux")]
fn main() -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, ranges, depths @ ..] = arguments.as_slice() else {
        panic!("usage: raw_disk FILE RANGES DEPTH...")
    };
    let file = std::fs::File::options().read(true).custom_flags(libc::O_DIRECT).open(path)?;
    let stored = std::fs::read(ranges)?;
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| stored[at + i]));
    let ranges: Vec<_> = (0..stored.len() / 16).map(|i| (number(16 * i), number(16 * i + 8))).collect();
    for depth in depths {
        let in_flight = depth.parse().expect("a depth is a number");
        let start = std::time::Instant::now();
        queue::read_all(&file, &ranges, in_flight)?;
        println!("{depth} {}", ranges.len() as f64 / start.elapsed().as_secs_f64());
    }
    Ok(())
}

#[cfg(target_os = "linux")]
mod queue {
    use io_uring::{IoUring, opcode, types};
    use std::os::fd::AsRawFd;

    const ALIGNED: usize = 4096;

    /// Reads all ranges, never more than `depth` at a time.
    pub fn read_all(file: &std::fs::File, ranges: &[(u64, u64)], depth: usize) -> std::io::Result<()> {
        let longest = ranges.iter().map(|&(_, length)| length).max().unwrap_or(0) as usize;
        let slot = longest.next_multiple_of(ALIGNED);
        let mut buffer = vec![0u8; depth * slot + ALIGNED];
        let skip = buffer.as_ptr().align_offset(ALIGNED);
        let places: Vec<*mut u8> =
            buffer[skip..].chunks_mut(slot).take(depth).map(|p| p.as_mut_ptr()).collect();
        let mut ring = IoUring::new(depth.next_power_of_two() as u32)?;
        let (mut next, mut free, mut in_flight) = (ranges.iter(), (0..depth).collect::<Vec<_>>(), 0);
        loop {
            while let Some(&place) = free.last()
                && let Some(&(at, length)) = next.next()
            {
                free.pop();
                let descriptor = types::Fd(file.as_raw_fd());
                let read = opcode::Read::new(descriptor, places[place], length as u32).offset(at);
                // SAFETY: the place holds the longest range, is in use by this read alone, and outlives it: the loop
                // ends when nothing is in flight. The queue has room for `depth` reads.
                unsafe { ring.submission().push(&read.build().user_data(place as u64)) }
                    .expect("there is room");
                in_flight += 1;
            }
            if in_flight == 0 {
                return Ok(());
            }
            ring.submit_and_wait(1)?;
            for done in ring.completion() {
                assert!(done.result() >= 0, "a read failed: {}", done.result());
                free.push(done.user_data() as usize);
                in_flight -= 1;
            }
        }
    }
}
