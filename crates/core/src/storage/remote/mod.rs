//! Files in object stores and on web servers.
//!
//! | file | what |
//! |---|---|
//! | [`url`] | what a URL names, and how it is shown without secrets |
//! | [`options`] | the options of a store, and how requests are made |
//! | [`stores`], `client` | stores and their HTTP clients. They belong to one process |
//! | [`runtime`] | the threads that wait for servers. They belong to one process, too |
//! | `gate` | how many requests are in flight. A server that is overloaded gets fewer |
//! | [`request`] | one ranged request: sent again if it fails or stalls, within a time budget |
//! | [`transfer`] | many ranges: merged, split, and in flight together |
//! | [`file`], [`open`] | an object as a storage, opened with as few requests as possible |
//! | [`ahead`] | bytes that are fetched before they are read |
//! | [`list`], [`put`] | the objects under a prefix; storing a small one |
//! | [`upload`] | objects that are written: part by part, complete or not at all |
//! | `sending`, `checksums` | requests that store something, and what the store says about the bytes that arrived |
//! | `failure` | errors that say what to try |

pub mod ahead;
mod checksums;
mod client;
mod failure;
pub mod file;
mod gate;
pub mod list;
pub mod open;
pub mod options;
pub mod put;
pub mod request;
pub mod runtime;
mod sending;
pub mod stores;
pub mod transfer;
pub mod upload;
pub mod url;
