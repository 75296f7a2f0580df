//! Complete files that one process leaves and another one takes.

use anyrecord::storage::remote::upload::Pieces;
use anyrecord::writer::file::Finished;
use pyo3::prelude::*;
use std::path::PathBuf;

/// A complete file that another process can take: a path, or `(upload, parts, size)` in a store.
#[derive(FromPyObject, IntoPyObject)]
pub enum FinishedFile {
    Pieces(String, Vec<String>, u64),
    #[pyo3(transparent)]
    Path(PathBuf),
}

/// The same, and the number and the hash of its records.
pub type FinishedWithSum = (FinishedFile, Option<(u64, u64)>);

impl From<FinishedFile> for Finished {
    fn from(finished: FinishedFile) -> Self {
        match finished {
            FinishedFile::Pieces(id, parts, size) => Finished::Pieces(Pieces { id, parts, size }),
            FinishedFile::Path(path) => Finished::File(path),
        }
    }
}

impl From<Finished> for FinishedFile {
    fn from(finished: Finished) -> Self {
        match finished {
            Finished::Pieces(Pieces { id, parts, size }) => FinishedFile::Pieces(id, parts, size),
            Finished::File(path) => FinishedFile::Path(path),
        }
    }
}
