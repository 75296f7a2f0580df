//! Runs the concurrent parts of anyrecord in every order that their threads can run in: `make loom`.
//!
//! The files of the core are compiled here once more, with the atomics and locks of the model checker
//! [loom](https://docs.rs/loom). It runs each model again and again, and takes another path at every atomic operation,
//! also those that only a processor with weak memory ordering takes.
//!
//! | model | the code |
//! |---|---|
//! | `registry` | the slots of maps that a signal handler looks up: `storage/map_registry.rs` |
//! | `marks` | a fault in a map, closing a map, and views of a map: `map_registry.rs`, `storage/map_exports.rs` |
//! | `cache` | the cache of decoded chunks, also in a forked child: `cache.rs` |
//! | `handles` | the limit on open descriptors: `storage/handles.rs` |
//! | `waiting` | threads that wait for a lock of the binding: `crates/python/src/waiters.rs` |
//!
//! Not covered: the insides of `arc-swap`, `once_cell` and `crossbeam-epoch`; `mmap` and signals themselves; `fork`,
//! which loom does not know, so it is played by a thread that never goes on.

// The files say `anyrecord::...` or `crate::...`, depending on the crate that they are from.
extern crate self as anyrecord;

// Parts of the files are not used by any model.
#[allow(dead_code, unused_imports)]
#[path = "../../core/src/cache.rs"]
pub mod cache;
mod models;
pub mod process;
pub mod storage;
pub mod sync;
#[allow(dead_code)]
#[path = "../../python/src/waiters.rs"]
pub mod waiters;

use std::panic::{AssertUnwindSafe, catch_unwind};

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let mut failed = 0;
    for (name, model) in models::ALL {
        if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        let orders = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = orders.clone();
        let mut builder = loom::model::Builder::new();
        // Every order with at most three places where a thread is interrupted. More find nothing new in models this
        // small, and take hours.
        builder.preemption_bound = Some(3);
        let ran = catch_unwind(AssertUnwindSafe(|| {
            builder.check(move || {
                counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                model();
            });
        }));
        let orders = orders.load(std::sync::atomic::Ordering::Relaxed);
        let verdict = if ran.is_ok() { "ok" } else { "FAILED" };
        println!("{name}: {orders} orders, {verdict}");
        failed += usize::from(ran.is_err());
    }
    println!("{failed} models failed");
    std::process::exit(i32::from(failed > 0));
}
