//! The files of `crates/core/src/storage` that are modelled.

#[allow(dead_code)]
#[path = "../../core/src/storage/handles.rs"]
pub mod handles;
pub mod identity;
#[allow(dead_code)]
#[path = "../../core/src/storage/map_exports.rs"]
pub mod map_exports;
#[allow(dead_code)]
#[path = "../../core/src/storage/map_registry.rs"]
pub mod map_registry;
