//! Packets of valid metadata. The first byte is the number of the metadata text, the rest is a data
//! stream file.
#![no_main]

use std::sync::{LazyLock, Mutex};

use ctf::Metadata;
use fuzz::{good, must};
use libfuzzer_sys::fuzz_target;

// Parsed once, because packets are what is fuzzed here.
static METADATA: LazyLock<Mutex<Vec<Metadata>>> = LazyLock::new(|| Mutex::new(good::all()));

fuzz_target!(|input: &[u8]| {
    let mut all = METADATA.lock().expect("one thread");
    let count = all.len();
    if let Some((which, file)) = input.split_first()
        && let Some(metadata) = all.get_mut(usize::from(*which) % count)
    {
        must::decode(metadata, None, file);
    }
});
