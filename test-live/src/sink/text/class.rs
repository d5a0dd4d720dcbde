//! What is the same in all events of a class, or of a packet, is put together once.

use ctf::decode::{Event, FieldError};
use ctf::model::Scope;

use super::header::{Fields, header};
use super::program::Program;
use super::style::Style;
use super::values::Names;
use crate::sink::Origin;

/// The event classes seen so far, and the packet of each stream.
pub(super) struct Classes {
    fields: Fields,
    names: Names,
    style: Style,
    /// By the ordinal of the event class.
    known: Vec<Option<Box<Class>>>,
    /// By the number of the stream.
    packets: Vec<Option<Packet>>,
}

struct Class {
    header: Box<[u8]>,
    /// Of contexts and payload.
    program: Program,
}

/// The text of a packet's context.
struct Packet {
    number: u64,
    text: Vec<u8>,
}

impl Classes {
    pub(super) fn new(fields: Fields, names: Names, style: Style) -> Self {
        Self {
            fields,
            names,
            style,
            known: Vec::new(),
            packets: Vec::new(),
        }
    }

    /// Writes all of a line behind the times.
    #[inline]
    pub(super) fn write(
        &mut self,
        event: &Event<'_>,
        origin: Origin<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), FieldError> {
        let place = event.class().ordinal();
        if self.known.get(place).is_none_or(Option::is_none) {
            self.learn(place, event, origin);
        }
        let stream = usize::try_from(origin.stream.key.0).unwrap_or(usize::MAX);
        let is_known = |packet: &Packet| packet.number == event.packet();
        if !matches!(self.packets.get(stream), Some(Some(packet)) if is_known(packet)) {
            self.begin_packet(stream, event)?;
        }
        if let Some(Some(class)) = self.known.get(place) {
            out.extend_from_slice(&class.header);
            if let Some(Some(packet)) = self.packets.get(stream) {
                out.extend_from_slice(&packet.text);
            }
            class.program.run(event.fields(), out, &self.style)?;
        }
        Ok(())
    }

    #[cold]
    fn learn(&mut self, place: usize, event: &Event<'_>, origin: Origin<'_>) {
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
        let class = Class {
            header: header(
                event,
                origin.trace,
                self.fields,
                self.names.header,
                &self.style,
            ),
            program: Program::new(roots, self.names, &self.style, follows),
        };
        if self.known.len() <= place {
            self.known.resize_with(place + 1, || None);
        }
        if let Some(known) = self.known.get_mut(place) {
            *known = Some(Box::new(class));
        }
    }

    #[cold]
    fn begin_packet(&mut self, stream: usize, event: &Event<'_>) -> Result<(), FieldError> {
        let context = event.stream_class().packet_context();
        let roots = context.map(|context| (Scope::PacketContext, context));
        let program = Program::new(roots, self.names, &self.style, false);
        let mut text = Vec::new();
        program.run(event.packet_fields(), &mut text, &self.style)?;
        if self.packets.len() <= stream {
            self.packets.resize_with(stream + 1, || None);
        }
        if let Some(packet) = self.packets.get_mut(stream) {
            *packet = Some(Packet {
                number: event.packet(),
                text,
            });
        }
        Ok(())
    }
}
