//! The session's output: opened with the first event, one stream for each ring, and the losses
//! between packets.

use std::collections::HashMap;

use ctf::write::{
    DeclareError, DeclaredEventClass, DeclaredStreamClass, EventDeclaration, EventRecord,
    FieldType, MetadataText, PacketSize, Value, Width,
};
use tokio::time::Instant;
use trace_ring_core::Severity;
use tracing::info;

use super::super::classes::{CtfClasses, log_level};
use super::super::overload::SheddingStep;
use super::super::trace::{CHANNEL, PATH, STREAM_CLASS};
use super::RingSession;
use crate::limits::MAX_EVENT_PACKET_BYTES;
use crate::packetize::{PacketizeError, Packetizer};
use crate::queue::{SessionClosed, StreamKey};

/// The packets of a session that is open.
pub(super) struct Output {
    pub(super) packets: Packetizer,
    pub(super) stream_class: DeclaredStreamClass,
    pub(super) classes: CtfClasses,
    /// The streams of the rings that are open.
    pub(super) streams: HashMap<u32, StreamKey>,
    /// Streams of rings whose thread has ended, for those of later threads.
    pub(super) unused: Vec<StreamKey>,
    pub(super) added: u32,
    pub(super) size: PacketSize,
    pub(super) last_idle_flush: Instant,
    /// Whether an event class could not be declared.
    pub(super) has_refused_class: bool,
    /// The class of events that say what is shed; `None`: it could not be declared.
    step_class: Option<DeclaredEventClass>,
}

impl Output {
    /// Appends an event that says which severities pass from now on, before the event that is the
    /// reason.
    pub(super) async fn append_step(
        &mut self,
        stream: StreamKey,
        step: SheddingStep,
        reason: EventRecord<'_>,
    ) -> Result<(), SessionClosed> {
        let Some(class) = &self.step_class else {
            return Ok(());
        };
        let SheddingStep {
            max_severity,
            max_per_second,
        } = step;
        let severity = max_severity.to_string();
        let message = step.to_string();
        let values = [
            Value::Text(&message),
            Value::Text(&severity),
            Value::Unsigned(max_per_second),
        ];
        let event = EventRecord {
            values: &values,
            ..reason
        };
        match self.packets.append(stream, class, event).await {
            Ok(()) | Err(PacketizeError::Event(_)) => Ok(()),
            Err(PacketizeError::SessionClosed(gone)) => Err(gone),
        }
    }
}

/// Declares the class of [`Output::append_step`]. No class of a process has its id.
fn declare_step(
    metadata: &mut MetadataText,
    stream: &DeclaredStreamClass,
) -> Result<DeclaredEventClass, DeclareError> {
    let declaration = EventDeclaration {
        log_level: Some(log_level(Severity::Warn)),
        fields: vec![
            ("message".to_owned(), FieldType::Text),
            ("max_severity".to_owned(), FieldType::Text),
            (
                "max_events_per_second".to_owned(),
                FieldType::Unsigned(Width::Bits64),
            ),
        ],
        ..EventDeclaration::new(0, "consumer:shedding")
    };
    metadata.event(stream, &declaration)
}

impl RingSession {
    /// Counts lost events in the packets after those that were read until now.
    pub(super) async fn report_lost(
        &mut self,
        number: u32,
        lost: u64,
    ) -> Result<(), SessionClosed> {
        let stream = self.stream(number).await?;
        let now = self.watermark.time();
        if let Some(output) = &mut self.output {
            // Readers see the losses between two packets: the events before them are in the first.
            output.packets.flush(now, false).await?;
            output.packets.cut_first_packet(stream, now).await?;
            output.packets.discard(stream, lost);
        }
        Ok(())
    }

    /// Returns the stream of a ring. The session is opened with its first stream.
    pub(super) async fn stream(&mut self, number: u32) -> Result<StreamKey, SessionClosed> {
        if self.output.is_none() {
            self.output = Some(self.open_session().await?);
        }
        let Some(output) = &mut self.output else {
            return Err(SessionClosed);
        };
        if let Some(stream) = output.streams.get(&number) {
            return Ok(*stream);
        }
        // A program may start threads without end, and a relay keeps each stream as long as the
        // session.
        let stream = match output.unused.pop() {
            Some(stream) => stream,
            None => {
                let channel = format!("{CHANNEL}_{}", output.added);
                output.added += 1;
                let class = &output.stream_class;
                output
                    .packets
                    .add_stream(class, &channel, output.size)
                    .await?
            }
        };
        output.streams.insert(number, stream);
        Ok(stream)
    }

    async fn open_session(&mut self) -> Result<Output, SessionClosed> {
        let description = self.identity.session(&self.context.settings);
        info!(
            process = self.identity.directory.as_str(),
            session = description.name,
            "traced process"
        );
        let queue = self.context.opener.open_session(description)?;
        let activity = self.context.activity.clone();
        let declaration = &self.identity.declaration;
        let mut packets = Packetizer::new(declaration, PATH, queue, activity).await?;
        packets.set_receipt(Some(self.receipt.clone()));
        let stream_class = packets.declare_stream_class(STREAM_CLASS);
        let stream_class = stream_class.expect("the first class of streams");
        let step_class = match &self.overload {
            Some(_) => declare_step(packets.metadata(), &stream_class).ok(),
            None => None,
        };
        Ok(Output {
            packets,
            stream_class,
            classes: CtfClasses::default(),
            streams: HashMap::new(),
            unused: Vec::new(),
            added: 0,
            size: PacketSize::new(self.context.settings.packet_bytes, MAX_EVENT_PACKET_BYTES),
            last_idle_flush: Instant::now(),
            has_refused_class: false,
            step_class,
        })
    }
}
