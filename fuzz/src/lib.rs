//! What all targets share. What must hold of any input is written once, beside the tests that try
//! it with the inputs that once broke it: `tests/hostile/` of `ctf`, `tef`, `relay-proto`, `relayd` and
//! `viewer-proto`.

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

/// Stands in texts where they are cut, and between metadata and packets. In UTF-8 it never is.
pub const CUT: u8 = 0xFF;
