//! Calls that need `unsafe`.

#![allow(
    unsafe_code,
    reason = "fork and signal handlers have no safe interface"
)]

use std::ffi::c_int;
use std::sync::OnceLock;

unsafe extern "C" {
    #[link_name = "fork"]
    fn libc_fork() -> c_int;
    fn _exit(status: c_int) -> !;
    fn close(file: c_int) -> c_int;
    fn raise(signal: c_int) -> c_int;
    fn signal(signal: c_int, handler: extern "C" fn(c_int)) -> usize;
}

const SIGUSR1: c_int = 10;
static HANDLER: OnceLock<fn()> = OnceLock::new();

extern "C" fn on_signal(_: c_int) {
    HANDLER.get().unwrap()();
}

pub(crate) fn handle_signal(handler: fn()) {
    HANDLER.set(handler).unwrap();
    // SAFETY: the handler is a function of the right type that lives for ever.
    unsafe { signal(SIGUSR1, on_signal) };
}

/// Runs the handler on this thread before it returns.
pub(crate) fn raise_signal() {
    // SAFETY: no preconditions.
    assert_eq!(unsafe { raise(SIGUSR1) }, 0);
}

/// Forks; the child runs `child` and never returns. Returns the child's pid.
pub(crate) fn fork(child: impl FnOnce()) -> u32 {
    // SAFETY: the child runs on a copy of this thread only. It allocates, which glibc allows after
    // a fork.
    let pid = unsafe { libc_fork() };
    if pid == 0 {
        let is_good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).is_ok();
        exit_now(i32::from(!is_good));
    }
    u32::try_from(pid).unwrap()
}

/// Closes every descriptor from `first` on, as daemons do.
pub(crate) fn close_files_from(first: c_int) {
    for file in first..1024 {
        // SAFETY: nothing in the scenario uses a descriptor that is closed here.
        unsafe { close(file) };
    }
}

pub(crate) fn exit_now(status: c_int) -> ! {
    // SAFETY: no preconditions.
    unsafe { _exit(status) }
}

pub(crate) fn wait_for(pid: u32) -> bool {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap());
    let options = rustix::process::WaitOptions::empty();
    let (_, status) = rustix::process::waitpid(pid, options).unwrap().unwrap();
    status.exit_status() == Some(0)
}
