//! Sessions that continue on a relay with the resume extension.

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::relay::{Script, Scripted};
use super::{
    CAPACITY, UplinkSettings, beacon, close, complete, description, metadata, one_packet, packet,
    relay_when, run, send_steps, start, stream, trace,
};
use crate::queue::{OpenedSession, SessionIdentity, session_channel, spool_channel};
use crate::status::StatusRegistry;

const RESUMES: Script = Script {
    hang_up_after: None,
    silent_until: 0,
    refuse_session: false,
    refuse_streams: 0,
    always_pending: false,
    is_mute: false,
    has_resume: true,
    has_forgotten: false,
    hang_up_at_end: false,
    never_durable: 0,
};

/// Returns a relay that closes its connections after some indexes and has confirmed no packet.
fn dying(after: usize) -> Script {
    Script {
        hang_up_after: Some(after),
        ..RESUMES
    }
}

#[tokio::test]
async fn resumed_session_gets_each_packet_once_in_order() {
    for after in [1, 3, 7, 19] {
        let (relay, uplink, session) = start(&[dying(after), dying(after + 1), RESUMES]).await;
        let begin = [trace("a"), stream("one"), stream("two"), metadata("m")];
        send_steps(&session, begin).await;
        let packets = (0..10).flat_map(|number| [packet(0, number), packet(1, number)]);
        send_steps(&session, packets).await;
        send_steps(&session, [beacon(0, 1000)]).await;
        assert_eq!(session.finish().await, complete(20));
        let last = relay.received(2);
        let last = last.lock().unwrap();
        // The relay of the test fails at an index that it has already.
        for channel in ["one", "two"] {
            let want = (0..10).map(|number| (vec![number; 10], 6));
            assert!(last.packets_of(channel).into_iter().eq(want), "{channel}");
        }
        assert_eq!(last.metadata.values().next().unwrap(), b"m");
        let count = |what: &str| last.log.iter().filter(|line| *line == what).count();
        assert_eq!((count("resume session"), count("create session")), (1, 0));
        assert_eq!(count("beacon one 1000"), 1);
        let (_, ended) = uplink.registry.sessions();
        assert_eq!((ended.acknowledged, ended.lost), (20, 0));
    }
}

#[tokio::test]
async fn session_is_opened_on_the_relay_when_the_spool_has_its_first_step() {
    let relay = Scripted::start(&[Script::default(), RESUMES]).await;
    let (opened, sessions) = mpsc::unbounded_channel();
    let settings = UplinkSettings {
        target: relay.url.parse().unwrap(),
        reconnect_timeout: None,
    };
    let running = run(
        sessions,
        settings,
        StatusRegistry::default(),
        CancellationToken::new(),
    );
    let running = tokio::spawn(running);
    let shared = Arc::new(Semaphore::new(CAPACITY.all_bytes as usize));
    let spool = spool_channel(CAPACITY, shared);
    let session = OpenedSession {
        description: description("spooled"),
        identity: SessionIdentity {
            producer: [3; 16],
            id: 0,
            created: 0,
            is_recovered: false,
        },
        steps: spool.receiver,
    };
    opened.send(session).unwrap();
    // This one is opened later, and sent at once.
    let (opener, mut others) = session_channel(CAPACITY);
    let other = opener.open_session(description("other")).unwrap();
    opened.send(others.recv().await.unwrap()).unwrap();
    send_steps(&other, one_packet()).await;
    assert_eq!(other.finish().await, complete(1));
    for step in one_packet() {
        let permits = spool.sender.try_acquire(100).unwrap();
        spool.sender.forward(permits, step, 0).unwrap();
    }
    drop((spool.sender, opened));
    assert_eq!(spool.outcome.await.unwrap(), complete(1));
    running.await.unwrap();
    for (place, name) in ["other", "spooled"].into_iter().enumerate() {
        let received = relay.received(place);
        let received = received.lock().unwrap();
        let session = received.session.as_ref().unwrap();
        assert_eq!(session.name, name.into());
    }
}

#[tokio::test]
async fn metadata_continues_behind_what_the_relay_has() {
    let (relay, _uplink, session) = start(&[dying(1), RESUMES]).await;
    send_steps(&session, one_packet()).await;
    relay_when(&relay, |received| received.indexes.len() == 1).await;
    send_steps(&session, [metadata("ore"), packet(0, 1)]).await;
    assert_eq!(session.finish().await, complete(2));
    let second = relay.received(1);
    let second = second.lock().unwrap();
    assert_eq!(second.metadata.values().next().unwrap(), b"more");
    assert!(second.log.contains(&"open metadata at 1".into()));
}

#[tokio::test]
async fn packets_are_retained_until_they_are_durable() {
    let lazy = Script {
        never_durable: 2,
        hang_up_after: Some(4),
        ..RESUMES
    };
    let forgotten = Script {
        has_forgotten: true,
        ..RESUMES
    };
    let (relay, _uplink, session) = start(&[lazy, forgotten]).await;
    send_steps(&session, one_packet()).await;
    send_steps(&session, [packet(0, 1), packet(0, 2), packet(0, 3)]).await;
    assert_eq!(session.finish().await, complete(4));
    let second = relay.received(1);
    let second = second.lock().unwrap();
    // A relay that does not have the session gets at least what was not durable.
    assert!(second.packets_of("one").len() >= 2);
    assert!(second.log.contains(&"create session".into()));
    assert!(second.log.contains(&"make resumable".into()));
}

#[tokio::test]
async fn a_stream_is_closed_after_its_packets_are_durable() {
    let (relay, _uplink, session) = start(&[RESUMES]).await;
    let begin = [trace("a"), stream("gone"), stream("stays"), metadata("m")];
    send_steps(&session, begin).await;
    send_steps(&session, [packet(0, 0), packet(1, 0), close(0)]).await;
    relay_when(&relay, |received| {
        received.log.contains(&"close gone 0".into())
    })
    .await;
    send_steps(&session, [packet(1, 1)]).await;
    assert_eq!(session.finish().await, complete(3));
}

#[tokio::test]
async fn session_that_the_relay_has_closed_is_complete() {
    let ending = Script {
        hang_up_at_end: true,
        ..RESUMES
    };
    let forgotten = Script {
        has_forgotten: true,
        ..RESUMES
    };
    let (relay, _uplink, session) = start(&[ending, forgotten]).await;
    send_steps(&session, one_packet()).await;
    assert_eq!(session.finish().await, complete(1));
    let second = relay.received(1);
    let second = second.lock().unwrap();
    assert_eq!(second.log, ["resume session"]);
}

#[tokio::test]
async fn session_that_was_being_closed_is_resumed_and_closed() {
    let ending = Script {
        hang_up_at_end: true,
        ..RESUMES
    };
    let (relay, _uplink, session) = start(&[ending, RESUMES]).await;
    send_steps(&session, one_packet()).await;
    assert_eq!(session.finish().await, complete(1));
    let second = relay.received(1);
    let second = second.lock().unwrap();
    assert!(second.log.contains(&"close chunk".into()));
    assert!(second.log.contains(&"close one 0".into()));
}

#[tokio::test]
async fn relay_without_the_extension_gets_a_new_session_numbered_from_zero() {
    let plain = Script::default();
    let (relay, _uplink, session) = start(&[dying(3), plain]).await;
    send_steps(&session, one_packet()).await;
    send_steps(&session, [packet(0, 1), packet(0, 2)]).await;
    assert_eq!(session.finish().await, complete(3));
    let second = relay.received(1);
    let second = second.lock().unwrap();
    assert!(second.log.contains(&"create session".into()));
    assert_eq!(second.packets_of("one").len(), second.packets.len());
    assert!(
        second
            .packets
            .keys()
            .map(|key| key.1)
            .eq(0..second.packets.len() as u64)
    );
}
