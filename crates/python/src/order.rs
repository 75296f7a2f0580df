//! `Permutation`: a shuffled order of numbers, computed on demand.

use crate::attributes::Name;
use crate::errors::Failure;
use crate::gil;
use crate::indices;
use crate::numbers::{optional_number, whole_number};
use anyrecord::permutation::MOST;
use anyrecord::view::blocks::Shape;
use anyrecord::view::{Order, fingerprint};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

/// A shuffled `range(length)` that takes no memory: position -> number, and back.
#[pyclass(frozen, eq, sequence, module = "anyrecord._core")]
#[derive(PartialEq)]
pub struct Permutation {
    pub order: Order,
}

impl From<Order> for Permutation {
    fn from(order: Order) -> Self {
        Permutation { order }
    }
}

impl Permutation {
    fn one(&self, index: &Bound<'_, PyAny>) -> PyResult<u64> {
        indices::one(index, self.order.len())?
            .ok_or_else(|| PyTypeError::new_err("pass one integer; to get many numbers at once, call take()"))
    }
}

#[pymethods]
impl Permutation {
    #[new]
    #[pyo3(
        signature = (length, seed, epoch=None, window=None, block=None, cuts=None),
        text_signature = "(length, seed, epoch=0, window=None, block=None, cuts=())"
    )]
    fn new(
        length: &Bound<'_, PyAny>,
        seed: &Bound<'_, PyAny>,
        epoch: Option<&Bound<'_, PyAny>>,
        window: Option<&Bound<'_, PyAny>>,
        block: Option<&Bound<'_, PyAny>>,
        cuts: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let length = whole_number("length", length, 0, MOST)?;
        let seed = whole_number("seed", seed, 0, u64::MAX)?;
        let epoch = optional_number("epoch", epoch, 0)?.unwrap_or(0);
        let cuts = match cuts {
            None => Vec::new(),
            Some(cuts) => {
                let number = |cut: PyResult<Bound<'_, PyAny>>| whole_number("cuts", &cut?, 1, u64::MAX);
                cuts.try_iter()?.map(number).collect::<PyResult<_>>()?
            }
        };
        let shape = match (optional_number("window", window, 1)?, optional_number("block", block, 1)?) {
            (None, None) => None,
            (Some(window), Some(block)) => Some(Shape { block, window, cuts }),
            _ => return Err(PyValueError::new_err("window= and block= go together; pass both or none")),
        };
        Ok(Order::new(length, seed, epoch, shape).map_err(Failure)?.into())
    }

    fn __len__(&self) -> PyResult<usize> {
        isize::try_from(self.order.len())
            .map(isize::unsigned_abs)
            .map_err(|_| PyOverflowError::new_err("the length is too large for len(); use .length"))
    }

    /// How many numbers there are. Unlike `len()`, it can be 2**63.
    #[getter]
    fn length(&self) -> u64 {
        self.order.len()
    }

    fn __getitem__(&self, index: &Bound<'_, PyAny>) -> PyResult<u64> {
        self.one(index).map(|position| self.order.forward(position))
    }

    /// Returns the position of a number.
    fn inverse(&self, number: &Bound<'_, PyAny>) -> PyResult<u64> {
        self.one(number).map(|number| self.order.inverse(number))
    }

    /// Returns the numbers at many positions (a range, a list, an array of integers) as an `array('Q')`.
    fn take<'py>(&self, py: Python<'py>, positions: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let mut numbers = indices::many(positions, self.order.len())?;
        gil::detach(py, || self.order.forward_many(&mut numbers));
        let bytes = PyBytes::new_with(py, size_of_val(&*numbers), |out| {
            for (place, number) in out.as_chunks_mut::<8>().0.iter_mut().zip(&numbers) {
                *place = number.to_ne_bytes();
            }
            Ok(())
        })?;
        py.import("array")?.getattr(Name("array"))?.call1(("Q", bytes))
    }

    /// A number that differs between orders.
    #[getter]
    fn _fingerprint(&self) -> u64 {
        fingerprint(self.order.to_numbers().into_iter().chain([self.order.len().into()]))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let (py, order) = (slf.py(), &slf.get().order);
        let length = order.len();
        let arguments = match order {
            Order::Full { seed, epoch, .. } => (length, *seed, *epoch).into_pyobject(py)?,
            Order::Blocks(blocks) => {
                let ((seed, epoch), shape) = (blocks.key(), blocks.shape());
                (length, seed, epoch, shape.window, shape.block, shape.cuts.clone()).into_pyobject(py)?
            }
        };
        Ok((slf.get_type().into_any(), arguments))
    }

    fn __repr__(&self) -> String {
        let length = self.order.len();
        match &self.order {
            Order::Full { seed, epoch, .. } => format!("Permutation({length}, seed={seed}, epoch={epoch})"),
            Order::Blocks(blocks) => {
                let ((seed, epoch), shape) = (blocks.key(), blocks.shape());
                let (window, block) = (shape.window, shape.block);
                let cuts =
                    if shape.cuts.is_empty() { String::new() } else { format!(", cuts={:?}", shape.cuts) };
                format!(
                    "Permutation({length}, seed={seed}, epoch={epoch}, window={window}, block={block}{cuts})"
                )
            }
        }
    }
}
