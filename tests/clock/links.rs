//! Links and relays: other hosts, slow ones, and relays that do not tell their clock.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use tests::lab::Lab;
use tests::network::{Host, Network};
use tests::process::Process;
use tests::relay::{Relay, producer_url};
use tests::{binaries, wait_until};

use crate::align::{SECOND, are_in_order, assert_is_near, show, start_relay};
use crate::network::offset_in;
use crate::samples::{HOST, clock_command, clock_command_of, read, stop, wait_for_more};
use crate::shifted_clock::ShiftedClock;

/// Starts a proxy that holds up what a producer sends, and what it gets.
fn start_slow_proxy(to: SocketAddr, [sends, gets]: [Duration; 2]) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for producer in listener.incoming() {
            let producer = producer.unwrap();
            let relay = TcpStream::connect(to).unwrap();
            relay.set_nodelay(true).unwrap();
            let ends = [producer.try_clone().unwrap(), relay.try_clone().unwrap()];
            thread::spawn(move || copy(producer, relay, sends));
            let [producer, relay] = ends;
            thread::spawn(move || copy(relay, producer, gets));
        }
    });
    address
}

fn copy(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let mut buffer = [0; 4096];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        thread::sleep(delay);
        if to.write_all(&buffer[..bytes]).is_err() {
            return;
        }
    }
}

#[test]
fn true_difference_is_within_the_error_when_only_questions_are_slow() {
    let lab = Lab::new();
    let clock = ShiftedClock::new(&lab, "relay", -2 * SECOND);
    let mut command = lab.command(binaries::relayd());
    clock.apply_to(&mut command);
    let relay = Relay::start_from_command(&lab, command);
    let delay = Duration::from_millis(20);
    let control = start_slow_proxy(relay.control, [delay, Duration::ZERO]);
    let url = producer_url(control, relay.data);
    let clock = Process::start(&mut clock_command(&lab, &url));
    for sample in wait_for_more(&relay.output, 1) {
        let wrong = sample.ahead.abs_diff(-2 * SECOND);
        assert!(wrong <= sample.error, "{sample:?}");
        // Half of what questions and answers take, and half of the difference: together what
        // questions take, whatever else is slow.
        assert!(wrong + sample.error >= 19_999_000, "{sample:?}");
    }
    stop(clock);
}

#[test]
fn five_hosts_with_links_of_their_own_are_aligned_within_the_errors() {
    let lab = Lab::new();
    let relay = start_relay(&lab, 0, &[]);
    // The shift of each host, and the milliseconds by which questions and answers are late.
    let hosts = [
        ("one", 5 * SECOND, [0, 0]),
        ("two", -SECOND / 4, [20, 0]),
        ("three", 3600 * SECOND, [0, 30]),
        ("four", -86_400 * SECOND, [5, 40]),
        ("five", 0, [10, 10]),
    ];
    let running = hosts.map(|(host, shift, delays)| {
        let clock = ShiftedClock::new(&lab, host, shift);
        let control = start_slow_proxy(relay.control, delays.map(Duration::from_millis));
        let mut command = clock_command_of(&lab, host, &producer_url(control, relay.data));
        clock.apply_to(&mut command);
        (clock, Process::start(&mut command))
    });
    let wait_for_samples = |wanted| {
        wait_until("all hosts have samples", || {
            let lines = show(&lab, &["--quiet"], &relay.output).0;
            hosts.iter().all(|(host, ..)| {
                let samples = lines.iter().filter(|line| line.contains(host));
                samples.count() > wanted
            })
        });
    };
    wait_for_samples(3);
    // The times of events go on: only the time of day is set.
    running[2].0.set(0);
    wait_for_samples(6);
    running.into_iter().for_each(|(_, process)| stop(process));
    let options = ["--align", "--clock-cycles", "--no-delta"];
    let (lines, notices) = show(&lab, &options, &relay.output);
    assert!(are_in_order(&lines), "{lines:#?}");
    for (host, shift, delays) in hosts {
        let offset = offset_in(&notices, &format!("test-live: {host}"));
        assert_is_near(&offset, -shift);
        let min = delays.iter().sum::<u64>() * 1_000_000 / 2;
        assert!(offset.error.unsigned_abs() >= min, "{host} {offset:?}");
    }
}

#[test]
fn clock_of_another_host_is_measured_over_the_network() {
    let Some(network) = Network::create() else {
        return;
    };
    let lab = Lab::new();
    let clock = ShiftedClock::new(&lab, "relay", 3 * SECOND);
    let mut command = network.command(&lab, Host::Collector, binaries::relayd());
    clock.apply_to(&mut command);
    let addresses = [25_342, 25_343, 25_344].map(Network::collector);
    let relay = Relay::start_from_command_at(&lab, command, addresses);
    let program = clock_command(&lab, &relay.producer_url());
    let mut command = network.command(&lab, Host::Traced, binaries::consumer());
    command.args(program.get_args());
    let clock = Process::start(&mut command);
    let samples = wait_for_more(&relay.output, 1);
    // The cable is cut: a sample that cannot be taken delays none that can, later.
    network.cut();
    network.reconnect();
    for sample in wait_for_more(&relay.output, samples.len()) {
        let wrong = sample.ahead.abs_diff(3 * SECOND);
        assert!(wrong <= sample.error + 200_000, "{sample:?}");
    }
    stop(clock);
}

#[test]
fn next_relay_is_asked_when_the_first_is_killed() {
    let (lab, mut first) = Relay::start_in_new_lab();
    let (_other_lab, second) = Relay::start_in_new_lab();
    let urls = [&first, &second].map(Relay::producer_url);
    let host = |url: &String| url.trim_start_matches("net://").to_owned();
    let list = format!("net://{},{}", host(&urls[0]), host(&urls[1]));
    let clock = Process::start(&mut clock_command(&lab, &list));
    for sample in wait_for_more(&first.output, 1) {
        assert_eq!(sample.relay, urls[0]);
    }
    first.kill();
    // The session goes on there, too: what the first relay may not have is sent again.
    wait_until("the second relay is asked", || {
        let samples = read(&second.output);
        samples.iter().any(|sample| sample.relay == urls[1])
    });
    stop(clock);
}

/// Returns the command of an agent that serves programs with rings.
fn agent_command(lab: &Lab, relay: &Relay) -> Command {
    let mut command = lab.command(binaries::consumer());
    command
        .args(["serve", "-v", "--hostname", HOST, "-U"])
        .arg(relay.producer_url())
        .arg(format!("--ring={}", lab.directory("rings").display()))
        .arg(format!("--socket={}", lab.path().join("status").display()));
    command
}

#[test]
fn relay_of_lttng_gets_no_samples_and_that_is_logged_once() {
    let lab = Lab::new();
    let relay = Relay::start_reference(&lab);
    let is_about_clock = |line: &&String| line.contains("clock");
    for mut command in [
        agent_command(&lab, &relay),
        clock_command(&lab, &relay.producer_url()),
    ] {
        if !command.get_args().any(|argument| argument == "clock") {
            command.args(["--clock-interval", "100"]);
        }
        let mut agent = Process::start(&mut command);
        agent.wait_for_stderr_text("only relayd tells its clock");
        // Meanwhile it asks again.
        thread::sleep(Duration::from_millis(500));
        agent.signal(Signal::TERM);
        let ended = agent.wait();
        assert!(ended.status.success(), "{:#?}", ended.stderr);
        let lines = ended.stderr.iter().filter(is_about_clock).count();
        assert_eq!(lines, 1, "{:#?}", ended.stderr);
    }
    assert!(!relay.output.join(HOST).exists());
}

#[test]
fn agent_samples_the_clock_unless_it_is_told_not_to() {
    let (lab, relay) = Relay::start_in_new_lab();
    let agent = Process::start(&mut agent_command(&lab, &relay));
    assert_eq!(wait_for_more(&relay.output, 0).len(), 1);
    stop(agent);
    std::fs::remove_dir_all(relay.output.join(HOST)).unwrap();
    let mut command = agent_command(&lab, &relay);
    let mut agent = Process::start(command.args(["--clock-interval", "0"]));
    agent.wait_for_stderr_text("ready");
    stop(agent);
    wait_until("the relay has no connection", || {
        !relay.output.join(HOST).exists()
    });
}
