//! A plain reader of process directories, made of the functions of `trace_ring_core::format`.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use trace_ring_core::format::*;

/// What a process directory holds.
pub(crate) struct Process {
    pub(crate) meta: MetaHeader,
    pub(crate) classes: HashMap<u32, EventClass>,
    /// In the order of their numbers.
    pub(crate) rings: Vec<Ring>,
}

impl Process {
    pub(crate) fn rings_of(&self, class: SeverityClass) -> Vec<&Ring> {
        self.rings
            .iter()
            .filter(|ring| ring.header.severity_class == class)
            .collect()
    }

    /// Events in all rings.
    pub(crate) fn event_count(&self) -> u64 {
        self.rings.iter().map(|ring| ring.events.len() as u64).sum()
    }

    pub(crate) fn lost(&self) -> u64 {
        self.meta.lost_no_ring
            + self
                .rings
                .iter()
                .map(|ring| ring.control.lost.total())
                .sum::<u64>()
    }
}

/// One ring file as a reader finds it.
pub(crate) struct Ring {
    pub(crate) header: RingHeader,
    pub(crate) control: RingControl,
    /// Events of the ring before the first that is in it.
    pub(crate) events_before: u64,
    pub(crate) events: Vec<Event>,
}

/// One event, its fields read with the help of its class.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) tid: u32,
    pub(crate) timestamp: u64,
    pub(crate) fields: Vec<(String, String)>,
}

impl Event {
    pub(crate) fn field(&self, name: &str) -> &str {
        &self.fields.iter().find(|(key, _)| key == name).unwrap().1
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        self.field(name).parse().unwrap()
    }
}

/// Returns the process directories in a run directory; nothing when it is missing.
pub(crate) fn list_directories(run_directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(run_directory) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| parse_directory_name(path.file_name().unwrap().to_str().unwrap()).is_some())
        .collect()
}

pub(crate) fn read_process(directory: &Path) -> Process {
    let bytes = fs::read(directory.join(META_FILE)).unwrap();
    let meta = MetaHeader::decode(&bytes).unwrap();
    let classes = read_classes(&bytes);
    let mut numbers: Vec<u32> = fs::read_dir(directory)
        .unwrap()
        .filter_map(|entry| parse_ring_file_name(entry.unwrap().file_name().to_str().unwrap()))
        .collect();
    numbers.sort_unstable();
    let rings = numbers
        .into_iter()
        .map(|number| {
            let ring = read_ring(
                &fs::read(directory.join(ring_file_name(number))).unwrap(),
                &classes,
            );
            assert_eq!(ring.header.number, number);
            ring
        })
        .collect();
    Process {
        meta,
        classes,
        rings,
    }
}

pub(crate) fn read_classes(meta: &[u8]) -> HashMap<u32, EventClass> {
    let committed = MetaHeader::decode(meta).unwrap().committed as usize;
    let classes = MetaRecords::new(&meta[META_HEADER_SIZE..META_HEADER_SIZE + committed]);
    classes
        .map(|class| class.unwrap())
        .map(|class| (class.id, class))
        .collect()
}

fn read_ring(bytes: &[u8], classes: &HashMap<u32, EventClass>) -> Ring {
    let header = RingHeader::decode(bytes).unwrap();
    assert_eq!(bytes.len() as u64, header.file_size());
    let control = RingControl::decode(bytes).unwrap();
    let from = match header.mode {
        Mode::Discard => control.consumed,
        Mode::Overwrite => control.reserve.saturating_sub(header.data_size()),
    };
    let entry = &bytes[header.entry_offset_of(from) as usize..];
    let entry = SubBufferEntry::decode(entry).unwrap();
    let events = read_events(
        &header,
        from,
        control.commit,
        classes,
        |position, length| {
            let start = header.offset_of(position) as usize;
            bytes[start..start + length].to_vec()
        },
    );
    Ring {
        header,
        control,
        events_before: entry.events_before,
        events,
    }
}

/// Events between two positions; `read` copies bytes of one sub-buffer.
pub(crate) fn read_events(
    header: &RingHeader,
    mut position: u64,
    commit: u64,
    classes: &HashMap<u32, EventClass>,
    read: impl Fn(u64, usize) -> Vec<u8>,
) -> Vec<Event> {
    let size = u64::from(header.sub_buffer_size);
    let mut events: Vec<Event> = Vec::new();
    while position < commit {
        let end = commit.min((position / size + 1) * size);
        let bytes = read(position, (end - position) as usize);
        for record in Records::new(&bytes, position) {
            let event = decode(&record.unwrap(), classes);
            let last = events
                .last()
                .map_or(header.created, |event| event.timestamp);
            assert!(event.timestamp >= last, "timestamps do not decrease");
            events.push(event);
        }
        position = end;
    }
    events
}

fn decode(record: &Record<'_>, classes: &HashMap<u32, EventClass>) -> Event {
    let class = &classes[&record.class];
    let mut rest = record.fields();
    let mut fields = Vec::new();
    for (name, kind) in &class.fields {
        let (value, length) = read_field(*kind, rest).unwrap();
        let text = match value {
            FieldValue::Unsigned(value) => value.to_string(),
            FieldValue::Signed(value) => value.to_string(),
            FieldValue::Float(value) => value.to_string(),
            FieldValue::Bool(value) => value.to_string(),
            FieldValue::Str(text) => String::from_utf8(text.to_vec()).unwrap(),
            FieldValue::Bytes(bytes) => format!("{bytes:?}"),
        };
        fields.push((name.clone(), text));
        rest = &rest[length..];
    }
    assert!(rest.is_empty(), "the fields fill the record");
    let (tid, timestamp) = (record.tid, record.timestamp);
    Event {
        name: class.name.clone(),
        tid,
        timestamp,
        fields,
    }
}
