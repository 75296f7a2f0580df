//! The interpreter's lock (GIL). This is the only module of the crate that releases and acquires it.
//!
//! When the interpreter exits, daemon threads are still running. Before Python 3.14, a thread that asks for the GIL
//! then is ended by `pthread_exit`, which unwinds its stack. If there is a Rust function on the stack, that aborts the
//! process. So there is a gate in front of the GIL. A callback of `atexit` closes it:
//!
//! ```text
//! detached thread --> gate --> waits for the GIL --> Python code --> releases the GIL
//!                      |       \_________________ counted in INSIDE ________________/
//!                      `--> closed: sleeps until the process ends
//! ```
//!
//! The callback waits, without the GIL, until all threads that passed the gate have left it again. After that, only
//! the exiting thread asks for the GIL with a Rust function on its stack.
//!
//! | a function of this crate that | uses |
//! |---|---|
//! | releases the GIL for a while | [`detach`] |
//! | needs the GIL inside [`detach`] | [`attach`] |
//! | has the GIL, and calls Python code that may release it | [`call`], [`call_here`], in a loop [`Calling`] |

use anyrecord::pool;
use anyrecord::turn::Turn;
use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::Cell;
use std::error::Error;
use std::fmt::{Display, Formatter};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::time::{Duration, Instant};

/// Set when the interpreter exits: the gate is closed.
static IS_EXITING: AtomicBool = AtomicBool::new(false);
/// The thread that exits. The gate stays open for this thread.
static EXITING_THREAD: AtomicU64 = AtomicU64::new(0);
/// Threads that wait for the GIL, or are inside Python code that a Rust function called.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// How long the exit waits for Python code that Rust functions called. A file object may wait for a network.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often it checks for Ctrl-C during that time.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Whether the GIL is free, as far as this module knows.
static TURN: Turn = Turn::new();
/// At most one thread watches for the GIL for so many cores: the others are for threads that work.
const CORES_PER_WATCHER: usize = 4;

/// How many threads may watch for the GIL. None in a worker process: other processes need the cores.
fn most_watchers() -> usize {
    pool::default_threads() / CORES_PER_WATCHER
}

thread_local! {
    /// How often `INSIDE` counts this thread: Python code that a Rust function called may call another one.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

/// A number for this thread, never 0.
pub fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Relaxed);
    }
    NUMBER.with(|number| *number)
}

/// Whether the interpreter is exiting. Threads that sleep at the gate never release the locks that they hold.
pub fn is_exiting() -> bool {
    IS_EXITING.load(SeqCst)
}

/// Whether this thread has to stop at the gate.
fn is_closed() -> bool {
    IS_EXITING.load(SeqCst) && EXITING_THREAD.load(SeqCst) != this_thread()
}

/// Never returns: the process is about to end. The thread must not have the GIL.
#[cold]
fn sleep_forever() -> ! {
    // The exit no longer has to wait for this thread.
    INSIDE.fetch_sub(OWN.get(), SeqCst);
    loop {
        std::thread::park();
    }
}

/// One passage through the gate.
struct Passage {
    /// Whether `OWN` counts it.
    is_noted: bool,
    generation: u64,
}

impl Passage {
    /// Passes the gate. The thread must not have the GIL.
    fn enter() -> Self {
        // Count first, then check the gate. The exit closes the gate first and then reads the count.
        INSIDE.fetch_add(1, SeqCst);
        if is_closed() {
            INSIDE.fetch_sub(1, SeqCst);
            sleep_forever();
        }
        Passage { is_noted: false, generation: anyrecord::process::generation() }
    }

    /// For a thread that has the GIL.
    fn enter_attached(py: Python<'_>) -> Self {
        INSIDE.fetch_add(1, SeqCst);
        if is_closed() {
            INSIDE.fetch_sub(1, SeqCst);
            py.detach(|| sleep_forever());
        }
        Passage { is_noted: false, generation: anyrecord::process::generation() }.noted()
    }

    /// For a passage in which Python code may call functions of this crate.
    fn noted(mut self) -> Self {
        self.is_noted = true;
        OWN.set(OWN.get() + 1);
        self
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        // In a child that was forked in the meantime, the counts were reset (`forked`).
        if self.generation != anyrecord::process::generation() {
            return;
        }
        if self.is_noted {
            OWN.set(OWN.get() - 1);
        }
        INSIDE.fetch_sub(1, SeqCst);
    }
}

/// Calls `act` without the GIL.
pub fn detach<T: Send>(py: Python<'_>, act: impl FnOnce() -> T + Send) -> T {
    // `_passage` is dropped after this thread has acquired the GIL again.
    let (result, _passage) = py.detach(|| {
        TURN.released();
        let result = act();
        let passage = Passage::enter();
        TURN.wait(most_watchers);
        (result, passage)
    });
    result
}

/// Calls `act` with the GIL, from a thread that does not have it.
pub fn attach<T>(act: impl FnOnce(Python<'_>) -> T) -> T {
    let _passage = Passage::enter().noted();
    TURN.wait(most_watchers);
    let result = Python::attach(act);
    TURN.released();
    result
}

/// Calls `act`, which calls Python code, from a thread that has the GIL.
pub fn call<T>(py: Python<'_>, act: impl FnOnce() -> T) -> T {
    let _passage = Passage::enter_attached(py);
    act()
}

/// [`call`] for a function that has no `Python` token.
pub fn call_here<T>(act: impl FnOnce(Python<'_>) -> T) -> T {
    Python::attach(|py| call(py, || act(py)))
}

/// [`call`] for a loop that calls Python code many times, and may never end.
pub struct Calling {
    passage: Option<Passage>,
}

impl Calling {
    /// Call it before the loop.
    pub fn new(py: Python<'_>) -> Self {
        Calling { passage: Some(Passage::enter_attached(py)) }
    }

    /// Call it in each iteration. If the interpreter exits, it stops this thread, so the exit can proceed.
    #[inline]
    pub fn check(&mut self, py: Python<'_>) {
        if IS_EXITING.load(Relaxed) {
            self.passage = None;
            self.passage = Some(Passage::enter_attached(py));
        }
    }
}

/// A Python object that a thread may drop without holding the GIL. The drop acquires the GIL.
///
/// PyO3 would instead append the object to a list, under a lock. If another thread forked at that moment, the lock
/// would stay locked in the child forever.
#[derive(Debug)]
pub struct Kept<T>(ManuallyDrop<T>);

impl<T> Kept<T> {
    pub fn new(kept: T) -> Self {
        Kept(ManuallyDrop::new(kept))
    }

    pub fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not used or dropped afterwards.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Kept<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: Display> Display for Kept<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        T::fmt(self, f)
    }
}

impl<T: Error> Error for Kept<T> {}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        // While the interpreter exits, objects are leaked: the system frees the memory of the process.
        if !is_exiting() {
            // If this thread already holds the GIL, it cannot stop at the gate here: closing the gate needs the GIL.
            let _passage = Passage::enter().noted();
            // SAFETY: dropped once, here, and not used afterwards.
            Python::attach(|_| unsafe { ManuallyDrop::drop(&mut self.0) });
        }
    }
}

/// Closes the gate, and waits until all threads have left it. Called by `atexit`.
#[pyfunction]
fn close_gate(py: Python<'_>) -> PyResult<()> {
    EXITING_THREAD.store(this_thread(), SeqCst);
    IS_EXITING.store(true, SeqCst);
    let (own, start) = (OWN.get(), Instant::now());
    while INSIDE.load(SeqCst) > own && start.elapsed() < EXIT_TIMEOUT {
        py.detach(|| {
            let checked = Instant::now();
            while INSIDE.load(SeqCst) > own && checked.elapsed() < SIGNAL_INTERVAL {
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        py.check_signals()?;
    }
    Ok(())
}

/// Call it in a forked child, where the other threads do not exist.
pub fn forked() {
    OWN.set(0);
    INSIDE.store(0, SeqCst);
    TURN.forked();
}

/// Registers `close_gate` to run when the interpreter exits. A sub-interpreter can end before the process does, so it
/// does not register.
pub fn install(module: &Bound<'_, PyModule>) -> PyResult<()> {
    const MAIN: i64 = 0;
    let py = module.py();
    // SAFETY: this thread has the GIL, so there is a current interpreter.
    let interpreter = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    if interpreter == MAIN {
        py.import("atexit")?.call_method1("register", (wrap_pyfunction!(close_gate, module)?,))?;
    }
    // The first time the GIL is acquired in this way, PyO3 runs an initialiser under a lock. Run it now, before a
    // thread can fork while another one holds that lock.
    detach(py, || attach(|_| ()));
    Ok(())
}
