//! Structures that are made of the attributes of Python objects.
//!
//! The derived `FromPyObject` keeps the names of attributes in cells that are filled at their first use. While a thread
//! fills one, another can fork, and the child would wait for that cell forever. So the names are made anew here.

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// The value of an attribute. TypeError names the attribute if it cannot have that value.
pub fn attribute<'py, T: FromPyObjectOwned<'py>>(object: &Bound<'py, PyAny>, name: &str) -> PyResult<T> {
    object.getattr(name)?.extract::<T>().map_err(|error| {
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
