//! Lists of relays: a session goes on at the next one.

use std::time::{Duration, Instant};

use super::relay::{Script, Scripted};
use super::{
    Uplink, complete, metadata, one_packet, packet, relay_when, send_steps, stream, trace,
};
use crate::limits::{MIN_RECONNECT_DELAY, VERSION_TIMEOUT};
use crate::queue::SessionEnd;
use crate::status::ConnectionState;
use crate::uplink::relay_selector::RelaySelector;
use crate::uplink::target::RelayTarget;

fn list(relays: &[&Scripted]) -> String {
    let hosts = relays.iter().map(|relay| &relay.url["net://".len()..]);
    format!("net://{}", hosts.collect::<Vec<_>>().join(","))
}

/// A relay that does not listen any more.
async fn gone() -> Scripted {
    let gone = Scripted::start(&[]).await;
    tokio::task::yield_now().await;
    gone
}

#[tokio::test]
async fn lost_session_goes_on_at_the_next_relay_at_once_with_what_was_not_acknowledged() {
    let dying = Script {
        has_resume: true,
        hang_up_after: Some(3),
        ..Script::default()
    };
    let good = Script {
        has_resume: true,
        ..Script::default()
    };
    let relays = [
        gone().await,
        Scripted::start(&[dying]).await,
        gone().await,
        Scripted::start(&[good]).await,
    ];
    let began = Instant::now();
    let uplink = Uplink::connect_to(&list(&relays.each_ref()), None);
    let session = uplink.open("s");
    send_steps(&session, [trace("a"), stream("one"), metadata("m")]).await;
    send_steps(&session, (0..5).map(|number| packet(0, number))).await;
    let received = relay_when(&relays[3], |received| received.packets.len() == 5).await;
    // The backoff begins when all have been tried.
    assert!(began.elapsed() < MIN_RECONNECT_DELAY / 2, "{began:?}");
    let (open, _) = uplink.registry.sessions();
    let ConnectionState::Connected { relay, since, .. } = open[0].connection_state() else {
        panic!("not connected");
    };
    assert_eq!(relay, relays[3].url);
    assert!(since.ends_with('Z'), "{since}");
    assert_eq!(session.finish().await, complete(5));
    let received = received.lock().unwrap();
    let log = &received.log;
    assert!(log.iter().any(|line| line.starts_with("resume")), "{log:?}");
    let want = (0..5).map(|number| (vec![number; 10], 6));
    assert!(received.packets_of("one").into_iter().eq(want));
}

#[tokio::test]
async fn relay_that_refuses_a_session_passes_it_on_and_only_all_together_end_it() {
    let refusing = Script {
        refuse_session: true,
        ..Script::default()
    };
    let (one, other) = (
        Scripted::start(&[refusing]).await,
        Scripted::start(&[Script::default()]).await,
    );
    let uplink = Uplink::connect_to(&list(&[&one, &other]), None);
    let session = uplink.open("s");
    send_steps(&session, one_packet()).await;
    assert_eq!(session.finish().await, complete(1));

    let (one, other) = (
        Scripted::start(&[refusing]).await,
        Scripted::start(&[refusing]).await,
    );
    let uplink = Uplink::connect_to(&list(&[&one, &other]), None);
    let session = uplink.open("s");
    send_steps(&session, one_packet()).await;
    let outcome = session.finish().await;
    assert!(matches!(outcome.end, SessionEnd::Failed(_)), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn relay_that_is_stopped_is_soon_left_for_the_next_one() {
    let stopped = Script {
        is_mute: true,
        ..Script::default()
    };
    let (one, other) = (
        Scripted::start(&[stopped]).await,
        Scripted::start(&[Script::default()]).await,
    );
    let began = tokio::time::Instant::now();
    let uplink = Uplink::connect_to(&list(&[&one, &other]), None);
    let session = uplink.open("s");
    send_steps(&session, one_packet()).await;
    assert_eq!(session.finish().await, complete(1));
    let taken = began.elapsed();
    assert!(taken < 2 * VERSION_TIMEOUT, "{taken:?}");
}

#[tokio::test]
async fn session_without_any_relay_of_a_list_waits_until_the_reconnect_timeout() {
    let relays = [gone().await, gone().await];
    let timeout = Some(Duration::from_millis(600));
    let uplink = Uplink::connect_to(&list(&relays.each_ref()), timeout);
    let session = uplink.open("s");
    send_steps(&session, one_packet()).await;
    let outcome = session.finish().await;
    let SessionEnd::Failed(why) = &outcome.end else {
        panic!("{outcome:?}");
    };
    assert!(why.contains("cannot connect to tcp://127.0.0.1:"), "{why}");
}

#[tokio::test]
async fn data_connection_goes_to_the_address_of_the_control_connection() {
    let target: RelayTarget = "net://localhost:1:2,[::1]:3:4".parse().unwrap();
    let mut selector = RelaySelector::new(&target);
    let mut shown = Vec::new();
    while let Some(selected) = selector.select_next(&target).await {
        let relay = selected.unwrap();
        let (data, address) = relay.data();
        shown.push(format!("{relay}; {data}; {}", address.unwrap()));
    }
    assert_eq!(
        shown,
        [
            "net://localhost:1:2 (127.0.0.1); tcp://localhost:2 (127.0.0.1); 127.0.0.1:2",
            "net6://[::1]:3:4; tcp6://[::1]:4; [::1]:4",
        ]
    );
    let target = RelayTarget::from_port_urls("tcp://127.0.0.1", "tcp://127.0.0.2").unwrap();
    let relay = RelaySelector::new(&target).select_next(&target).await;
    assert_eq!(relay.unwrap().unwrap().data().1, None);
}
