//! Loss, reordering, a change of the client's address, a cut, and a relay that is killed meanwhile:
//! nothing is lost, and viewers show each event once.

use std::time::Duration;

use serde_json::Value;
use tests::process::Process;
use tests::udp_link::{LinkConditions, UdpLink};
use tests::viewer::Viewer;
use tests::{Lab, wait_until};

use super::{Agent, Events, QuicRelay, TRACE, numbers, read_output};

/// 10 % loss; a datagram takes 5 to 35 ms, so that it overtakes others.
const BAD: LinkConditions = LinkConditions {
    loss: 0.1,
    delay: Duration::from_millis(5),
    jitter: Duration::from_millis(30),
};

#[test]
fn every_event_arrives_once_and_in_order_over_a_bad_network_and_a_change_of_address() {
    let lab = Lab::new();
    let relay = QuicRelay::start(&lab);
    let link = UdpLink::open(relay.quic, BAD, 1);
    let agent = Agent::start(&lab, &relay, link.address(), &["--live=10000"]);
    let mut events = Events::open(&agent);
    let mut viewers = Viewer::connect(relay.relay.live);
    viewers.wait_for_session(TRACE);
    // The viewer's network is as bad.
    let viewer_link = UdpLink::open(relay.quic, BAD, 3);
    let shown = Process::start(&mut relay.viewer(&lab, viewer_link.address()));
    viewers.wait_for_listed(TRACE, |session| session.viewers == 1);
    events.send_slowly(100, Duration::from_millis(10), 2000);
    link.rebind();
    events.send_slowly(100, Duration::from_millis(10), 2000);
    wait_until("the relay has noticed the new address", || {
        relay.status.metric("relayd_quic_path_changes_total") >= 1
    });
    let reconnects = agent
        .session(&lab)
        .map(|session| session["reconnects"].clone());
    assert_eq!(reconnects, Some(Value::from(0)));
    let all = events.end();
    assert_eq!(numbers(&shown.wait().expect_success()), all);
    assert!(relay.status.metric("relayd_packets_out_of_order_total") > 0);
    assert_eq!(relay.status.metric("relayd_packets_lost_total"), 0);
    let counters = link.counters();
    assert!(
        counters.lost > 50 && counters.overtaken > 50,
        "{counters:?}"
    );
    agent.stop();
    let (on_disk, errors) = read_output(&relay);
    assert_eq!(on_disk, all);
    assert!(errors.is_empty(), "{errors:#?}");
}

#[test]
fn session_and_viewer_continue_after_a_cut_in_which_the_relay_is_killed() {
    let lab = Lab::new();
    let relay = QuicRelay::start(&lab);
    let link = UdpLink::open(relay.quic, LinkConditions::PERFECT, 4);
    let viewer_link = UdpLink::open(relay.quic, LinkConditions::PERFECT, 5);
    let agent = Agent::start(&lab, &relay, link.address(), &["--live=10000"]);
    let mut events = Events::open(&agent);
    Viewer::connect(relay.relay.live).wait_for_session(TRACE);
    let mut shown = Process::start(&mut relay.viewer(&lab, viewer_link.address()));
    let wait_until_shown = |shown: &mut Process, sent: u64| {
        let last = sent - 1;
        wait_until("the viewer shows the last event", || {
            numbers(&shown.stdout()).contains(&last) || !shown.is_running()
        });
    };
    events.send_slowly(50, Duration::from_millis(5), 100);
    wait_until_shown(&mut shown, events.sent);
    // Those of agent and viewer, and the one on which the relay pushes to the viewer.
    relay
        .status
        .wait_for_metric("relayd_connections{port=\"quic\"}", 3);
    // A cut that the connections survive.
    link.set_cut(true);
    events.send_slowly(50, Duration::from_millis(20), 100);
    link.set_cut(false);
    wait_until_shown(&mut shown, events.sent);
    let reconnects = |agent: &Agent| agent.session(&lab).unwrap()["reconnects"].clone();
    assert_eq!(reconnects(&agent), Value::from(0));
    // The next relay knows none of the connections: it resets them, and they are opened again
    // before their timeout.
    link.set_cut(true);
    viewer_link.set_cut(true);
    events.send_slowly(20, Duration::from_millis(20), 100);
    let relay = relay.restart(&lab);
    link.set_cut(false);
    viewer_link.set_cut(false);
    events.send_slowly(20, Duration::from_millis(20), 100);
    wait_until_shown(&mut shown, events.sent);
    assert_eq!(reconnects(&agent), Value::from(1));
    let all = events.end();
    let shown = shown.wait();
    let is_restored = |line: &String| line.contains("connection restored");
    assert!(shown.stderr.iter().any(is_restored), "{:#?}", shown.stderr);
    assert_eq!(numbers(&shown.expect_success()), all);
    let logged = agent.stop();
    let is_resumed = |line: &String| line.contains("the session continues in the same files");
    assert!(logged.iter().any(is_resumed), "{logged:#?}");
    let (on_disk, errors) = read_output(&relay);
    assert_eq!(on_disk, all);
    assert!(errors.is_empty(), "{errors:#?}");
}
