//! Text that is the same in all events of a class, or of a packet, and so is put together once.

use std::collections::hash_map::Entry;

use ctf::decode::{Event, FieldError};
use ctf::model::Scope;

use super::header::{HeaderFields, header};
use super::program::Program;
use super::short;
use super::style::Style;
use super::values::Names;
use crate::attach::{StreamKey, TraceKey};
use crate::sink::Origin;
use crate::sink::keys::KeyMap;

/// The event classes seen so far, and the packet of each stream, of traces and streams that have not
/// ended.
pub(super) struct ClassPrograms {
    fields: HeaderFields,
    names: Names,
    style: Style,
    /// The programs, by the ordinal of the event class.
    known: KeyMap<usize, Box<ClassProgram>>,
    packets: KeyMap<StreamKey, PacketText>,
}

struct ClassProgram {
    trace: TraceKey,
    header: Box<[u8]>,
    /// The steps that write contexts and payload.
    program: Program,
}

/// The text of a packet's context.
#[derive(Default)]
struct PacketText {
    /// 0: there is none yet.
    number: u64,
    text: Vec<u8>,
}

impl ClassPrograms {
    pub(super) fn new(fields: HeaderFields, names: Names, style: Style) -> Self {
        Self {
            fields,
            names,
            style,
            known: KeyMap::default(),
            packets: KeyMap::default(),
        }
    }

    pub(super) fn forget_stream(&mut self, stream: StreamKey) {
        self.packets.remove(&stream);
    }

    pub(super) fn forget_trace(&mut self, trace: TraceKey) {
        self.known.retain(|_, class| class.trace != trace);
    }

    /// Writes all of a line behind the times.
    #[inline]
    pub(super) fn write(
        &mut self,
        event: &Event<'_>,
        origin: Origin<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), FieldError> {
        let class = match self.known.entry(event.class().ordinal()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Box::new(ClassProgram::new(
                event,
                origin,
                self.fields,
                self.names,
                &self.style,
            ))),
        };
        short::push(out, &class.header);
        let packet = match self.packets.entry(origin.stream.key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(PacketText::default()),
        };
        if packet.number != event.packet() {
            packet.begin(event, self.names, &self.style)?;
        }
        short::push(out, &packet.text);
        class.program.run(event.fields(), out, &self.style)
    }
}

impl ClassProgram {
    #[cold]
    fn new(
        event: &Event<'_>,
        origin: Origin<'_>,
        fields: HeaderFields,
        names: Names,
        style: &Style,
    ) -> Self {
        let (stream, class) = (event.stream_class(), event.class());
        let roots = [
            (Scope::CommonContext, stream.event_context()),
            (Scope::SpecificContext, class.context()),
            (Scope::Payload, class.payload()),
        ];
        let roots = roots
            .into_iter()
            .filter_map(|(scope, root)| Some((scope, root?)));
        let context = stream.packet_context();
        let follows = context.is_some_and(|context| !context.is_hidden());
        Self {
            trace: origin.trace.key,
            header: header(event, origin.trace, fields, names.header, style),
            program: Program::new(roots, names, style, follows),
        }
    }
}

impl PacketText {
    #[cold]
    fn begin(&mut self, event: &Event<'_>, names: Names, style: &Style) -> Result<(), FieldError> {
        let context = event.stream_class().packet_context();
        let roots = context.map(|context| (Scope::PacketContext, context));
        let program = Program::new(roots, names, style, false);
        self.text.clear();
        program.run(event.packet_fields(), &mut self.text, style)?;
        self.number = event.packet();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ctf::Metadata;
    use ctf::decode::StreamDecoder;

    use super::*;
    use crate::sink::tests_support::TestOrigin;

    /// Events of one byte, which is their payload.
    const METADATA: &[u8] = b"/* CTF 1.8 */
        trace { major = 1; minor = 8; byte_order = le; };
        stream {};
        event { name = \"e\"; fields := struct { integer { size = 8; align = 8; } x; }; };";

    #[test]
    fn the_text_sink_forgets_ended_streams_and_traces() {
        let mut classes =
            ClassPrograms::new(HeaderFields::default(), Names::default(), Style::plain());
        for _ in 0..10 {
            let place = TestOrigin::new("t", "s");
            let metadata = Metadata::read(METADATA).unwrap();
            let mut decoder = StreamDecoder::new();
            decoder.begin_packet(metadata.trace(), &[7]).unwrap();
            assert!(decoder.advance(metadata.trace(), &[7]).unwrap());
            let event = decoder.event(metadata.trace(), &[7]).unwrap();
            let mut line = Vec::new();
            classes.write(&event, place.origin(), &mut line).unwrap();
            assert!(line.ends_with(b"{ x = 7 }"));
            assert_eq!((classes.known.len(), classes.packets.len()), (1, 1));
            classes.forget_stream(place.stream.key);
            classes.forget_trace(place.trace.key);
            assert_eq!((classes.known.len(), classes.packets.len()), (0, 0));
        }
    }
}
