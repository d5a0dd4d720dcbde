//! The seek position of a viewer that attaches to a session with packets.

use tests::babeltrace::{Babeltrace, numbers};
use tests::lttng::SessionDaemon;
use tests::relay::Relay;
use tests::traced_app::TracedApp;
use tests::viewer::{Viewer, by_channel};
use tests::wait_until;
use viewer_proto::index::IndexStatus;
use viewer_proto::session::Seek;
use wire::StreamId;

/// Reads all indexes that a stream has now, and returns the number of packets with events.
fn read_available(viewer: &mut Viewer, stream: StreamId) -> usize {
    let mut with_events = 0;
    loop {
        let index = viewer.next_index(stream);
        match index.status {
            // A packet without events: header and context of 672 bits.
            IndexStatus::Ready if index.packet.content_size.0 <= 672 => {}
            IndexStatus::Ready => with_events += 1,
            _ => return with_events,
        }
    }
}

#[test]
fn seek_last_shows_new_events_and_seek_beginning_all_events() {
    let (lab, relay) = Relay::start_in_new_lab();
    let daemon = SessionDaemon::start_with_session(&lab, &relay, "late", Some(50_000));
    daemon.lttng(&["start", "late"]);
    let mut app = TracedApp::start(&lab, "late");
    app.emit(10);
    // The events have arrived when an index with events is published.
    let (mut early, ..) = Viewer::attached(relay.live, "late", Seek::Beginning);
    let streams = |viewer: &mut Viewer| {
        let id = viewer.wait_for_session("late").session;
        let mut found = Vec::new();
        wait_until("streams are announced", || {
            found.extend(viewer.new_streams(id).1);
            !found.is_empty()
        });
        by_channel(&found)
    };
    let (mut late, _, announced) = Viewer::attached(relay.live, "late", Seek::Beginning);
    let announced = if announced.is_empty() {
        streams(&mut late)
    } else {
        by_channel(&announced)
    };
    let busy: Vec<StreamId> = announced
        .iter()
        .filter(|(name, _)| name.starts_with("busy"))
        .map(|(_, id)| *id)
        .collect();
    wait_until("the events have arrived", || {
        busy.iter()
            .any(|&stream| read_available(&mut late, stream) > 0)
    });
    drop(early.sessions());

    let (mut last, _, at_last) = Viewer::attached(relay.live, "late", Seek::Last);
    let (mut beginning, _, at_beginning) = Viewer::attached(relay.live, "late", Seek::Beginning);
    assert_eq!(by_channel(&at_last), announced);
    assert_eq!(by_channel(&at_beginning), announced);
    for &stream in &busy {
        assert_eq!(read_available(&mut last, stream), 0);
    }
    assert!(
        busy.iter()
            .map(|&stream| read_available(&mut beginning, stream))
            .sum::<usize>()
            > 0
    );

    let follower = Babeltrace::Two.follow(&relay, "late");
    last.wait_for_listed("late", |listed| listed.viewers == 5);
    app.emit(10);
    wait_until("new events have arrived", || {
        busy.iter()
            .any(|&stream| read_available(&mut last, stream) > 0)
    });
    app.end();
    daemon.lttng(&["destroy", "late"]);
    let seen = follower.wait().expect_success();
    assert!(numbers(&seen).into_iter().eq(10..20), "{seen:#?}");
}
