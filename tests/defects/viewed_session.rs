//! A live session with a viewer, which most tests of viewers begin with.

use tests::producer::{Producer, live_session};
use tests::relay::Relay;
use tests::viewer::{Viewer, by_channel};
use viewer_proto::session::Seek;
use wire::{SessionId, StreamId};

/// A live session with one data stream, and a viewer that is attached to it from the beginning.
pub(super) struct ViewedSession {
    pub(super) producer: Producer,
    pub(super) stream: StreamId,
    pub(super) metadata: StreamId,
    pub(super) viewer: Viewer,
    pub(super) session: SessionId,
}

impl ViewedSession {
    pub(super) fn open(relay: &Relay, name: &str) -> Self {
        let mut producer = Producer::open(relay, live_session(name));
        let stream = producer.add_trace("ust/pid/one", &["chan_0"])[0];
        let (viewer, session, streams) = Viewer::attached(relay.live, name, Seek::Beginning);
        let metadata = by_channel(&streams)["metadata"];
        Self {
            producer,
            stream,
            metadata,
            viewer,
            session,
        }
    }
}
