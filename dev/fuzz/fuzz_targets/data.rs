//! The bytes of a producer's data connection. The first byte is the length of the chunks in which
//! the rest is read.
#![no_main]

use fuzz::must_data;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Some((cut, bytes)) = input.split_first() {
        must_data::receive(*cut, bytes);
    }
});
