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

/// What is written over a file: an offset in two bytes, a length in one, and the bytes, repeatedly.
pub struct Overwrites<'a>(pub &'a [u8]);

impl<'a> Iterator for Overwrites<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let [low, high, length, rest @ ..] = self.0 else {
            return None;
        };
        let (bytes, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        self.0 = rest;
        Some((u16::from_le_bytes([*low, *high]).into(), bytes))
    }
}
