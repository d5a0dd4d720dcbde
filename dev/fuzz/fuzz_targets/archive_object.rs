//! An object of an archive, and the records of a directory whose checksum is right: a session is
//! made of them, and the rest of the input is read as one of its blocks.
#![no_main]

use archive::object::{Directory, Footer, PacketBlock};
use archive::record::{Record, RecordError};
use archive::session::SessionBuilder;
use fuzz::sections;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Ok(footer) = Footer::at_end(input, input.len() as u64)
        && let Some(stored) = footer.directory_in(input)
        && let Ok(directory) = footer.decode_directory(stored)
    {
        read_session(&directory, &[]);
    }
    let mut sections = sections(input);
    let records = sections.next().unwrap_or_default();
    let block = sections.next().unwrap_or_default();
    if let Ok(directory) = decode(records) {
        read_session(&directory, block);
    }
});

fn decode(mut from: &[u8]) -> Result<Directory, RecordError> {
    let Record::Object(object) = Record::decode(&mut from)? else {
        return Err(RecordError::Unknown(0));
    };
    let mut records = Vec::new();
    while !from.is_empty() {
        records.push(Record::decode(&mut from)?);
    }
    Ok(Directory { object, records })
}

fn read_session(directory: &Directory, block: &[u8]) {
    let mut keys = Vec::new();
    for record in &directory.records {
        match record {
            Record::Session(session) => keys.push(session.session),
            Record::Packets(packets) => {
                if let Ok(block) = PacketBlock::parse(packets, block.to_vec()) {
                    for number in 0..block.len() {
                        assert!(block.packet(number).is_some());
                    }
                }
            }
            _ => {}
        }
    }
    for key in keys.into_iter().take(4) {
        let mut builder = SessionBuilder::new(key);
        // Twice, as two objects that say the same.
        builder.add(0, directory);
        builder.add(1, directory);
        for stream in builder
            .finish()
            .traces
            .iter()
            .flat_map(|trace| &trace.streams)
        {
            let mut end = None;
            for used in &stream.blocks {
                assert!(used.begin < used.end && Some(used.begin) >= end);
                assert_eq!(used.block.object, 0);
                end = Some(used.end);
            }
        }
    }
}
