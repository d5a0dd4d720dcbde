//! Each event as a tree of its fields, in the form of `babeltrace2`'s `sink.text.details`: for
//! those who look into traces themselves.
//!
//! Only events and losses are shown, not classes, nor where streams and packets begin and end.
//! Unlike `babeltrace2`, control characters of a trace are replaced, because this is read on a
//! terminal.

use std::collections::HashMap;
use std::io::Write;

use ctf::decode::{Event, FieldError, LostEvents, NumberFormat, Visitor};
use ctf::model::{Base, Labels, Scope};
use viewer::attach::TraceKey;
use viewer::json_text::{hex, integer};
use viewer::sink::{Ended, Finished, Loss, Lost, Needs, Next, OpenSink, Origin, Sink, SinkError};
use viewer::terminal::printable;

use super::buffer;
use super::row::{Open, SinkRow};

/// The row of the sink that shows each event as a tree of its fields.
pub const ROW: SinkRow = SinkRow {
    name: "details",
    help: "All fields of each event, as a tree",
    needs: Needs::EVENTS,
    open: Open::Stream(|out, _| Ok(OpenSink::Events(Box::new(Details::new(out))))),
    download: None,
};

/// Writes each event as a tree of its fields.
#[derive(Debug)]
pub struct Details<W> {
    out: W,
    tree: Tree,
    /// The number of each trace, in order of appearance.
    traces: HashMap<TraceKey, usize>,
    /// The number of traces so far.
    seen_traces: usize,
    any: bool,
}

/// The parts of an event besides its fields.
struct Head<'a> {
    /// The clock value. Absent if its stream has no clock.
    cycles: Option<u64>,
    time: Option<i128>,
    name: Option<&'a str>,
    class: u64,
}

impl<W: Write> Details<W> {
    /// A sink that writes to `out`, which needs no buffer of its own.
    pub fn new(out: W) -> Self {
        Self {
            out,
            tree: Tree::default(),
            traces: HashMap::new(),
            seen_traces: 0,
            any: false,
        }
    }

    fn separate_from_previous(&mut self) {
        if self.any {
            self.tree.out.push(b'\n');
        }
        self.any = true;
    }

    fn origin(&mut self, origin: Origin<'_>) {
        let seen = &mut self.seen_traces;
        let trace = *self.traces.entry(origin.trace.key).or_insert_with(|| {
            *seen += 1;
            *seen - 1
        });
        let out = &mut self.tree.out;
        out.extend_from_slice(b"{Trace ");
        integer(trace, out);
        out.extend_from_slice(b", Stream class ID ");
        integer(origin.stream.class, out);
        out.extend_from_slice(b", Stream ID ");
        integer(origin.stream.id.unwrap_or(0), out);
        out.extend_from_slice(b"}\n");
    }

    fn write_event(
        &mut self,
        head: &Head<'_>,
        origin: Origin<'_>,
        visit: impl FnOnce(&mut Tree) -> Result<(), FieldError>,
    ) -> Result<(), SinkError> {
        self.separate_from_previous();
        if let Some(cycles) = head.cycles {
            let out = &mut self.tree.out;
            out.push(b'[');
            grouped(cycles, out);
            out.extend_from_slice(b" cycles");
            if let Some(time) = head.time {
                out.extend_from_slice(b", ");
                signed_grouped(time, out);
                out.extend_from_slice(b" ns from origin");
            }
            out.extend_from_slice(b"]\n");
        }
        self.origin(origin);
        let out = &mut self.tree.out;
        out.extend_from_slice(b"Event ");
        if let Some(name) = head.name {
            out.push(b'`');
            characters(name, out);
            out.extend_from_slice(b"` ");
        }
        out.extend_from_slice(b"(Class ID ");
        integer(head.class, out);
        out.push(b')');
        self.tree.any_scope = false;
        let visited = visit(&mut self.tree);
        // An event without scopes ends its line here; in others the first scope has ended it.
        if !self.tree.any_scope {
            self.tree.out.push(b'\n');
        }
        // After the line has been ended, so that the next event begins on its own.
        visited?;
        Ok(buffer::write_if_full(&mut self.tree.out, &mut self.out)?)
    }
}

impl<W: Write> Sink for Details<W> {
    fn event(&mut self, event: &Event<'_>, origin: Origin<'_>) -> Result<(), SinkError> {
        let head = Head {
            cycles: event.stream_class().timescale().map(|_| event.cycles()),
            time: event.exact_time(),
            name: event.class().name(),
            class: event.class().id(),
        };
        self.write_event(&head, origin, |tree| event.visit_fields(tree))
    }

    fn lost(&mut self, loss: &Loss, origin: Origin<'_>) -> Result<(), SinkError> {
        self.separate_from_previous();
        self.origin(origin);
        let out = &mut self.tree.out;
        match loss.what {
            Lost::Events(LostEvents::Some) => write!(out, "Discarded events")?,
            Lost::Events(LostEvents::Count(count)) => {
                write!(out, "Discarded events ({count} events)")?
            }
            Lost::Packets(count) => write!(out, "Discarded packets ({count} packets)")?,
        }
        out.push(b'\n');
        Ok(())
    }

    fn flush(&mut self, ended: &Ended) -> Result<Next, SinkError> {
        for trace in &ended.traces {
            // Numbers are not given again: `seen_traces` only grows.
            self.traces.remove(trace);
        }
        buffer::flush(&mut self.tree.out, &mut self.out)?;
        Ok(Next::Event)
    }

    fn finish(&mut self, _is_whole: bool) -> Result<Finished, SinkError> {
        buffer::flush(&mut self.tree.out, &mut self.out)?;
        Ok(Finished::default())
    }
}

/// Writes fields as a tree: after a name and its colon comes a value, or a line end and what is in
/// it.
#[derive(Debug, Default)]
struct Tree {
    out: Vec<u8>,
    any_scope: bool,
    /// Structures and arrays that are open.
    depth: usize,
    /// A structure has begun and has shown no member.
    bare: bool,
}

impl Tree {
    fn indent(&mut self) {
        let spaces = 2 + 2 * self.depth;
        self.out.resize(self.out.len() + spaces, b' ');
    }

    fn value(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.out.push(b' ');
        write(&mut self.out);
        self.out.push(b'\n');
    }
}

impl Visitor for Tree {
    fn begin_scope(&mut self, scope: Scope) {
        if !self.any_scope {
            self.out.extend_from_slice(b":\n");
        }
        self.any_scope = true;
        self.depth = 0;
        self.indent();
        self.out.extend_from_slice(match scope {
            Scope::PacketHeader | Scope::EventHeader => b"Header:",
            Scope::PacketContext => b"Context:",
            Scope::CommonContext => b"Common context:",
            Scope::SpecificContext => b"Specific context:",
            Scope::Payload => b"Payload:",
        });
    }

    fn begin_structure(&mut self) {
        self.depth += 1;
        self.bare = true;
    }

    fn member(&mut self, name: &str) {
        if self.bare {
            self.out.push(b'\n');
        }
        self.bare = false;
        self.indent();
        characters(name, &mut self.out);
        self.out.push(b':');
    }

    fn end_structure(&mut self) {
        if self.bare {
            self.out.extend_from_slice(b" Empty\n");
        }
        self.bare = false;
        self.depth = self.depth.saturating_sub(1);
    }

    fn begin_array(&mut self, length: u64) {
        self.depth += 1;
        self.value(|out| {
            if length == 0 {
                out.extend_from_slice(b"Empty");
            } else {
                out.extend_from_slice(b"Length ");
                grouped(length, out);
                out.push(b':');
            }
        });
    }

    fn element(&mut self, index: u64) {
        self.indent();
        self.out.push(b'[');
        grouped(index, &mut self.out);
        self.out.extend_from_slice(b"]:");
    }

    fn end_array(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    fn begin_optional(&mut self, present: bool) {
        if !present {
            self.value(|out| out.extend_from_slice(b"None"));
        }
    }

    fn unsigned(&mut self, value: u64, format: NumberFormat<'_>) {
        self.value(|out| based(value, format.base, out));
    }

    fn signed(&mut self, value: i64, format: NumberFormat<'_>) {
        self.value(|out| match format.base {
            Base::Decimal => signed_grouped(value, out),
            base => based(value.cast_unsigned(), base, out),
        });
    }

    fn float(&mut self, value: f64, _bits: u8) {
        self.value(|out| {
            // As `printf` of C, and so babeltrace2, writes the sign of NaN.
            let text = match (value.is_nan(), value.is_sign_negative()) {
                (true, true) => "-nan".to_owned(),
                (true, false) => "nan".to_owned(),
                // babeltrace2 writes six digits after the point.
                (false, _) => format!("{value:.6}"),
            };
            out.extend_from_slice(text.as_bytes());
        });
    }

    fn boolean(&mut self, value: bool) {
        self.value(|out| out.extend_from_slice(if value { b"Yes" } else { b"No" }));
    }

    fn bit_array(&mut self, value: u64, _bits: u8, _flags: Option<&Labels>) {
        self.value(|out| based(value, Base::Hexadecimal, out));
    }

    fn text(&mut self, bytes: &[u8]) {
        self.value(|out| {
            for chunk in bytes.utf8_chunks() {
                characters(chunk.valid(), out);
                if !chunk.invalid().is_empty() {
                    out.extend_from_slice("\u{fffd}".as_bytes());
                }
            }
        });
    }

    fn blob(&mut self, bytes: &[u8], _media_type: &str) {
        self.value(|out| hex(bytes, out));
    }
}

fn characters(text: &str, out: &mut Vec<u8>) {
    for char in printable(text) {
        out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

/// Writes a number with a comma before each three digits, from 10,000.
fn grouped(value: impl Into<u128>, out: &mut Vec<u8>) {
    let value = value.into();
    let begin = out.len();
    integer(value, out);
    // babeltrace2 leaves numbers of four digits whole.
    if value >= 10_000 {
        separated(begin, 3, b',', out);
    }
}

fn signed_grouped(value: impl Into<i128>, out: &mut Vec<u8>) {
    let value = value.into();
    if value < 0 {
        out.push(b'-');
    }
    grouped(value.unsigned_abs(), out);
}

/// Writes a number in its base, digits in groups.
fn based(value: u64, base: Base, out: &mut Vec<u8>) {
    let (prefix, digits, group) = match base {
        Base::Decimal => return grouped(value, out),
        Base::Hexadecimal => ("0x", format!("{value:x}"), 4),
        Base::Octal => ("0", format!("{value:o}"), 3),
        Base::Binary => ("0b", format!("{value:b}"), 8),
    };
    out.extend_from_slice(prefix.as_bytes());
    let begin = out.len();
    out.extend_from_slice(digits.as_bytes());
    separated(begin, group, b':', out);
}

/// Puts `between` in front of each full group of the digits from `begin`, but not before the first.
fn separated(begin: usize, group: usize, between: u8, out: &mut Vec<u8>) {
    let mut at = out.len();
    while at > begin + group {
        at -= group;
        // There are at most 64 digits: moving them is cheaper than a second buffer.
        out.insert(at, between);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use viewer::test_support::{TestOrigin, plain};

    fn shown(events: impl FnOnce(&mut Details<&mut Vec<u8>>)) -> String {
        let mut out = Vec::new();
        let mut details = Details::new(&mut out);
        events(&mut details);
        details.finish(true).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn ended_traces_are_forgotten_and_their_numbers_never_reused() {
        let head = Head {
            cycles: None,
            time: None,
            name: None,
            class: 0,
        };
        let mut details = Details::new(Vec::new());
        for number in 0..10 {
            let place = TestOrigin::new("t", "s");
            details
                .write_event(&head, place.origin(), |_| Ok(()))
                .unwrap();
            assert_eq!(details.traces.get(&place.trace.key), Some(&number));
            assert_eq!(details.traces.len(), 1);
            details.flush(&place.ended()).unwrap();
        }
    }

    #[test]
    fn the_details_sink_shows_an_event_as_a_tree_of_its_fields() {
        let place = TestOrigin::new("t", "s");
        let head = Head {
            cycles: Some(5_000_000_300),
            time: Some(1_767_225_605_123_457_089),
            name: Some("log:record"),
            class: 1,
        };
        let text = shown(|details| {
            details
                .write_event(&head, place.origin(), |to| {
                    to.begin_scope(Scope::CommonContext);
                    to.begin_structure();
                    to.member("vpid");
                    to.signed(-15_062, plain());
                    to.end_structure();
                    to.end_scope();
                    to.begin_scope(Scope::Payload);
                    to.begin_structure();
                    to.member("span");
                    to.unsigned(
                        0x40_1000,
                        NumberFormat {
                            base: Base::Hexadecimal,
                            ..plain()
                        },
                    );
                    to.member("fields");
                    to.begin_array(2);
                    to.element(0);
                    to.begin_structure();
                    to.member("key");
                    to.text(b"po\x1brt");
                    to.member("value");
                    to.float(1234.5, 64);
                    to.end_structure();
                    to.element(1);
                    to.begin_structure();
                    to.end_structure();
                    to.end_array();
                    to.member("none");
                    to.begin_array(0);
                    to.end_array();
                    to.member("after");
                    to.unsigned(9999, plain());
                    to.end_structure();
                    to.end_scope();
                    Ok(())
                })
                .unwrap();
            let bare = Head {
                cycles: None,
                time: None,
                name: None,
                class: 2,
            };
            details
                .write_event(&bare, place.origin(), |_| Ok(()))
                .unwrap();
        });
        assert_eq!(
            text,
            "[5,000,000,300 cycles, 1,767,225,605,123,457,089 ns from origin]\n\
             {Trace 0, Stream class ID 3, Stream ID 4}\n\
             Event `log:record` (Class ID 1):\n\
             \x20 Common context:\n\
             \x20   vpid: -15,062\n\
             \x20 Payload:\n\
             \x20   span: 0x40:1000\n\
             \x20   fields: Length 2:\n\
             \x20     [0]:\n\
             \x20       key: po\u{fffd}rt\n\
             \x20       value: 1234.500000\n\
             \x20     [1]: Empty\n\
             \x20   none: Empty\n\
             \x20   after: 9999\n\
             \n\
             {Trace 0, Stream class ID 3, Stream ID 4}\n\
             Event (Class ID 2)\n"
        );
    }

    #[test]
    fn the_details_sink_groups_digits() {
        for (value, base, want) in [
            (u64::MAX, Base::Hexadecimal, "0xffff:ffff:ffff:ffff"),
            (0, Base::Hexadecimal, "0x0"),
            (0o1234, Base::Octal, "01:234"),
            (5, Base::Binary, "0b101"),
            (1 << 8, Base::Binary, "0b1:00000000"),
            (10_000, Base::Decimal, "10,000"),
        ] {
            let mut out = Vec::new();
            based(value, base, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), want);
        }
    }
}
