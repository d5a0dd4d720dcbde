//! The limits on TSDL. The largest real metadata stays below a hundredth of them.

/// Braces within braces, and types made of types: functions that walk a type recurse to this depth.
pub(super) const MAX_NESTING: u32 = 128;

/// Tokens of one declaration: an enumeration of [`MAX_LABELS`] labels with a value each has four
/// million.
pub(super) const MAX_DECLARATION_TOKENS: usize = 4 << 20;

/// Tokens of declarations that are pending for the trace, a clock or an environment entry. Their
/// trees take some 170 bytes per token.
pub(super) const MAX_PENDING_TOKENS: usize = 4 << 20;

/// Bytes of one word, number or text.
pub(super) const MAX_TOKEN_BYTES: usize = 1 << 20;

/// Members of one structure, options of one variant, entries of one block.
pub(super) const MAX_MEMBERS: usize = 65_536;

/// Labels of one enumeration.
pub(super) const MAX_LABELS: usize = 1 << 20;

/// Fields within one root, each use of a named type counted. Types that use each other twice double
/// at every step, though their text is short.
pub(super) const MAX_ROOT_FIELDS: u64 = 1 << 17;

/// Fields of all roots together, each use of a named type counted; also fields of all types, each
/// counted where it is written. Metadata of 64 MiB that writes each field out has some four
/// million.
pub(super) const MAX_FIELDS: u64 = 4 << 20;

/// Named types outside of blocks, which stay as long as the metadata.
pub(super) const MAX_TYPES: usize = 1 << 18;

/// Options of variants that are written once and get their tag where they are used: each use copies
/// the options.
pub(super) const MAX_OPTION_COPIES: usize = 2 << 20;

/// Event classes of the trace.
pub(super) const MAX_EVENT_CLASSES: usize = 65_536;

/// Stream classes of the trace.
pub(super) const MAX_STREAM_CLASSES: usize = 65_536;
