//! An index file with any bytes in it.
#![no_main]

use fuzz::must;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| must::read_index(input));
