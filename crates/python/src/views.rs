//! Views of sources: shuffled, concatenated, mixed. And the fingerprint that identifies a view.

use crate::damage::Policy;
use crate::errors::Failure;
use crate::interrupts::with_cx;
use crate::opening::Source;
use crate::order::Permutation;
use anyrecord::reader::Reader;
use anyrecord::view::blocks::Shape;
use anyrecord::view::mixture::Until;
use anyrecord::view::{Order, View, fingerprint, layout};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;

/// The order of a shuffled source. Blocks are aligned with its chunks.
#[pyfunction]
pub fn order_of(
    source: &Source,
    seed: u64,
    epoch: u64,
    window: Option<u64>,
    block: Option<u64>,
) -> PyResult<Permutation> {
    let shape = match (window, block) {
        (None, _) => None,
        (Some(window), Some(block)) => Some((window, block)),
        (Some(window), None) => Some((window, chunk_records(&source.reader)?)),
    };
    let shape = shape.map(|(window, block)| {
        let cuts = layout::cuts(&source.reader, &source.view, block.max(1));
        Shape { block, window, cuts }
    });
    let order = Order::new(source.view.len(), seed, epoch, shape).map_err(Failure)?;
    Ok(Permutation::from(order))
}

fn chunk_records(reader: &Reader) -> PyResult<u64> {
    match with_cx(reader, |cx| layout::chunk_records(reader, cx)).map_err(Failure)? {
        Some(records) if records > 1 => Ok(records),
        Some(_) => Err(PyValueError::new_err(
            "each chunk of these files holds 1 record; pass block=, the number of records in a block",
        )),
        None => Err(PyValueError::new_err(
            "the chunks of these files do not hold the same number of records; \
             pass block=, the number of records in a block",
        )),
    }
}

/// The records of a source in another order.
#[pyfunction]
pub fn shuffle(py: Python<'_>, source: &Source, order: &Permutation) -> PyResult<Source> {
    let view = source.view.shuffle(order.order.clone()).map_err(Failure)?;
    let (reader, policy) = (source.reader.clone(), source.policy.clone());
    Ok(Source { reader, view, options: source.options.clone_ref(py), policy })
}

/// The files of several sources under one reader.
struct Gathered {
    reader: Arc<Reader>,
    /// Each view, and the number of its first record in the reader.
    views: Vec<(View, u64)>,
    options: Py<PyAny>,
    policy: Option<Arc<Policy>>,
}

impl Gathered {
    fn source(self, view: View) -> Source {
        Source { reader: self.reader, view, options: self.options, policy: self.policy }
    }
}

/// Puts the files of several sources under one reader. `options`: those of all of them.
fn gather(sources: &[Py<Source>], options: &Bound<'_, PyAny>) -> PyResult<Gathered> {
    let first = sources.first().ok_or_else(|| PyValueError::new_err("pass at least one source"))?;
    let (mut shards, mut views, mut cache_bytes) = (Vec::new(), Vec::new(), 0);
    let threads = first.get().reader.threads();
    for source in sources {
        let (reader, view) = (&source.get().reader, &source.get().view);
        reader.check_open().map_err(Failure)?;
        let own = reader.shards();
        // Views of the same files share them.
        let known = (0..=shards.len().saturating_sub(own.len())).find(|&at| {
            shards[at..].len() >= own.len() && shards[at..].iter().zip(own).all(|(a, b)| Arc::ptr_eq(a, b))
        });
        let at = known.unwrap_or_else(|| {
            shards.extend(own.iter().cloned());
            shards.len() - own.len()
        });
        let base = shards[..at].iter().map(|shard| shard.records()).sum();
        views.push((view.clone(), base));
        cache_bytes = cache_bytes.max(reader.cache_bytes());
    }
    let reader = Arc::new(Reader::new(shards, cache_bytes, threads).map_err(Failure)?);
    let bases: Vec<u64> = views.iter().map(|(_, base)| *base).collect();
    let policy = Policy::of_all(options, sources, &bases, &reader)?;
    Ok(Gathered { reader, views, options: options.clone().unbind(), policy })
}

/// The records of several sources, one after the other.
#[pyfunction]
pub fn concat(sources: Vec<Py<Source>>, options: &Bound<'_, PyAny>) -> PyResult<Source> {
    let mut gathered = gather(&sources, options)?;
    let view = View::concat(std::mem::take(&mut gathered.views)).map_err(Failure)?;
    Ok(gathered.source(view))
}

/// The records of several sources, interleaved by weight, until the `"first"` or `"all"` of them end, or to a length.
#[pyfunction]
pub fn mix(
    sources: Vec<Py<Source>>,
    options: &Bound<'_, PyAny>,
    weights: Vec<u64>,
    seed: u64,
    until: &str,
    length: Option<u64>,
) -> PyResult<Source> {
    let until = match (until, length) {
        (_, Some(length)) => Until::Length(length),
        ("all", _) => Until::All,
        _ => Until::First,
    };
    let mut gathered = gather(&sources, options)?;
    let views = std::mem::take(&mut gathered.views);
    let view = View::mix(views, &weights, seed, until).map_err(Failure)?;
    Ok(gathered.source(view))
}

/// A number that differs between views. It depends on the view, the names of the files and how many records they have,
/// but not on the folder of the files.
pub fn fingerprint_of(reader: &Reader, view: &View) -> u64 {
    let mut numbers = view.to_numbers();
    for shard in reader.shards() {
        numbers.extend([i128::from(shard.first()), i128::from(shard.records())]);
        let name = shard.path().and_then(|path| path.file_name()).unwrap_or_default();
        numbers.extend(name.to_string_lossy().bytes().map(i128::from));
    }
    fingerprint(numbers)
}
