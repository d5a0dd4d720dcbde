//! The dynamic loader and the C library: the only module with `unsafe` blocks.
#![allow(
    unsafe_code,
    reason = "the loader gives raw pointers; every block says why it is sound"
)]

use std::ffi::{CStr, c_int, c_void};
use std::mem::size_of;
use std::{ptr, slice};

use libc::{PF_R, PT_LOAD, PT_NOTE, dl_iterate_phdr, dl_phdr_info, pthread_atfork, size_t};

/// Most bytes of notes that are read of an object: a build id has some dozens.
const MAX_NOTE_SIZE: u64 = 64 << 10;

/// Restores `errno` when dropped.
#[derive(Debug)]
pub(crate) struct KeepErrno(c_int);

impl KeepErrno {
    #[inline]
    pub(crate) fn new() -> Self {
        // SAFETY: the C library returns a valid pointer to the calling thread's `errno`.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for KeepErrno {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as in `new`.
        unsafe { *libc::__errno_location() = self.0 }
    }
}

/// How many objects the loader has loaded and unloaded; equal numbers mean that nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoaderCounts {
    loads: u64,
    unloads: u64,
}

/// A part of an object in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Address in this process.
    pub(crate) address: u64,
    /// Bytes.
    pub(crate) size: u64,
    pub(crate) is_readable: bool,
}

impl Segment {
    /// Returns the address after the last byte; `None` if there is no such address.
    pub(crate) fn end(&self) -> Option<u64> {
        self.address.checked_add(self.size)
    }

    fn contains(&self, other: &Self) -> bool {
        self.address <= other.address && other.end().is_some_and(|end| Some(end) <= self.end())
    }
}

/// An object as the loader describes it: the program, a library, or the vDSO.
#[derive(Debug)]
pub(crate) struct LoadedObject {
    /// Difference between addresses in memory and in the file.
    pub(crate) bias: u64,
    /// Name by which the loader knows the file; empty for the program.
    pub(crate) name: Vec<u8>,
    pub(crate) segments: Vec<Segment>,
    /// Contents of the segments with notes.
    pub(crate) notes: Vec<Vec<u8>>,
}

/// What [`list_loaded_objects`] gives to the loader, and gets back.
struct Visit {
    known: Option<LoaderCounts>,
    counts: Option<LoaderCounts>,
    objects: Vec<LoadedObject>,
}

/// Returns what is loaded, or `None` if nothing has changed since there were the `known` counts.
pub(crate) fn list_loaded_objects(
    known: Option<LoaderCounts>,
) -> Option<(LoaderCounts, Vec<LoadedObject>)> {
    let mut visit = Visit {
        known,
        counts: None,
        objects: Vec::new(),
    };
    // SAFETY: the loader calls the function during this call only, with this pointer.
    unsafe { dl_iterate_phdr(Some(visit_object), (&raw mut visit).cast()) };
    visit.counts.map(|counts| (counts, visit.objects))
}

/// Adds an object; ends the visit at the first one if nothing has changed.
unsafe extern "C" fn visit_object(
    info: *mut dl_phdr_info,
    size: size_t,
    visit: *mut c_void,
) -> c_int {
    if size < size_of::<dl_phdr_info>() {
        return 1;
    }
    // SAFETY: the loader's structure, which is valid during this call and has all fields, and the
    // value that `list_loaded_objects` has given, to which nothing else refers meanwhile.
    let (info, visit) = unsafe { (&*info, &mut *visit.cast::<Visit>()) };
    let counts = LoaderCounts {
        loads: info.dlpi_adds,
        unloads: info.dlpi_subs,
    };
    if visit.known == Some(counts) {
        return 1;
    }
    visit.counts = Some(counts);
    visit.objects.push(copy_object(info));
    0
}

fn copy_object(info: &dl_phdr_info) -> LoadedObject {
    let name = if info.dlpi_name.is_null() {
        Vec::new()
    } else {
        // SAFETY: a C string of the loader, which lives during the visit.
        unsafe { CStr::from_ptr(info.dlpi_name) }
            .to_bytes()
            .to_vec()
    };
    let headers = if info.dlpi_phdr.is_null() {
        &[]
    } else {
        // SAFETY: the loader counts the headers of the array.
        unsafe { slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) }
    };
    let parts = |kind: u32| {
        let headers = headers.iter().filter(move |header| header.p_type == kind);
        headers.map(|header| Segment {
            address: info.dlpi_addr.wrapping_add(header.p_vaddr),
            size: header.p_memsz,
            is_readable: header.p_flags & PF_R != 0,
        })
    };
    let segments: Vec<_> = parts(PT_LOAD).collect();
    let is_in_memory = |part: &Segment| {
        segments
            .iter()
            .any(|all| all.is_readable && all.contains(part))
    };
    let notes = parts(PT_NOTE).filter(|part| part.size <= MAX_NOTE_SIZE && is_in_memory(part));
    LoadedObject {
        bias: info.dlpi_addr,
        name,
        notes: notes.filter_map(|part| copy_bytes(&part)).collect(),
        segments,
    }
}

/// Copies a part of a loaded object that lies in a readable segment of it.
fn copy_bytes(part: &Segment) -> Option<Vec<u8>> {
    let size = usize::try_from(part.size).ok()?;
    let address = usize::try_from(part.address).ok()?;
    let start = ptr::with_exposed_provenance::<u8>(address);
    // SAFETY: the loader has mapped the segment around these bytes for reading, and does not unmap
    // it during the visit. Nobody writes to the notes.
    (!start.is_null()).then(|| unsafe { slice::from_raw_parts(start, size) }.to_vec())
}

/// Calls `dlclose` of the next library that has it, which is the C library.
pub(crate) fn close_library(handle: *mut c_void) -> c_int {
    // SAFETY: the name is a C string.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlclose".as_ptr()) };
    if next.is_null() {
        return -1;
    }
    // SAFETY: a function of this name has this type in every C library.
    let next: unsafe extern "C" fn(*mut c_void) -> c_int = unsafe { std::mem::transmute(next) };
    // SAFETY: the program's own call, passed on.
    unsafe { next(handle) }
}

/// Sets what is run before a fork, and after it in parent and child.
pub(crate) fn run_around_forks(
    before: extern "C" fn(),
    in_parent: extern "C" fn(),
    in_child: extern "C" fn(),
) {
    let [before, in_parent, in_child] = [before, in_parent, in_child].map(as_unsafe);
    // SAFETY: safe functions of this library, which is never unloaded.
    let _ = unsafe { pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

fn as_unsafe(handler: extern "C" fn()) -> unsafe extern "C" fn() {
    handler
}
