//! The destinations of records: new objects (`bytes`, or what else is `New`), or one buffer of the user.

use crate::errors::external;
use crate::gil::{self, Kept};
use anyrecord::allocator;
use anyrecord::bytes;
use anyrecord::error::{Error, Result};
use anyrecord::memory::{self, HugePages};
use anyrecord::reader::{Deliver, Export};
use pyo3::PyTypeInfo;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::ffi::{c_int, c_void};

/// A kind of Python object that holds one record.
///
/// # Safety
/// `uninitialised` returns a new object, which no other code has seen, and the address of `size` bytes in it. They stay
/// there as long as the object lives. An object without bytes may be shared.
pub unsafe trait New {
    type Object: PyTypeInfo;
    fn uninitialised(py: Python<'_>, size: usize) -> Result<(Bound<'_, Self::Object>, *mut u8)>;
}

/// New `bytes` objects.
pub struct NewBytes;

// SAFETY: see the comment in `uninitialised`.
unsafe impl New for NewBytes {
    type Object = PyBytes;

    /// The safe constructor zero-fills first, which for large records costs as much as reading them from memory.
    #[inline]
    fn uninitialised(py: Python<'_>, size: usize) -> Result<(Bound<'_, PyBytes>, *mut u8)> {
        // Python's own error would not say that the memory is for a record. The caller adds the file.
        let no_memory = || bytes::no_memory("a record", size as u64);
        let length = ffi::Py_ssize_t::try_from(size).map_err(|_| no_memory())?;
        // SAFETY: with a null pointer, the call returns an object whose bytes may be written until other code can see
        // the object. It returns null only with an exception set.
        unsafe {
            let object = ffi::PyBytes_FromStringAndSize(std::ptr::null(), length);
            let object = Bound::from_owned_ptr_or_err(py, object).map_err(|_| no_memory())?;
            let place = ffi::PyBytes_AsString(object.as_ptr()).cast::<u8>();
            Ok((object.cast_into_unchecked(), place))
        }
    }
}

/// Allocates an object and calls `fill` to write its bytes. Releases the GIL for that, unless `quick`.
pub fn object_with<'py, N: New>(
    py: Python<'py>,
    size: usize,
    quick: bool,
    fill: impl FnOnce(&mut [u8]) -> Result<()> + Send,
) -> Result<Bound<'py, N::Object>> {
    allocator::expect(size);
    let (object, place) = N::uninitialised(py, size)?;
    memory::expect_written(place, size);
    if size > 0 {
        // SAFETY: `size` bytes at `place` belong to an object that no other code has seen. It outlives `fill`.
        // The empty `bytes` object is shared in the whole interpreter, so it is never written.
        let out = unsafe { std::slice::from_raw_parts_mut(place, size) };
        if quick { fill(out) } else { gil::detach(py, || fill(out)) }?;
    } else if quick {
        fill(&mut [])?;
    } else {
        gil::detach(py, || fill(&mut []))?;
    }
    Ok(object)
}

/// A record in mapped memory, for a `memoryview` without a copy.
#[pyclass(frozen, module = "anyrecord._core")]
pub struct InPlace {
    pub export: Export,
}

#[pymethods]
impl InPlace {
    // SAFETY: the bytes stay at their address as long as `export` lives. The view keeps it alive through `slf`.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes = slf.get().export.bytes();
        let (start, length) = (bytes.as_ptr().cast_mut().cast::<c_void>(), bytes.len() as ffi::Py_ssize_t);
        // SAFETY: the interpreter passes a view to fill. The call takes a reference to `slf`, and refuses a request
        // for a writable view.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 1, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// The records of a batch as `bytes` objects.
pub type BytesList = ObjectList<NewBytes>;

/// The records of a batch, each as an object of its own.
pub struct ObjectList<N: New> {
    /// None: not delivered yet, or left out.
    objects: Kept<Vec<Option<Py<N::Object>>>>,
    /// How many are left out.
    left_out: usize,
}

impl<N: New> ObjectList<N> {
    pub fn new(count: usize) -> Result<Self> {
        let mut objects = bytes::list("a list of records", count as u64)?;
        objects.resize_with(count, || None);
        Ok(ObjectList { objects: Kept::new(objects), left_out: 0 })
    }

    /// What takes the place of a record that could not be read. None: the record is left out.
    pub fn put(&mut self, position: usize, object: Option<Py<N::Object>>) {
        self.left_out += usize::from(object.is_none());
        self.objects[position] = object;
    }

    /// The objects of all positions. None: it could not be read.
    pub fn into_objects(self) -> Vec<Option<Py<N::Object>>> {
        self.objects.into_inner()
    }

    /// The objects as a list, with None for records that are left out.
    pub fn into_list_with_gaps(self, py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
        self.check()?;
        let objects = self.objects.into_inner().into_iter();
        PyList::new(py, objects.map(|object| object.map(|object| object.into_bound(py))))
    }

    /// The objects in reverse order.
    pub fn into_reversed(self) -> PyResult<Vec<Py<N::Object>>> {
        self.check()?;
        Ok(self.objects.into_inner().into_iter().rev().flatten().collect())
    }

    /// The objects as a list.
    pub fn into_list(self, py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
        self.check()?;
        if self.left_out > 0 {
            let objects: Vec<_> = self.objects.into_inner().into_iter().flatten().collect();
            return PyList::new(py, objects.into_iter().map(|object| object.into_bound(py)));
        }
        let objects = self.objects.into_inner().into_iter();
        PyList::new(py, objects.map(|object| object.map(|object| object.into_bound(py))))
    }

    /// Returns an error if a record was not delivered. Without it, the caller could take a shorter list for complete.
    fn check(&self) -> PyResult<()> {
        match self.objects.iter().position(Option::is_none) {
            None => Ok(()),
            Some(_) if self.objects.iter().filter(|object| object.is_none()).count() == self.left_out => {
                Ok(())
            }
            Some(position) => Err(PyRuntimeError::new_err(format!(
                "record {position} of the batch was not delivered; please report this"
            ))),
        }
    }
}

impl<N: New> Deliver for ObjectList<N> {
    fn reserve(&mut self, wanted: &[(usize, usize)]) -> Result<Vec<&mut [u8]>> {
        let total = wanted.iter().fold(0, |sum: usize, (_, size)| sum.saturating_add(*size));
        allocator::expect(total);
        let mut huge_pages = HugePages::for_records(total);
        // Take the GIL once for all records, and check for Ctrl-C at the same time.
        gil::attach(|py| -> Result<Vec<&mut [u8]>> {
            py.check_signals().map_err(external)?;
            let mut places = bytes::list("places of records", wanted.len() as u64)?;
            for &(position, size) in wanted {
                huge_pages.before(size);
                let (object, place) = N::uninitialised(py, size)?;
                memory::expect_written(place, size);
                places.push(match size {
                    0 => &mut [][..],
                    // SAFETY: as in `object_with`; the object is kept in `self`, which the result borrows.
                    _ => unsafe { std::slice::from_raw_parts_mut(place, size) },
                });
                self.objects[position] = Some(object.unbind());
            }
            Ok(places)
        })
    }

    fn forget(&mut self, position: usize) {
        // The object may be partly written.
        let object = self.objects[position].take();
        drop(Kept::new(object));
    }
}

/// The records of a batch, one after the other in the user's buffer.
pub struct OneBuffer<'a> {
    out: &'a mut [u8],
    /// Where each record ends. If all sizes are known in advance, records are read directly into the buffer.
    ends: Vec<usize>,
    /// If sizes are not known in advance, the records are collected here and copied to the buffer at the end.
    loose: Vec<Vec<u8>>,
}

impl<'a> OneBuffer<'a> {
    /// `sizes`: the size of each record, if all are known.
    pub fn new(out: &'a mut [u8], count: usize, sizes: Option<&[u64]>) -> Result<Self> {
        let ends = bytes::list("places of records", count as u64)?;
        let mut buffer = OneBuffer { out, ends, loose: Vec::new() };
        match sizes {
            Some(sizes) => buffer.place(sizes.iter().copied())?,
            None => {
                buffer.loose = bytes::list("a list of records", count as u64)?;
                buffer.loose.resize_with(count, Vec::new);
            }
        }
        Ok(buffer)
    }

    fn place(&mut self, sizes: impl Iterator<Item = u64>) -> Result<()> {
        let mut end = 0u64;
        for size in sizes {
            end = end.saturating_add(size);
            self.ends.push(usize::try_from(end).unwrap_or(usize::MAX));
        }
        if end > self.out.len() as u64 {
            return Err(Error::argument(format!(
                "the buffer is too small: it has {} bytes, and the records need {end}",
                self.out.len()
            )));
        }
        Ok(())
    }

    /// Returns where each record ends in the buffer.
    pub fn finish(mut self) -> Result<Vec<usize>> {
        if !self.loose.is_empty() {
            let loose = std::mem::take(&mut self.loose);
            self.place(loose.iter().map(|record| record.len() as u64))?;
            let mut begin = 0;
            for record in &loose {
                self.out[begin..begin + record.len()].copy_from_slice(record);
                begin += record.len();
            }
        }
        Ok(self.ends)
    }
}

/// Copies records into a buffer, one after the other. Returns where each ends.
pub fn copy_into<'r>(out: &mut [u8], records: impl Iterator<Item = &'r [u8]>) -> Result<Vec<usize>> {
    let loose = records.map(<[u8]>::to_vec).collect();
    OneBuffer { out, ends: Vec::new(), loose }.finish()
}

impl Deliver for OneBuffer<'_> {
    fn reserve(&mut self, wanted: &[(usize, usize)]) -> Result<Vec<&mut [u8]>> {
        if !self.loose.is_empty() {
            return Deliver::reserve(&mut self.loose, wanted);
        }
        // Slices of one buffer, wanted in any order: split them off its front, in order of position.
        let mut order: Vec<usize> = (0..wanted.len()).collect();
        // `wanted` is sorted unless records share chunks.
        if !wanted.is_sorted_by_key(|(position, _)| *position) {
            order.sort_unstable_by_key(|&i| wanted[i].0);
        }
        let mut places: Vec<&mut [u8]> = wanted.iter().map(|_| &mut [][..]).collect();
        let (mut rest, mut at) = (&mut *self.out, 0);
        for i in order {
            let (position, size) = wanted[i];
            let begin = if position == 0 { 0 } else { self.ends[position - 1] };
            if begin < at || self.ends[position] - begin != size {
                return Err(Error::format("a record's size differs from the table's"));
            }
            let (_, from) = rest.split_at_mut(begin - at);
            let (place, after) = from.split_at_mut(size);
            (places[i], rest, at) = (place, after, begin + size);
        }
        Ok(places)
    }
    fn forget(&mut self, _position: usize) {
        // The caller's buffer is not read around damage.
    }
}
