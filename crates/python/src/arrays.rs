//! numpy arrays as a destination of records: each is new, writable, and owns its memory.
//!
//! They are made through numpy's C interface, as other extension modules do. From Python, an array costs more than
//! reading a small record into it. numpy is loaded when the first array is needed.

use crate::deliver::New;
use anyrecord::bytes;
use anyrecord::error::Result;
use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyCapsuleMethods};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{null, null_mut};

// Numbers of functions in the table of numpy's C interface, and of a type. They are the same in numpy 1 and 2.
const GET_ABI_VERSION: usize = 0;
const NEW_ARRAY: usize = 93;
const UINT8: c_int = 2;
/// The versions of the binary interface in which an array begins as [`ArrayHead`] says: those of numpy 1 and 2.
const KNOWN_ABI: [c_uint; 2] = [0x0100_0009, 0x0200_0000];

type GetAbiVersion = unsafe extern "C" fn() -> c_uint;
type NewArrayFunction = unsafe extern "C" fn(
    subtype: *mut ffi::PyTypeObject,
    dimensions: c_int,
    shape: *const ffi::Py_ssize_t,
    element: c_int,
    strides: *const ffi::Py_ssize_t,
    data: *mut c_void,
    element_bytes: c_int,
    flags: c_int,
    object: *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// The first fields of an array object.
#[repr(C)]
struct ArrayHead {
    object: ffi::PyObject,
    data: *mut u8,
}

struct Numpy {
    new_array: NewArrayFunction,
    ndarray: Py<PyAny>,
}

static NUMPY: PyOnceLock<Numpy> = PyOnceLock::new();

/// Loads numpy. Call it before arrays are made.
#[inline]
pub fn prepare(py: Python<'_>) -> PyResult<()> {
    if NUMPY.get(py).is_none() {
        // Loading lets other threads run. If one of them forked while the cell waits for a value, the child would wait
        // for that value forever. So it is loaded first. Another thread may do the same, which does no harm.
        let _ = NUMPY.set(py, load(py)?);
    }
    Ok(())
}

fn load(py: Python<'_>) -> PyResult<Numpy> {
    let numpy = py.import("numpy")?;
    let inner = py.import("numpy._core._multiarray_umath");
    let inner = inner.or_else(|_| py.import("numpy.core._multiarray_umath"))?; // numpy 1
    let table = inner.getattr("_ARRAY_API")?.cast_into::<PyCapsule>()?;
    let table = table.pointer_checked(None)?.cast::<*const c_void>().as_ptr();
    // SAFETY: numpy keeps the table forever. The first entry is this function in all versions.
    let abi = unsafe { std::mem::transmute::<*const c_void, GetAbiVersion>(*table.add(GET_ABI_VERSION))() };
    if !KNOWN_ABI.contains(&abi) {
        let version = numpy.getattr("__version__")?;
        return Err(PyImportError::new_err(format!(
            "numpy {version} has a binary interface ({abi:#x}) that this version of anyrecord does not know; \
             install numpy 1 or 2, or a newer anyrecord"
        )));
    }
    // SAFETY: the table of this version has this function at this place.
    let new_array = unsafe { std::mem::transmute::<*const c_void, NewArrayFunction>(*table.add(NEW_ARRAY)) };
    Ok(Numpy { new_array, ndarray: numpy.getattr("ndarray")?.unbind() })
}

/// New arrays of bytes. [`prepare`] must have been called.
pub struct NewArray;

// SAFETY: a new array owns its memory, and it is resized only through a reference, which no other code has yet.
unsafe impl New for NewArray {
    type Object = PyAny;

    #[inline]
    fn uninitialised(py: Python<'_>, size: usize) -> Result<(Bound<'_, PyAny>, *mut u8)> {
        let no_memory = || bytes::no_memory("a record", size as u64);
        let length = ffi::Py_ssize_t::try_from(size).map_err(|_| no_memory())?;
        let numpy = NUMPY.get(py).ok_or_else(no_memory)?;
        // SAFETY: `ndarray` is a type object. There is one dimension, and `length` is read during the call. Without
        // strides and data, numpy allocates memory for a contiguous array. It returns null only with an exception set.
        unsafe {
            let ndarray = numpy.ndarray.as_ptr().cast::<ffi::PyTypeObject>();
            let array = (numpy.new_array)(ndarray, 1, &length, UINT8, null(), null_mut(), 0, 0, null_mut());
            let array = Bound::from_owned_ptr_or_err(py, array).map_err(|_| no_memory())?;
            let place = (*array.as_ptr().cast::<ArrayHead>()).data;
            Ok((array, place))
        }
    }
}
