//! `Records`: the sequence. `records[i]` runs only the code here, no Python code.

use crate::arrays::{self, NewArray};
use crate::damage::read_settled;
use crate::deliver::{BytesList, InPlace, New, NewBytes, ObjectList, OneBuffer, copy_into, object_with};
use crate::errors::Failure;
use crate::gil;
use crate::indices;
use crate::interrupts::with_cx;
use crate::iteration::{ReadAhead, RecordsIterator};
use crate::opening::Source;
use crate::packed::PackedContents;
use crate::views::fingerprint_of;
use anyrecord::bytes;
use anyrecord::reader::{Plan, Reader};
use anyrecord::view::{View, layout};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::slice::PySliceIndices;
use pyo3::types::{PyBytes, PyList, PyMemoryView, PySlice};
use std::sync::Arc;

/// A record up to this size that is already in memory is copied with the GIL held. Releasing and acquiring the GIL
/// would cost more.
const QUICK: usize = 64 << 10;

/// Position, file, first record in the file, records.
type PieceNumbers = (u64, usize, u64, u64);

/// A sequence of records.
#[pyclass(frozen, subclass, sequence, module = "anyrecord._core")]
pub struct Records {
    source: Py<Source>,
    pub reader: Arc<Reader>,
    pub view: View,
}

/// Plans how to read a record.
#[inline]
fn plan_one<'a>(py: Python<'_>, reader: &'a Reader, record: u64) -> PyResult<Plan<'a>> {
    match reader.plan_without_io(record).map_err(Failure)? {
        Some(plan) => Ok(plan),
        // Opening the file, or reading its table from disk, may block.
        None => Ok(gil::detach(py, || with_cx(reader, |cx| reader.plan(record, cx))).map_err(Failure)?),
    }
}

/// Reads one record as `bytes`.
#[inline]
pub fn read_one<'py>(py: Python<'py>, reader: &Reader, record: u64) -> PyResult<Bound<'py, PyBytes>> {
    read_one_as::<NewBytes>(py, reader, record)
}

/// Reads one record as an object of a kind.
fn read_one_as<'py, N: New>(
    py: Python<'py>,
    reader: &Reader,
    record: u64,
) -> PyResult<Bound<'py, N::Object>> {
    let plan = plan_one(py, reader, record)?;
    match plan.size().map_err(Failure)? {
        Some(size) => {
            plan.prefetch();
            let quick = size <= QUICK && reader.is_quick(&plan);
            // `read_quickly` counts without atomic additions: the GIL keeps other threads out.
            let read = object_with::<N>(py, size, quick, |out| {
                with_cx(reader, |cx| match quick {
                    true => reader.read_quickly(&plan, out, cx),
                    false => reader.read_into(&plan, out, cx),
                })
            });
            let read = match read {
                // Other threads run while it is fetched.
                Err(error) if error.is_elsewhere() => object_with::<N>(py, size, false, |out| {
                    with_cx(reader, |cx| reader.read_into(&plan, out, cx))
                }),
                read => read,
            };
            Ok(read.map_err(|error| plan.attribute_memory(error)).map_err(Failure)?)
        }
        None => {
            let row =
                gil::detach(py, || with_cx(reader, |cx| reader.read_row(&plan, cx))).map_err(Failure)?;
            let (row, size) = (row.as_ref(), row.as_ref().len());
            let copied = object_with::<N>(py, size, size <= QUICK, |out| {
                out.copy_from_slice(row);
                Ok(())
            });
            Ok(copied.map_err(|error| plan.attribute_memory(error)).map_err(Failure)?)
        }
    }
}

/// Reads the records at many positions of a view with one batched read.
pub fn read_many<N: New>(
    py: Python<'_>,
    reader: &Reader,
    view: &View,
    mut positions: Vec<u64>,
) -> PyResult<ObjectList<N>>
where
    Py<N::Object>: Send,
{
    gil::detach(py, || {
        view.get_many(&mut positions);
        let mut list = ObjectList::new(positions.len())?;
        with_cx(reader, |cx| reader.read_batch(&positions, &mut list, cx))?;
        Ok(list)
    })
    .map_err(|e| Failure(e).into())
}

impl Records {
    fn batch<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<BytesList> {
        self.reader.check_open().map_err(Failure)?;
        let positions = indices::many(keys, self.view.len())?;
        let source = self.source.get();
        match &source.policy {
            None => read_many(py, &self.reader, &self.view, positions),
            Some(policy) => read_settled(py, source, &self.view, policy, positions),
        }
    }

    fn list<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        self.batch(py, keys)?.into_list(py)
    }

    fn slice<'py>(slf: &Bound<'py, Self>, slice: &Bound<'py, PySlice>) -> PyResult<Bound<'py, PyAny>> {
        let this = slf.get();
        this.reader.check_open().map_err(Failure)?;
        let len =
            isize::try_from(this.view.len()).map_err(|_| PyOverflowError::new_err("too many records"))?;
        let PySliceIndices { start, step, slicelength, .. } = slice.indices(len)?;
        let view = this.view.slice(start.max(0) as u64, step as i64, slicelength as u64).map_err(Failure)?;
        let (options, policy) =
            (this.source.get().options.clone_ref(slf.py()), this.source.get().policy.clone());
        let source = Py::new(slf.py(), Source { reader: this.reader.clone(), view, options, policy })?;
        gil::call(slf.py(), || slf.get_type().call1((source,)))
    }
}

#[pymethods]
impl Records {
    #[new]
    fn new(source: Bound<'_, Source>) -> Self {
        let (reader, view) = (source.get().reader.clone(), source.get().view.clone());
        Records { source: source.unbind(), reader, view }
    }

    /// The source of the records.
    #[getter]
    fn _source(&self, py: Python<'_>) -> Py<Source> {
        self.source.clone_ref(py)
    }

    fn __len__(&self) -> PyResult<usize> {
        usize::try_from(self.view.len()).map_err(|_| PyOverflowError::new_err("too many records"))
    }

    fn __getitem__<'py>(slf: &Bound<'py, Self>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let this = slf.get();
        if let Some(position) = indices::one(key, this.view.len())? {
            return read_one(slf.py(), &this.reader, this.view.get(position)).map(Bound::into_any);
        }
        match key.cast::<PySlice>() {
            Ok(slice) => Self::slice(slf, slice),
            Err(_) => this.list(slf.py(), key).map(Bound::into_any),
        }
    }

    /// Returns the records at many positions, in the given order. PyTorch calls this method.
    fn __getitems__<'py>(
        &self,
        py: Python<'py>,
        indices: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        self.list(py, indices)
    }

    /// The records at many positions, as `__getitems__` returns them, if these are plain: integers of Python or of
    /// an array, none negative or out of range. Else None: then the drop-ins find out what is wrong, or convert them.
    fn _read_plain<'py>(
        &self,
        py: Python<'py>,
        indices: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        self.reader.check_open().map_err(Failure)?;
        let Some(positions) = indices::plain(indices, self.view.len())? else { return Ok(None) };
        read_many::<NewBytes>(py, &self.reader, &self.view, positions)?.into_list(py).map(Some)
    }

    /// The same records as new numpy arrays of bytes, each with its own memory.
    fn _read_arrays<'py>(
        &self,
        py: Python<'py>,
        indices: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        arrays::prepare(py)?;
        self.reader.check_open().map_err(Failure)?;
        let Some(positions) = indices::plain(indices, self.view.len())? else { return Ok(None) };
        read_many::<NewArray>(py, &self.reader, &self.view, positions)?.into_list(py).map(Some)
    }

    /// One record as a new numpy array of bytes. None if the index is not plain.
    fn _read_array<'py>(
        &self,
        py: Python<'py>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        arrays::prepare(py)?;
        match indices::plain_one(index, self.view.len()) {
            Some(position) => read_one_as::<NewArray>(py, &self.reader, self.view.get(position)).map(Some),
            None => Ok(None),
        }
    }

    /// Fetches records from servers before they are read, for an iteration that begins at `begin`.
    fn _read_ahead(&self, begin: u64) -> ReadAhead {
        ReadAhead::new(self.reader.clone(), self.view.clone(), begin)
    }

    /// Whether some of the files are on servers.
    #[getter]
    fn _is_remote(&self) -> bool {
        self.reader.is_remote()
    }

    /// Returns the records at many positions, in the given order. Grain calls this method. It wants None for records
    /// that are left out.
    fn _getitems<'py>(&self, py: Python<'py>, indices: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        self.batch(py, indices)?.into_list_with_gaps(py)
    }

    fn __iter__(slf: &Bound<'_, Self>) -> RecordsIterator {
        Self::_iterate(slf, 0)
    }

    /// Returns an iterator that begins at a position. The position is at most the length.
    fn _iterate(slf: &Bound<'_, Self>, position: u64) -> RecordsIterator {
        let this = slf.get();
        RecordsIterator::new(this.source.clone_ref(slf.py()), this.view.clone(), position)
    }

    /// Reports the source to the garbage collector.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.source)
    }

    /// Whether the record at a position was found to be damaged.
    fn _is_damaged(&self, position: u64) -> bool {
        position < self.view.len() && self.reader.is_known_damaged(self.view.get(position))
    }

    /// A number that differs between views.
    #[getter]
    fn _fingerprint(&self) -> u64 {
        fingerprint_of(&self.reader, &self.view)
    }

    /// Returns the bytes of a record as a read-only `memoryview`, without a copy if possible.
    ///
    /// If the file is memory-mapped and stores the record uncompressed and in one piece, nothing is copied. Then
    /// nothing is checked either: no checksum, and not whether the file has changed. If the file is truncated or written to
    /// while you use the view, its bytes can become zeros or other bytes. In all other cases (compressed records,
    /// records split by a block header, `io="plain"`) the view is of a verified copy. The file stays mapped until the
    /// view is released, even after `close`.
    fn buffer<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyMemoryView>> {
        let Some(position) = indices::one(index, self.view.len())? else {
            return Err(PyTypeError::new_err("buffer() takes one record number (an integer)"));
        };
        let record = self.view.get(position);
        let plan = plan_one(py, &self.reader, record)?;
        match self.reader.export(&plan).map_err(Failure)? {
            Some(export) => PyMemoryView::from(Bound::new(py, InPlace { export })?.as_any()),
            None => PyMemoryView::from(read_one(py, &self.reader, record)?.as_any()),
        }
    }

    /// Reads records into a buffer, one after the other. Returns where each begins, and the end, as 64-bit integers.
    fn _read_into<'py>(
        &self,
        py: Python<'py>,
        out: &Bound<'py, PyAny>,
        indices: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.reader.check_open().map_err(Failure)?;
        let mut records = indices::many(indices, self.view.len())?;
        // Only reading on through damage needs them again.
        let positions = self.source.get().policy.as_ref().map_or_else(Vec::new, |_| records.clone());
        let buffer = PyBuffer::<u8>::get(out).map_err(|_| {
            PyTypeError::new_err(
                "read_into needs a writable buffer of bytes, such as a bytearray or a uint8 array",
            )
        })?;
        if buffer.readonly() {
            return Err(PyTypeError::new_err(
                "the buffer is read-only; pass a writable one, such as a bytearray",
            ));
        }
        if !buffer.is_c_contiguous() {
            return Err(PyTypeError::new_err("the buffer is not contiguous; pass a contiguous one"));
        }
        // SAFETY: `buffer` keeps the memory in place and writable until it is dropped, after the last use. Another
        // thread could write to it at the same time, as during `readinto`; the user must prevent that.
        let out =
            unsafe { std::slice::from_raw_parts_mut(buffer.buf_ptr().cast::<u8>(), buffer.len_bytes()) };
        let read = gil::detach(py, || {
            self.view.get_many(&mut records);
            with_cx(&self.reader, |cx| {
                let sizes = self.reader.sizes(&records, cx)?;
                let mut deliver = OneBuffer::new(out, records.len(), sizes.as_deref())?;
                self.reader.read_batch(&records, &mut deliver, cx)?;
                deliver.finish()
            })
        });
        let ends = match (read, &self.source.get().policy) {
            // A place that is promised to a record cannot be left out.
            (Err(error), Some(policy)) if error.is_damage() && !policy.leaves_out() => {
                let list = read_settled(py, self.source.get(), &self.view, policy, positions)?;
                let objects = list.into_objects();
                let records = objects.iter().flatten().map(|object| object.as_bytes(py));
                copy_into(out, records).map_err(Failure)?
            }
            (read, _) => read.map_err(Failure)?,
        };
        PyBytes::new_with(py, 8 * (ends.len() + 1), |out| {
            let numbers = std::iter::once(0).chain(ends);
            for (place, number) in out.as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
                *place = (number as u64).to_ne_bytes();
            }
            Ok(())
        })
    }

    /// About how many bytes of its file a record takes.
    fn _mean_bytes(&self) -> u64 {
        self.reader.mean_bytes()
    }

    /// Reads records into one new block of memory.
    fn _read_packed<'py>(&self, py: Python<'py>, indices: &Bound<'py, PyAny>) -> PyResult<PackedContents> {
        self.reader.check_open().map_err(Failure)?;
        let len = self.view.len();
        let positions = match indices.cast::<PySlice>() {
            Ok(slice) => indices::sliced(slice, len)?,
            Err(_) => indices::many(indices, len)?,
        };
        PackedContents::read(py, self.source.get(), &self.view, positions)
    }

    /// `(position, file name, number in the file)` of the record at an index. It does not read the file.
    fn _place(&self, index: &Bound<'_, PyAny>) -> PyResult<(u64, String, u64)> {
        let Some(position) = indices::one(index, self.view.len())? else {
            return Err(PyTypeError::new_err("pass one record number (an integer)"));
        };
        let (shard, record) = self.reader.shard_of(self.view.get(position)).map_err(Failure)?;
        Ok((position, self.reader.shards()[shard].name(), record))
    }

    /// The sizes of all records as 64-bit integers in native byte order. None if they are known only after decoding.
    fn _sizes<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let sizes = gil::detach(py, || -> anyrecord::Result<Option<Vec<u8>>> {
            self.reader.check_open()?;
            let mut sizes = bytes::reserved("sizes", self.view.len().saturating_mul(8))?;
            for position in 0..self.view.len() {
                match with_cx(&self.reader, |cx| self.reader.size(self.view.get(position), cx))? {
                    Some(size) => sizes.extend(size.to_ne_bytes()),
                    None => return Ok(None),
                }
            }
            Ok(Some(sizes))
        });
        Ok(sizes.map_err(Failure)?.map(|sizes| PyBytes::new(py, &sizes)))
    }

    /// `(position, file, first record in the file, records)` of each piece of a file that these records consist of. None
    /// if they are not in the order of the files.
    fn _pieces(&self) -> PyResult<Option<Vec<PieceNumbers>>> {
        let pieces = layout::pieces(&self.reader, &self.view).map_err(Failure)?;
        let numbers = |p: layout::Piece| (p.position, p.shard, p.record, p.len);
        Ok(pieces.map(|pieces| pieces.into_iter().map(numbers).collect()))
    }

    /// `(number, first record in the file, records, begin, end)` of the chunk that holds a record: its bytes are from
    /// `begin` to `end` of the file.
    fn _chunk(&self, position: u64) -> PyResult<(u64, u64, u64, u64, u64)> {
        self.reader.check_open().map_err(Failure)?;
        if position >= self.view.len() {
            return Err(PyIndexError::new_err("there is no such record"));
        }
        let (shard, record) = self.reader.shard_of(self.view.get(position)).map_err(Failure)?;
        let shard = &self.reader.shards()[shard];
        let source = with_cx(&self.reader, |cx| shard.source(cx)).map_err(Failure)?;
        let (chunk, _) = source.table.locate(record).map_err(Failure)?;
        Ok((chunk.index, chunk.first_record, chunk.records, chunk.stored.start, chunk.stored.end))
    }

    /// `(file name, chunk, row)` of a record.
    fn _locate(&self, index: &Bound<'_, PyAny>) -> PyResult<(String, u64, u64)> {
        self.reader.check_open().map_err(Failure)?;
        let Some(position) = indices::one(index, self.view.len())? else {
            return Err(PyTypeError::new_err("locate() takes one record number (an integer)"));
        };
        let (shard, record) = self.reader.shard_of(self.view.get(position)).map_err(Failure)?;
        let shard = &self.reader.shards()[shard];
        let source = with_cx(&self.reader, |cx| shard.source(cx)).map_err(Failure)?;
        let (chunk, row) = source.table.locate(record).map_err(Failure)?;
        let chunk = chunk.index;
        Ok((shard.name(), chunk, row))
    }
}
