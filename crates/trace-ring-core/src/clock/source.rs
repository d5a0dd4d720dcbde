//! The clock of the kernel and the counter of the processor.
#![allow(
    unsafe_code,
    reason = "a system call of the C library, and instructions that Rust has no safe function for"
)]

use std::fs;
use std::path::Path;

use libc::{clock_gettime, timespec};

/// The kernel's name of the clock source that is read here as the counter.
const COUNTER_NAME: Option<&str> = if cfg!(target_arch = "x86_64") {
    Some("tsc")
} else if cfg!(target_arch = "aarch64") {
    Some("arch_sys_counter")
} else {
    None
};

/// The file in which the kernel says what it computes its clock from.
pub(crate) const CURRENT_CLOCK_SOURCE: &str =
    "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Whether the kernel computes its clock from the counter, as it says in `file`: then it has found
/// that the counter is the same on all processors, never stops and keeps its rate. `false` also
/// when it does not say so, as in a sandbox without `/sys`.
pub(crate) fn is_counter_used(file: impl AsRef<Path>) -> bool {
    fs::read_to_string(file).is_ok_and(|name| Some(name.trim()) == COUNTER_NAME)
}

/// What [`CounterClock`](super::CounterClock) reads.
pub(crate) trait TimeSource {
    /// Returns CLOCK_MONOTONIC in nanoseconds.
    fn monotonic(&self) -> u64;
    /// Returns the counter.
    fn counter(&self) -> u64;
    /// Returns the counter after everything before the call is complete.
    fn counter_in_order(&self) -> u64;
}

/// The running system.
#[derive(Debug)]
pub(crate) struct System;

impl TimeSource for System {
    #[inline]
    fn monotonic(&self) -> u64 {
        now()
    }

    #[inline]
    fn counter(&self) -> u64 {
        counter()
    }

    #[inline]
    fn counter_in_order(&self) -> u64 {
        wait_for_earlier_instructions();
        counter()
    }
}

/// Returns the time by CLOCK_MONOTONIC in nanoseconds. The C library's call costs 4 ns less than
/// that of `rustix`, which is a tenth of an event.
#[inline]
pub(crate) fn now() -> u64 {
    let mut time = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a value of the type that the call fills. It cannot fail for this
    // clock.
    unsafe { clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    // Neither is negative on this clock.
    u64::try_from(time.tv_sec)
        .unwrap_or_default()
        .wrapping_mul(1_000_000_000)
        .wrapping_add(u64::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> u64 {
    // SAFETY: every processor of this architecture has the instruction, and the kernel uses it for
    // the same purpose.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn wait_for_earlier_instructions() {
    // SAFETY: every processor of this architecture has the instruction.
    unsafe { std::arch::x86_64::_mm_lfence() };
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn counter() -> u64 {
    let counter: u64;
    // SAFETY: the kernel lets programs read the counter, and emulates it where it has to.
    unsafe {
        std::arch::asm!("mrs {}, cntvct_el0", out(reg) counter, options(nomem, nostack, preserves_flags));
    }
    counter
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn wait_for_earlier_instructions() {
    // SAFETY: a barrier, which changes nothing.
    unsafe { std::arch::asm!("isb", options(nostack, preserves_flags)) };
}

/// Not called: see [`COUNTER_NAME`].
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn counter() -> u64 {
    0
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn wait_for_earlier_instructions() {}
