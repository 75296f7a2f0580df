//! Threads of a pool that help with a call. The call never waits for a thread that has not begun.
//!
//! A sleeping thread needs some time until it runs, and a pool may be busy with other calls. The calling thread has done
//! the work of a small batch before that. So helpers pass a door. When there is nothing left to do, the call closes it,
//! and waits only for the helpers inside. One that comes later finds the door closed and touches nothing of the call.

use crate::cx::Cx;
use crate::error::Result;
use crate::parallel::Cancelled;
use rayon::ThreadPool;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Acquire};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::Duration;

/// How often the calling thread checks for interrupts while only helpers have work.
const LISTEN: Duration = Duration::from_millis(20);

/// The lowest bit of the state of a door: it is closed. The other bits count the helpers inside.
const CLOSED: usize = 1;
const ONE: usize = 2;

struct Door {
    state: AtomicUsize,
    caller: Thread,
    /// What a helper panicked with.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Door {
    fn enter(&self) -> bool {
        let add = |state: usize| (state & CLOSED == 0).then_some(state + ONE);
        self.state.fetch_update(AcqRel, Acquire, add).is_ok()
    }

    fn leave(&self) {
        if self.state.fetch_sub(ONE, AcqRel) == ONE | CLOSED {
            self.caller.unpark();
        }
    }

    fn close(&self) {
        self.state.fetch_or(CLOSED, AcqRel);
    }

    fn is_anyone_inside(&self) -> bool {
        self.state.load(Acquire) >= ONE
    }
}

/// The helpers of a call.
pub(super) struct Crew<'w> {
    door: Arc<Door>,
    help: &'w (dyn Fn() + Sync),
}

/// A function of a call. Only a helper that is inside the door may call it.
struct Help(*const (dyn Fn() + Sync));

// SAFETY: the function may be called by any thread (`Sync`), and the door makes sure that it still exists.
unsafe impl Send for Help {}

impl Help {
    fn get(&self) -> *const (dyn Fn() + Sync) {
        self.0
    }
}

/// Calls `act`, which can let threads of a pool run `help`. Returns after the last of them has left `help`.
pub(super) fn with_crew<T>(help: &(dyn Fn() + Sync), act: impl FnOnce(&Crew<'_>) -> T) -> T {
    let door = Door { state: AtomicUsize::new(0), caller: std::thread::current(), panic: Mutex::default() };
    let crew = Crew { door: Arc::new(door), help };
    let result = act(&crew);
    let door = crew.door.clone();
    drop(crew);
    let panic = door.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
    match panic {
        Some(panic) => resume_unwind(panic),
        None => result,
    }
}

impl Crew<'_> {
    /// Lets up to `count` threads of the pool help, as soon as they can.
    pub(super) fn call(&self, pool: &ThreadPool, count: usize) {
        for _ in 0..count {
            let door = self.door.clone();
            // SAFETY: only the lifetime changes. `Drop` does not return before the last helper has left the door, also
            // if the caller panics, and no helper enters it afterwards. So the function exists while it is called.
            let help = Help(unsafe {
                std::mem::transmute::<*const (dyn Fn() + Sync + '_), *const (dyn Fn() + Sync + 'static)>(
                    std::ptr::from_ref(self.help),
                )
            });
            pool.spawn(move || {
                if !door.enter() {
                    return;
                }
                // SAFETY: this thread is inside the door.
                let help = unsafe { &*help.get() };
                if let Err(panic) = catch_unwind(AssertUnwindSafe(help)) {
                    *door.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
                }
                door.leave();
            });
        }
    }

    /// Waits for the helpers that have begun. If the call is interrupted meanwhile, this cancels them and still waits
    /// for them, because they work on data of the caller.
    pub(super) fn wait(&self, cancelled: &Cancelled, cx: &Cx<'_>) -> Result<()> {
        self.door.close();
        let mut result = Ok(());
        while self.door.is_anyone_inside() {
            std::thread::park_timeout(LISTEN);
            if result.is_ok() {
                result = cx.check();
            }
            if result.is_err() {
                cancelled.cancel();
            }
        }
        result
    }
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        self.door.close();
        while self.door.is_anyone_inside() {
            std::thread::park_timeout(LISTEN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cx::for_tests;
    use crate::limits::Limits;
    use crate::pool;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;

    #[test]
    fn a_call_does_not_wait_for_threads_that_are_busy_elsewhere() {
        let pool = pool::start(2, "test").unwrap();
        let (release, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let is_called = AtomicBool::new(false);
        pool.in_place_scope(|scope| {
            let (wait, busy) = (&wait, Arc::new(Barrier::new(3)));
            for _ in 0..2 {
                let busy = busy.clone();
                scope.spawn(move |_| {
                    busy.wait();
                    let _ = wait.lock().map(|wait| wait.recv());
                });
            }
            busy.wait();
            let help = || is_called.store(true, std::sync::atomic::Ordering::SeqCst);
            let cx = for_tests(Limits::default());
            with_crew(&help, |crew| {
                crew.call(&pool, 2);
                crew.wait(&Cancelled::default(), &cx)
            })
            .unwrap();
            drop(release);
        });
        // Those that come late find the door closed. Ending the pool runs them.
        drop(pool);
        assert!(!is_called.into_inner());
    }

    #[test]
    fn a_call_waits_for_the_helpers_that_have_begun() {
        let pool = pool::start(3, "test").unwrap();
        for _ in 0..200 {
            let (begun, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let help = || {
                begun.fetch_add(1, AcqRel);
                std::thread::yield_now();
                done.fetch_add(1, AcqRel);
            };
            with_crew(&help, |crew| crew.call(&pool, 3));
            assert_eq!(begun.load(Acquire), done.load(Acquire));
        }
    }

    #[test]
    fn a_panic_of_a_helper_is_one_of_the_caller() {
        let pool = pool::start(1, "test").unwrap();
        let begun = Barrier::new(2);
        let help = || {
            begun.wait();
            panic!("in a helper");
        };
        let result = catch_unwind(AssertUnwindSafe(|| {
            with_crew(&help, |crew| {
                crew.call(&pool, 1);
                begun.wait();
            });
        }));
        assert_eq!(result.unwrap_err().downcast_ref::<&str>(), Some(&"in a helper"));
    }

    #[test]
    fn an_interrupt_cancels_the_helpers() {
        let pool = pool::start(1, "test").unwrap();
        let (begun, cancelled) = (Barrier::new(2), Cancelled::default());
        let help = || {
            begun.wait();
            while !cancelled.is_cancelled() {
                std::thread::yield_now();
            }
        };
        let stop = || Err(crate::error::Error::closed("interrupt"));
        let cx = Cx { stop: &stop, ..for_tests(Limits::default()) };
        let result = with_crew(&help, |crew| {
            crew.call(&pool, 1);
            begun.wait();
            crew.wait(&cancelled, &cx)
        });
        assert_eq!(result.unwrap_err().what(), "interrupt");
    }
}
