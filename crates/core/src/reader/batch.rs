//! Many records in one read: planned together, fetched together, delivered in the order asked for.

use super::{Plan, Reader, Row, Way};
use crate::error::{Error, Result};
use crate::storage::ReadOp;
use std::collections::BTreeMap;

/// Records planned at once: enough for any training batch, and a bound on what a plan of millions would take.
const BLOCK: usize = 4096;
/// Unpacked chunks held at once, before their records are copied out.
const HELD_BYTES: usize = 32 << 20;

/// Where the records of a batch go.
pub trait Deliver {
    /// Makes room for records: `(position in the batch, size)` each. Returns their places, in that order.
    ///
    /// Called once or a few times in a batch, never once for each record.
    fn reserve(&mut self, wanted: &[(usize, usize)]) -> Result<Vec<&mut [u8]>>;
}

/// A list of vectors.
impl Deliver for Vec<Vec<u8>> {
    fn reserve(&mut self, wanted: &[(usize, usize)]) -> Result<Vec<&mut [u8]>> {
        let most = wanted.iter().map(|(position, _)| position + 1).max().unwrap_or(0);
        self.resize(self.len().max(most), Vec::new());
        for &(position, size) in wanted {
            self[position].resize(size, 0);
        }
        // Mutable places in any order out of one vector: taken in order of position, then put back in theirs.
        let mut order: Vec<usize> = (0..wanted.len()).collect();
        order.sort_unstable_by_key(|&i| wanted[i].0);
        let mut places: Vec<Option<&mut [u8]>> = wanted.iter().map(|_| None).collect();
        let mut wanted_in_order = order.into_iter().peekable();
        for (position, vector) in self.iter_mut().enumerate() {
            if let Some(i) = wanted_in_order.next_if(|&i| wanted[i].0 == position) {
                places[i] = Some(vector);
            }
        }
        Ok(places.into_iter().map(Option::unwrap_or_default).collect())
    }
}

impl Reader {
    /// Reads many records, in any order, with repeats, and delivers each to its position.
    pub fn read_batch(&self, indices: &[u64], out: &mut dyn Deliver) -> Result<()> {
        for (block, indices) in indices.chunks(BLOCK).enumerate() {
            let mut sized = Vec::with_capacity(indices.len());
            // Chunks in the order in which they lie, each with the rows wanted of it.
            let mut among: BTreeMap<(usize, u64), Vec<(usize, Plan)>> = BTreeMap::new();
            for (i, &index) in indices.iter().enumerate() {
                let (position, plan) = (block * BLOCK + i, self.plan(index)?);
                match &plan.way {
                    Way::Among(chunk, _) => {
                        among.entry((plan.shard, chunk.index)).or_default().push((position, plan));
                    }
                    _ => sized.push((position, plan)),
                }
            }
            if !sized.is_empty() {
                self.read_sized(&sized, out)?;
            }
            if !among.is_empty() {
                self.read_among(among.into_values(), out)?;
            }
        }
        Ok(())
    }

    /// Records whose size is known: all places are made first, and filled straight from the storage.
    fn read_sized(&self, plans: &[(usize, Plan)], out: &mut dyn Deliver) -> Result<()> {
        let wanted: Vec<_> = plans
            .iter()
            .map(|(position, plan)| Ok((*position, plan.size()?.unwrap_or(0))))
            .collect::<Result<_>>()?;
        let mut places: Vec<_> = out.reserve(&wanted)?.into_iter().map(Some).collect();

        // What can be read straight into place goes to each storage as one request.
        let mut direct: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (i, (_, plan)) in plans.iter().enumerate() {
            if matches!(plan.way, Way::Direct(_)) && !plan.source().storage.is_mapped() {
                direct.entry(plan.shard).or_default().push(i);
            } else if let Some(place) = places[i].take() {
                self.read_into(plan, place)?;
            }
        }
        for of_one_shard in direct.values() {
            let mut ops: Vec<_> = of_one_shard
                .iter()
                .filter_map(|&i| match (&plans[i].1.way, places[i].take()) {
                    (Way::Direct(range), Some(out)) => Some(ReadOp { at: range.start, out }),
                    _ => None,
                })
                .collect();
            let source = plans[of_one_shard[0]].1.source();
            source.storage.read_many(&mut ops).map_err(|e| e.in_file(source.storage.name()))?;
            for (&i, op) in of_one_shard.iter().zip(&ops) {
                let plan = &plans[i].1;
                source.table.check(plan.record, op.out).map_err(|e| plan.locate(e))?;
            }
        }
        Ok(())
    }

    /// Records among others in a chunk: chunks are unpacked once, and their rows copied out together.
    fn read_among(
        &self,
        chunks: impl Iterator<Item = Vec<(usize, Plan)>>,
        out: &mut dyn Deliver,
    ) -> Result<()> {
        let (mut rows, mut held): (Vec<(usize, Row)>, usize) = (Vec::new(), 0);
        for plans in chunks {
            let Some((_, first)) = plans.first() else { continue };
            let chunk = self.read_row(first)?.chunk;
            held += chunk.memory();
            for (position, plan) in &plans {
                let Way::Among(_, row) = plan.way else { continue };
                if chunk.row(row).is_none() {
                    return Err(plan.locate(Error::format("chunk holds fewer records than the table says")));
                }
                rows.push((*position, Row { chunk: chunk.clone(), row }));
            }
            if held >= HELD_BYTES {
                copy_out(&rows, out)?;
                (rows, held) = (Vec::new(), 0);
            }
        }
        copy_out(&rows, out)
    }
}

fn copy_out(rows: &[(usize, Row)], out: &mut dyn Deliver) -> Result<()> {
    let wanted: Vec<_> = rows.iter().map(|(position, row)| (*position, row.as_ref().len())).collect();
    for (place, (_, row)) in out.reserve(&wanted)?.into_iter().zip(rows) {
        place.copy_from_slice(row.as_ref());
    }
    Ok(())
}
