//! Many ranges of many objects: those close to each other are merged, large ones are split, and all are in flight
//! together, within a limit on bytes.

use super::file::RemoteFile;
use super::runtime::{Messages, Tasks, messages, or_panicked};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::storage::ReadOp;
use crate::storage::fetch::Failed;
use bytes::Bytes;
use std::ops::Range;
use std::sync::mpsc::Sender;
use std::time::Instant;

/// Ranges of one object, with a number that names them in an error.
pub type Job<'j, 's, 'o> = (usize, &'s RemoteFile, &'j mut Vec<ReadOp<'o>>);

/// A request, and the ranges that it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// What to ask for.
    pub range: Range<u64>,
    /// The first of the ranges, sorted by their beginning, that it serves.
    first: usize,
}

/// Gaps up to this size cost less than a request, whatever else it serves.
const SMALL_GAP: u64 = 4 << 10;
/// Larger gaps may be one part in so many of what a request asks for. In a shuffled epoch they would otherwise be fetched
/// again and again.
const WASTE: u64 = 8;

/// Plans the requests for ranges that are sorted by their beginning.
pub fn plan(ranges: &[Range<u64>], gap: u64, part: u64) -> Vec<Planned> {
    let (mut planned, mut wasted): (Vec<Planned>, u64) = (Vec::new(), 0);
    for (number, range) in ranges.iter().enumerate().filter(|(_, range)| !range.is_empty()) {
        let mut range = range.clone();
        if let Some(last) = planned.last_mut() {
            // A range inside another one costs nothing.
            range.start = range.start.max(last.range.end.min(range.end));
            if range.is_empty() {
                continue;
            }
            let (merged, between) = (range.end - last.range.start, range.start - last.range.end);
            let large = if between > SMALL_GAP { between } else { 0 };
            if between <= gap && merged <= part && (wasted + large) * WASTE <= merged {
                last.range.end = range.end;
                wasted += large;
                continue;
            }
        }
        wasted = 0;
        // Parts of the same size: the last one shall not be tiny.
        let parts = (range.end - range.start).div_ceil(part).max(1);
        let each = (range.end - range.start).div_ceil(parts);
        while !range.is_empty() {
            let end = range.end.min(range.start + each);
            planned.push(Planned { range: range.start..end, first: number });
            range.start = end;
        }
    }
    planned
}

/// What a request reports.
enum Event {
    /// Bytes at an offset.
    Bytes(usize, u64, Bytes),
    /// It ended.
    Done(usize, Result<()>),
}

/// A request of a call.
struct Sent {
    job: usize,
    range: Range<u64>,
    /// The first range that is not yet filled, among those of the job sorted by their beginning.
    first: usize,
}

/// Ranges that are being fetched.
pub struct Transfer<'t, 'j, 's, 'o> {
    jobs: &'t mut [Job<'j, 's, 'o>],
    sent: Vec<Sent>,
    tasks: Tasks,
    sender: Sender<Event>,
    events: Messages<Event>,
    /// The next request to send.
    next: usize,
    /// Requests in flight, and their bytes.
    in_flight: (usize, u64),
}

/// Fills the ranges of all jobs. When it returns, no request is in flight.
pub fn read(jobs: &mut [Job<'_, '_, '_>], cx: &Cx<'_>) -> std::result::Result<(), Failed> {
    Transfer::begin(jobs, cx)?.finish(cx)
}

impl<'t, 'j, 's, 'o> Transfer<'t, 'j, 's, 'o> {
    /// Sends the first requests.
    pub fn begin(jobs: &'t mut [Job<'j, 's, 'o>], cx: &Cx<'_>) -> std::result::Result<Self, Failed> {
        let mut sent = Vec::new();
        for (job, (number, file, ops)) in jobs.iter_mut().enumerate() {
            file.take_ahead(ops, cx).map_err(|error| (*number, error))?;
            ops.sort_by_key(|op| op.at);
            let mut ranges = Vec::with_capacity(ops.len());
            for op in ops.iter() {
                let range = crate::bytes::range("bytes", op.at, op.out.len() as u64, file.identity().size);
                ranges.push(range.map_err(|error| (*number, error.in_file(file.shown())))?);
            }
            let policy = file.policy();
            let planned = plan(&ranges, policy.merge_gap, policy.part_size);
            sent.extend(planned.into_iter().map(|Planned { range, first }| Sent { job, range, first }));
        }
        let (sender, events) = messages();
        let tasks = Tasks::default();
        let mut transfer = Transfer { jobs, sent, tasks, sender, events, next: 0, in_flight: (0, 0) };
        transfer.send()?;
        Ok(transfer)
    }

    /// Sends as many requests as may be in flight.
    fn send(&mut self) -> std::result::Result<(), Failed> {
        while let Some(Sent { job, range, .. }) = self.sent.get(self.next) {
            let (number, file, _) = &self.jobs[*job];
            let (running, bytes) = self.in_flight;
            let length = range.end - range.start;
            if running > 0 && bytes + length > file.policy().max_bytes_in_flight {
                break;
            }
            start(&mut self.tasks, file, self.next, range.clone(), &self.sender)
                .map_err(|error| (*number, error.in_file(file.shown())))?;
            self.next += 1;
            self.in_flight = (running + 1, bytes + length);
        }
        Ok(())
    }

    /// Waits until all ranges are filled.
    pub fn finish(mut self, cx: &Cx<'_>) -> std::result::Result<(), Failed> {
        let Some((first, file, _)) = self.jobs.first() else { return Ok(()) };
        let (first, file) = (*first, *file);
        let begun = Instant::now();
        while self.in_flight.0 > 0 {
            match self.events.wait(cx).map_err(|error| (first, error))? {
                Event::Bytes(number, at, piece) => {
                    let request = &mut self.sent[number];
                    scatter(&mut self.jobs[request.job].2[request.first..], &mut request.first, at, &piece);
                }
                Event::Done(number, result) => {
                    let Sent { job, range, .. } = &self.sent[number];
                    let (number, file, _) = &self.jobs[*job];
                    result.map_err(|error| (*number, error.at(range.start).in_file(file.shown())))?;
                    self.in_flight = (self.in_flight.0 - 1, self.in_flight.1 - (range.end - range.start));
                    self.send()?;
                }
            }
        }
        if self.next > 0 {
            file.stats().waited(begun.elapsed());
        }
        Ok(())
    }
}

fn start(
    tasks: &mut Tasks,
    file: &RemoteFile,
    number: usize,
    range: Range<u64>,
    sender: &Sender<Event>,
) -> Result<()> {
    let (object, identity, sender) = (file.object()?, file.identity().clone(), sender.clone());
    tasks.start(async move {
        let mut at = range.start;
        let take = |piece: Bytes| {
            let begin = at;
            at += piece.len() as u64;
            sender.send(Event::Bytes(number, begin, piece)).map_err(|_| Error::cancellation())
        };
        let result = or_panicked(object.read(range, &identity, take)).await;
        // The receiver is gone if the call has ended.
        let _ = sender.send(Event::Done(number, result));
    })
}

/// Copies a piece of the object to the ranges that need it. `ops` are sorted by their beginning; `first` counts those
/// that need no more bytes.
fn scatter(ops: &mut [ReadOp<'_>], first: &mut usize, at: u64, piece: &[u8]) {
    let end = at + piece.len() as u64;
    let mut is_leading = true;
    for op in ops {
        if op.at >= end {
            break;
        }
        let op_end = op.at + op.out.len() as u64;
        let (from, to) = (op.at.max(at), op_end.min(end));
        if from < to {
            let out = &mut op.out[(from - op.at) as usize..(to - op.at) as usize];
            out.copy_from_slice(&piece[(from - at) as usize..(to - at) as usize]);
        }
        is_leading &= op_end <= end;
        *first += usize::from(is_leading);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn requests(ranges: &[Range<u64>], gap: u64, part: u64) -> Vec<Range<u64>> {
        plan(ranges, gap, part).into_iter().map(|planned| planned.range).collect()
    }

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "these are lists of ranges")]
    fn close_ranges_are_merged_and_large_ones_are_split() {
        assert_eq!(requests(&[0..10, 20..30, 41..50], 10, 100), [0..30, 41..50]);
        assert_eq!(requests(&[0..10, 10..110], 10, 100), [0..10, 10..110]);
        assert_eq!(requests(&[0..250], 10, 100), [0..84, 84..168, 168..250]);
        assert_eq!(requests(&[0..100, 5..7, 50..50, 90..120], 10, 1000), [0..120]);
        assert_eq!(requests(&[5..5], 10, 100), []);
        let (record, gap) = (100_000, 10_000);
        let row = [0..record, record + gap..2 * record + gap];
        assert_eq!(requests(&row, 1 << 20, 1 << 20), [0..2 * record + gap]);
        let sparse = [0..20_000, 30_000..50_000];
        assert_eq!(requests(&sparse, 1 << 20, 1 << 20), sparse);
    }

    proptest! {
        #[test]
        fn every_byte_is_requested_and_copied_once(
            mut spans in prop::collection::vec((0u64..3000, 0u64..400), 0..40),
            gap in 0u64..200,
            part in 1u64..500,
            piece in 1usize..300,
        ) {
            spans.sort();
            let ranges: Vec<_> = spans.iter().map(|&(at, length)| at..at + length).collect();
            let object: Vec<u8> = (0..4000u32).map(|i| (i % 251) as u8).collect();
            let mut outs: Vec<_> = spans.iter().map(|&(_, length)| vec![255; length as usize]).collect();
            let mut ops: Vec<_> =
                spans.iter().zip(&mut outs).map(|(&(at, _), out)| ReadOp { at, out }).collect();
            let mut reached = 0;
            for Planned { range, mut first } in plan(&ranges, gap, part) {
                prop_assert!(reached <= range.start && range.end - range.start <= part.max(1));
                reached = range.end;
                let mut at = range.start;
                for piece in object[range.start as usize..range.end as usize].chunks(piece) {
                    scatter(&mut ops[first..], &mut first, at, piece);
                    at += piece.len() as u64;
                }
            }
            drop(ops);
            for (range, out) in ranges.iter().zip(&outs) {
                prop_assert_eq!(&object[range.start as usize..range.end as usize], &out[..]);
            }
        }
    }
}
