//! Hundreds of cut connections, with the source and the mux in this process: no time is spent on
//! backoff.

use std::time::{Duration, Instant};

use ctf::decode::Event;
use tests::TEST_TIMEOUT;
use tests::cut_proxy::CutProxy;
use tests::lab::Lab;
use tests::relay::Relay;
use tests::replay::{HOST, IdleStream, MetadataPieces, Replay};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::sync::watch;
use viewer::attach::relay::{self, RelayOptions};
use viewer::attach::target::Target;
use viewer::attach::{Packet, SourceEvent, SourceHandle, TraceInfo};
use viewer::mux::{Mux, Stage};
use viewer::sink::{Loss, Origin, SinkError};
use viewer::time::Nanoseconds;
use viewer_proto::session::Seek;

use crate::{EVENTS_IN_PACKET, STREAMS, interleaved_trace};

/// The number of packets of each stream.
const PACKETS: u64 = 250;

/// The number of connections that are cut in one run, at least.
const CUTS: usize = 70;

/// The bytes that a relay has sent when it has answered `ATTACH_SESSION`, at least: the records of
/// all streams.
pub(crate) const ATTACHED_BYTES: usize = 4371 * (STREAMS as usize + 1);

/// A viewer that reaches its session through proxies, one at a time.
struct FollowedSession {
    handle: SourceHandle,
    events: Receiver<SourceEvent>,
    held_back: watch::Sender<bool>,
    mux: Mux,
    shown: Shown,
    has_ended: bool,
}

#[derive(Default)]
struct Shown {
    /// The times of the events, as they are shown.
    times: Vec<i64>,
    trouble: Vec<String>,
    notices: Vec<String>,
    metadata: Vec<u8>,
    traces: usize,
    streams: usize,
}

impl FollowedSession {
    fn new(proxies: &[CutProxy], session: &str, push: bool) -> Self {
        let hosts: Vec<_> = proxies
            .iter()
            .map(|proxy| proxy.address.to_string())
            .collect();
        let url = format!("net://{}/host/{HOST}/{session}", hosts.join(","));
        let Ok(Target::Relay(target)) = url.parse() else {
            panic!("{url} is a relay");
        };
        let options = RelayOptions {
            seek: Seek::Beginning,
            reconnect_timeout: None,
            min_backoff: Duration::from_millis(1),
            max_backoff: Duration::from_millis(4),
            push,
            ..RelayOptions::default()
        };
        let (sender, events) = channel(16);
        let (held_back, is_held_back) = watch::channel(false);
        Self {
            handle: relay::spawn(target, options, sender, is_held_back).unwrap(),
            events,
            held_back,
            mux: Mux::new(),
            shown: Shown::default(),
            has_ended: false,
        }
    }

    /// Handles source events until `is_enough`.
    fn run_until(&mut self, is_enough: impl Fn(&Self) -> bool) {
        // Many connections, one after the other.
        let deadline = Instant::now() + 4 * TEST_TIMEOUT;
        while !is_enough(self) {
            assert!(
                Instant::now() < deadline,
                "{} events shown; {:#?}",
                self.shown.times.len(),
                self.shown.notices.iter().rev().take(20).collect::<Vec<_>>()
            );
            let Ok(event) = self.events.try_recv() else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            self.handle_event(event);
            self.mux.run(&mut self.shown, &|| false).unwrap();
            self.held_back.send_replace(self.mux.holds_back());
        }
    }

    fn handle_event(&mut self, event: SourceEvent) {
        let shown = &mut self.shown;
        match event {
            SourceEvent::Trace { trace, name, .. } => {
                shown.traces += 1;
                self.mux.add_trace(trace, name);
            }
            SourceEvent::Metadata { trace, bytes } => {
                self.mux.extend_metadata(trace, &bytes, shown).unwrap();
            }
            SourceEvent::Stream {
                stream,
                trace,
                name,
                backlog,
                ..
            } => {
                shown.streams += 1;
                self.mux.add_stream(stream, trace, name, backlog);
            }
            SourceEvent::Packet { stream, packet } => self.mux.push_packet(stream, packet, shown),
            SourceEvent::Watermark { stream, until } => self.mux.advance_watermark(stream, until),
            SourceEvent::StreamHold { stream, is_holding } => {
                self.mux.set_holding(stream, is_holding);
            }
            SourceEvent::StreamEnd { stream } => self.mux.end_stream(stream),
            SourceEvent::TraceEnd { trace } => self.mux.end_trace(trace),
            SourceEvent::Notice(what) => shown.notices.push(what),
            SourceEvent::Missing(what) | SourceEvent::Failed(what) => {
                shown.trouble.push(what);
                self.has_ended = true;
            }
            SourceEvent::CaughtUp => {}
            SourceEvent::Done => self.has_ended = true,
        }
    }
}

impl Stage for Shown {
    fn event(
        &mut self,
        _: &Event<'_>,
        time: Option<Nanoseconds>,
        _: Origin<'_>,
    ) -> Result<bool, SinkError> {
        self.times.push(time.unwrap().get());
        Ok(true)
    }

    fn packet(&mut self, _: &Packet, _: Origin<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn metadata(&mut self, bytes: &[u8], _: &TraceInfo) -> Result<(), SinkError> {
        self.metadata.extend_from_slice(bytes);
        Ok(())
    }

    fn lost(&mut self, loss: &Loss, _: Origin<'_>) -> Result<(), SinkError> {
        self.trouble.push(format!("{loss:?}"));
        Ok(())
    }

    fn report_failure(&mut self, what: &str) {
        self.trouble.push(what.to_owned());
    }

    fn report_warning(&mut self, what: &str) {
        self.trouble.push(what.to_owned());
    }
}

/// Follows a session of `relays` while packets are sent to each of them and connections are cut.
fn follow_with_cuts(lab: &Lab, relays: &[&Relay], push: bool, seed: u64) {
    let directory = interleaved_trace(lab, "interleaved", PACKETS);
    let session = "cut";
    let (pieces, idle) = (MetadataPieces::Many, IdleStream::Absent);
    let replays: Vec<_> = relays
        .iter()
        .map(|relay| Replay::open(relay, session, &directory, pieces, idle))
        .collect();
    let proxies: Vec<_> = relays
        .iter()
        .zip(seed..)
        .map(|(relay, seed)| CutProxy::start(relay.live, seed))
        .collect();
    let set_cutting = |is_cutting| {
        for proxy in &proxies {
            proxy.set_cutting(is_cutting);
        }
    };
    set_cutting(true);
    let mut viewer = FollowedSession::new(&proxies, session, push);
    viewer.run_until(|viewer| viewer.shown.streams > 0);
    let sending = replays.into_iter().map(|mut replay| {
        std::thread::spawn(move || {
            replay.send_packets();
            replay
        })
    });
    let sending: Vec<_> = sending.collect();
    let events = PACKETS * EVENTS_IN_PACKET * STREAMS;
    viewer.run_until(|viewer| {
        assert!(
            viewer.shown.trouble.is_empty(),
            "{:#?}",
            viewer.shown.trouble
        );
        let cuts: usize = proxies.iter().map(CutProxy::cuts).sum();
        viewer.shown.times.len() as u64 == events && cuts >= CUTS
    });
    let replays = sending.into_iter().map(|thread| thread.join().unwrap());
    let replays: Vec<_> = replays.collect();
    set_cutting(false);
    let is_restored = |proxy: &CutProxy| proxy.is_restored(ATTACHED_BYTES);
    viewer.run_until(|_| proxies.iter().any(is_restored));
    assert!(proxies.iter().all(|proxy| proxy.cuts() > 0));
    for replay in replays {
        replay.close();
    }
    viewer.run_until(|viewer| viewer.has_ended);
    let shown = viewer.shown;
    assert!(shown.trouble.is_empty(), "{:#?}", shown.trouble);
    assert_eq!((shown.traces, shown.streams as u64), (1, STREAMS));
    let metadata = std::fs::read(directory.join("metadata")).unwrap();
    assert!(shown.metadata == metadata, "metadata is handed over once");
    assert!(shown.times.is_sorted_by(|one, next| one < next));
    assert_eq!(shown.times.len() as u64, events);
    viewer.handle.stop();
}

#[test]
fn a_viewer_whose_connections_are_cut_at_random_shows_every_event_once_and_in_order() {
    // At the same time: each waits for cuts and for replies.
    std::thread::scope(|scope| {
        for (seed, push) in [(1, true), (2, false), (4, true)] {
            scope.spawn(move || {
                let (lab, relay) = Relay::start_in_new_lab();
                follow_with_cuts(&lab, &[&relay], push, seed);
            });
        }
    });
}

#[test]
fn a_viewer_of_lttng_relayd_whose_connections_are_cut_shows_every_event_once_and_in_order() {
    let lab = Lab::new();
    let relay = Relay::start_reference(&lab);
    follow_with_cuts(&lab, &[&relay], false, 3);
}

#[test]
fn a_viewer_that_goes_from_relay_to_relay_shows_every_event_once_and_in_order() {
    std::thread::scope(|scope| {
        for (seed, push) in [(10, true), (20, false)] {
            scope.spawn(move || {
                let (lab, one) = Relay::start_in_new_lab();
                let (_other_lab, other) = Relay::start_in_new_lab();
                follow_with_cuts(&lab, &[&one, &other], push, seed);
            });
        }
    });
}

#[test]
fn a_viewer_that_goes_between_relayd_and_lttng_relayd_shows_every_event_once_and_in_order() {
    let (lab, one) = Relay::start_in_new_lab();
    let other_lab = Lab::new();
    let other = Relay::start_reference(&other_lab);
    follow_with_cuts(&lab, &[&one, &other], true, 30);
}
