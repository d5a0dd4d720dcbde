//! Text that is the same in all events of a class, or of a packet, and so is put together once.

use ctf::decode::{Event, FieldError};
use ctf::model::Scope;
use viewer::attach::{StreamKey, TraceKey};
use viewer::keys::RecentMap;
use viewer::sink::Origin;

use super::header::{HeaderFields, header};
use super::line::{Line, Literal, line_buffer};
use super::program::Program;
use super::style::Style;
use super::values::Names;

/// The event classes seen so far, and the packet of each stream, of traces and streams that have
/// not ended.
pub(super) struct ClassPrograms {
    fields: HeaderFields,
    names: Names,
    style: Style,
    /// The programs, by the ordinal of the event class.
    known: RecentMap<Box<ClassProgram>>,
    packets: RecentMap<PacketText>,
}

struct ClassProgram {
    trace: TraceKey,
    header: Literal,
    /// The steps that write contexts and payload.
    program: Program,
}

/// The text of a packet's context.
#[derive(Default)]
struct PacketText {
    /// The number of the packet; 0 if there is none yet.
    number: u64,
    text: Literal,
}

impl ClassPrograms {
    pub(super) fn new(fields: HeaderFields, names: Names, style: Style) -> Self {
        Self {
            fields,
            names,
            style,
            known: RecentMap::default(),
            packets: RecentMap::default(),
        }
    }

    pub(super) fn forget_stream(&mut self, stream: StreamKey) {
        self.packets.remove(stream.0);
    }

    pub(super) fn forget_packets(&mut self) {
        self.packets = RecentMap::default();
    }

    pub(super) fn forget_trace(&mut self, trace: TraceKey) {
        self.known.retain(|_, class| class.trace != trace);
    }

    /// Writes all of a line that follows the times.
    #[inline]
    pub(super) fn write(
        &mut self,
        event: &Event<'_>,
        origin: Origin<'_>,
        line: &mut Line<'_>,
    ) -> Result<(), FieldError> {
        let (names, style) = (self.names, &self.style);
        let class = self
            .known
            .get_or_insert(event.class().ordinal() as u64, || {
                // Boxed, so that the table that each event looks into stays small.
                Box::new(ClassProgram::new(event, origin, self.fields, names, style))
            });
        let key = origin.stream.key.0;
        let packet = self.packets.get_or_insert(key, PacketText::default);
        let (Some(class), Some(packet)) = (class, packet) else {
            return Ok(());
        };
        line.literal(&class.header);
        if packet.number != event.packet() {
            packet.begin(event, names, style)?;
        }
        line.literal(&packet.text);
        class
            .program
            .run_with(event.fields(), origin.locations, line, style)
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
        let has_location = origin.locations.is_some_and(|of| of.ip.is_some());
        // The context of the packet has been written before, as a text of its own.
        let follows = context.is_some_and(|context| !context.is_hidden());
        Self {
            trace: origin.trace.key,
            header: header(event, origin.trace, fields, names.header, style).into(),
            program: Program::with_debug_info(roots, names, style, follows, has_location),
        }
    }
}

impl PacketText {
    #[cold]
    fn begin(&mut self, event: &Event<'_>, names: Names, style: &Style) -> Result<(), FieldError> {
        let context = event.stream_class().packet_context();
        let roots = context.map(|context| (Scope::PacketContext, context));
        let mut program = Program::new(roots, names, style, false);
        let (mut buffer, mut text) = (line_buffer(), Vec::new());
        let mut line = Line::new(&mut buffer, &mut text);
        program.run(event.packet_fields(), &mut line, style)?;
        line.out();
        self.text = text.into();
        self.number = event.packet();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ctf::Metadata;
    use ctf::decode::StreamDecoder;

    use super::*;
    use viewer::test_support::TestOrigin;

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
            let (mut buffer, mut text) = (line_buffer(), Vec::new());
            let mut line = Line::new(&mut buffer, &mut text);
            classes.write(&event, place.origin(), &mut line).unwrap();
            assert!(line.out().ends_with(b"{ x = 7 }"));
            assert_eq!((classes.known.len(), classes.packets.len()), (1, 1));
            classes.forget_stream(place.stream.key);
            classes.forget_trace(place.trace.key);
            assert_eq!((classes.known.len(), classes.packets.len()), (0, 0));
        }
    }
}
