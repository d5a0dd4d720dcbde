//! The events of one stream, packet by packet.

use std::path::PathBuf;
use std::sync::Arc;

use wire::Timestamp;

use super::error::Error;
use crate::clock::Timescale;
use crate::decode::{DecodeError, LostEvents, StreamDecoder};
use crate::directory::{StreamFiles, StreamReader, TraceDirectory};
use crate::metadata::Trace;
use crate::owned::{Collector, Event, NameTable, StreamOrigin, Structure};

/// Events and packets that were lost before they could be read, as far as packets say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LossCount {
    /// Events that the tracer discarded between two packets that were read.
    pub events: u64,
    /// Streams that lost a number of events before their first packet, or in it, which cannot be
    /// known.
    pub uncounted_streams: u64,
    /// Packets that are missing between two others.
    pub packets: u64,
}

/// Reads a stream. Holds one packet, from when its time has come until its last event has been
/// taken.
#[derive(Debug)]
pub(super) struct StreamEvents {
    /// The place of its trace in the list of all.
    pub(super) trace: usize,
    origin: Arc<StreamOrigin>,
    reader: StreamReader,
    keeps_file_open: bool,
    timescale: Option<Timescale>,
    decoder: StreamDecoder,
    packet: Vec<u8>,
    /// The context of the packet, known with its first event.
    context: Option<Arc<Structure>>,
    /// The time of the event that was found last, in nanoseconds; `None` if a packet must be read
    /// before the next event.
    event: Option<i64>,
    /// An error that has its place after the events that have been taken.
    failure: Option<Error>,
    losses: LossCount,
}

/// The result of a step through a stream.
pub(super) struct Step {
    /// An event or error; `None` if a packet was begun.
    pub(super) found: Option<Result<Event, Error>>,
    /// The time of the next step, in nanoseconds; `None` if the stream has ended.
    pub(super) next: Option<i64>,
}

impl StreamEvents {
    pub(super) fn new(
        trace: usize,
        of: &TraceDirectory,
        stream: &StreamFiles,
        keeps_file_open: bool,
    ) -> Self {
        let class = of.metadata.trace().stream(stream.class);
        Self {
            trace,
            origin: Arc::new(StreamOrigin {
                trace: of.name.as_str().into(),
                class: stream.class,
                id: stream.id,
            }),
            reader: StreamReader::new(stream),
            keeps_file_open,
            timescale: class.and_then(|class| class.timescale().cloned()),
            decoder: StreamDecoder::new(),
            packet: Vec::new(),
            context: None,
            event: None,
            failure: None,
            losses: LossCount::default(),
        }
    }

    /// The time of the next packet's begin in nanoseconds: the packet need not be read before.
    pub(super) fn begin(&self) -> i64 {
        let begin = self.reader.peek().and_then(|packet| packet.begin);
        let begin = begin.zip(self.timescale.as_ref());
        let begin = begin.and_then(|(begin, scale)| scale.nanoseconds(begin));
        // A packet that does not say its begin is read first of all, because it may hold the first
        // event.
        begin.unwrap_or(i64::MIN)
    }

    pub(super) fn losses(&self) -> LossCount {
        self.losses
    }

    #[cfg(test)]
    pub(super) fn packet_bytes(&self) -> usize {
        self.packet.capacity()
    }

    /// Takes the event that was found last, or reads a packet, and finds the next event.
    pub(super) fn step(&mut self, trace: &Trace, names: &mut NameTable) -> Step {
        let found = if let Some(failure) = self.failure.take() {
            Some(Err(failure))
        } else if let Some(time) = self.event.take() {
            let event = self.take_event(time, trace, names);
            self.find_event(trace);
            event
        } else {
            match self.begin_packet(trace) {
                Ok(true) => None,
                Ok(false) => {
                    return Step {
                        found: None,
                        next: None,
                    };
                }
                Err(error) => Some(Err(error)),
            }
        };
        let next = self.event.unwrap_or_else(|| self.begin());
        // An error follows the event before it, whatever other streams have.
        let next = if self.failure.is_some() {
            i64::MIN
        } else {
            next
        };
        Step {
            found,
            next: Some(next),
        }
    }

    /// Reads the next packet and finds its first event. Returns false after the last packet.
    fn begin_packet(&mut self, trace: &Trace) -> Result<bool, Error> {
        let read = self.reader.next(&mut self.packet);
        if !self.keeps_file_open {
            // Too many streams for all of their files to be open.
            self.reader.close_file();
        }
        if !read? {
            return Ok(false);
        }
        self.context = None;
        let head = self.decoder.begin_packet(trace, &self.packet);
        let head = match head {
            Ok(head) => head,
            Err(error) => {
                // Freed, because the next packet of this stream may be read much later.
                self.packet = Vec::new();
                return Err(self.packet_error(error));
            }
        };
        let class = trace.stream(head.stream_class);
        self.timescale = class.and_then(|class| class.timescale().cloned());
        let losses = self.decoder.losses();
        match losses.events {
            Some(LostEvents::Count(events)) => {
                self.losses.events = self.losses.events.saturating_add(events);
            }
            // A stream counts once, however often its tracer was restarted.
            Some(LostEvents::Some) => self.losses.uncounted_streams = 1,
            None => {}
        }
        let packets = losses.packets.unwrap_or(0);
        self.losses.packets = self.losses.packets.saturating_add(packets);
        self.find_event(trace);
        Ok(true)
    }

    /// Finds the next event of the packet. Frees the packet if there is none.
    fn find_event(&mut self, trace: &Trace) {
        let found = self.decoder.advance(trace, &self.packet);
        match found {
            Ok(true) => {
                let cycles = self.decoder.cycles();
                let time = match &self.timescale {
                    Some(scale) => scale.nanoseconds(cycles),
                    // Events without time come first, in the order of their stream.
                    None => Some(i64::MIN),
                };
                if time.is_some() {
                    self.event = time;
                    return;
                }
                let (path, offset) = self.place();
                self.failure = Some(Error::Time {
                    path,
                    offset,
                    cycles,
                });
            }
            Ok(false) => {}
            Err(error) => self.failure = Some(self.packet_error(error)),
        }
        self.packet = Vec::new();
    }

    fn take_event(
        &mut self,
        time: i64,
        trace: &Trace,
        names: &mut NameTable,
    ) -> Option<Result<Event, Error>> {
        let event = self.decoder.event(trace, &self.packet)?;
        let mut collector = Collector::new(names);
        let mut read = Ok(());
        // Once for each packet: its events share the structure.
        if self.context.is_none() {
            read = event.visit_packet_context(&mut collector);
        }
        let read = read.and_then(|()| event.visit_fields(&mut collector));
        if let Err(what) = read {
            let at = self.decoder.passed_bytes() * 8;
            return Some(Err(self.packet_error(DecodeError::Field { at, what })));
        }
        if !collector.is_complete() {
            let (path, offset) = self.place();
            return Some(Err(Error::TooManyValues { path, offset }));
        }
        let context = std::mem::take(&mut collector.packet_context);
        let packet_context = self.context.get_or_insert_with(|| Arc::new(context));
        let class = event.class();
        Some(Ok(Event {
            time: self.timescale.as_ref().map(|_| time),
            cycles: Timestamp(event.cycles()),
            name: class.name.clone().unwrap_or_else(|| "".into()),
            log_level: class.log_level(),
            stream: Arc::clone(&self.origin),
            packet_context: Arc::clone(packet_context),
            common_context: collector.common_context,
            specific_context: collector.specific_context,
            payload: collector.payload,
        }))
    }

    fn packet_error(&self, source: DecodeError) -> Error {
        let (path, offset) = self.place();
        Error::Packet {
            path,
            offset,
            source,
        }
    }

    /// The place of the packet that was read last.
    fn place(&self) -> (PathBuf, u64) {
        let place = self.reader.place();
        place.map_or_else(Default::default, |(path, offset)| (path.to_owned(), offset))
    }
}
