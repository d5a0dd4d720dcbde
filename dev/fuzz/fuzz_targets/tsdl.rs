//! CTF 1.8 metadata as text, in chunks: each byte 0xFF ends one.
#![no_main]

use fuzz::{CUT, must};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    must::read_metadata_alike_in(input.split(|byte| *byte == CUT));
});
