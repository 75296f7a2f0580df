//! Packed batches: many records in one block of memory, without a Python object for each.

mod arrow;
mod dlpack;

use crate::errors::Failure;
use crate::gil;
use crate::indices;
use crate::interrupts::with_cx;
use crate::opening::Source;
use anyrecord::reader::{Packed as Contents, ReadPacked};
use anyrecord::view::View;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyMemoryView};
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::Arc;

/// What was read, before it becomes a `Packed`: Python code makes that of its own class.
#[pyclass(frozen, module = "anyrecord._core")]
pub struct PackedContents {
    contents: Arc<Contents>,
}

impl PackedContents {
    /// Reads the records at many positions of a view. Those that cannot be read are settled by the policy of the source.
    pub fn read(py: Python<'_>, source: &Source, view: &View, mut positions: Vec<u64>) -> PyResult<Self> {
        let (reader, reads_on) = (&source.reader, source.policy.is_some());
        let read = gil::detach(py, || {
            view.get_many(&mut positions);
            with_cx(reader, |cx| reader.read_packed(&positions, reads_on, cx))
        });
        let packed = match read.map_err(Failure)? {
            ReadPacked::All(packed) => packed,
            ReadPacked::Some(filled, lost) => {
                let mut settled = Vec::with_capacity(lost.len());
                for lost in &lost {
                    if let Some(policy) = &source.policy {
                        settled.push((lost.position, policy.settle(py, reader, &source.options, lost)?));
                    }
                }
                let instead =
                    settled.iter().map(|(at, object)| (*at, object.as_ref().map(|o| o.as_bytes(py))));
                let instead: Vec<_> = instead.collect();
                with_cx(reader, |cx| filled.finish(&instead, cx)).map_err(Failure)?
            }
        };
        Ok(PackedContents { contents: Arc::new(packed) })
    }
}

#[pymethods]
impl PackedContents {
    /// Copies records that lie one after the other. `offsets` are 64-bit integers in native byte order.
    #[staticmethod]
    fn copied(py: Python<'_>, data: &Bound<'_, PyBytes>, offsets: PyBuffer<i64>) -> PyResult<Self> {
        let copied = Contents::copied(data.as_bytes(), offsets.to_vec(py)?).map_err(Failure)?;
        let Some(contents) = copied else {
            return Err(PyValueError::new_err("these are not the bytes and offsets of a packed batch"));
        };
        Ok(PackedContents { contents: Arc::new(contents) })
    }
}

/// Many records in one block of memory.
#[pyclass(frozen, subclass, module = "anyrecord._core")]
pub struct Packed {
    contents: Arc<Contents>,
}

#[pymethods]
impl Packed {
    #[new]
    fn new(contents: &Bound<'_, PackedContents>) -> Self {
        Packed { contents: contents.get().contents.clone() }
    }

    /// The bytes of all records as a writable `memoryview`.
    #[getter]
    fn data<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(slf.as_any())
    }

    /// How many records there are.
    #[getter]
    fn num_records(&self) -> usize {
        self.contents.count()
    }

    /// Where each record begins, and the end, as 64-bit integers.
    fn _offsets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        PyBytes::new_with(py, 8 * self.contents.offsets().len(), |out| {
            for (place, offset) in out.as_chunks_mut::<8>().0.iter_mut().zip(self.contents.offsets()) {
                *place = offset.to_ne_bytes();
            }
            Ok(())
        })
    }

    /// Returns record `index` as a writable `memoryview`, without a copy.
    fn record<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyMemoryView>> {
        let Some(position) = indices::one(index, self.contents.count() as u64)? else {
            return Err(PyTypeError::new_err("record() takes one record number (an integer)"));
        };
        let range = self.contents.range(position as usize);
        PyMemoryView::from(Bound::new(py, Part { contents: self.contents.clone(), range })?.as_any())
    }

    /// Returns all records as a list of `bytes`.
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for position in 0..self.contents.count() {
            let range = self.contents.range(position);
            // SAFETY: the range lies inside the written bytes of the block, which `self` keeps. The caller must not
            // write to them in another thread meanwhile, as with any buffer.
            let bytes =
                unsafe { std::slice::from_raw_parts(self.contents.start().add(range.start), range.len()) };
            list.append(PyBytes::new(py, bytes))?;
        }
        Ok(list)
    }

    /// The bytes as a DLPack capsule, without a copy unless it is wanted.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        dlpack::export(py, &self.contents, stream.is_some(), max_version, dl_device, copy)
    }

    /// The device that the bytes are on, as DLPack numbers them.
    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::CPU
    }

    /// The type of the Arrow array, as a capsule.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        arrow::schema(py, arrow::kind_of(&self.contents))
    }

    /// The records as an Arrow array, without a copy: two capsules, its type and its data.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let kind = arrow::kind_wanted(&self.contents, requested_schema.as_ref())?;
        Ok((arrow::schema(py, kind)?, arrow::array(py, &self.contents, kind)?))
    }

    // SAFETY: as in `fill_view`.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let contents = &slf.get().contents;
        // SAFETY: the interpreter passes a view to fill.
        unsafe { fill_view(slf.as_any(), contents, 0..contents.length(), view, flags) }
    }
}

/// The bytes of one record of a packed batch.
#[pyclass(frozen, module = "anyrecord._core")]
pub struct Part {
    contents: Arc<Contents>,
    range: Range<usize>,
}

#[pymethods]
impl Part {
    // SAFETY: as in `fill_view`.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let part = slf.get();
        // SAFETY: the interpreter passes a view to fill.
        unsafe { fill_view(slf.as_any(), &part.contents, part.range.clone(), view, flags) }
    }
}

/// Fills a view of bytes of a packed batch. The view is writable: the memory belongs to this batch alone, and numpy and
/// PyTorch warn about arrays that cannot be written to.
///
/// # Safety
/// `view` is a view to fill. `owner` keeps the contents alive.
unsafe fn fill_view(
    owner: &Bound<'_, PyAny>,
    contents: &Contents,
    range: Range<usize>,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    let start = contents.start().wrapping_add(range.start).cast::<c_void>();
    // SAFETY: the range lies inside the block, which stays at its address as long as `owner` lives. The call takes a
    // reference to `owner`.
    let filled = unsafe {
        ffi::PyBuffer_FillInfo(view, owner.as_ptr(), start, range.len() as ffi::Py_ssize_t, 0, flags)
    };
    if filled == 0 { Ok(()) } else { Err(PyErr::fetch(owner.py())) }
}
