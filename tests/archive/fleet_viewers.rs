//! Viewers of a relay see the sessions of all relays that share its archive, live and as they were,
//! also while a session moves from one relay to another.

use rustix::process::Signal;
use tests::babeltrace::Babeltrace;
use tests::lab::Lab;
use tests::process::Process;
use tests::replay::HOST;
use tests::test_live;
use tests::tree::files;
use tests::viewer::Viewer;
use tests::wait_until;

use crate::agent::{self, TRACE, assert_all, numbers, start_consumer_of};
use crate::drain::drain;
use crate::fleet::{End, Member, used};
use crate::kill::{Load, random};
use crate::packets::Packets;
use crate::system::{ArchiveDirectory, assert_same_text, read, text};

/// Starts the viewers of a relay, which has not recorded the session.
fn start_viewers(lab: &Lab, member: &Member) -> [Process; 2] {
    let live = member.addresses[2];
    let url = test_live::url(live, HOST, TRACE);
    Viewer::connect(live).wait_for_session(TRACE);
    let begin = ["--clock-gmt", "--seek", "beginning", &url];
    let viewers = [
        test_live::start(lab, &begin),
        Babeltrace::Two.follow_host_at(live, HOST, TRACE),
    ];
    test_live::wait_until_attached(&member.relay, TRACE, 2);
    viewers
}

#[test]
fn a_session_that_moves_is_watched_at_relays_that_do_not_have_it() {
    let lab = Lab::new();
    let archive = ArchiveDirectory::new(&lab);
    let mut fleet: Vec<_> = (0..3).map(|_| Member::start(&archive)).collect();
    // The last relay never records, and viewers watch there.
    let addresses: Vec<_> = fleet
        .iter()
        .map(|member| member.addresses)
        .take(2)
        .collect();
    let mut consumer = start_consumer_of(&lab, &addresses);
    consumer.wait_for_stderr_text("consumer::agent: ready");
    let load = Load::start(agent::socket(&lab), random(), 0);
    let mut received = Packets::default();
    let [live, babeltrace] = start_viewers(&lab, &fleet[2]);
    wait_until("events are shown", || numbers(&live.stdout()).len() > 100);
    let before = used(&lab, &fleet).unwrap();
    fleet[before].lose(End::Kill, &mut received);
    wait_until("the agent has another relay", || {
        used(&lab, &fleet).is_some_and(|used| used != before)
    });
    let shown = [&live, &babeltrace].map(|viewer| viewer.stdout_line_count());
    wait_until("later events are shown", || {
        let now = [&live, &babeltrace].map(|viewer| viewer.stdout_line_count());
        (0..2).all(|viewer| now[viewer] > shown[viewer] + 1000)
    });
    // Who reads the output finds no copies there.
    let files = files(&fleet[2].relay.output, "");
    let metadata = |name: &str| files.keys().filter(|path| path.ends_with(name)).count();
    assert_eq!(
        (metadata("/copied-metadata"), metadata("/metadata")),
        (2, 0)
    );
    let sent = load.stop();
    consumer.signal(Signal::TERM);
    consumer.wait().expect_success();
    let live = live.wait().expect_success();
    assert_all(&live, sent);
    let session = archive.session_url(HOST, TRACE);
    assert_same_text("live", &live, &text(&lab, &session));
    // It begins where the session was when it was attached.
    let shown = babeltrace.wait().expect_success();
    let whole = read(&lab, &["--clock-gmt", "--no-delta"], &session).expect_success();
    assert!(shown.len() > 1000, "{}", shown.len());
    assert_same_text("babeltrace2", &shown, &whole[whole.len() - shown.len()..]);
    // Afterwards any relay shows it as a whole.
    fleet[before].restart(&archive);
    for member in &fleet {
        let url = test_live::url(member.addresses[2], HOST, TRACE);
        Viewer::connect(member.addresses[2]).wait_for_session(TRACE);
        let again = read(&lab, &["--clock-gmt", "--seek", "beginning"], &url).expect_success();
        assert_same_text("an ended session", &again, &live);
    }
}

#[test]
fn a_viewer_goes_on_when_the_producer_leaves_its_relay() {
    let lab = Lab::new();
    let archive = ArchiveDirectory::new(&lab);
    let fleet: Vec<_> = (0..2).map(|_| Member::start(&archive)).collect();
    let addresses: Vec<_> = fleet.iter().map(|member| member.addresses).collect();
    let mut consumer = start_consumer_of(&lab, &addresses);
    consumer.wait_for_stderr_text("consumer::agent: ready");
    let load = Load::start(agent::socket(&lab), random(), 0);
    let mut before = None;
    wait_until("the agent has a relay", || {
        before = used(&lab, &fleet);
        before.is_some()
    });
    let member = &fleet[before.unwrap()];
    let url = test_live::url(member.addresses[2], HOST, TRACE);
    Viewer::connect(member.addresses[2]).wait_for_session(TRACE);
    let live = test_live::start(&lab, &["--clock-gmt", "--seek", "beginning", &url]);
    wait_until("events are shown", || numbers(&live.stdout()).len() > 100);
    drain(&lab, &member.relay).wait().expect_success();
    let shown = numbers(&live.stdout()).len();
    wait_until("later events are shown", || {
        numbers(&live.stdout()).len() > shown + 1000
    });
    let sent = load.stop();
    consumer.signal(Signal::TERM);
    consumer.wait().expect_success();
    assert_all(&live.wait().expect_success(), sent);
    for member in fleet {
        member.relay.stop().expect_success();
    }
}
