//! What all targets share. What must hold of any input is written once, beside the tests that try
//! it with the inputs that once broke it: `ctf/tests/hostile/`, `tef/tests/hostile/`.

#[path = "../../ctf/tests/hostile/good.rs"]
pub mod good;
#[path = "../../ctf/tests/hostile/must.rs"]
pub mod must;
#[path = "../../tef/tests/hostile/must.rs"]
pub mod must_line;

/// Stands in texts where they are cut, and between metadata and packets. In UTF-8 it never is.
pub const CUT: u8 = 0xFF;
