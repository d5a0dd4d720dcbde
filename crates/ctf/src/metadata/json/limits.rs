//! The limits on CTF 2 metadata, each with its reason.

/// Metadata in all, in bytes. LTTng's is a few hundred kilobytes for thousands of event classes.
pub(super) const MAX_METADATA_BYTES: usize = 64 << 20;

/// Largest fragment, in bytes: a hundred times the longest of LTTng. Its parsed form takes up to
/// twenty times as much memory.
pub(super) const MAX_FRAGMENT_BYTES: usize = 4 << 20;

/// Fragments: each event class is one.
pub(super) const MAX_FRAGMENTS: usize = 1 << 17;

/// Depth of field classes within field classes. Bounded because code that walks the model is
/// recursive.
pub(super) const MAX_DEPTH: usize = 64;

/// Members of a structure, or options of a variant.
pub(super) const MAX_MEMBERS: usize = 65_536;

/// Field classes, ranges and parts of paths in all, where each use of an alias counts as if it had
/// been written out: with aliases of aliases a short text could ask for any number of them.
pub(super) const MAX_CLASSES: usize = 1 << 20;
