//! Where the records of a batch go.

use crate::error::Result;

/// Where the records of a batch go.
pub trait Deliver {
    /// Makes room for records: `(position in the batch, size)` each. Returns their buffers, in that order.
    ///
    /// Called once or a few times in a batch, never once for each record.
    fn reserve(&mut self, wanted: &[(usize, usize)]) -> Result<Vec<&mut [u8]>>;

    /// Gives the room of a record back: it could not be read, and its bytes must not be used.
    fn forget(&mut self, position: usize);
}

/// A list of vectors.
impl Deliver for Vec<Vec<u8>> {
    fn reserve(&mut self, wanted: &[(usize, usize)]) -> Result<Vec<&mut [u8]>> {
        let most = wanted.iter().map(|(position, _)| position + 1).max().unwrap_or(0);
        self.resize(self.len().max(most), Vec::new());
        for &(position, size) in wanted {
            self[position].resize(size, 0);
        }
        // The vectors are borrowed in order of position, because one pass can borrow each of them only once. Then they
        // are put into the requested order.
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

    fn forget(&mut self, position: usize) {
        self.resize(self.len().max(position + 1), Vec::new());
        self[position] = Vec::new();
    }
}
