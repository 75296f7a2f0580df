//! Converts the indices that Python passes to positions.

use crate::attributes::Name;
use crate::errors::{Failure, no_stop_iteration};
use crate::gil;
use anyrecord::bytes;
use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::slice::PySliceIndices;
use pyo3::types::{
    PyBool, PyBytes, PyFloat, PyInt, PyList, PyRange, PyRangeMethods, PySlice, PyString, PyTuple,
};

/// The name of a list of positions in error messages.
const NUMBERS: &str = "a list of record numbers";

/// Converts a Python index to a position. A negative index counts from the end.
pub fn position(index: i64, len: u64) -> PyResult<u64> {
    let position = if index < 0 { i128::from(index) + i128::from(len) } else { i128::from(index) };
    u64::try_from(position).ok().filter(|p| *p < len).ok_or_else(|| out_of_range(index, len))
}

fn out_of_range(index: impl std::fmt::Display, len: u64) -> PyErr {
    PyIndexError::new_err(format!("record {index} is out of range: there are {len} records"))
}

/// Converts one index: an `int`, or anything with `__index__`. None if it is neither.
#[inline]
pub fn one(key: &Bound<'_, PyAny>, len: u64) -> PyResult<Option<u64>> {
    if let Some(index) = small_int(key)
        && (index as u64) < len
    {
        return Ok(Some(index as u64));
    }
    one_of_any_kind(key, len)
}

/// The value of an `int` that fits into `i64` and is not negative. This is the fast path: nearly all indices are such.
#[inline]
fn small_int(key: &Bound<'_, PyAny>) -> Option<i64> {
    if !key.is_exact_instance_of::<PyInt>() {
        return None;
    }
    let mut overflow = 0;
    // SAFETY: the arguments are an `int` and a place for the flag. A number that is too large sets the flag and raises
    // nothing.
    let value = unsafe { ffi::PyLong_AsLongLongAndOverflow(key.as_ptr(), &mut overflow) };
    (overflow == 0 && value >= 0).then_some(value)
}

fn one_of_any_kind(key: &Bound<'_, PyAny>, len: u64) -> PyResult<Option<u64>> {
    // A tensor of one element has `__index__`, too. With a dimension it is a list of one index. A boolean is refused.
    if has_length(key) {
        if key.len().is_ok() {
            return Ok(None);
        }
        if is_of_booleans(key)? {
            return Err(mask());
        }
    }
    match key.extract::<i64>() {
        Ok(index) => position(index, len).map(Some),
        // An integer that does not fit into `i64` is an index, too, and always out of range.
        Err(_) if key.is_instance_of::<PyInt>() => Err(out_of_range(key, len)),
        Err(error) if error.is_instance_of::<PyTypeError>(key.py()) => Ok(None),
        Err(error) => Err(no_stop_iteration(key.py(), error)),
    }
}

/// Whether the type has a length. A cheap way to distinguish an array with zero dimensions from a numpy scalar.
fn has_length(key: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the arguments are the type of a live object and a valid slot number. An empty slot is null.
    unsafe { !ffi::PyType_GetSlot(key.get_type_ptr(), ffi::Py_mp_length).is_null() }
}

/// Indices that come one by one. Booleans are refused: a list of them is a mask, not the records 0 and 1.
#[derive(Default)]
struct Items {
    /// The type of the last item that is not a plain `int`, if all items of that type are numbers. The pointer is only
    /// compared, never dereferenced.
    numbers: Option<*const ffi::PyTypeObject>,
}

impl Items {
    #[inline]
    fn position(&mut self, item: &Bound<'_, PyAny>, len: u64) -> PyResult<u64> {
        match small_int(item) {
            Some(index) if (index as u64) < len => Ok(index as u64),
            _ => self.of_any_kind(item, len),
        }
    }

    fn of_any_kind(&mut self, item: &Bound<'_, PyAny>, len: u64) -> PyResult<u64> {
        let kind: *const ffi::PyTypeObject = item.get_type_ptr();
        if self.numbers != Some(kind) && !item.is_exact_instance_of::<PyInt>() {
            if item.is_instance_of::<PyBool>() || is_of_booleans(item)? {
                return Err(mask());
            }
            // An array or a tensor can hold one boolean or one number, so each of them is checked.
            self.numbers = if has_length(item) { None } else { Some(kind) };
        }
        one_of_any_kind(item, len)?.ok_or_else(|| wrong_type(item))
    }
}

/// Whether an array, a tensor or a numpy scalar holds booleans.
fn is_of_booleans(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let Some(dtype) = object.getattr_opt("dtype")? else { return Ok(false) };
    Ok(dtype.str()?.to_cow()?.ends_with("bool"))
}

#[cold]
fn mask() -> PyErr {
    PyTypeError::new_err("booleans are not record numbers; for a mask, pass numpy.flatnonzero(mask)")
}

/// Converts many indices: a list, a range, an array of integers, or any iterable of objects with `__index__`.
pub fn many(keys: &Bound<'_, PyAny>, len: u64) -> PyResult<Vec<u64>> {
    let mut items = Items::default();
    if let Ok(list) = keys.cast_exact::<PyList>() {
        let mut found = bytes::list(NUMBERS, list.len() as u64).map_err(Failure)?;
        for item in list {
            // The list can grow while the `__index__` of a user's object runs.
            bytes::push(NUMBERS, &mut found, items.position(&item, len)?).map_err(Failure)?;
        }
        return Ok(found);
    }
    if keys.is_instance_of::<PyString>()
        || keys.is_instance_of::<PyBytes>()
        || keys.is_instance_of::<PyFloat>()
    {
        return Err(wrong_type(keys));
    }
    if let Ok(range) = keys.cast::<PyRange>()
        && let (Ok(start), Ok(step), Ok(count)) = (range.start(), range.step(), range.len())
    {
        let (start, step, count) = (start as i64, step as i64, count as i64);
        // If both ends are in range, so are all numbers between them. If not, raise before memory is allocated.
        let last = (i128::from(start) + i128::from(step) * i128::from(count - 1)) as i64;
        if count > 0 {
            position(start, len)?;
            position(last, len)?;
        }
        let mut found = bytes::list(NUMBERS, count as u64).map_err(Failure)?;
        match (start >= 0) == (last >= 0) {
            true if start >= 0 => found.extend((0..count).map(|i| (start + step * i) as u64)),
            _ => {
                for i in 0..count {
                    found.push(position(start + step * i, len)?);
                }
            }
        }
        return Ok(found);
    }
    if let Some(found) = buffer(keys, len, position)? {
        return Ok(found);
    }
    let mut calling = gil::Calling::new(keys.py());
    let each = keys.try_iter().map_err(|_| match keys.hasattr(Name("__index__")) {
        Ok(true) => PyTypeError::new_err("several record numbers are needed, not one; pass a list: [number]"),
        _ => wrong_type(keys),
    })?;
    // The length of a user's object can be wrong. It is only a hint for the first allocation.
    let hint = keys.len().unwrap_or(0).min(1 << 16);
    let mut found = bytes::list(NUMBERS, hint as u64).map_err(Failure)?;
    for item in each {
        calling.check(keys.py());
        bytes::push(NUMBERS, &mut found, items.position(&item?, len)?).map_err(Failure)?;
    }
    Ok(found)
}

/// Converts one index if it is an `int` of Python that is not negative and in range.
#[inline]
pub fn plain_one(key: &Bound<'_, PyAny>, len: u64) -> Option<u64> {
    small_int(key).map(|index| index as u64).filter(|index| *index < len)
}

/// Converts many indices if all of them are plain: a list or a tuple of `int`, a range, or an array of integers, and
/// none is negative or out of range. It runs no code of the user, so the caller can look at the indices again.
pub fn plain(keys: &Bound<'_, PyAny>, len: u64) -> PyResult<Option<Vec<u64>>> {
    if let Ok(list) = keys.cast_exact::<PyList>() {
        return all_plain(list.len(), list.iter(), len);
    }
    if let Ok(tuple) = keys.cast_exact::<PyTuple>() {
        return all_plain(tuple.len(), tuple.iter(), len);
    }
    if let Ok(range) = keys.cast_exact::<PyRange>() {
        let (Ok(start), Ok(step), Ok(count)) = (range.start(), range.step(), range.len()) else {
            return Ok(None);
        };
        let last = start as i128 + step as i128 * (count as i128 - 1);
        let is_inside = |position: i128| (0..i128::from(len)).contains(&position);
        if count > 0 && !(is_inside(start as i128) && is_inside(last)) {
            return Ok(None);
        }
        let mut found = bytes::list(NUMBERS, count as u64).map_err(Failure)?;
        found.extend((0..count as i64).map(|i| (start as i64 + step as i64 * i) as u64));
        return Ok(Some(found));
    }
    if !keys.hasattr(Name("__array_interface__"))? {
        return Ok(None);
    }
    let from_zero = |index, len| if index < 0 { Err(out_of_range(index, len)) } else { position(index, len) };
    // Whatever is wrong, the caller finds it again.
    Ok(buffer(keys, len, from_zero).unwrap_or(None))
}

fn all_plain<'py>(
    count: usize,
    items: impl Iterator<Item = Bound<'py, PyAny>>,
    len: u64,
) -> PyResult<Option<Vec<u64>>> {
    let mut found = bytes::list(NUMBERS, count as u64).map_err(Failure)?;
    for item in items.take(count) {
        match plain_one(&item, len) {
            Some(position) => found.push(position),
            None => return Ok(None),
        }
    }
    Ok(Some(found))
}

/// Converts a slice.
pub fn sliced(slice: &Bound<'_, PySlice>, len: u64) -> PyResult<Vec<u64>> {
    let len = isize::try_from(len).map_err(|_| PyOverflowError::new_err("too many records"))?;
    let PySliceIndices { start, step, slicelength, .. } = slice.indices(len)?;
    let mut found = bytes::list(NUMBERS, slicelength as u64).map_err(Failure)?;
    found.extend((0..slicelength as i64).map(|i| (start as i64 + step as i64 * i) as u64));
    Ok(found)
}

/// Converts an array of integers at once, without a Python object for each.
fn buffer(
    keys: &Bound<'_, PyAny>,
    len: u64,
    position: impl Fn(i64, u64) -> PyResult<u64>,
) -> PyResult<Option<Vec<u64>>> {
    macro_rules! try_as {
        ($($integer:ty),*) => { $(
            let to_position = |value: $integer| {
                i64::try_from(value).map_err(|_| out_of_range(value, len)).and_then(|index| position(index, len))
            };
            if let Some(found) = elements::<$integer>(keys, to_position)? {
                return Ok(Some(found));
            }
        )* };
    }
    // A failed request for a buffer raises an exception, which is slow. So ask only objects that look like arrays.
    if keys.hasattr(Name("__array_interface__"))? || keys.hasattr(Name("itemsize"))? {
        try_as!(i64, i32, u64, u32, i16, u16, i8, u8);
    }
    // This includes PyTorch's tensors, which are not buffers.
    if is_of_booleans(keys)? { Err(mask()) } else { Ok(None) }
}

fn elements<T: Element + Default>(
    keys: &Bound<'_, PyAny>,
    to_position: impl Fn(T) -> PyResult<u64>,
) -> PyResult<Option<Vec<u64>>> {
    match PyBuffer::<T>::get(keys) {
        // Numbers in big-endian order are converted one by one, by Python, which swaps their bytes.
        Ok(buffer) if buffer.format().to_bytes().first().is_some_and(|order| b">!".contains(order)) => {
            Ok(None)
        }
        Ok(buffer) if buffer.dimensions() == 1 => {
            // The count of a broadcast array can be huge although the array takes little memory. So the allocations
            // must be able to fail.
            let count = buffer.item_count();
            let mut values = bytes::list(NUMBERS, count as u64).map_err(Failure)?;
            let mut found = bytes::list(NUMBERS, count as u64).map_err(Failure)?;
            values.resize(count, T::default());
            buffer.copy_to_slice(keys.py(), &mut values)?;
            for value in values {
                found.push(to_position(value)?);
            }
            Ok(Some(found))
        }
        Ok(buffer) => Err(PyTypeError::new_err(format!(
            "an array of record numbers must have one dimension, not {}",
            buffer.dimensions()
        ))),
        Err(_) => Ok(None),
    }
}

fn wrong_type(found: &Bound<'_, PyAny>) -> PyErr {
    let name = found.get_type().name().map_or_else(|_| "object".into(), |n| n.to_string());
    PyTypeError::new_err(format!(
        "records are indexed with integers, slices, or lists and arrays of integers, not {name}"
    ))
}
