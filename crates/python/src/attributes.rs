//! Attributes of Python objects, and structures that are made of them.
//!
//! The derived `FromPyObject` and `intern!` keep the names of attributes in cells that are filled at their first use. While
//! a thread fills one, another can fork, and the child would wait for that cell forever. So the names are looked up here.

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::convert::Infallible;

/// The name of an attribute. It is the same object each time: Python's cache of attributes holds on to thousands of names
/// that it was asked for, and would fill up with copies.
#[derive(Clone, Copy)]
pub struct Name<'a>(pub &'a str);

impl<'py> IntoPyObject<'py> for Name<'_> {
    type Target = PyString;
    type Output = Bound<'py, PyString>;
    type Error = Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Infallible> {
        Ok(PyString::intern(py, self.0))
    }
}

/// The value of an attribute. TypeError names the attribute if it cannot have that value.
pub fn attribute<'py, T: FromPyObjectOwned<'py>>(object: &Bound<'py, PyAny>, name: &str) -> PyResult<T> {
    object.getattr(Name(name))?.extract::<T>().map_err(|error| {
        let (py, error) = (object.py(), error.into());
        let named = PyTypeError::new_err(format!("{name} is not valid: {}", error.value(py)));
        named.set_cause(py, Some(error));
        named
    })
}

/// Implements `FromPyObject` for a structure: each field is the attribute of the same name.
macro_rules! from_attributes {
    ($type:ty { $($field:ident),* $(,)? }) => {
        impl<'a, 'py> FromPyObject<'a, 'py> for $type {
            type Error = PyErr;

            fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
                Ok(Self { $($field: crate::attributes::attribute(&object, stringify!($field))?),* })
            }
        }
    };
}

pub(crate) use from_attributes;
