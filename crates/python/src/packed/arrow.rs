//! The Arrow PyCapsule interface: a packed batch as an Arrow array of binary values, without a copy.
//!
//! The structures are those of Arrow's C data interface. A consumer moves them out of the capsules and calls `release`
//! in the end, from any thread. What that drops needs no interpreter's lock.

use crate::errors::Failure;
use anyrecord::bytes;
use anyrecord::reader::Packed as Contents;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

const SCHEMA_NAME: &CStr = c"arrow_schema";
const ARRAY_NAME: &CStr = c"arrow_array";

/// The type of the Arrow array.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// With 32-bit offsets.
    Binary,
    /// With 64-bit offsets.
    LargeBinary,
}

impl Kind {
    /// The name in the C data interface.
    fn format(self) -> &'static CStr {
        match self {
            Kind::Binary => c"z",
            Kind::LargeBinary => c"Z",
        }
    }
}

/// `ArrowSchema`.
#[repr(C)]
struct Schema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    num_children: i64,
    children: *mut *mut Schema,
    dictionary: *mut Schema,
    release: Option<unsafe extern "C" fn(*mut Schema)>,
    private: *mut c_void,
}

/// `ArrowArray`.
#[repr(C)]
struct Array {
    length: i64,
    null_count: i64,
    offset: i64,
    num_buffers: i64,
    num_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut Array,
    dictionary: *mut Array,
    release: Option<unsafe extern "C" fn(*mut Array)>,
    private: *mut c_void,
}

/// What an array needs until it is released.
struct Private {
    /// Which values are null (no such list: none are), the offsets, the bytes.
    buffers: [*const c_void; 3],
    /// The offsets of an array with 32-bit offsets.
    _offsets: Vec<i32>,
    _contents: Arc<Contents>,
}

/// The usual type of a batch: 32-bit offsets if they suffice.
pub fn kind_of(contents: &Contents) -> Kind {
    if i32::try_from(contents.length()).is_ok() { Kind::Binary } else { Kind::LargeBinary }
}

/// The type of a batch for a consumer that asks for one. A wish that cannot be met is ignored, as the interface allows.
pub fn kind_wanted(contents: &Contents, requested: Option<&Bound<'_, PyAny>>) -> PyResult<Kind> {
    let Some(requested) = requested else { return Ok(kind_of(contents)) };
    // SAFETY: a capsule of that name holds a schema, whose format is a C string. It lives as long as the capsule.
    let wants_large = unsafe {
        if ffi::PyCapsule_IsValid(requested.as_ptr(), SCHEMA_NAME.as_ptr()) != 1 {
            return Err(PyTypeError::new_err("requested_schema must be a capsule with an Arrow schema"));
        }
        let schema = ffi::PyCapsule_GetPointer(requested.as_ptr(), SCHEMA_NAME.as_ptr()).cast::<Schema>();
        let format = (*schema).format;
        !format.is_null() && CStr::from_ptr(format) == Kind::LargeBinary.format()
    };
    Ok(if wants_large { Kind::LargeBinary } else { kind_of(contents) })
}

/// A capsule with the type.
pub fn schema(py: Python<'_>, kind: Kind) -> PyResult<Bound<'_, PyAny>> {
    let schema = Schema {
        format: kind.format().as_ptr(),
        name: c"".as_ptr(),
        metadata: std::ptr::null(),
        flags: 0,
        num_children: 0,
        children: std::ptr::null_mut(),
        dictionary: std::ptr::null_mut(),
        release: Some(release_schema),
        private: std::ptr::null_mut(),
    };
    capsule(py, Box::new(schema), SCHEMA_NAME, delete_schema)
}

/// A capsule with the array.
pub fn array<'py>(py: Python<'py>, contents: &Arc<Contents>, kind: Kind) -> PyResult<Bound<'py, PyAny>> {
    let mut narrow: Vec<i32> = Vec::new();
    let offsets = match kind {
        Kind::LargeBinary => contents.offsets().as_ptr().cast::<c_void>(),
        Kind::Binary => {
            narrow = bytes::list("offsets", contents.offsets().len() as u64).map_err(Failure)?;
            // The last one is the largest, and fits.
            narrow.extend(contents.offsets().iter().map(|&offset| offset as i32));
            narrow.as_ptr().cast()
        }
    };
    let buffers = [std::ptr::null(), offsets, contents.start().cast_const().cast()];
    let private = Box::new(Private { buffers, _offsets: narrow, _contents: contents.clone() });
    let private = Box::into_raw(private);
    let array = Array {
        length: contents.count() as i64,
        null_count: 0,
        offset: 0,
        num_buffers: 3,
        num_children: 0,
        // SAFETY: the pointer is of the box that was just made. `release_array` drops it.
        buffers: unsafe { (&raw mut (*private).buffers).cast() },
        children: std::ptr::null_mut(),
        dictionary: std::ptr::null_mut(),
        release: Some(release_array),
        private: private.cast(),
    };
    capsule(py, Box::new(array), ARRAY_NAME, delete_array)
}

fn capsule<'py, T>(
    py: Python<'py>,
    value: Box<T>,
    name: &'static CStr,
    destructor: unsafe extern "C" fn(*mut ffi::PyObject),
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the capsule owns the pointer. Its destructor frees it. If there is no memory for the capsule, the few
    // bytes are leaked.
    unsafe {
        let capsule = ffi::PyCapsule_New(Box::into_raw(value).cast(), name.as_ptr(), Some(destructor));
        Bound::from_owned_ptr_or_err(py, capsule)
    }
}

// SAFETY: whoever owns the schema calls it once.
unsafe extern "C" fn release_schema(schema: *mut Schema) {
    // SAFETY: nothing of it is allocated, so it is only marked as released.
    unsafe { (*schema).release = None };
}

// SAFETY: whoever owns the array calls it once.
unsafe extern "C" fn release_array(array: *mut Array) {
    // SAFETY: `array` made the pointer of a box. It is dropped once, because the array is marked as released.
    unsafe {
        drop(Box::from_raw((*array).private.cast::<Private>()));
        (*array).private = std::ptr::null_mut();
        (*array).release = None;
    }
}

// SAFETY: the interpreter calls it with a capsule of `schema`, once.
unsafe extern "C" fn delete_schema(capsule: *mut ffi::PyObject) {
    // SAFETY: the capsule holds the pointer of a box. A consumer that has moved the schema has marked it as released.
    unsafe {
        let schema = ffi::PyCapsule_GetPointer(capsule, SCHEMA_NAME.as_ptr()).cast::<Schema>();
        if !schema.is_null() {
            if let Some(release) = (*schema).release {
                release(schema);
            }
            drop(Box::from_raw(schema));
        }
    }
}

// SAFETY: the interpreter calls it with a capsule of `array`, once.
unsafe extern "C" fn delete_array(capsule: *mut ffi::PyObject) {
    // SAFETY: as in `delete_schema`.
    unsafe {
        let array = ffi::PyCapsule_GetPointer(capsule, ARRAY_NAME.as_ptr()).cast::<Array>();
        if !array.is_null() {
            if let Some(release) = (*array).release {
                release(array);
            }
            drop(Box::from_raw(array));
        }
    }
}
