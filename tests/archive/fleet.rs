//! Several relays with one archive, any of which is killed, stopped or drained, with its output
//! removed: the agent goes on at the next one, and the archive has every event once and in order.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tests::binaries;
use tests::lab::Lab;
use tests::process::Process;
use tests::producer::live_session;
use tests::relay::{Relay, free_addresses};
use tests::replay::HOST;
use tests::resumable::{ResumableProducer, printable};
use tests::wait_until;

use crate::agent::{self, TRACE, assert_all, start_consumer_of};
use crate::drain::drain;
use crate::kill::{Load, RELAY, ends, pause, random};
use crate::packets::Packets;
use crate::system::{ArchiveDirectory, read, remove_output, start_relay_at};

const RELAYS: usize = 3;

/// Longest time between two kills.
const MAX_PAUSE: Duration = Duration::from_millis(1500);

/// How a relay ends before the next one does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    Kill,
    /// By SIGTERM.
    Stop,
    /// By SIGTERM, after `relayd drain`.
    Drain,
}

/// A relay of the fleet, which has its own output.
pub(crate) struct Member {
    lab: Lab,
    pub(crate) addresses: [SocketAddr; 3],
    pub(crate) relay: Relay,
}

impl Member {
    pub(crate) fn start(archive: &ArchiveDirectory) -> Self {
        let (lab, addresses) = (Lab::new(), free_addresses());
        let relay = start_relay_at(&lab, archive, &options(), addresses);
        Self {
            lab,
            addresses,
            relay,
        }
    }

    /// Ends the relay, and removes its output.
    pub(crate) fn lose(&mut self, end: End, received: &mut Packets) {
        match end {
            End::Kill => self.relay.kill(),
            End::Stop => self.relay.terminate(),
            End::Drain => {
                drain(&self.lab, &self.relay).wait().expect_success();
                self.relay.terminate();
            }
        }
        received.add(&self.relay.output);
        remove_output(&self.relay.output);
    }

    pub(crate) fn restart(&mut self, archive: &ArchiveDirectory) {
        self.relay = start_relay_at(&self.lab, archive, &options(), self.addresses);
    }
}

/// The relay that the agent uses, if it is connected.
pub(crate) fn used(lab: &Lab, fleet: &[Member]) -> Option<usize> {
    let mut command = lab.command(binaries::consumer());
    command.args(["status", "--json", "--socket"]);
    command.arg(agent::status_socket(lab));
    let printed = Process::start(&mut command).wait().expect_success();
    let report: Value = serde_json::from_str(&printed.concat()).unwrap();
    let relay = report["sessions"][0]["relay"].as_str()?;
    fleet.iter().position(|member| {
        let [control, data, _] = member.addresses;
        relay.starts_with(&tests::relay::producer_url(control, data))
    })
}

fn options() -> Vec<&'static str> {
    [RELAY, &["--http=0"]].concat()
}

/// Ends one relay after the other under load, and expects every event once in the archive.
fn lose_relays(end: End) {
    let lab = Lab::new();
    let archive = ArchiveDirectory::new(&lab);
    let mut random = random();
    let mut fleet: Vec<_> = (0..RELAYS).map(|_| Member::start(&archive)).collect();
    let addresses: Vec<_> = fleet.iter().map(|member| member.addresses).collect();
    let mut consumer = start_consumer_of(&lab, &addresses);
    consumer.wait_for_stderr_text("consumer::agent: ready");
    let load = Load::start(agent::socket(&lab), random.fork(), 0);
    let mut received = Packets::default();
    let mut lost: Option<usize> = None;
    for _ in 0..ends() {
        let mut connected = None;
        wait_until("the agent has a relay", || {
            connected = used(&lab, &fleet).filter(|used| Some(*used) != lost);
            connected.is_some()
        });
        pause(&mut random, MAX_PAUSE);
        if let Some(lost) = lost {
            fleet[lost].restart(&archive);
        }
        fleet[connected.unwrap()].lose(end, &mut received);
        lost = connected;
    }
    wait_until("the agent has a relay", || {
        used(&lab, &fleet).is_some_and(|used| Some(used) != lost)
    });
    let sent = load.stop();
    consumer.signal(Signal::TERM);
    consumer.wait().expect_success();
    for (place, member) in fleet.into_iter().enumerate() {
        if Some(place) != lost {
            received.add(&member.relay.output);
            member.relay.stop().expect_success();
        }
    }
    let session = archive.session_url(HOST, TRACE);
    assert_all(&read(&lab, &[], &session).expect_success(), sent);
    let directory = lab.path().join("restored");
    let options = ["--sink", "ctf", "-w", directory.to_str().unwrap()];
    read(&lab, &options, &session).expect_success();
    received.assert_are(&directory);
    assert_eq!(archive.packets_of_ended(), [received.count()]);
    println!("{sent} events");
}

#[test]
fn a_fleet_that_loses_any_relay_with_its_disk_loses_and_repeats_no_event() {
    lose_relays(End::Kill);
}

#[test]
fn a_fleet_whose_relays_are_stopped_loses_and_repeats_no_event() {
    lose_relays(End::Stop);
}

#[test]
fn a_fleet_whose_relays_are_drained_loses_and_repeats_no_event() {
    lose_relays(End::Drain);
}

/// Packets of a session that comes back.
const PACKETS: u64 = 300;

#[test]
fn a_session_that_comes_back_to_a_relay_ends_in_the_archive() {
    let archive_lab = Lab::new();
    let archive = ArchiveDirectory::new(&archive_lab);
    let [first, second] = [(); 2].map(|()| Member::start(&archive));
    let recording = printable(live_session(TRACE), 1, PACKETS, (0, 0));
    let mut producer = ResumableProducer::new(recording);
    let owners = || {
        let objects = archive.objects("sessions");
        let owners = objects.iter().filter(|name| name.contains("/own-"));
        owners.count()
    };
    // The first relay keeps the session meanwhile.
    let part = usize::try_from(PACKETS / 3).unwrap() * 4096;
    for (member, bytes) in [(&first, part), (&second, 2 * part)] {
        let before = owners();
        assert!(producer.try_send(member.addresses, bytes).is_err());
        wait_until("the relay is an owner", || owners() > before);
    }
    producer.send(first.addresses);
    wait_until("the end is listed", || archive.ended() == 1);
    assert_eq!(archive.packets_of_ended(), [PACKETS]);
    assert_eq!((producer.resumed, owners()), (1, 3));
    for member in [first, second] {
        member.relay.stop().expect_success();
    }
}

#[test]
fn a_relay_that_becomes_an_owner_late_does_not_end_the_session_of_another_one() {
    let archive_lab = Lab::new();
    let archive = ArchiveDirectory::new(&archive_lab);
    let member = Member::start(&archive);
    let session = live_session(TRACE);
    let daemon = session.recording.as_ref().unwrap().daemon.0;
    let daemon: String = daemon.iter().map(|byte| format!("{byte:02x}")).collect();
    // The producer is at another relay by now.
    let other = json!({"boot": "0".repeat(32), "since": u64::MAX, "created": 1});
    archive.add(&format!("sessions/{daemon}-0/own-00000001"), &other);
    let mut recording = printable(session, 1, PACKETS, (0, 0));
    recording.timeout = 1;
    let mut producer = ResumableProducer::new(recording);
    assert!(producer.try_send(member.addresses, 100 * 4096).is_err());
    member.relay.wait_for_log(&["session archived"]);
    assert_eq!(archive.ended(), 0);
    member.relay.stop().expect_success();
}
