//! A filter as text, then 0xFF and a packet: the filter is applied to its events, or to built-in
//! ones. Each event matches a filter or its negation, whatever was asked before; what a counter
//! finds is found by a filter as well.
#![no_main]

use std::sync::LazyLock;

use ctf::Metadata;
use ctf::decode::{Event, StreamDecoder, Visitor};
use fuzz::CUT;
use libfuzzer_sys::fuzz_target;
use viewer::attach::{StreamInfo, StreamKey, TraceInfo, TraceKey};
use viewer::filter::{Filter, FilterError, NumberSelector};
use viewer::sink::{Number, Origin};

/// Fields of all kinds, and names of all kinds.
const TEXT: &str = "/* CTF 1.8 */
    typealias integer { size = 8; align = 8; } := u8;
    typealias integer { size = 8; align = 8; signed = true; } := s8;
    typealias integer { size = 64; align = 8; } := u64;
    trace { major = 1; minor = 8; byte_order = le; };
    stream {
        packet.context := struct { u8 cpu_id; };
        event.header := struct { u8 id; };
        event.context := struct { u8 _vpid; u8 size; };
    };
    event {
        id = 1; name = \"sched_switch\"; loglevel = 4;
        fields := struct {
            s8 _prev_tid; u64 size; string _comm;
            floating_point { exp_dig = 8; mant_dig = 24; align = 8; } ratio;
            enum : u8 { \"READ\" = 1, \"ANY\" = 0 ... 9, \"true\" = 1 } mode;
            struct { u8 b; u8 list[3]; } a;
            u8 n; struct { s8 x; } seq[n];
            enum : u8 { text = 1, number = 2 } tag;
            variant <tag> { string text; u64 number; } choice;
            u8 ctx;
        };
    };
    event { id = 2; name = \"tef:begin\"; fields := struct { string name; string args; }; };
    event { id = 3; name = \"p:frame_begin\"; fields := struct { u8 frame; }; };
    event { id = 4; name = \"p:frame_end\"; fields := struct { u8 frame; }; };
    event { id = 5; name = \"span:enter\"; fields := struct { string name; }; };
    event { id = 6; name = \"none\"; loglevel = 13; };";
static METADATA: LazyLock<Metadata> =
    LazyLock::new(|| Metadata::read(TEXT.as_bytes()).expect("good metadata"));
/// An event of each class.
const PACKET: &[u8] = b"\x03\
    \x01\x05\x01\xF9\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFFbash\0\0\0\0\x3F\x01\x0B\x02\x0A\x14\x02\x02\xFF\x01text\0\x07\
    \x02\x05\x02parse\0{\"n\":3,\"list\":[{\"x\":1.5},null],\"on\":true}\0\
    \x03\x06\x00\x09\
    \x04\x06\x00\x09\
    \x05\x06\x00span\0\
    \x06\x07\x00";

fuzz_target!(|input: &[u8]| {
    let cut = input.iter().position(|byte| *byte == CUT);
    let (text, packet) = match cut {
        Some(cut) => (&input[..cut], &input[cut + 1..]),
        None => (input, PACKET),
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    if let Ok(selector) = NumberSelector::parse(text) {
        count(text, selector, packet);
    }
    match Filter::parse(text) {
        Ok(filter) => select(text, filter, packet),
        Err(error) => check_error(text, &error),
    }
});

/// Checks that an error is within the text, and shows it there.
fn check_error(text: &str, error: &FilterError) {
    let characters = text.chars().count();
    assert!((1..=characters + 1).contains(&error.column));
    let shown = error.to_string();
    assert_eq!(shown.lines().count(), 3, "{shown:?}");
    assert!(shown.chars().all(|char| char == '\n' || !char.is_control()));
}

/// Applies a filter, and others that follow from it.
fn select(text: &str, mut filter: Filter, packet: &[u8]) {
    // A further pair of parentheses may be one too many.
    let other = |text: String| Filter::parse(&text).ok();
    let mut negated = other(format!("!({text})"));
    let mut both = other(format!("({text}) && ({text})"));
    let mut either = other(format!("({text}) || !({text})"));
    let names = Names::new();
    for_each_event(packet, |event| {
        let origin = names.origin();
        let matches = filter.matches(event, origin);
        assert_eq!(filter.matches(event, origin), matches, "asked again");
        // A filter keeps what it has looked up: one that has not must say the same.
        let mut fresh = Filter::parse(text).expect("as before");
        assert_eq!(fresh.matches(event, origin), matches, "asked first");
        let is = |filter: &mut Option<Filter>, wanted: bool| {
            if let Some(filter) = filter {
                assert_eq!(filter.matches(event, origin), wanted);
            }
        };
        is(&mut negated, !matches);
        is(&mut both, matches);
        is(&mut either, true);
    });
}

/// Looks for the numbers of a counter, which a filter has to find at the same place.
fn count(text: &str, mut selector: NumberSelector, packet: &[u8]) {
    let names = Names::new();
    let mut exists = Filter::parse(&format!("exists({text})")).ok();
    for_each_event(packet, |event| {
        let trace = names.trace.key;
        let found = selector.find(event, trace).expect("it was visited before");
        let (Some(exists), Some(found)) = (&mut exists, found) else {
            return;
        };
        assert!(exists.matches(event, names.origin()));
        // A float with all its digits, so that it reads back as the same number.
        let value = match found {
            Number::Unsigned(value) => value.to_string(),
            Number::Signed(value) => value.to_string(),
            Number::Float(value) => format!("{value:?}"),
        };
        let mut is_equal = Filter::parse(&format!("{text} == {value}")).expect("as above");
        assert!(is_equal.matches(event, names.origin()), "{value}");
    });
}

/// Shows the events of a packet that can be decoded.
fn for_each_event(packet: &[u8], mut show: impl FnMut(&Event<'_>)) {
    let trace = METADATA.trace();
    let mut decoder = StreamDecoder::new();
    if decoder.begin_packet(trace, packet).is_err() {
        return;
    }
    while let Ok(true) = decoder.advance(trace, packet) {
        let event = decoder.event(trace, packet).expect("one was found");
        if event.visit(&mut Nothing).is_ok() {
            show(&event);
        }
    }
}

struct Nothing;

impl Visitor for Nothing {}

struct Names {
    trace: TraceInfo,
    stream: StreamInfo,
}

impl Names {
    fn new() -> Self {
        Self {
            trace: TraceInfo {
                key: TraceKey::fresh(),
                name: "host/session/ust".to_owned(),
                uuid: None,
            },
            stream: StreamInfo {
                key: StreamKey::fresh(),
                name: "channel0_1".to_owned(),
                class: 0,
                id: None,
            },
        }
    }

    fn origin(&self) -> Origin<'_> {
        Origin {
            trace: &self.trace,
            stream: &self.stream,
            locations: None,
        }
    }
}
