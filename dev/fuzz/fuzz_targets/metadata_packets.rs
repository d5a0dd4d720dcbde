//! Metadata in packets. The first byte is the length of the chunks in which the rest is read.
#![no_main]

use fuzz::must;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Some((length, metadata)) = input.split_first() {
        must::read_metadata_alike_in(metadata.chunks(usize::from(*length).max(1)));
    }
});
