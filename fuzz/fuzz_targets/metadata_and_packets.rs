//! Metadata, then its packets behind the first byte 0xFF. Metadata behind a byte 0xFE comes while
//! the first packet is read.
#![no_main]

use ctf::Metadata;
use fuzz::{CUT, must};
use libfuzzer_sys::fuzz_target;

/// Like [`CUT`], never in UTF-8.
const GROWTH: u8 = 0xFE;

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(2, |byte| *byte == CUT);
    let (Some(text), Some(file)) = (parts.next(), parts.next()) else {
        return;
    };
    let mut texts = text.splitn(2, |byte| *byte == GROWTH);
    // What was declared before an error counts.
    let mut metadata = Metadata::new();
    let _ = metadata.extend(texts.next().unwrap_or_default());
    must::decode(&mut metadata, texts.next(), file);
});
