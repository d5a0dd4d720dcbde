//! Reconnecting to relays that close their connections or do not listen any more.

use std::time::Duration;

use super::relay::{self, Script, Scripted};
use super::{
    Uplink, beacon, close, complete, metadata, one_packet, packet, relay_when, send_steps, start,
    stream, trace,
};
use crate::queue::SessionEnd;

#[tokio::test]
async fn reconnect_resends_everything_that_was_not_confirmed() {
    let dying = Script {
        hang_up_after: Some(3),
        ..Script::default()
    };
    let (relay, uplink, session) = start(&[dying, Script::default()]).await;
    let begin = [trace("a"), stream("one"), stream("two"), metadata("m")];
    send_steps(&session, begin).await;
    let packets = (0..10).flat_map(|number| [packet(0, number), packet(1, number)]);
    send_steps(&session, packets).await;
    send_steps(&session, [beacon(0, 1000)]).await;
    assert_eq!(session.finish().await, complete(20));
    let (first, second) = (relay.received(0), relay.received(1));
    let (first, second) = (first.lock().unwrap(), second.lock().unwrap());
    assert!(first.indexes.len() >= 3);
    for channel in ["one", "two"] {
        let packets = second.packets_of(channel);
        let want = (0..10).map(|number| (vec![number; 10], 6));
        assert!(packets.into_iter().eq(want), "{channel}");
    }
    assert_eq!(second.metadata.values().next().unwrap(), b"m");
    assert!(second.log.contains(&"beacon one 1000".into()));
    let created = |received: &relay::ReceivedSession| {
        let session = received.session.as_ref().unwrap();
        session.recording.as_ref().unwrap().created
    };
    assert!(created(&first) < created(&second));
    let (_, ended) = uplink.registry.sessions();
    assert_eq!((ended.acknowledged, ended.lost), (20, 0));
}

#[tokio::test]
async fn confirmed_packets_are_not_resent() {
    let dying = Script {
        hang_up_after: Some(4),
        ..Script::default()
    };
    let (relay, _uplink, session) = start(&[dying, Script::default()]).await;
    let begin = [trace("a"), stream("gone"), stream("stays"), metadata("m")];
    send_steps(&session, begin).await;
    send_steps(&session, [packet(0, 0), packet(1, 0), close(0)]).await;
    let received = relay_when(&relay, |received| {
        received.log.contains(&"close gone 0".into())
    })
    .await;
    send_steps(&session, [packet(1, 1), packet(1, 2)]).await;
    assert_eq!(session.finish().await, complete(4));
    assert_eq!(received.lock().unwrap().packets_of("stays")[0].0, [0; 10]);
    let second = relay.received(1);
    let second = second.lock().unwrap();
    assert!(!second.log.iter().any(|line| line.contains("gone")));
    let packets = second.packets_of("stays");
    assert_eq!(packets.last().unwrap().0, [2; 10]);
    assert!(packets.len() <= 3);
}

#[tokio::test]
async fn stream_that_is_refused_is_retried_after_a_reconnect() {
    let full = Script {
        refuse_streams: 1,
        ..Script::default()
    };
    let (_relay, _uplink, session) = start(&[full, Script::default()]).await;
    send_steps(&session, one_packet()).await;
    assert_eq!(session.finish().await, complete(1));
}

#[tokio::test]
async fn session_without_a_relay_waits_until_the_reconnect_timeout() {
    // No relay listens at the address of an earlier one.
    let gone = Scripted::start(&[]).await;
    tokio::task::yield_now().await;
    let uplink = Uplink::connect_to(&gone.url, Some(Duration::from_millis(600)));
    let session = uplink.open("s");
    send_steps(&session, one_packet()).await;
    let outcome = session.finish().await;
    assert_eq!(outcome.lost, 1);
    assert!(matches!(outcome.end, SessionEnd::Failed(_)));
}

#[tokio::test(start_paused = true)]
async fn relay_that_never_replies_is_disconnected() {
    let mute = Script {
        is_mute: true,
        ..Script::default()
    };
    let (relay, _uplink, session) = start(&[mute, Script::default()]).await;
    assert_eq!(session.finish().await, complete(0));
    assert_eq!(relay.connections.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn session_refused_after_it_was_accepted_before_is_retried() {
    let dying = Script {
        hang_up_after: Some(1),
        ..Script::default()
    };
    let full = Script {
        refuse_session: true,
        ..Script::default()
    };
    let (relay, _uplink, session) = start(&[dying, full, Script::default()]).await;
    send_steps(&session, one_packet()).await;
    assert_eq!(session.finish().await, complete(1));
    assert_eq!(relay.connections.lock().unwrap().len(), 3);
}
