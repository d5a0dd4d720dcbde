//! `libtrace_ring_functions.so`: records the entries and exits of functions that a compiler has
//! instrumented (`-finstrument-functions`) in rings of shared memory, and what is loaded at which
//! address, so that a viewer can name the functions. A program gets it by `LD_PRELOAD` or is linked
//! to it.
//!
//! Events have the names and fields of LTTng-UST (`lttng_ust_cyg_profile`, `lttng_ust_statedump`,
//! `lttng_ust_lib`). Functions have the severity DEBUG and what is loaded has INFO: the two are in
//! different rings, so that functions never push out what names them.
//!
//! Read in this order: `exports` (what programs call), `events` (what is written), `loaded`
//! (when the list of loaded objects is looked at and written), `object` (one of them), `system`
//! (the dynamic loader and the C library).

mod events;
mod exports;
mod loaded;
mod object;
mod system;
