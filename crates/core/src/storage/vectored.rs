//! Reads adjacent ranges with one system call.

use super::ReadOp;
use std::fs::File;

/// How many of the first ranges are adjacent: at least 1, at most what one call accepts.
pub fn neighbours(ops: &[ReadOp<'_>]) -> usize {
    // POSIX systems accept at least 16 ranges in one call. Linux and macOS accept 1024.
    const MOST: usize = 1024;
    let follows = |pair: &[ReadOp<'_>]| pair[0].at.checked_add(pair[0].out.len() as u64) == Some(pair[1].at);
    1 + ops.windows(2).take(MOST - 1).take_while(|pair| follows(pair)).count()
}

/// Reads adjacent ranges with one call, which may be short.
pub fn read_neighbours(file: &File, run: &mut [ReadOp<'_>]) -> rustix::io::Result<usize> {
    let Some(at) = run.first().map(|op| op.at) else { return Ok(0) };
    let outcome = match run {
        [op] => rustix::io::pread(file, &mut *op.out, at),
        _ => {
            let mut places: Vec<_> = run.iter_mut().map(|op| std::io::IoSliceMut::new(op.out)).collect();
            rustix::io::preadv(file, &mut places, at)
        }
    };
    match outcome {
        Err(rustix::io::Errno::INTR) => Ok(0),
        outcome => outcome,
    }
}
