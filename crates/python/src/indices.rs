//! What Python indexes with, as positions.

use crate::gil;
use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFloat, PyInt, PyList, PyRange, PyRangeMethods, PyString};

/// A Python index as a position: negative ones count from the end.
pub fn position(index: i64, len: u64) -> PyResult<u64> {
    let position = if index < 0 { i128::from(index) + i128::from(len) } else { i128::from(index) };
    u64::try_from(position).ok().filter(|p| *p < len).ok_or_else(|| out_of_range(index, len))
}

fn out_of_range(index: impl std::fmt::Display, len: u64) -> PyErr {
    PyIndexError::new_err(format!("record {index} is out of range: there are {len} records"))
}

/// One index: an `int`, or anything with `__index__`. None: it is neither.
#[inline]
pub fn one(key: &Bound<'_, PyAny>, len: u64) -> PyResult<Option<u64>> {
    if let Some(index) = small_int(key)
        && (index as u64) < len
    {
        return Ok(Some(index as u64));
    }
    one_of_any_kind(key, len)
}

/// The value of an `int` that is neither negative nor large: the index that nearly everybody uses, asked for without
/// the detours that other kinds need.
#[inline]
fn small_int(key: &Bound<'_, PyAny>) -> Option<i64> {
    if !key.is_exact_instance_of::<PyInt>() {
        return None;
    }
    let mut overflow = 0;
    // SAFETY: an `int` and a place for the flag; nothing is raised for one that is too large, the flag tells.
    let value = unsafe { ffi::PyLong_AsLongLongAndOverflow(key.as_ptr(), &mut overflow) };
    (overflow == 0 && value >= 0).then_some(value)
}

fn one_of_any_kind(key: &Bound<'_, PyAny>, len: u64) -> PyResult<Option<u64>> {
    match key.extract::<i64>() {
        Ok(index) => position(index, len).map(Some),
        // An integer of any size is an index, if a hopeless one.
        Err(_) if key.is_instance_of::<PyInt>() => Err(out_of_range(key, len)),
        Err(error) if error.is_instance_of::<PyTypeError>(key.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Many indices: a list, a range, an array of integers, any iterable of what has `__index__`.
pub fn many(keys: &Bound<'_, PyAny>, len: u64) -> PyResult<Vec<u64>> {
    if let Ok(list) = keys.cast_exact::<PyList>() {
        let mut found = Vec::with_capacity(list.len());
        for item in list {
            found.push(one(&item, len)?.ok_or_else(|| wrong_type(&item))?);
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
        // Where both ends are inside, so is everything between them.
        let last = i128::from(start) + i128::from(step) * i128::from(count - 1);
        if start >= 0 && (start as u64) < len && (0..i128::from(len)).contains(&last) {
            return Ok((0..count).map(|i| (start + step * i) as u64).collect());
        }
        return (0..count).map(|i| position(start + step * i, len)).collect();
    }
    if let Some(found) = buffer(keys, len)? {
        return Ok(found);
    }
    let mut calling = gil::Calling::new(keys.py());
    let items = keys.try_iter().map_err(|_| wrong_type(keys))?;
    // A length is a claim of the object's; it saves growing, and is not believed beyond that.
    let mut found = Vec::with_capacity(keys.len().unwrap_or(0).min(1 << 16));
    for item in items {
        calling.check(keys.py());
        let item = item?;
        found.push(one(&item, len)?.ok_or_else(|| wrong_type(&item))?);
    }
    Ok(found)
}

/// An array of integers, taken whole without a Python object for each.
fn buffer(keys: &Bound<'_, PyAny>, len: u64) -> PyResult<Option<Vec<u64>>> {
    macro_rules! try_as {
        ($($integer:ty),*) => { $(
            if let Some(values) = elements::<$integer>(keys)? {
                return values.into_iter().map(|v| {
                    i64::try_from(v).map_err(|_| out_of_range(v, len)).and_then(|v| position(v, len))
                }).collect::<PyResult<Vec<u64>>>().map(Some);
            }
        )* };
    }
    // A failed request for a buffer costs an exception, so things that have none are sorted out first.
    if keys.hasattr("__array_interface__")? || keys.hasattr("itemsize")? {
        try_as!(i64, i32, u64, u32, i16, u16, i8, u8);
        if keys.getattr("dtype").is_ok_and(|dtype| dtype.eq("bool").unwrap_or(false)) {
            return Err(PyTypeError::new_err(
                "a mask of booleans is not a list of record numbers; use numpy.flatnonzero(mask)",
            ));
        }
    }
    Ok(None)
}

fn elements<T: Element>(keys: &Bound<'_, PyAny>) -> PyResult<Option<Vec<T>>> {
    match PyBuffer::<T>::get(keys) {
        // Numbers in the other byte order are taken one by one, which puts them right.
        Ok(buffer) if buffer.format().to_bytes().first().is_some_and(|order| b">!".contains(order)) => {
            Ok(None)
        }
        Ok(buffer) if buffer.dimensions() == 1 => buffer.to_vec(keys.py()).map(Some),
        Ok(buffer) => Err(PyTypeError::new_err(format!(
            "an array of record numbers has one dimension, not {}",
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
