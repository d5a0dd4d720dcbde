//! A line of the Trace Event Format.
#![no_main]

use fuzz::must_line;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| must_line::line(input));
