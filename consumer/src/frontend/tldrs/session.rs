//! One session: turns the items of a trace into events, and these into packets.

use std::time::Duration;

use ctf::model::{EnvironmentValue, Uuid};
use ctf::write::{PacketSize, TraceClock, TraceDeclaration};
use relay_proto::session::TraceFormat;
use tef::Record;
use tef::ctf::{Classes, Encoded, Lost};
use tldrs_daemon::forward_queue::{ForwardItem, ForwardedTrace};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tracing::{debug, info, warn};
use wire::Timestamp;

use super::clients::ConnectedClients;
use crate::frontend::SessionConfig;
use crate::limits::{IDLE_BEACON_INTERVAL, MAX_EVENT_PACKET_BYTES, REOPEN_GRACE_PERIOD};
use crate::packetize::{HostClock, PacketizeError, Packetizer};
use crate::queue::{
    Activity, SessionClosed, SessionDescription, SessionEnd, SessionOpener, StreamKey,
};

/// Directory of the trace in its session, and the name of its only stream. The events of all
/// clients are in this stream, in the order of their arrival.
const PATH: &str = "tldrs";
const CHANNEL: &str = "events_0";
/// Id of the only stream class.
const STREAM_CLASS: u32 = 0;

/// Properties of the sessions of forwarded traces.
#[derive(Debug, Clone)]
pub struct ForwardSettings {
    /// Name of the traced host.
    pub host: String,
    /// Interval at which pending events are sent as a packet, and beacons for idle streams.
    pub live_timer: Duration,
    /// Usual size of a packet, in bytes; a single long event may exceed it.
    pub packet_bytes: usize,
    /// Tracefiles of a stream on the relay: maximum size in bytes, and number; 0: no limit.
    pub tracefiles: (u64, u64),
}

impl ForwardSettings {
    /// Returns the settings for sessions with these properties.
    #[must_use]
    pub fn new(session: &SessionConfig) -> Self {
        Self {
            host: session.host.clone(),
            live_timer: session.live_timer(),
            packet_bytes: session.packet_bytes(),
            tracefiles: session.tracefiles(),
        }
    }
}

/// A session that is not opened yet, with its properties.
#[derive(Debug)]
pub(super) struct ForwardedSession {
    opener: SessionOpener,
    description: SessionDescription,
    trace: TraceDeclaration,
    size: PacketSize,
    live_timer: Duration,
    activity: Activity,
}

impl ForwardedSession {
    pub(super) fn new(
        trace: &ForwardedTrace,
        opener: SessionOpener,
        settings: &ForwardSettings,
        clock: TraceClock,
        activity: Activity,
    ) -> Self {
        let text = |text: &str| EnvironmentValue::Text(text.into());
        let environment = [
            ("hostname", text(&settings.host)),
            ("trace_name", text(&trace.name)),
            ("tef_trace_id", text(&trace.id)),
        ];
        let uuid = Uuid(uuid::Uuid::new_v4().into_bytes());
        let mut described = TraceDeclaration::new(uuid, "tldrs");
        described.clock = clock;
        described.environment = environment
            .map(|(name, value)| (name.to_owned(), value))
            .into();
        let (tracefile_size, tracefile_count) = settings.tracefiles;
        Self {
            opener,
            description: SessionDescription {
                name: trace.name.clone(),
                host: settings.host.clone(),
                base_path: String::new(),
                live_timer: Some(settings.live_timer),
                trace_format: TraceFormat::Ctf1,
                tracefile_size,
                tracefile_count,
            },
            trace: described,
            size: PacketSize::new(settings.packet_bytes, MAX_EVENT_PACKET_BYTES),
            live_timer: settings.live_timer,
            activity,
        }
    }

    /// Forwards the trace, and continues the session if the trace is opened again, received from
    /// `again`, within the grace period.
    pub(super) async fn run(
        self,
        trace: ForwardedTrace,
        mut again: mpsc::UnboundedReceiver<ForwardedTrace>,
    ) {
        let name = self.description.name.clone();
        info!(trace = name, "forwarded");
        let mut events = match self.open_session().await {
            Ok(events) => events,
            Err(SessionClosed) => {
                return warn!(trace = name, "not forwarded: the uplink has stopped");
            }
        };
        let mut items = trace.items;
        let given_up = loop {
            if let Err(SessionClosed) = events.forward_items(&mut items).await {
                break true;
            }
            match events.wait_for_reopen(&mut again).await {
                Ok(Some(trace)) => {
                    debug!(trace = name, "opened again");
                    events.clients.reset_for_reopen();
                    items = trace.items;
                }
                Ok(None) => break false,
                Err(SessionClosed) => break true,
            }
        };
        // From now on a trace that is opened by this name gets another session.
        again.close();
        if given_up {
            let lost = discard_items(&mut items).await;
            warn!(
                trace = name,
                lost, "events are not forwarded: the session has been given up"
            );
        }
        // These were sent before the channel was closed. Their clients wait until somebody takes
        // the items.
        while let Some(mut late) = again.recv().await {
            let lost = discard_items(&mut late.items).await;
            warn!(
                trace = name,
                lost, "events are not forwarded: the session was ending"
            );
        }
        let outcome = events.packets.finish(HostClock::now()).await;
        match outcome.end {
            SessionEnd::Complete => {
                info!(
                    trace = name,
                    packets = outcome.acknowledged,
                    "forwarded completely: the relay has all packets"
                );
            }
            SessionEnd::Failed(why) => {
                warn!(
                    trace = name,
                    lost = outcome.lost,
                    why,
                    "packets are lost: the session has failed"
                );
            }
            SessionEnd::Spooled(_) => {
                info!(
                    trace = name,
                    acknowledged = outcome.acknowledged,
                    "forwarded in part: the rest stays in the spool, for the next start"
                );
            }
            SessionEnd::Abandoned => {
                warn!(trace = name, "session given up: the uplink has stopped")
            }
        }
    }

    async fn open_session(self) -> Result<OpenForwardedSession, SessionClosed> {
        let queue = self.opener.open_session(self.description)?;
        let mut packets = Packetizer::new(&self.trace, PATH, queue, self.activity).await?;
        let class = packets.declare_stream_class(STREAM_CLASS);
        let class = class.expect("the first class of streams");
        let classes = Classes::declare(packets.metadata(), &class);
        let classes = classes.expect("the first classes of events");
        let stream = packets.add_stream(&class, CHANNEL, self.size).await?;
        Ok(OpenForwardedSession {
            packets,
            classes,
            stream,
            clients: ConnectedClients::default(),
            live_timer: self.live_timer,
            last_idle_flush: Instant::now(),
        })
    }
}

/// A session that is open, to which the items of the trace are appended as events.
struct OpenForwardedSession {
    packets: Packetizer,
    classes: Classes,
    stream: StreamKey,
    clients: ConnectedClients,
    live_timer: Duration,
    /// When the stream was last flushed even if all streams were idle.
    last_idle_flush: Instant,
}

impl OpenForwardedSession {
    /// Appends the trace's items until its last client disconnects, and flushes on every tick of
    /// the live timer.
    async fn forward_items(
        &mut self,
        items: &mut mpsc::Receiver<ForwardItem>,
    ) -> Result<(), SessionClosed> {
        let mut tick = interval(self.live_timer);
        // Ticks that are missed while a full queue blocks this task are not made up for.
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // The tick first: a client that sends all the time must not delay packets and
                // beacons.
                biased;
                _ = tick.tick() => self.flush_packets().await?,
                item = items.recv() => match item {
                    Some(item) => self.handle_item(item).await?,
                    None => break,
                },
            }
        }
        self.flush_packets().await
    }

    /// Waits [`REOPEN_GRACE_PERIOD`] for the trace to be opened again, and sends beacons meanwhile.
    async fn wait_for_reopen(
        &mut self,
        again: &mut mpsc::UnboundedReceiver<ForwardedTrace>,
    ) -> Result<Option<ForwardedTrace>, SessionClosed> {
        let over = sleep(REOPEN_GRACE_PERIOD);
        tokio::pin!(over);
        let mut tick = interval(self.live_timer);
        loop {
            tokio::select! {
                trace = again.recv() => return Ok(trace),
                () = &mut over => return Ok(None),
                _ = tick.tick() => self.flush_packets().await?,
            }
        }
    }

    async fn flush_packets(&mut self) -> Result<(), SessionClosed> {
        let even_if_idle = self.last_idle_flush.elapsed() >= IDLE_BEACON_INTERVAL;
        if even_if_idle {
            self.last_idle_flush = Instant::now();
        }
        self.packets.flush(HostClock::now(), even_if_idle).await
    }

    async fn handle_item(&mut self, item: ForwardItem) -> Result<(), SessionClosed> {
        match item {
            ForwardItem::ClientOpened {
                client,
                pid,
                uid,
                exe,
            } => {
                let number = self.clients.session_number(client);
                let client = self.clients.add_client(number, pid, uid, exe);
                let encoded = self.classes.client(&client);
                append_now(&mut self.packets, self.stream, &encoded).await
            }
            ForwardItem::Lines { client, at, text } => self.append_lines(client, at, &text).await,
            ForwardItem::Lost {
                client,
                count,
                reason,
            } => {
                let number = self.clients.session_number(client);
                self.append_lost(number, count, &reason).await
            }
            ForwardItem::ClientClosed { client } => {
                let number = self.clients.session_number(client);
                let Some(connected) = self.clients.remove_client(number) else {
                    return Ok(());
                };
                let client = connected.describe(number, false);
                let encoded = self.classes.client(&client);
                append_now(&mut self.packets, self.stream, &encoded).await
            }
        }
    }

    async fn append_lines(
        &mut self,
        client: u32,
        at: Timestamp,
        text: &[u8],
    ) -> Result<(), SessionClosed> {
        let number = self.clients.session_number(client);
        let Ok(text) = std::str::from_utf8(text) else {
            return self.append_lost(number, 1, "not UTF-8").await;
        };
        let (mut unread, mut too_long) = (0, 0);
        for line in text.lines() {
            let Ok(record) = Record::parse(line) else {
                unread += 1;
                continue;
            };
            self.clients.update_clock_offset(number, &record, at);
            let encoded = self.classes.record(number, &record);
            if !append_event(&mut self.packets, self.stream, &encoded, at).await? {
                too_long += 1;
            }
        }
        for (count, reason) in [(unread, "no event"), (too_long, "too long for a packet")] {
            if count > 0 {
                self.append_lost(number, count, reason).await?;
            }
        }
        Ok(())
    }

    /// Appends an event about missing events, and counts these as discarded events.
    async fn append_lost(
        &mut self,
        client: u32,
        count: u64,
        reason: &str,
    ) -> Result<(), SessionClosed> {
        warn!(client, count, reason, "events are not forwarded");
        self.packets.discard(self.stream, count);
        let encoded = self.classes.lost(&Lost {
            client,
            count,
            reason,
        });
        append_now(&mut self.packets, self.stream, &encoded).await
    }
}

/// Appends an event of the forwarder itself, at the present time.
async fn append_now(
    packets: &mut Packetizer,
    stream: StreamKey,
    event: &Encoded<'_>,
) -> Result<(), SessionClosed> {
    let appended = append_event(packets, stream, event, HostClock::now()).await;
    appended.map(drop)
}

/// Appends an event. Returns whether it fits into a packet.
async fn append_event(
    packets: &mut Packetizer,
    stream: StreamKey,
    event: &Encoded<'_>,
    at: Timestamp,
) -> Result<bool, SessionClosed> {
    match packets.append(stream, event.class(), event.at(at)).await {
        Ok(()) => Ok(true),
        Err(PacketizeError::Event(_)) => Ok(false),
        Err(PacketizeError::SessionClosed(gone)) => Err(gone),
    }
}

/// Receives and drops all items until the last client disconnects, so that no client waits for
/// queue capacity. Returns the number of events.
async fn discard_items(items: &mut mpsc::Receiver<ForwardItem>) -> u64 {
    let mut lost = 0;
    while let Some(item) = items.recv().await {
        lost += match item {
            ForwardItem::Lines { text, .. } => {
                text.iter().filter(|byte| **byte == b'\n').count() as u64
            }
            ForwardItem::Lost { count, .. } => count,
            ForwardItem::ClientOpened { .. } | ForwardItem::ClientClosed { .. } => 0,
        };
    }
    lost
}
