//! Functions and source lines of addresses in traced programs.
//!
//! A trace says by its events what is mapped where in a process, and which addresses were executed.
//! This package finds what those addresses are in the files of programs and libraries, or in
//! separate files with debug information. Where there is a choice, it does what `babeltrace2` 2.0
//! does: for text, its `debug_info` is compared to the byte.
//!
//! Read in this order:
//!
//! | module | what |
//! |---|---|
//! | [`mappings`] | what is mapped in each process; pure |
//! | `ranges` | which ranges of addresses contain an address |
//! | `units` | units and line tables that have been decoded |
//! | `dwarf` | functions in debug information |
//! | `lines` | source lines in debug information |
//! | `elf` | what is read of a file: symbols, build ids, debug information |
//! | `search` | where the files of a binary are, and those that have been read |
//! | [`symbolizer`], `locations` | addresses as text, remembered; those of an event |
//!
//! Names of files, and the files themselves, may be anyone's. Only regular files are opened, by
//! paths without `..`; what is read and kept of them is bounded; a file that is not what it should
//! be is ignored, with one warning.

mod dwarf;
mod elf;
mod error;
mod lines;
mod locations;
pub mod mappings;
mod ranges;
mod search;
pub mod symbolizer;
mod units;

pub use locations::EventLocations;
pub use mappings::{BuildId, Mapping, Past, ProcessKey, ProcessTable};
pub use search::SearchOptions;
pub use symbolizer::{Location, Symbolizer};
