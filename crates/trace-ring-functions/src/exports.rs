//! The functions that programs call. Each keeps `errno`: a program does not expect a call of a
//! function to change it.
#![allow(
    unsafe_code,
    reason = "the functions have the names that compilers and programs call; no block is unsafe"
)]

use std::ffi::{c_int, c_void};

use trace_ring_core::{CallSite, Severity, may_pass};

use crate::system::{KeepErrno, close_library};
use crate::{events, loaded};

/// Records the entry of the function at `function`, called from `call_site`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cyg_profile_func_enter(
    function: *const c_void,
    call_site: *const c_void,
) {
    record(&events::FUNC_ENTRY, function, call_site);
}

/// Records the exit of the function at `function`, called from `call_site`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cyg_profile_func_exit(
    function: *const c_void,
    call_site: *const c_void,
) {
    record(&events::FUNC_EXIT, function, call_site);
}

/// Closes a library as `dlclose` of the C library does, and notes that its addresses may become
/// those of another one.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    let _closing = loaded::Closing::begin();
    close_library(handle)
}

#[inline(always)]
fn record(site: &'static CallSite, function: *const c_void, call_site: *const c_void) {
    if !may_pass(Severity::Debug) {
        return;
    }
    let _errno = KeepErrno::new();
    let function = function.addr() as u64;
    if !loaded::is_listed(function) && !loaded::list_object_of(function) {
        return;
    }
    if site.is_enabled() {
        events::write_function(site, function, call_site.addr() as u64);
    }
}
