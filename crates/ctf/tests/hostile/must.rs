//! Invariants of the readers for any input. The tests here and the fuzz targets use them.
#![allow(unreachable_pub, reason = "the fuzz targets use it too")]

use std::hash::{Hash, Hasher};

use ctf::Metadata;
use ctf::decode::{NumberFormat, PacketHead, PartStep, StreamDecoder, Visitor};
use ctf::index;
use ctf::metadata::{EventClass, StreamClass, Trace};
use ctf::model::{Labels, Scope};
use wire::Bytes;

/// Checks that metadata in pieces declares the same as at once, and that bytes that are no metadata
/// are an error.
pub fn read_metadata_alike_in<'a>(pieces: impl Iterator<Item = &'a [u8]> + Clone) {
    let whole = pieces.clone().flatten().copied().collect::<Vec<u8>>();
    let at_once = Metadata::read(&whole);
    let mut metadata = Metadata::new();
    let mut result = Ok(());
    for piece in pieces {
        // Behind an error too: a caller may ignore it.
        let extended = metadata.extend(piece);
        result = result.and(extended);
    }
    let finished = metadata.finish();
    result = result.and(finished);
    let _ = metadata.take_warnings();
    match (&at_once, &result) {
        (Ok(at_once), Ok(())) => assert_same_trace(at_once.trace(), metadata.trace()),
        (Err(_), Err(_)) => {}
        _ => assert!(
            at_once.is_ok() == result.is_ok(),
            "at once {:?}, in pieces {result:?}",
            at_once.map(|_| ())
        ),
    }
}

fn assert_same_trace(one: &Trace, other: &Trace) {
    assert_eq!(one.uuid(), other.uuid());
    assert_eq!(one.name(), other.name());
    assert_eq!(one.environment(), other.environment());
    assert_eq!(one.clocks(), other.clocks());
    assert_eq!(one.packet_header(), other.packet_header());
    assert_eq!(one.streams().count(), other.streams().count());
    for (one, other) in one.streams().zip(other.streams()) {
        assert_same_stream(one, other);
    }
}

fn assert_same_stream(one: &StreamClass, other: &StreamClass) {
    assert_eq!(one.id(), other.id());
    assert_eq!(one.name(), other.name());
    assert_eq!(one.timescale(), other.timescale());
    assert_eq!(one.packet_context(), other.packet_context());
    assert_eq!(one.event_header(), other.event_header());
    assert_eq!(one.event_context(), other.event_context());
    assert_eq!(one.events().len(), other.events().len());
    for event in one.events() {
        let other = other.event(event.id());
        assert!(other.is_some_and(|other| same_event(event, other)));
    }
}

fn same_event(one: &EventClass, other: &EventClass) -> bool {
    one.name() == other.name()
        && one.log_level() == other.log_level()
        && one.emf_uri() == other.emf_uri()
        && one.context() == other.context()
        && one.payload() == other.payload()
}

/// What decoding has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Work {
    pub packets: u64,
    pub events: u64,
    /// Calls of the visitor.
    pub calls: u64,
}

/// Decodes any bytes as packets, and shows their events up to the first error. `growth` is further
/// metadata, which arrives while the first packet is read.
pub fn decode(metadata: &mut Metadata, growth: Option<&[u8]>, file: &[u8]) -> Work {
    let work = decode_whole(metadata, growth, file);
    decode_alike_in_parts(metadata.trace(), file);
    work
}

fn decode_whole(metadata: &mut Metadata, mut growth: Option<&[u8]>, mut file: &[u8]) -> Work {
    let mut decoder = StreamDecoder::new();
    let mut work = Work::default();
    while !file.is_empty() {
        let begun = decoder.begin_packet(metadata.trace(), file);
        if work.packets == 0 {
            read_head_from_parts(metadata.trace(), file, begun.as_ref().ok());
        }
        let Ok(head) = begun else {
            break;
        };
        work.packets += 1;
        assert!(head.content_bits <= head.packet_bits);
        assert!(head.packet_bytes() > 0);
        let size = usize::try_from(head.packet_bytes()).ok();
        let Some((packet, rest)) = size.and_then(|size| file.split_at_checked(size)) else {
            unreachable!("a truncated packet was begun");
        };
        let events = decode_events(&mut decoder, metadata, &mut growth, packet, &mut work);
        assert!(events <= head.content_bits);
        work.events += events;
        file = rest;
    }
    work
}

/// Packets of more bytes are not read in parts, for the time that it takes.
const MAX_IN_PARTS: usize = 16 << 10;

/// Checks that a packet that is given in parts has the same events and the same error.
fn decode_alike_in_parts(trace: &Trace, mut file: &[u8]) {
    let (mut whole, mut parts) = (StreamDecoder::new(), StreamDecoder::new());
    while let Ok(head) = PacketHead::read(trace, file, file.len() as u64) {
        let size = usize::try_from(head.packet_bytes()).unwrap_or(usize::MAX);
        let Some((packet, rest)) = file.split_at_checked(size) else {
            unreachable!("a truncated packet was read");
        };
        if size > MAX_IN_PARTS {
            return;
        }
        packet_alike_in_parts(trace, packet, &mut whole, &mut parts);
        file = rest;
    }
}

fn packet_alike_in_parts(
    trace: &Trace,
    packet: &[u8],
    whole: &mut StreamDecoder,
    parts: &mut StreamDecoder,
) {
    let mut here = Vec::new();
    let mut missing = packet;
    let mut load = |here: &mut Vec<u8>, bytes: usize| {
        let (next, rest) = missing.split_at(bytes.min(missing.len()));
        here.extend_from_slice(next);
        missing = rest;
        !next.is_empty()
    };
    let size = packet.len() as u64;
    let begun = loop {
        match parts.begin_part(trace, &here, size) {
            Err(error) if error.is_cut() && load(&mut here, 13) => {}
            begun => break begun,
        }
    };
    assert_eq!(whole.begin_packet(trace, packet), begun);
    assert_eq!(whole.losses(), parts.losses());
    loop {
        let step = loop {
            match parts.advance_part(trace, &here) {
                Ok(PartStep::NeedMoreBytes) => {
                    let passed = usize::try_from(parts.passed_bytes()).unwrap_or(usize::MAX);
                    let head = usize::try_from(parts.head_bytes()).unwrap_or(usize::MAX);
                    if passed > head {
                        here.drain(head..passed);
                        parts.remove_bytes((passed - head) as u64);
                    }
                    assert!(
                        load(&mut here, 13),
                        "more bytes are needed than the packet has"
                    );
                }
                Ok(step) => break Ok(step == PartStep::Event),
                Err(error) => break Err(error),
            }
        };
        assert_eq!(whole.advance(trace, packet), step);
        assert_eq!(whole.cycles(), parts.cycles());
        let (Some(one), Some(other)) = (whole.event(trace, packet), parts.event(trace, &here))
        else {
            return;
        };
        let mut looks = [Look::new(packet), Look::new(&here)];
        for (event, look) in [one, other].into_iter().zip(&mut looks) {
            assert_eq!(event.visit(look), Ok(()));
        }
        let [one, other] = looks;
        assert_eq!(one.seen.finish(), other.seen.finish(), "in parts");
    }
}

/// The head of a packet is the same when not all of the packet has been read.
fn read_head_from_parts(trace: &Trace, file: &[u8], whole: Option<&PacketHead>) {
    let available = file.len() as u64;
    assert_eq!(
        PacketHead::read(trace, file, available).ok().as_ref(),
        whole
    );
    let _ = PacketHead::read(trace, file, u64::MAX);
    let half = file.get(..file.len() / 2).unwrap_or_default();
    match PacketHead::read(trace, half, available) {
        Ok(head) => assert_eq!(Some(&head), whole),
        Err(error) => assert!(whole.is_none() || error.is_cut()),
    }
}

fn decode_events(
    decoder: &mut StreamDecoder,
    metadata: &mut Metadata,
    growth: &mut Option<&[u8]>,
    packet: &[u8],
    work: &mut Work,
) -> u64 {
    let mut events = 0;
    while let Ok(true) = decoder.advance(metadata.trace(), packet) {
        events += 1;
        let event = decoder.event(metadata.trace(), packet);
        let Some(event) = event else {
            unreachable!("an event was found and cannot be shown");
        };
        let _ = (event.time(), decoder.cycles(), decoder.losses());
        let mut looks = [Look::new(packet), Look::new(packet)];
        for look in &mut looks {
            assert_eq!(event.visit(look), Ok(()));
            assert!(look.open.is_empty());
        }
        let [first, second] = looks;
        assert_eq!(first.seen.finish(), second.seen.finish(), "a second look");
        work.calls += first.calls;
        if let Some(text) = growth.take() {
            let _ = metadata.extend(text);
        }
    }
    assert!(!matches!(
        decoder.advance(metadata.trace(), packet),
        Ok(true)
    ));
    events
}

/// An index is read or refused, and what is read covers what it says.
pub fn read_index(bytes: &[u8]) {
    let Ok(index) = index::read(bytes) else {
        return;
    };
    assert!(index.entries.len() <= bytes.len() / index::IndexFormat::V1_0.entry_len());
    assert!(index.covers_file(index.total));
    assert!(!index.covers_file(Bytes(index.total.0.wrapping_add(1))));
    let mut end = 0;
    for entry in &index.entries {
        assert!(entry.offset.0 >= end);
        assert!(entry.packet.content_size <= entry.packet.packet_size);
        assert!(entry.packet.begin <= entry.packet.end);
        end = entry.offset.0 + entry.packet.packet_size.0 / 8;
    }
    assert!(index.total.0 <= end);
}

/// Looks at an event: checks that what begins ends, and remembers what was seen.
struct Look<'a> {
    packet: &'a [u8],
    open: Vec<Open>,
    seen: Seen,
    calls: u64,
}

/// A hash (FNV-1a) that costs little beside what it is made of.
#[derive(Debug, Clone, Copy, Default)]
struct Seen(u64);

impl Hasher for Seen {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x0100_0000_01B3);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Scope,
    Structure,
    Array { next: u64, length: u64 },
    Variant,
    Optional,
}

impl<'a> Look<'a> {
    fn new(packet: &'a [u8]) -> Self {
        Self {
            packet,
            open: Vec::new(),
            seen: Seen::default(),
            calls: 0,
        }
    }

    fn see(&mut self, what: impl Hash) {
        what.hash(&mut self.seen);
        self.calls += 1;
    }

    fn begin(&mut self, open: Open) {
        self.open.push(open);
        self.calls += 1;
    }

    fn end(&mut self, open: Open) {
        assert_eq!(self.open.pop(), Some(open));
        self.calls += 1;
    }

    fn number(&mut self, value: i128, format: NumberFormat<'_>) {
        assert!((1..=64).contains(&format.bits));
        self.see((value, format.bits));
        // Many labels at every number would be slow: that is up to the program that prints them.
        let labels = format.labels.filter(|labels| labels.as_slice().len() < 64);
        self.see(labels.map_or(0, |labels| labels.of(value).count()));
    }

    fn lies_within(&self, bytes: &[u8]) -> bool {
        let (packet, bytes) = (self.packet.as_ptr_range(), bytes.as_ptr_range());
        packet.start <= bytes.start && bytes.end <= packet.end
    }
}

impl Visitor for Look<'_> {
    fn begin_scope(&mut self, scope: Scope) {
        assert!(self.open.is_empty());
        self.begin(Open::Scope);
        self.see(scope);
    }

    fn end_scope(&mut self) {
        self.end(Open::Scope);
    }

    fn begin_structure(&mut self) {
        self.begin(Open::Structure);
    }

    fn member(&mut self, name: &str) {
        assert_eq!(self.open.last(), Some(&Open::Structure));
        self.see(name);
    }

    fn end_structure(&mut self) {
        self.end(Open::Structure);
    }

    fn begin_array(&mut self, length: u64) {
        self.begin(Open::Array { next: 0, length });
    }

    fn element(&mut self, index: u64) {
        let open = self.open.last_mut();
        let Some(Open::Array { next, .. }) = open else {
            unreachable!("an element of no array");
        };
        assert_eq!(*next, index);
        *next += 1;
        self.see(index);
    }

    fn end_array(&mut self) {
        let Some(Open::Array { next, length }) = self.open.pop() else {
            unreachable!("the end of no array");
        };
        assert_eq!(next, length);
    }

    fn begin_variant(&mut self, option: Option<&str>) {
        self.begin(Open::Variant);
        self.see(option);
    }

    fn end_variant(&mut self) {
        self.end(Open::Variant);
    }

    fn begin_optional(&mut self, present: bool) {
        self.begin(Open::Optional);
        self.see(present);
    }

    fn end_optional(&mut self) {
        self.end(Open::Optional);
    }

    fn unsigned(&mut self, value: u64, format: NumberFormat<'_>) {
        self.number(value.into(), format);
    }

    fn signed(&mut self, value: i64, format: NumberFormat<'_>) {
        self.number(value.into(), format);
    }

    fn float(&mut self, value: f64, bits: u8) {
        assert!(matches!(bits, 32 | 64));
        self.see(value.to_bits());
    }

    fn boolean(&mut self, value: bool) {
        self.see(value);
    }

    fn bit_array(&mut self, value: u64, bits: u8, flags: Option<&Labels>) {
        assert!((1..=64).contains(&bits));
        self.see((value, flags.is_some()));
    }

    fn text(&mut self, bytes: &[u8]) {
        // What is not UTF-8 in the packet has been made so.
        let made = bytes.len() <= 3 * self.packet.len() && str::from_utf8(bytes).is_ok();
        assert!(self.lies_within(bytes) || made);
        self.see(bytes);
    }

    fn blob(&mut self, bytes: &[u8], _media_type: &str) {
        assert!(self.lies_within(bytes));
        self.see(bytes);
    }
}
