//! The session with the samples.

use std::time::Duration;

use ctf::model::{EnvironmentValue, LogLevel, Uuid};
use ctf::write::{
    DeclaredEventClass, EventDeclaration, EventRecord, FieldType, PacketSize, TraceDeclaration,
    Value, Width,
};
use daemon::host_clock::boot_id;
use jiff::Timestamp;
use relay_proto::session::TraceFormat;
use tokio::time::{Instant, sleep, timeout_at};

use super::ClockSettings;
use super::measure::ClockSample;
use crate::limits::{IDLE_BEACON_INTERVAL, MIN_PACKET_BYTES};
use crate::packetize::{HostClock, PacketizeError, Packetizer};
use crate::queue::{SessionClosed, SessionDescription, SessionOpener, SessionOutcome, StreamKey};

/// Name of the session, of the directory of its trace, and of the only stream.
const NAME: &str = "clock";
/// Name of the event of a sample.
const EVENT: &str = "clock:sample";
/// The log level `DEBUG`.
const DEBUG: LogLevel = LogLevel(10);
/// Id of the only stream class and of its only event class.
const CLASS: u32 = 0;

pub(super) struct ClockSession {
    packets: Packetizer,
    class: DeclaredEventClass,
    stream: StreamKey,
    clock: HostClock,
    live_timer: Duration,
    last_idle_flush: Instant,
}

impl ClockSession {
    /// Opens the session. `clock` is the clock of its events.
    pub(super) async fn open(
        settings: &ClockSettings,
        clock: HostClock,
        opener: &SessionOpener,
    ) -> Result<Self, SessionClosed> {
        let session = &settings.session;
        let uuid = Uuid(uuid::Uuid::new_v4().into_bytes());
        let (tracefile_size, tracefile_count) = session.tracefiles();
        let queue = opener.open_session(SessionDescription {
            name: NAME.to_owned(),
            host: session.host.clone(),
            base_path: base_path(&settings.target.base_path, uuid),
            live_timer: Some(session.live_timer()),
            trace_format: TraceFormat::Ctf1,
            tracefile_size,
            tracefile_count,
        })?;
        let mut trace = TraceDeclaration::new(uuid, NAME);
        trace.clock = clock.trace_clock();
        let host = EnvironmentValue::Text(session.host.as_str().into());
        trace.environment = vec![("hostname".to_owned(), host)];
        let mut packets = Packetizer::new(&trace, NAME, queue, opener.activity()).await?;
        let stream_class = packets.declare_stream_class(CLASS);
        let stream_class = stream_class.expect("the first class of streams");
        let class = packets.metadata().event(&stream_class, &declaration());
        let class = class.expect("the first class of events");
        let packet_bytes = usize::try_from(MIN_PACKET_BYTES).unwrap_or(usize::MAX);
        let size = PacketSize::new(packet_bytes, packet_bytes);
        let stream = packets.add_stream(&stream_class, NAME, size).await?;
        Ok(Self {
            packets,
            class,
            stream,
            clock,
            live_timer: session.live_timer(),
            last_idle_flush: Instant::now(),
        })
    }

    /// Appends a sample, and sends it at once.
    pub(super) async fn append(&mut self, sample: &ClockSample) -> Result<(), SessionClosed> {
        let measurement = &sample.measurement;
        let relay_boot = Uuid(measurement.relay.boot).to_string();
        let values = [
            Value::Signed(measurement.ahead_of(self.clock.offset())),
            Value::Unsigned(measurement.error),
            Value::Text(&sample.relay),
            Value::Text(boot_id().unwrap_or_default()),
            Value::Signed(sample.realtime_ahead_of(self.clock)),
            Value::Text(&relay_boot),
            Value::Signed(measurement.relay_realtime()),
        ];
        let process = i32::try_from(std::process::id()).unwrap_or(0);
        let event = EventRecord {
            time: wire::Timestamp(measurement.monotonic),
            process,
            thread: process,
            values: &values,
        };
        match self.packets.append(self.stream, &self.class, event).await {
            // A packet holds more than the longest name of a relay.
            Ok(()) | Err(PacketizeError::Event(_)) => {}
            Err(PacketizeError::SessionClosed(closed)) => return Err(closed),
        }
        self.packets.flush(HostClock::now(), false).await
    }

    /// Waits until a beacon is due: a live timer after other sessions had events, or a second after
    /// the last one. A timer that always runs would cost an idle agent more than all else.
    pub(super) async fn wait_for_flush(&self) {
        let is_active = async {
            self.packets.wait_for_activity().await;
            sleep(self.live_timer).await;
        };
        let _ = timeout_at(self.last_idle_flush + IDLE_BEACON_INTERVAL, is_active).await;
    }

    /// Sends a beacon if viewers may wait for one.
    pub(super) async fn flush(&mut self) -> Result<(), SessionClosed> {
        let even_if_idle = self.last_idle_flush.elapsed() >= IDLE_BEACON_INTERVAL;
        if even_if_idle {
            self.last_idle_flush = Instant::now();
        }
        self.packets.flush(HostClock::now(), even_if_idle).await
    }

    pub(super) async fn finish(self) -> SessionOutcome {
        self.packets.finish(HostClock::now()).await
    }
}

fn declaration() -> EventDeclaration {
    let fields = [
        ("ahead", FieldType::Signed(Width::Bits64)),
        ("error", FieldType::Unsigned(Width::Bits64)),
        ("relay", FieldType::Text),
        ("boot", FieldType::Text),
        ("realtime", FieldType::Signed(Width::Bits64)),
        ("relay_boot", FieldType::Text),
        ("relay_realtime", FieldType::Signed(Width::Bits64)),
    ];
    EventDeclaration {
        // Viewers that show less important events less show these so.
        log_level: Some(DEBUG),
        fields: fields.map(|(name, kind)| (name.to_owned(), kind)).into(),
        ..EventDeclaration::new(CLASS, EVENT)
    }
}

/// Returns the path of the session below the path that the user has chosen. That of an earlier
/// process, or of another one in the same second, is another one.
fn base_path(chosen: &str, trace: Uuid) -> String {
    if chosen.is_empty() {
        return String::new();
    }
    let created = Timestamp::now().strftime("%Y%m%d-%H%M%S");
    let [a, b, ..] = trace.0;
    format!("{chosen}/{NAME}-{created}-{a:02x}{b:02x}")
}
