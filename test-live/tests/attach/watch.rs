//! A source under test, and its events as text.

use std::time::{Duration, Instant};

use tokio::sync::mpsc::{self, Receiver, error::TryRecvError};
use tokio::sync::watch;
use viewer::attach::backlog::Backlog;
use viewer::attach::relay::{RelayOptions, spawn};
use viewer::attach::target::{RelayTarget, Target};
use viewer::attach::{SourceEvent, SourceHandle, StreamKey, TraceKey};
use viewer_proto::session::Seek;

use crate::fake::{Fake, Session, is_packet, trace_records};

/// Time after which a test that waits for something fails.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(10);

/// A source, and the events that it has sent, as text: `packet a/chan 0`, for example.
pub(crate) struct Watch {
    pub(crate) events: Receiver<SourceEvent>,
    pub(crate) handle: SourceHandle,
    pub(crate) held_back: watch::Sender<bool>,
    pub(crate) traces: Vec<(TraceKey, String)>,
    pub(crate) streams: Vec<(StreamKey, String, Backlog)>,
    /// Whether packets are removed from their backlog when they are received.
    pub(crate) decodes: bool,
    pub(crate) received: Vec<String>,
}

pub(crate) fn target(fake: &Fake, path: &str) -> RelayTarget {
    match format!("net://{}{path}", fake.address).parse() {
        Ok(Target::Relay(relay)) => relay,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn options() -> RelayOptions {
    RelayOptions {
        seek: Seek::Beginning,
        ..RelayOptions::default()
    }
}

/// Options to reconnect for ever, at once.
pub(crate) fn reconnecting() -> RelayOptions {
    RelayOptions {
        reconnect_timeout: None,
        min_backoff: Duration::from_millis(1),
        ..options()
    }
}

pub(crate) fn watch(fake: &Fake, path: &str, options: RelayOptions) -> Watch {
    let (sender, events) = mpsc::channel(4);
    let (held_back, is_held_back) = watch::channel(true);
    let handle = spawn(target(fake, path), options, sender, is_held_back).unwrap();
    Watch {
        events,
        handle,
        held_back,
        traces: Vec::new(),
        streams: Vec::new(),
        decodes: true,
        received: Vec::new(),
    }
}

impl Watch {
    /// Receives the next event, if one arrives before `deadline`.
    pub(crate) fn receive(&mut self, deadline: Instant) -> bool {
        loop {
            match self.events.try_recv() {
                Ok(event) => {
                    let text = self.describe(event);
                    self.received.push(text);
                    return true;
                }
                Err(TryRecvError::Disconnected) => {
                    panic!("ended without a last event: {:#?}", self.received)
                }
                Err(TryRecvError::Empty) if Instant::now() > deadline => return false,
                Err(TryRecvError::Empty) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    pub(crate) fn receive_until(&mut self, last: &str) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        while !self.received.iter().any(|text| text.starts_with(last)) {
            assert!(self.receive(deadline), "no {last} in {:#?}", self.received);
        }
    }

    /// Receives events until `condition` holds.
    pub(crate) fn receive_until_true(&mut self, condition: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        while !condition(self) {
            self.receive(Instant::now() + Duration::from_millis(1));
            assert!(Instant::now() < deadline, "{:#?}", self.received);
        }
    }

    /// All events up to and including the last, without notices.
    pub(crate) fn receive_rest(mut self) -> Vec<String> {
        let deadline = Instant::now() + TEST_TIMEOUT;
        while !matches!(self.received.last(), Some(text) if text == "done" || text.starts_with("failed"))
        {
            assert!(self.receive(deadline), "no end of {:#?}", self.received);
        }
        self.handle.join();
        self.received.retain(|text| !text.starts_with("notice"));
        self.received
    }

    fn describe(&mut self, event: SourceEvent) -> String {
        let trace_of = |this: &Self, key| {
            let found = this.traces.iter().find(|(trace, _)| *trace == key);
            found.expect("it was announced").1.clone()
        };
        let stream_of = |this: &Self, key| {
            let found = this.streams.iter().find(|(stream, ..)| *stream == key);
            let (_, name, backlog) = found.expect("it was announced");
            (name.clone(), backlog.clone())
        };
        match event {
            SourceEvent::Trace { trace, name, .. } => {
                self.traces.push((trace, name.clone()));
                format!("trace {name}")
            }
            SourceEvent::Metadata { trace, bytes } => {
                let text = String::from_utf8(bytes.to_vec()).unwrap();
                format!("metadata {}: {text}", trace_of(self, trace))
            }
            SourceEvent::Stream {
                stream,
                trace,
                name,
                backlog,
                ..
            } => {
                trace_of(self, trace);
                self.streams.push((stream, name.clone(), backlog));
                format!("stream {name}")
            }
            SourceEvent::Packet { stream, packet } => {
                let (name, backlog) = stream_of(self, stream);
                if self.decodes {
                    backlog.remove_packet();
                }
                let mut bytes = Vec::new();
                let read = packet.each_piece(|piece| {
                    bytes.extend_from_slice(piece);
                    Ok::<(), ()>(())
                });
                read.unwrap().unwrap();
                let (_, number) = is_packet(&bytes).expect("a packet is whole");
                format!("packet {name} {number}")
            }
            SourceEvent::Watermark { stream, until } => {
                format!("watermark {} {until}", stream_of(self, stream).0)
            }
            SourceEvent::StreamHold { stream, is_holding } => {
                format!("hold {} {is_holding}", stream_of(self, stream).0)
            }
            SourceEvent::StreamEnd { stream } => format!("end {}", stream_of(self, stream).0),
            SourceEvent::TraceEnd { trace } => format!("end {}", trace_of(self, trace)),
            SourceEvent::Notice(text) => format!("notice {text}"),
            SourceEvent::Missing(text) => format!("missing {text}"),
            SourceEvent::Failed(text) => format!("failed {text}"),
            SourceEvent::CaughtUp => "caught up".to_owned(),
            SourceEvent::Done => "done".to_owned(),
        }
    }
}

/// A session `s` with one trace of one stream, 2, and metadata stream 1.
pub(crate) fn one_stream() -> Fake {
    let fake = Fake::start(vec![Session::new(1, "s", vec![trace_records(1, "a")])]);
    fake.put_metadata(1, &["m1"]);
    fake
}

pub(crate) fn assert_received(received: &[String], want: &[&str]) {
    assert_eq!(received, want, "{received:#?}");
}

pub(crate) fn wait_until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(1));
    }
}
