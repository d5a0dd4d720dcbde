//! Metadata, and after the first byte 0xFF a data stream file. Metadata after a byte 0xFE arrives
//! while the first packet is decoded.
#![no_main]

use ctf::Metadata;
use fuzz::{CUT, must};
use libfuzzer_sys::fuzz_target;

/// The byte before metadata that arrives late. Like [`CUT`] it is never in UTF-8.
const GROWTH: u8 = 0xFE;

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(2, |byte| *byte == CUT);
    let (Some(text), Some(file)) = (parts.next(), parts.next()) else {
        return;
    };
    let mut texts = text.splitn(2, |byte| *byte == GROWTH);
    // Declarations before an error stay valid, and packets are decoded with them.
    let mut metadata = Metadata::new();
    let _ = metadata.extend(texts.next().unwrap_or_default());
    must::decode(&mut metadata, texts.next(), file);
});
