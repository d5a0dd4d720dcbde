//! Memory that is free and that the allocator keeps: what many connections took stays resident when
//! they are gone, because free blocks lie between others.

/// Free memory that the allocator may keep, in bytes, beside code and stacks. Less is not worth the
/// time to look for it.
#[cfg(target_env = "gnu")]
const MIN_RETURNED_MEMORY: u64 = 32 << 20;

/// Returns free memory to the system if there is much of it. Threads that allocate wait meanwhile,
/// for some milliseconds.
pub fn return_free_memory() {
    #[cfg(target_env = "gnu")]
    if let Some(resident) = resident_bytes()
        && resident.saturating_sub(glibc::used_bytes()) > MIN_RETURNED_MEMORY
    {
        glibc::trim();
    }
}

/// Returns the resident memory of the process in bytes.
#[cfg(target_env = "gnu")]
fn resident_bytes() -> Option<u64> {
    let sizes = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = sizes.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(target_env = "gnu")]
#[expect(
    unsafe_code,
    reason = "functions of the C library without arguments that could be wrong"
)]
mod glibc {
    /// Bytes that the allocator has given away.
    pub(super) fn used_bytes() -> u64 {
        // SAFETY: it has no precondition, and any thread may call it.
        let info = unsafe { libc::mallinfo2() };
        (info.uordblks + info.hblkhd) as u64
    }

    pub(super) fn trim() {
        // SAFETY: it has no precondition, and any thread may call it.
        unsafe { libc::malloc_trim(0) };
    }
}
