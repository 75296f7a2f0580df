//! Whole numbers as arguments of the extension's constructors, checked by `anyrecord._numbers`.

use crate::attributes::Name;
use pyo3::prelude::*;
use pyo3::types::PyInt;

/// Returns the argument `name` as a number from `least` to `most`, or the error of `anyrecord._numbers.whole_number`.
pub fn whole_number(name: &str, value: &Bound<'_, PyAny>, least: u64, most: u64) -> PyResult<u64> {
    if value.is_exact_instance_of::<PyInt>()
        && let Ok(number) = value.extract::<u64>()
        && (least..=most).contains(&number)
    {
        return Ok(number);
    }
    let check = value.py().import("anyrecord._numbers")?.getattr(Name("whole_number"))?;
    check.call1((name, value, least, most))?.extract()
}

/// [`whole_number`] for an argument that can be `None`.
pub fn optional_number(name: &str, value: Option<&Bound<'_, PyAny>>, least: u64) -> PyResult<Option<u64>> {
    value.map(|value| whole_number(name, value, least, u64::MAX)).transpose()
}
