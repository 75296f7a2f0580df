//! DLPack: the bytes of a packed batch as a one-dimensional tensor of other libraries, without a copy.
//!
//! The structures are those of DLPack's `dlpack.h`. A consumer takes the structure out of the capsule, renames the
//! capsule, and calls the deleter in the end, from any thread. What the deleter drops needs no interpreter's lock.

use crate::errors::Failure;
use anyrecord::reader::Packed as Contents;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

/// The type and the number of the device.
pub const CPU: (i32, i32) = (1, 0);
/// The version of the structure with a version.
const VERSION: (u32, u32) = (1, 0);
const IS_COPIED: u64 = 2;
const UNSIGNED: u8 = 1;

const NAME: &CStr = c"dltensor";
const VERSIONED_NAME: &CStr = c"dltensor_versioned";

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    dimensions: i32,
    type_code: u8,
    type_bits: u8,
    type_lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: Tensor,
}

/// What an exported structure needs until it is deleted. `M` is the first field, so both have the same address.
#[repr(C)]
struct Exported<M> {
    managed: M,
    shape: i64,
    stride: i64,
    contents: Arc<Contents>,
}

/// A capsule with the bytes of a batch.
pub fn export<'py>(
    py: Python<'py>,
    contents: &Arc<Contents>,
    has_stream: bool,
    max_version: Option<(u32, u32)>,
    device: Option<(i32, i32)>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    if has_stream {
        return Err(PyValueError::new_err("stream must be None: the bytes are in the memory of the CPU"));
    }
    if device.is_some_and(|device| device != CPU) {
        return Err(PyBufferError::new_err(
            "the bytes are in the memory of the CPU; copy them to the device",
        ));
    }
    let (contents, flags) = match copy {
        Some(true) => (Arc::new(contents.try_clone().map_err(Failure)?), IS_COPIED),
        _ => (contents.clone(), 0),
    };
    if max_version.is_some_and(|(major, _)| major >= VERSION.0) {
        let exported = Box::new(Exported {
            managed: Versioned {
                major: VERSION.0,
                minor: VERSION.1,
                context: std::ptr::null_mut(),
                deleter: Some(delete::<Versioned>),
                flags,
                tensor: tensor_of(&contents),
            },
            shape: contents.length() as i64,
            stride: 1,
            contents,
        });
        return capsule(py, exported, |managed| &mut managed.tensor, VERSIONED_NAME, delete_unused_versioned);
    }
    let exported = Box::new(Exported {
        managed: Managed {
            tensor: tensor_of(&contents),
            context: std::ptr::null_mut(),
            deleter: Some(delete::<Managed>),
        },
        shape: contents.length() as i64,
        stride: 1,
        contents,
    });
    capsule(py, exported, |managed| &mut managed.tensor, NAME, delete_unused)
}

/// Without the addresses of shape and strides, which are known only in the box.
fn tensor_of(contents: &Contents) -> Tensor {
    Tensor {
        data: contents.start().cast(),
        device_type: CPU.0,
        device_id: CPU.1,
        dimensions: 1,
        type_code: UNSIGNED,
        type_bits: 8,
        type_lanes: 1,
        shape: std::ptr::null_mut(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    }
}

fn capsule<'py, M>(
    py: Python<'py>,
    exported: Box<Exported<M>>,
    tensor: impl FnOnce(&mut M) -> &mut Tensor,
    name: &'static CStr,
    destructor: unsafe extern "C" fn(*mut ffi::PyObject),
) -> PyResult<Bound<'py, PyAny>> {
    let exported = Box::into_raw(exported);
    // SAFETY: the pointer is of a box that nobody else has seen. After a failure the box is dropped here, else by the
    // deleter.
    unsafe {
        let (shape, stride) = (&raw mut (*exported).shape, &raw mut (*exported).stride);
        let tensor = tensor(&mut (*exported).managed);
        (tensor.shape, tensor.strides) = (shape, stride);
        let capsule = ffi::PyCapsule_New(exported.cast(), name.as_ptr(), Some(destructor));
        if capsule.is_null() {
            drop(Box::from_raw(exported));
        }
        Bound::from_owned_ptr_or_err(py, capsule)
    }
}

/// The deleter, which the consumer calls. `managed` is the first field of an `Exported`.
unsafe extern "C" fn delete<M>(managed: *mut M) {
    if !managed.is_null() {
        // SAFETY: `capsule` made the pointer of such a box. A consumer calls the deleter once.
        drop(unsafe { Box::from_raw(managed.cast::<Exported<M>>()) });
    }
}

// SAFETY: the interpreter calls it with the capsule, once.
unsafe extern "C" fn delete_unused(capsule: *mut ffi::PyObject) {
    // SAFETY: as above, and the name belongs to this structure.
    unsafe { delete_if_unused::<Managed>(capsule, NAME) };
}

// SAFETY: the interpreter calls it with the capsule, once.
unsafe extern "C" fn delete_unused_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: as above, and the name belongs to this structure.
    unsafe { delete_if_unused::<Versioned>(capsule, VERSIONED_NAME) };
}

/// A consumer that has taken the structure has renamed the capsule.
///
/// # Safety
/// `capsule` is one of `capsule`. If it has the name, it holds an `Exported<M>`.
unsafe fn delete_if_unused<M>(capsule: *mut ffi::PyObject, name: &CStr) {
    // SAFETY: the caller vouches for the capsule. The check of the name raises nothing.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, name.as_ptr()) == 1 {
            delete::<M>(ffi::PyCapsule_GetPointer(capsule, name.as_ptr()).cast());
        }
    }
}
