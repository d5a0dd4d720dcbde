//! The invariants that all targets check. They are shared with the regression tests in
//! `tests/hostile/` of `ctf`, `tef`, `relay-proto`, `relayd` and `viewer-proto`.

#[path = "../../../viewer-proto/tests/fake/mod.rs"]
mod fake;
#[path = "../../../crates/ctf/tests/hostile/good.rs"]
pub mod good;
#[path = "../../../crates/ctf/tests/hostile/must.rs"]
pub mod must;
#[path = "../../../relay-proto/tests/hostile/must.rs"]
pub mod must_control;
#[path = "../../../relayd/tests/hostile/must.rs"]
pub mod must_data;
#[path = "../../../crates/tef/tests/hostile/must.rs"]
pub mod must_line;
#[path = "../../../viewer-proto/tests/hostile/must.rs"]
pub mod must_viewer;

/// The byte that ends a chunk of text, and separates metadata from packets. UTF-8 never has it.
pub const CUT: u8 = 0xFF;

/// The parts of an input that are written over a file: an offset in two bytes, a length in one, and
/// the bytes, repeatedly.
pub struct Overwrites<'a>(pub &'a [u8]);

impl<'a> Iterator for Overwrites<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let [low, high, length, rest @ ..] = self.0 else {
            return None;
        };
        // What is missing at the end is left out, so that every input means something.
        let (bytes, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        self.0 = rest;
        Some((u16::from_le_bytes([*low, *high]).into(), bytes))
    }
}

/// An empty directory for the files of one input, in memory if possible.
pub fn output() -> tempfile::TempDir {
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    directory.expect("a directory")
}

/// The sections of an input: a length in two bytes, and the bytes, repeatedly.
pub fn sections(mut input: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let [low, high, rest @ ..] = input else {
            return None;
        };
        let length = usize::from(u16::from_le_bytes([*low, *high]));
        // As above: the last section may be shorter than it says.
        let (section, rest) = rest.split_at(rest.len().min(length));
        input = rest;
        Some(section)
    })
}
