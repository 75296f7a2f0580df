//! The SIGBUS handler, which makes memory maps safe.
//!
//! When a mapped file is truncated, or its disk fails, a read of the memory map does not return an error. Instead, the
//! system sends the signal SIGBUS, which ends the process. Our handler looks the address up in the
//! [registry](super::map_registry). If it lies in one of our maps, the handler marks the map as faulted, maps a page of
//! zeros where the fault was, and lets the interrupted read continue. The reader checks the mark afterwards and reads
//! again by a positional read.
//!
//! The mark is set before the page of zeros is mapped, so no reader can see the zeros without the mark. A reader keeps
//! the map alive while it reads, so the handler never replaces memory that is not ours.
//!
//! Every other SIGBUS is not ours. It has the same effect as without our handler: it goes to the handler that was
//! installed before, or ends the process.
//!
//! # The chain of handlers
//!
//! Other libraries install handlers too, before or after us, and each keeps the handler that it replaced. Python's
//! `faulthandler` does so, and restores that handler when it is disabled or has printed its report. So our handler may
//! be in the chain several times:
//!
//! ```text
//! kernel -> ours[1] -> faulthandler -> ours[0] -> default action
//! ```
//!
//! With one function for both places, we could not know which of the two was called, and the handlers would call each
//! other in a loop. So we have several functions, the links. Each link is installed over one foreign action, which it
//! keeps forever.

use super::map_registry::{REGISTRY, Registry};
use std::cell::Cell;
use std::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{AcqRel, Acquire, Release},
};

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// How many different foreign actions we can be installed over.
const LINKS: usize = 16;

/// The functions of the links.
static HANDLERS: [Handler; LINKS] = [
    handle::<0>,
    handle::<1>,
    handle::<2>,
    handle::<3>,
    handle::<4>,
    handle::<5>,
    handle::<6>,
    handle::<7>,
    handle::<8>,
    handle::<9>,
    handle::<10>,
    handle::<11>,
    handle::<12>,
    handle::<13>,
    handle::<14>,
    handle::<15>,
];

/// The action that each link was installed over. Set once, before the link is installed. Never freed, because a handler
/// may read it at any time.
static PREVIOUS: [AtomicPtr<libc::sigaction>; LINKS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; LINKS];

static PAGE_SIZE: AtomicUsize = AtomicUsize::new(0);

/// A thread checks the installed handler once in this many reads.
const EVERY: u32 = 1024;

thread_local! {
    /// Reads until the next check.
    static LEFT: Cell<u32> = const { Cell::new(0) };
}

/// Whether SIGBUS reaches our handler in this thread. False: a read from a map might end the process.
///
/// A check costs two system calls, so it is made at the first read of each thread and then once in a while. If another
/// library has installed a handler over ours, ours is installed again over theirs.
#[inline]
pub fn protects_this_thread() -> bool {
    match LEFT.get() {
        0 => check(),
        left => {
            LEFT.set(left - 1);
            true
        }
    }
}

#[cold]
fn check() -> bool {
    let is_protected = install() && !is_blocked();
    LEFT.set(if is_protected { EVERY } else { 0 });
    is_protected
}

/// Call this in a forked child, because worker processes install handlers when they start.
pub fn forked() {
    LEFT.set(0);
}

/// Whether this thread blocks SIGBUS. A fault then ends the process at once, even if a handler is installed.
#[cold]
fn is_blocked() -> bool {
    // SAFETY: an all-zero set is a valid value of the C struct, and the call fills it.
    unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        let asked = libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
        asked != 0 || libc::sigismember(&mask, libc::SIGBUS) == 1
    }
}

/// Makes sure that SIGBUS reaches our handler first. False: it does not, and memory maps are not safe.
#[cold]
pub fn install() -> bool {
    PAGE_SIZE.store(rustix::param::page_size(), Release);
    let Some(mut found) = exchange(None) else { return false };
    while link_of(&found).is_none() {
        let Some(link) = link_over(&found) else { return false };
        let Some(replaced) = exchange(Some(&action_over(&found, link))) else { return false };
        if is_same(&replaced, &found) {
            return true;
        }
        // Another thread installed a handler in between. It is not in the chain yet, unless it is one of ours.
        found = replaced;
    }
    true
}

/// Returns the installed action, and replaces it if there is a new one.
fn exchange(new: Option<&libc::sigaction>) -> Option<libc::sigaction> {
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: an all-zero action is a valid value of the C struct, and the call fills it. A new one is complete, and
    // its handler does only what a signal handler may.
    unsafe {
        let mut found: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(libc::SIGBUS, new, &mut found) == 0).then_some(found)
    }
}

/// Which link an action is, if it is ours.
fn link_of(action: &libc::sigaction) -> Option<usize> {
    HANDLERS.iter().position(|handler| *handler as usize == action.sa_sigaction)
}

/// The link over an action: the one that has it already, or a new one. None: all links are used.
fn link_over(action: &libc::sigaction) -> Option<usize> {
    let mut new: *mut libc::sigaction = std::ptr::null_mut();
    for (link, place) in PREVIOUS.iter().enumerate() {
        let mut kept = place.load(Acquire);
        if kept.is_null() {
            if new.is_null() {
                new = Box::into_raw(Box::new(*action));
            }
            match place.compare_exchange(std::ptr::null_mut(), new, AcqRel, Acquire) {
                Ok(_) => return Some(link),
                Err(other) => kept = other,
            }
        }
        // SAFETY: what is in `PREVIOUS` is never freed or changed.
        if is_same(unsafe { &*kept }, action) {
            if !new.is_null() {
                // SAFETY: allocated above, and nothing else refers to it.
                drop(unsafe { Box::from_raw(new) });
            }
            return Some(link);
        }
    }
    None
}

/// The action that installs a link. Flags and mask are those of the action under it. So the handler under it runs on
/// the stack, with the blocked signals, and with the effect on system calls that it requested.
fn action_over(previous: &libc::sigaction, link: usize) -> libc::sigaction {
    let mut action = *previous;
    action.sa_sigaction = HANDLERS[link] as usize;
    match previous.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            // SAFETY: the set is ours.
            unsafe { libc::sigemptyset(&mut action.sa_mask) };
        }
        // `call` does the work of SA_RESETHAND, because our own faults must not remove our handler.
        _ => action.sa_flags = previous.sa_flags & !libc::SA_RESETHAND | libc::SA_SIGINFO,
    }
    action
}

fn is_same(a: &libc::sigaction, b: &libc::sigaction) -> bool {
    /// Added by the C library.
    const SA_RESTORER: libc::c_int = 0x0400_0000;
    // SAFETY: only reads the sets.
    let is_in = |action: &libc::sigaction, signal| unsafe { libc::sigismember(&action.sa_mask, signal) };
    a.sa_sigaction == b.sa_sigaction
        && (a.sa_flags ^ b.sa_flags) & !SA_RESTORER == 0
        && (1..=64).all(|signal| is_in(a, signal) == is_in(b, signal))
}

/// The signal handler. It uses only loads, stores and system calls, because it may interrupt any code.
extern "C" fn handle<const LINK: usize>(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the C library gives each thread its `errno`. The code that we interrupted may be about to read it.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let cause = Cause::of(info);
    if !matches!(cause, Cause::Fault(address) if recover(&REGISTRY, address)) {
        pass_on(LINK, cause, (signal, info, context));
    }
    // SAFETY: as above.
    unsafe { *errno = before };
}

/// Why a signal was sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// An instruction of this thread touched that address. It is executed again when the handlers return.
    Fault(usize),
    /// This process sent it to one of its threads.
    Raised,
    /// It was sent in another way, or it reports bad memory that no thread waits for.
    Sent,
}

impl Cause {
    fn of(info: *const libc::siginfo_t) -> Self {
        /// Memory is bad that no thread has accessed yet.
        const BUS_MCEERR_AO: libc::c_int = 5;
        // SAFETY: the system passes a valid `info`. A handler before us may wrongly pass none. The address is set if
        // the code is one of the kernel's. The process that sent the signal is set if the code is `SI_TKILL`.
        unsafe {
            match info.as_ref() {
                Some(info) if info.si_code > 0 && info.si_code != BUS_MCEERR_AO => {
                    Cause::Fault(info.si_addr() as usize)
                }
                Some(info) if info.si_code == libc::SI_TKILL && info.si_pid() == libc::getpid() => {
                    Cause::Raised
                }
                _ => Cause::Sent,
            }
        }
    }
}

/// Lets a read of one of our maps continue. False: the address is not ours, or no page of zeros could be mapped.
fn recover(registry: &Registry, address: usize) -> bool {
    let Some(slot) = registry.find(address) else { return false };
    let Some((begin, end)) = slot.range() else { return false };
    slot.mark_faulted();
    let page = PAGE_SIZE.load(Acquire);
    let start = address / page * page;
    // A new page in the middle of a map splits it into three maps. If the process has reached its limit of maps,
    // everything from the page to the end of the map is replaced, and if that fails, the whole map. Reads are correct
    // in any case, because they check the mark.
    let ranges = [(start, start + page), (start, end), (begin, end)];
    ranges.into_iter().any(|(begin, end)| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the range lies inside a map of ours, which its reader keeps alive. Only readers of that map see the
        // private pages of zeros there, and they check the mark.
        unsafe { libc::mmap(begin as *mut _, end - begin, libc::PROT_READ, flags, -1, 0) != libc::MAP_FAILED }
    })
}

/// The arguments of a handler.
type Arguments = (libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// Passes the signal on to the action that the link was installed over, as if our handler did not exist.
fn pass_on(link: usize, cause: Cause, arguments: Arguments) {
    // If Python's `faulthandler` was enabled after us, it gets our faults first. It prints its report, restores our
    // handler and raises the signal again. If we return, the read is executed again, and this time our handler comes
    // first. This signal looks the same as that of a program that ends itself by `raise`. So we return only if a map of
    // ours has become unreadable.
    if cause == Cause::Raised && REGISTRY.slots().any(|slot| slot.is_unreadable(PAGE_SIZE.load(Acquire))) {
        return;
    }
    let previous = PREVIOUS[link].load(Acquire);
    // SAFETY: a link is installed only over an action that is in `PREVIOUS`, where it is never freed or changed.
    let Some(previous) = (unsafe { previous.as_ref() }) else { return take_the_default_action(cause) };
    match previous.sa_sigaction {
        // The kernel does not let a fault be ignored.
        libc::SIG_IGN if !matches!(cause, Cause::Fault(_)) => {}
        libc::SIG_DFL | libc::SIG_IGN => take_the_default_action(cause),
        _ if arguments.1.is_null() || note_link(link, arguments.1) => call(link, previous, arguments),
        _ => take_the_default_action(cause),
    }
}

/// Ends the process with the signal.
fn take_the_default_action(cause: Cause) {
    loop {
        // SAFETY: an all-zero action is the default action. The other system calls access no memory of ours.
        unsafe {
            let default: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGBUS, &default, std::ptr::null_mut());
            // The instruction faults again at once, and a core dump shows where.
            if matches!(cause, Cause::Fault(_)) {
                return;
            }
            let mut mask: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut mask);
            libc::sigaddset(&mut mask, libc::SIGBUS);
            libc::raise(libc::SIGBUS);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &mask, std::ptr::null_mut());
        }
        // Not reached, unless another thread has installed a handler in between.
    }
}

/// Calls a foreign handler in the form it was installed in.
fn call(link: usize, previous: &libc::sigaction, (signal, info, context): Arguments) {
    // The kernel resets such an action when it calls its handler. Here the installed handler is the link, unless a
    // foreign handler called us.
    if previous.sa_flags & libc::SA_RESETHAND != 0
        && exchange(None).is_some_and(|found| link_of(&found) == Some(link))
    {
        // SAFETY: an all-zero action is the default action.
        exchange(Some(&unsafe { std::mem::zeroed() }));
    }
    // SAFETY: neither SIG_DFL nor SIG_IGN, so it is a function of the form that the flags say.
    unsafe {
        if previous.sa_flags & libc::SA_SIGINFO != 0 {
            std::mem::transmute::<usize, Handler>(previous.sa_sigaction)(signal, info, context);
        } else {
            std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(previous.sa_sigaction)(signal);
        }
    }
}

/// Records in the signal's information that it went through a link. False: it went through this link before.
///
/// Another library may check and reinstall its handler as we do. Then it keeps one of our links as its previous
/// handler, while that link keeps the library's handler: a loop. The note is stored with the signal and not with the
/// thread, because a handler may also leave by `longjmp`.
fn note_link(link: usize, info: *mut libc::siginfo_t) -> bool {
    /// The kernel fills the first half of the structure and clears the rest, which has no other use.
    const NOTE_AT: usize = size_of::<libc::siginfo_t>() - size_of::<u64>();
    const NOTE: u64 = 0x616e_7972_6563 << 16;
    let (note, bit) = (info.wrapping_byte_add(NOTE_AT).cast::<u64>(), 1 << link);
    // SAFETY: inside the structure that the kernel put on the stack for us.
    unsafe {
        let found = note.read_unaligned();
        let links = if found & !0xFFFF == NOTE { found & 0xFFFF } else { 0 };
        note.write_unaligned(NOTE | links | bit);
        links & bit == 0
    }
}
