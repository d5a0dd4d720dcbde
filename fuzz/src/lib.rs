//! The invariants that all targets check. They are shared with the regression tests in `tests/hostile/` of `ctf`,
//! `tef`, `relay-proto`, `relayd` and `viewer-proto`.

#[path = "../../viewer-proto/tests/fake/mod.rs"]
mod fake;
#[path = "../../ctf/tests/hostile/good.rs"]
pub mod good;
#[path = "../../ctf/tests/hostile/must.rs"]
pub mod must;
#[path = "../../relay-proto/tests/hostile/must.rs"]
pub mod must_control;
#[path = "../../relayd/tests/hostile/must.rs"]
pub mod must_data;
#[path = "../../tef/tests/hostile/must.rs"]
pub mod must_line;
#[path = "../../viewer-proto/tests/hostile/must.rs"]
pub mod must_viewer;

/// The byte that ends a chunk of text, and separates metadata from packets. UTF-8 never has it.
pub const CUT: u8 = 0xFF;
