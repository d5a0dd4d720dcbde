//! Metadata as text of CTF 1.8, in pieces. Each byte 0xFF is a cut.
#![no_main]

use fuzz::{CUT, must};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    must::read_metadata_alike_in(input.split(|byte| *byte == CUT));
});
