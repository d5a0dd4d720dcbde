//! CTF 2 metadata as JSON, in chunks: each byte 0xFF ends one.
#![no_main]

use fuzz::{CUT, must};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // Anything else is for `tsdl`.
    if input.first() == Some(&0x1E) {
        must::read_metadata_alike_in(input.split(|byte| *byte == CUT));
    }
});
