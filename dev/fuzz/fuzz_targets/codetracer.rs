//! A recording of CodeTracer, in any form, that arrives in pieces.
#![no_main]

use codetracer::events::Item;
use codetracer::reader::RecordingReader;
use codetracer::record::Record;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // The first byte is the length of the pieces.
    let Some((length, input)) = input.split_first() else {
        return;
    };
    let mut reader = RecordingReader::new(1 << 16);
    // One more than the byte, because pieces of no bytes would be no pieces.
    for piece in input.chunks(usize::from(*length) + 1) {
        if reader.push(piece).is_err() {
            return;
        }
        read_all(&mut reader);
    }
    reader.end();
    read_all(&mut reader);
});

/// Takes all items. A record that was read is read again from what is written of it.
fn read_all(reader: &mut RecordingReader) {
    while let Some(item) = reader.next_item() {
        if let Ok(Item::Record(record)) = item {
            let text = record.to_string();
            assert_eq!(Record::parse(&text).expect("what was written"), record);
        }
    }
}
