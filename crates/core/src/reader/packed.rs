//! Packed batches: the records of a batch in one block of memory.

use super::batch::BLOCK;
use super::{Deliver, Lost, Reader};
use crate::budget::Held;
use crate::bytes;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::memory::Block;
use std::ops::Range;

/// The name of a batch in error messages.
const BATCH: &str = "a packed batch";

/// The records of a batch, one after the other in one block of memory.
pub struct Packed {
    block: Block,
    offsets: Vec<i64>,
}

impl Packed {
    /// A copy of records that lie one after the other. None if these are not their offsets.
    pub fn copied(data: &[u8], offsets: Vec<i64>) -> Result<Option<Self>> {
        let ends_with = offsets.last().and_then(|&end| usize::try_from(end).ok());
        if offsets.first() != Some(&0) || !offsets.is_sorted() || ends_with != Some(data.len()) {
            return Ok(None);
        }
        let mut block = Block::new(BATCH, data.len())?;
        block.bytes_mut()[..data.len()].copy_from_slice(data);
        Ok(Some(Packed { block, offsets }))
    }

    /// A copy, in memory of its own. Nobody may write to the bytes meanwhile.
    pub fn try_clone(&self) -> Result<Self> {
        let length = self.length();
        let block = Block::new(BATCH, length)?;
        // SAFETY: all `length` bytes of this block are written. Those of the other one do not overlap with them.
        unsafe { block.start().copy_from_nonoverlapping(self.block.start(), length) };
        Ok(Packed { block, offsets: self.offsets.clone() })
    }

    /// The address of the first byte. It does not change while this lives. All [`length`](Self::length) bytes are
    /// written. They may be written again through the address.
    pub fn start(&self) -> *mut u8 {
        self.block.start()
    }

    /// Where each record begins, and the end.
    pub fn offsets(&self) -> &[i64] {
        &self.offsets
    }

    /// How many bytes the records have together.
    pub fn length(&self) -> usize {
        self.offsets.last().map_or(0, |&end| end as usize)
    }

    /// Where the bytes of a record are in the block.
    pub fn range(&self, position: usize) -> Range<usize> {
        self.offsets[position] as usize..self.offsets[position + 1] as usize
    }

    /// How many records there are.
    pub fn count(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }
}

/// What of a batch was read.
pub enum ReadPacked {
    /// All records.
    All(Packed),
    /// All but those that are lost. [`Filled::finish`] needs to know what takes their place.
    Some(Filled, Vec<Lost>),
}

impl Reader {
    /// Reads many records, in any order, with repeats, into one block. If `reads_on`, it goes on at damage, like
    /// [`read_sound`](Self::read_sound).
    pub fn read_packed(&self, indices: &[u64], reads_on: bool, cx: &Cx<'_>) -> Result<ReadPacked> {
        let mut filling = Filling::new(self, indices, cx)?;
        let lost = match reads_on {
            true => self.read_sound(indices, &mut filling, cx)?,
            false => self.read_batch(indices, &mut filling, cx).map(|()| Vec::new())?,
        };
        match lost.is_empty() {
            true => Ok(ReadPacked::All(filling.filled.finish::<&[u8]>(&[], cx)?)),
            false => Ok(ReadPacked::Some(filling.filled, lost)),
        }
    }
}

/// A block that is being filled. Records get their places in it as their sizes become known.
struct Filling<'a> {
    filled: Filled,
    /// How many bytes of the block are given to records.
    length: usize,
    /// How many bytes the block needs room for. It may have more.
    room: usize,
    held: Held<'a>,
}

/// A block, and the places of records in it.
pub struct Filled {
    block: Block,
    /// Where each record begins and ends. None: not delivered yet, or left out.
    places: Vec<Option<(usize, usize)>>,
}

impl<'a> Filling<'a> {
    /// Room for `records`. If the sizes of all are known, nothing has to be copied twice.
    fn new(reader: &Reader, records: &[u64], cx: &Cx<'a>) -> Result<Self> {
        let mut places = bytes::list("places of records", records.len() as u64)?;
        places.resize(records.len(), None);
        let filled = Filled { block: Block::new(BATCH, 0)?, places };
        let mut filling = Filling { filled, length: 0, room: 0, held: cx.budget.nothing() };
        // The places of fewer records are reserved in one call, so their sizes are not needed before it.
        if records.len() > BLOCK
            && let Some(sizes) = reader.sizes(records, cx)?
        {
            filling.make_room(sizes.into_iter().fold(0, u64::saturating_add))?;
        }
        Ok(filling)
    }

    /// Makes room for `more` bytes after those that are given to records.
    fn make_room(&mut self, more: u64) -> Result<()> {
        let needed = bytes::in_memory(BATCH, (self.length as u64).saturating_add(more))?;
        if needed <= self.room {
            return Ok(());
        }
        // A second call means that sizes are not known in advance. Then there may be many more calls.
        let doubled = needed.max(self.room.saturating_mul(2));
        let room = match self.held.grow((doubled - self.room) as u64) {
            Ok(()) => doubled,
            Err(_) => {
                self.held.grow((needed - self.room) as u64)?;
                needed
            }
        };
        if room > self.filled.block.capacity() {
            self.filled.block.grow(BATCH, self.length, room)?;
        }
        self.room = room;
        Ok(())
    }
}

impl Filled {
    /// The records in order, without gaps. `instead` are the positions that could not be read, in order, with what takes
    /// their place. None: nothing does.
    pub fn finish<B: AsRef<[u8]>>(mut self, instead: &[(usize, Option<B>)], cx: &Cx<'_>) -> Result<Packed> {
        let mut offsets: Vec<i64> = bytes::list("offsets of records", self.places.len() as u64 + 1)?;
        offsets.push(0);
        let mut end = 0usize;
        let mut is_in_order = instead.is_empty();
        for (position, place) in self.places.iter().enumerate() {
            let size = match (place, found(instead, position)) {
                (_, Some(Some(bytes))) => bytes.len(),
                (_, Some(None)) => continue,
                (Some((begin, place_end)), None) => {
                    is_in_order &= *begin == end;
                    place_end - begin
                }
                (None, None) => return Err(not_delivered(position)),
            };
            end = end.checked_add(size).ok_or_else(|| bytes::no_memory(BATCH, u64::MAX))?;
            offsets.push(i64::try_from(end).map_err(|_| bytes::no_memory(BATCH, end as u64))?);
        }
        if is_in_order {
            return Ok(Packed { block: self.block, offsets });
        }
        let _held = cx.budget.hold(end as u64)?;
        let mut block = Block::new(BATCH, end)?;
        let (from, mut rest) = (self.block.bytes_mut(), block.bytes_mut());
        let mut pace = cx.pace();
        for (position, place) in self.places.iter().enumerate() {
            let bytes = match (found(instead, position), place) {
                (Some(Some(bytes)), _) => bytes,
                (None, Some((begin, end))) => &from[*begin..*end],
                _ => continue,
            };
            pace.step(bytes.len() as u64)?;
            let (to, after) = rest.split_at_mut(bytes.len());
            to.copy_from_slice(bytes);
            rest = after;
        }
        Ok(Packed { block, offsets })
    }
}

/// What takes the place of the record at a position, if it could not be read.
fn found<B: AsRef<[u8]>>(instead: &[(usize, Option<B>)], position: usize) -> Option<Option<&[u8]>> {
    let at = instead.binary_search_by_key(&position, |(position, _)| *position).ok()?;
    Some(instead.get(at)?.1.as_ref().map(AsRef::as_ref))
}

#[cold]
fn not_delivered(position: usize) -> Error {
    Error::argument(format!("record {position} of the batch was not delivered; please report this"))
}

impl Deliver for Filling<'_> {
    fn reserve(&mut self, wanted: &[(usize, usize)]) -> Result<Vec<&mut [u8]>> {
        // In order of position, so that the places are in the order of the batch if this is the only call.
        let mut order: Vec<usize> = (0..wanted.len()).collect();
        // `wanted` is sorted unless records share chunks.
        if !wanted.is_sorted_by_key(|(position, _)| *position) {
            order.sort_unstable_by_key(|&i| wanted[i].0);
        }
        // A record whose reading failed once has a place already.
        let is_new = |places: &[Option<(usize, usize)>], (position, size): (usize, usize)| {
            places[position].is_none_or(|(begin, end)| end - begin != size)
        };
        let new = wanted.iter().filter(|wanted| is_new(&self.filled.places, **wanted));
        self.make_room(new.fold(0, |sum: u64, (_, size)| sum.saturating_add(*size as u64)))?;
        let mut is_sorted = true;
        let mut last = 0;
        for &i in &order {
            let (position, size) = wanted[i];
            if is_new(&self.filled.places, wanted[i]) {
                self.filled.places[position] = Some((self.length, self.length + size));
                self.length += size;
            }
            let begin = self.filled.places[position].map_or(0, |(begin, _)| begin);
            is_sorted &= begin >= last;
            last = begin;
        }
        if !is_sorted {
            order.sort_by_key(|&i| self.filled.places[wanted[i].0]);
        }
        let mut slices: Vec<&mut [u8]> = wanted.iter().map(|_| &mut [][..]).collect();
        let (mut rest, mut at) = (self.filled.block.bytes_mut(), 0);
        for i in order {
            let Some((begin, end)) = self.filled.places[wanted[i].0] else { continue };
            if begin < at {
                return Err(Error::argument("a position of the batch is wanted twice"));
            }
            let (_, from) = rest.split_at_mut(begin - at);
            let (place, after) = from.split_at_mut(end - begin);
            (slices[i], rest, at) = (place, after, end);
        }
        Ok(slices)
    }

    fn forget(&mut self, position: usize) {
        self.filled.places[position] = None;
    }
}
