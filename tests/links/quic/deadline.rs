//! `--quic-deadline` on a link that loses much: the viewer stays current, and every gap is
//! reported.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tests::Lab;
use tests::udp_link::{LinkConditions, UdpLink};
use tests::viewer::Viewer;

use super::{Agent, Events, QuicRelay, TRACE, epoch_micros, field, read_output};

/// The deadline of packets, and the live timer after which a packet is cut.
const DEADLINE: Duration = Duration::from_millis(400);
const LIVE_TIMER: Duration = Duration::from_millis(400);

/// What a viewer has printed: when each event was sent and when it was shown, and its messages.
struct Shown {
    numbers: Vec<u64>,
    /// The time between each event and its line.
    lags: Vec<Duration>,
    messages: Vec<String>,
}

/// Prints a session until it ends, and measures how late each event is shown.
fn show_with_lag(mut command: Command) -> std::thread::JoinHandle<Shown> {
    let mut viewer = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (lines, messages) = (viewer.stdout.take().unwrap(), viewer.stderr.take().unwrap());
    let messages = std::thread::spawn(move || {
        let lines = BufReader::new(messages).lines();
        lines.map(Result::unwrap).collect::<Vec<String>>()
    });
    std::thread::spawn(move || {
        let (mut numbers, mut lags) = (Vec::new(), Vec::new());
        for line in BufReader::new(lines).lines().map(Result::unwrap) {
            // The trace begins with an event about the client.
            let Some(sent) = field(&line, "sent") else {
                continue;
            };
            let lag = epoch_micros().saturating_sub(sent);
            lags.push(Duration::from_micros(lag));
            numbers.extend(field(&line, "number"));
        }
        assert!(viewer.wait().unwrap().success());
        let messages = messages.join().unwrap();
        Shown {
            numbers,
            lags,
            messages,
        }
    })
}

/// Returns the sum of the packets that a reader's warnings report.
fn discarded_packets(warnings: &[String]) -> u64 {
    let count = |line: &String| {
        let (_, after) = line.split_once("WARNING: Tracer discarded ")?;
        let (count, after) = after.split_once(' ')?;
        after
            .starts_with("packet")
            .then(|| count.parse::<u64>().unwrap())
    };
    warnings.iter().filter_map(count).sum()
}

#[test]
fn viewer_stays_current_with_a_deadline_and_every_gap_is_reported() {
    let lab = Lab::new();
    let relay = QuicRelay::start(&lab);
    let conditions = LinkConditions {
        loss: 0.2,
        delay: Duration::from_millis(40),
        jitter: Duration::from_millis(20),
    };
    let link = UdpLink::open(relay.quic, LinkConditions::PERFECT, 2);
    let live = format!("--live={}", LIVE_TIMER.as_micros());
    let deadline = format!("--quic-deadline={}", DEADLINE.as_millis());
    let agent = Agent::start(&lab, &relay, link.address(), &[&live, &deadline]);
    let mut events = Events::open(&agent);
    let mut viewers = Viewer::connect(relay.relay.live);
    viewers.wait_for_session(TRACE);
    let shown = show_with_lag(relay.viewer(&lab, relay.quic));
    viewers.wait_for_listed(TRACE, |session| session.viewers == 1);
    tests::wait_until("the relay writes a packet", || {
        events.send_slowly(1, Duration::from_millis(20), 1200);
        relay.status.metric("relayd_packets_total") > 0
    });
    // A loss before the first packet that is written is no gap that a reader could see: a busy
    // machine may need longer than the deadline to begin the session.
    let lost_before = relay.status.metric("relayd_packets_lost_total");
    link.set_conditions(conditions);
    // Some 20 datagrams a packet: about every second one is late.
    events.send_slowly(600, Duration::from_millis(20), 1200);
    link.set_conditions(LinkConditions::PERFECT);
    let session = agent.session(&lab).unwrap();
    events.send_slowly(50, Duration::from_millis(20), 10);
    let all = events.end();
    let shown = shown.join().unwrap();
    let lost_in_all = relay.status.metric("relayd_packets_lost_total");
    let lost = lost_in_all - lost_before;
    assert!(lost > 0, "{:?}", link.counters());
    assert_eq!(session["reconnects"], Value::from(0));
    assert!(session["abandoned"].as_u64().unwrap() > 0);
    assert!(session["lost"].as_u64().unwrap() > 0);
    assert!(relay.status.metric("relayd_quic_resets_total") > 0);
    // An event waits for its packet to be cut, which is the flush interval, and then for the
    // packet.
    let limit = DEADLINE + LIVE_TIMER;
    // A busy machine delays four programs: a few events may be later, but the viewer does not fall
    // behind.
    let mut lags = shown.lags;
    lags.sort_unstable();
    let usual = lags[lags.len() * 95 / 100];
    let max = lags[lags.len() - 1];
    assert!(
        usual < limit && max < 2 * limit,
        "{usual:?}, {max:?} of {limit:?}"
    );
    // Events are missing, and none is shown twice or out of order.
    assert!(shown.numbers.is_sorted_by(|one, next| one < next));
    assert!(shown.numbers.len() < all.len());
    let stopped = agent.stop();
    let (on_disk, warnings) = read_output(&relay);
    assert_eq!(on_disk, shown.numbers);
    // Readers report every gap, and the relay and they agree about what is missing.
    assert_eq!(discarded_packets(&shown.messages), lost);
    assert_eq!(discarded_packets(&warnings), lost);
    let summary = format!("{lost} packets lost");
    let has_summary = |line: &String| line.contains(&summary);
    assert!(
        shown.messages.iter().any(has_summary),
        "{:#?}",
        shown.messages
    );
    // A packet that is abandoned may have arrived: then the relay keeps it.
    let sent = relay.status.metric("relayd_packets_total") + lost_in_all;
    let has_lost = stopped.iter().find_map(|line| {
        let count = line
            .strip_prefix("consumer: ")?
            .strip_suffix(" packets were lost")?;
        count.parse::<u64>().ok()
    });
    assert!(
        (lost_in_all..=sent).contains(&has_lost.unwrap()),
        "{lost_in_all} of {sent}: {stopped:#?}"
    );
}
