//! The functions that C programs call, and nothing else. A panic in one of them ends the program,
//! as in every `extern "C"` function; the code below them does not panic.
#![allow(
    unsafe_code,
    reason = "a C program gives raw pointers; every block says what it must keep"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{align_of, size_of};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::{CEvent, CSite, SiteDescription};

/// The layout of `struct ring_field`.
#[repr(C)]
pub(crate) struct RingField {
    name: *const c_char,
    field_type: u32,
}

/// `struct ring_site`. Only `site` changes.
#[repr(C)]
pub(crate) struct RingSite {
    site: AtomicPtr<CSite>,
    target: *const c_char,
    file: *const c_char,
    name: *const c_char,
    fields: *const RingField,
    field_count: u32,
    line: u32,
    severity: u32,
}

/// `struct ring_event`: room for an `Option<CEvent>`.
#[repr(C)]
pub(crate) struct RingEvent {
    words: [u64; 16],
}

const _: () = {
    assert!(size_of::<Option<CEvent>>() <= size_of::<RingEvent>());
    assert!(align_of::<Option<CEvent>>() <= align_of::<RingEvent>());
};

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
}

/// Restores `errno` when dropped: a program that writes an event does not expect it to change.
struct KeepErrno(c_int);

impl KeepErrno {
    fn new() -> Self {
        // SAFETY: the C library returns a valid pointer to the calling thread's `errno`.
        Self(unsafe { *__errno_location() })
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        // SAFETY: as in `new`.
        unsafe { *__errno_location() = self.0 }
    }
}

/// # Safety
/// `text` is null or a C string.
unsafe fn to_text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: a C string, as the caller guarantees.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

/// Returns the call site of a `struct ring_site`, which is made at the first call.
///
/// # Safety
/// `site` points to a `struct ring_site` that lives as long as the library is loaded; only this
/// function writes to it.
#[inline]
unsafe fn site_of(site: *const RingSite) -> &'static CSite {
    // SAFETY: valid, as the caller guarantees; C programs leave the pointer inside alone, so that
    // it is null or from `make_site`, which leaks.
    match unsafe { (*site).site.load(Ordering::Acquire).as_ref() } {
        Some(site) => site,
        // SAFETY: as above.
        None => unsafe { make_site(&*site) },
    }
}

/// # Safety
/// The texts and fields of `site` are valid.
#[cold]
unsafe fn make_site(site: &RingSite) -> &'static CSite {
    let _errno = KeepErrno::new();
    let count = usize::try_from(site.field_count).unwrap_or_default();
    let fields = if site.fields.is_null() {
        &[]
    } else {
        // SAFETY: the header counts the fields of the array.
        unsafe { std::slice::from_raw_parts(site.fields, count) }
    };
    // SAFETY: all texts are literals in the program.
    let description = unsafe {
        SiteDescription {
            severity: site.severity,
            line: site.line,
            target: to_text(site.target),
            file: to_text(site.file),
            name: to_text(site.name),
            fields: fields
                .iter()
                .map(|field| (to_text(field.name), field.field_type))
                .collect(),
        }
    };
    let made: *mut CSite = Box::into_raw(Box::new(CSite::new(description)));
    let place = &site.site;
    let found =
        match place.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => made,
            // Another thread was faster. Ours is leaked: that happens once per call site at most.
            Err(found) => found,
        };
    // SAFETY: from `Box::into_raw`, and never freed.
    let found = unsafe { &*found };
    // Asks the filter, which may set the process up, while `errno` is kept.
    found.call_site.is_enabled();
    found
}

/// Sets the process up now. True when events are recorded.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ring_init() -> bool {
    let _errno = KeepErrno::new();
    crate::init()
}

/// Events that no ring counts.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ring_lost_without_ring() -> u64 {
    crate::lost_without_ring()
}

/// Whether the filter lets the events of a call site pass.
///
/// # Safety
/// As for `site_of`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ring_is_enabled(site: *const RingSite) -> bool {
    // SAFETY: as the caller guarantees.
    unsafe { site_of(site) }.call_site.is_enabled()
}

/// Begins an event, if the filter lets it pass. False when there is none to be written.
///
/// # Safety
/// As for `site_of`; `event` points to a `struct ring_event` that holds no event that has been
/// begun.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ring_event_begin(
    event: *mut RingEvent,
    site: *const RingSite,
    content_size: usize,
) -> bool {
    // SAFETY: as the caller guarantees.
    let site = unsafe { site_of(site) };
    let place = event.cast::<Option<CEvent>>();
    if site.call_site.is_enabled() {
        let _errno = KeepErrno::new();
        if let Some(begun) = site.begin(content_size) {
            // SAFETY: valid, large enough and aligned, as asserted above; what was there needs no
            // drop.
            unsafe { ptr::write(place, Some(begun)) };
            return true;
        }
    }
    // SAFETY: as above.
    unsafe { ptr::write(place, None) };
    false
}

/// # Safety
/// `event` was given to `ring_event_begin`.
#[inline]
unsafe fn event_of<'a>(event: *mut RingEvent) -> Option<&'a mut CEvent> {
    // SAFETY: `ring_event_begin` has written an `Option<CEvent>` there, and no other reference
    // exists during a call.
    unsafe { &mut *event.cast::<Option<CEvent>>() }.as_mut()
}

/// # Safety
/// `data` points to `size` bytes, or `size` is 0.
unsafe fn bytes_of<'a>(data: *const c_void, size: usize) -> &'a [u8] {
    if data.is_null() || size == 0 {
        return &[];
    }
    // SAFETY: as the caller guarantees.
    unsafe { std::slice::from_raw_parts(data.cast(), size) }
}

macro_rules! put_functions {
    ($($function:ident: $rust:ty),* $(,)?) => {$(
        /// Puts the value of the next field.
        ///
        /// # Safety
        /// As for `event_of`.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $function(event: *mut RingEvent, value: $rust) {
            // SAFETY: as the caller guarantees.
            if let Some(event) = unsafe { event_of(event) } {
                event.put(&value);
            }
        }
    )*};
}

put_functions! {
    ring_put_u8: u8, ring_put_u16: u16, ring_put_u32: u32, ring_put_u64: u64,
    ring_put_i8: i8, ring_put_i16: i16, ring_put_i32: i32, ring_put_i64: i64,
    ring_put_f32: f32, ring_put_f64: f64, ring_put_bool: bool,
}

/// Puts a C string; null is the empty string.
///
/// # Safety
/// As for `event_of`; `text` is null or a C string.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ring_put_string(event: *mut RingEvent, text: *const c_char) {
    let text = if text.is_null() {
        &[]
    } else {
        // SAFETY: a C string, as the caller guarantees.
        unsafe { CStr::from_ptr(text) }.to_bytes()
    };
    // SAFETY: as the caller guarantees.
    if let Some(event) = unsafe { event_of(event) } {
        event.put_text(text);
    }
}

/// Puts a string of `size` bytes.
///
/// # Safety
/// As for `event_of` and `bytes_of`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ring_put_text(
    event: *mut RingEvent,
    text: *const c_char,
    size: usize,
) {
    // SAFETY: as the caller guarantees.
    unsafe {
        if let Some(event) = event_of(event) {
            event.put_text(bytes_of(text.cast(), size));
        }
    }
}

/// Puts a byte sequence.
///
/// # Safety
/// As for `event_of` and `bytes_of`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ring_put_bytes(
    event: *mut RingEvent,
    data: *const c_void,
    size: usize,
) {
    // SAFETY: as the caller guarantees.
    unsafe {
        if let Some(event) = event_of(event) {
            event.put(bytes_of(data, size));
        }
    }
}

/// Commits the event, and empties the structure.
///
/// # Safety
/// As for `event_of`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ring_event_end(event: *mut RingEvent) {
    // SAFETY: as in `event_of`. The structure holds `None` afterwards.
    let place = unsafe { &mut *event.cast::<Option<CEvent>>() };
    if let Some(event) = place {
        event.end();
        *place = None;
    }
}
