//! Viewers that attach, read for a while, and leave with or without detaching.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tests::relay::Relay;
use tests::viewer::{Viewer, by_channel};
use viewer_proto::Command;
use viewer_proto::index::{IndexStatus, NEW_METADATA};
use viewer_proto::session::{AttachStatus, Seek};
use wire::{SessionId, StreamId};

use super::sessions::Sessions;

/// The longest time that a viewer reads a session: its producer waits for it.
const MAX_VIEW_TIME: Duration = Duration::from_secs(3);

/// The pause after a round without packets.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Reads one session after the other until a time. Returns the number of packets read.
pub fn view_sessions(relay: &Relay, sessions: &Sessions, number: u64, until: Instant) -> u64 {
    let mut rng = Rng::with_seed(1000 + number);
    let mut shown = 0;
    while Instant::now() < until {
        let mut viewer = Viewer::connect(relay.live);
        viewer.request(&Command::CreateViewerSession);
        let listed = viewer.sessions();
        let Some(session) = rng.choice(&listed) else {
            continue;
        };
        let end = Instant::now() + MAX_VIEW_TIME.mul_f32(rng.f32());
        sessions.while_viewed(&session.name.to_string(), || {
            shown += view_session(viewer, session.session, &mut rng, end);
        });
    }
    shown
}

/// Reads a session until `end` or until the session ends. Returns the number of packets read.
fn view_session(mut viewer: Viewer, session: SessionId, rng: &mut Rng, end: Instant) -> u64 {
    let seek = rng.choice([Seek::Beginning, Seek::Last]).unwrap();
    let (status, streams) = viewer.attach(session, seek.code());
    if status != AttachStatus::Ok {
        // The session has just ended.
        return 0;
    }
    let mut streams = by_channel(&streams);
    let metadata = streams.remove("metadata");
    let mut next: HashMap<StreamId, Option<u64>> =
        streams.into_values().map(|stream| (stream, None)).collect();
    let mut shown = 0;
    while !next.is_empty() && Instant::now() < end {
        let before = shown;
        next.retain(|stream, next| {
            let index = viewer.next_index(*stream);
            if index.flags & NEW_METADATA != 0
                && let Some(metadata) = metadata
            {
                viewer.metadata(metadata);
            }
            if index.status == IndexStatus::Ready {
                // Synthetic packets span ten cycles each.
                let number = index.packet.begin.0 / 10;
                assert!(next.is_none_or(|next| next == number), "{next:?} {number}");
                *next = Some(number + 1);
                let size = u32::try_from(index.packet.packet_size.0 / 8).unwrap();
                let (_, bytes) = viewer.packet(*stream, index.offset.0, size);
                let fill = u8::try_from(number % 251).unwrap();
                assert!(bytes.len() == size as usize && bytes.iter().all(|byte| *byte == fill));
                shown += 1;
            }
            index.status != IndexStatus::HungUp
        });
        if shown == before {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
    if rng.bool() {
        viewer.detach(session);
    }
    shown
}
