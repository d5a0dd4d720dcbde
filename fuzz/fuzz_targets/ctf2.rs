//! Metadata as JSON of CTF 2, in pieces. Each byte 0xFF is a cut.
#![no_main]

use fuzz::{CUT, must};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // Anything else is for `tsdl`.
    if input.first() == Some(&0x1E) {
        must::read_metadata_alike_in(input.split(|byte| *byte == CUT));
    }
});
