//! The demonstration of a fleet: three relays with one archive, of which the one that records is
//! killed and loses its disk. The producer and the viewer go on at the next one, and no event is
//! missing.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::process::Signal;
use serde_json::Value;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::{Relay, free_addresses, producer_url};
use tests::viewer::hostname;
use tests::{binaries, wait_for};

use super::{ViewerOutput, tldrs};

const RELAYS: usize = 3;

/// Options of both viewers: lines that are equal only if their events are, without those that the
/// agent adds.
const OPTIONS: [&str; 3] = ["--no-delta", "--filter", "$name != \"tef:client\""];

/// For how long the traced program runs, in seconds.
const SECONDS: &str = "6";

/// The relay is killed when the viewer has shown this number of events.
const EVENTS_BEFORE: usize = 150;

/// A relay with an output of its own.
struct Member {
    /// Its directory, which outlives the relay.
    _lab: Lab,
    relay: Relay,
    addresses: [SocketAddr; 3],
}

impl Member {
    fn start(number: usize, archive: &str) -> Self {
        let (lab, addresses) = (Lab::new(), free_addresses());
        let mut command = lab.command(binaries::relayd());
        command.args(["--archive", archive, "--durability=archive"]);
        let relay = Relay::start_from_command_at(&lab, command, addresses);
        let ([control, data, live], output) = (addresses, relay.output.display());
        println!(
            "$ relayd -o {output} --archive {archive} --durability=archive \\\n      \
             -C tcp://{control} -D tcp://{data} -L tcp://{live} &    # relay {number}"
        );
        Self {
            _lab: lab,
            relay,
            addresses,
        }
    }

    fn producer_url(&self) -> String {
        let [control, data, _] = self.addresses;
        producer_url(control, data)
    }
}

pub(super) fn run() -> anyhow::Result<()> {
    let lab = Lab::new();
    let archive = format!("file://{}", lab.directory("archive").display());
    let mut fleet: Vec<Member> = Vec::new();
    for number in 1..=RELAYS {
        fleet.push(Member::start(number, &archive));
    }
    let socket = lab.path().join("tldrs.socket");
    let agent = start_consumer(&lab, &fleet, &socket);
    let lives: Vec<_> = fleet.iter().map(|own| own.relay.live.to_string()).collect();
    let path = format!("host/{}/{}", hostname(), tldrs::SESSION);
    let url = format!("net://{}/{path}", lives.join(","));
    println!("$ test-live --seek beginning {url} &");
    let mut viewer = lab.command(binaries::test_live());
    let wait = ["--session-not-found=continue", "--seek=beginning"];
    viewer.args(wait).args(OPTIONS).arg(&url);
    // Before the program: the viewer waits for the session.
    let mut shown = ViewerOutput::new(Process::start(&mut viewer));
    let export = lab.path().join("trace.json");
    let traced = tldrs::start_shop(&lab, &socket, &[SECONDS.as_ref(), &export]);
    let first = wait_for_relay(&lab, &fleet, None);

    while shown.printed < EVENTS_BEFORE && shown.print_new()? {}
    let before = shown.printed;
    let (next, took) = lose_relay(&lab, &mut fleet, first)?;
    let at = format!("relay {} {:.2} s later", next + 1, took.as_secs_f64());
    println!(">>> the producer is at {at}; {before} events were shown before\n");
    while shown.print_new()? {}
    let live = shown.finish()?;
    traced.wait().expect_success();
    agent.signal(Signal::TERM);
    agent.wait().expect_success();
    for (place, member) in fleet.into_iter().enumerate() {
        let ended = (place != first).then(|| member.relay.stop());
        ensure!(
            ended.is_none_or(|ended| ended.status.success()),
            "relayd did not exit with success"
        );
    }
    let after = live.len().saturating_sub(before);
    println!("\n>>> the session has ended; {after} events were shown after the relay was lost");
    let archived = read_archive(&lab, &format!("{archive}/{path}"));
    let sent = sent_events(&export)?;
    println!(
        "{sent} events were sent, {} are in the archive",
        archived.len()
    );
    assert_all(&archived, sent).context("the archive")?;
    assert_all(&live, sent).context("the viewer")?;
    println!("None is missing and none is doubled, in the archive and at the viewer.");
    Ok(())
}

/// Kills the relay that the producer uses, and removes its output. Returns the relay at which the
/// producer goes on, and how long it took to be there.
fn lose_relay(lab: &Lab, fleet: &mut [Member], lost: usize) -> anyhow::Result<(usize, Duration)> {
    let relay = &mut fleet[lost].relay;
    let (pid, output) = (relay.id(), relay.output.clone());
    relay.kill();
    let began = Instant::now();
    fs::remove_dir_all(&output)?;
    println!(
        "\n$ kill -9 {pid}; rm -r {}    # relay {}, which records",
        output.display(),
        lost + 1
    );
    Ok((wait_for_relay(lab, fleet, Some(lost)), began.elapsed()))
}

/// Starts `consumer serve` with the list of the relays, and waits until it is ready.
fn start_consumer(lab: &Lab, fleet: &[Member], socket: &Path) -> Process {
    let urls = fleet.iter().map(Member::producer_url);
    let hosts = urls.map(|url| url.trim_start_matches("net://").to_owned());
    let url = format!("net://{}", hosts.collect::<Vec<_>>().join(","));
    let spool = lab.path().join("spool");
    let mut command = lab.command(binaries::consumer());
    command
        .args(["serve", "-v", "-U", &url])
        .arg(format!("--tldrs={}", socket.display()))
        .arg(format!("--tldrs-dir={}", lab.directory("tldrs").display()))
        .arg(format!("--spool={}", spool.display()))
        .arg(format!("--socket={}", status_socket(lab)));
    let mut consumer = Process::start(&mut command);
    consumer.wait_for_stderr_text("consumer::agent: ready");
    println!(
        "$ consumer serve -U {url} \\\n      --tldrs={} --spool={} &",
        socket.display(),
        spool.display()
    );
    consumer
}

fn status_socket(lab: &Lab) -> String {
    lab.path().join("status").display().to_string()
}

/// Waits until the producer uses a relay, other than the lost one.
fn wait_for_relay(lab: &Lab, fleet: &[Member], lost: Option<usize>) -> usize {
    wait_for("the producer has a relay", || {
        used(lab, fleet).filter(|used| Some(*used) != lost)
    })
}

/// The relay that the producer uses. None while it has no connection.
fn used(lab: &Lab, fleet: &[Member]) -> Option<usize> {
    let mut command = lab.command(binaries::consumer());
    command.args(["status", "--json", "--socket", &status_socket(lab)]);
    let printed = Process::start(&mut command).wait().expect_success();
    let report: Value = serde_json::from_str(&printed.concat()).ok()?;
    let relay = report.pointer("/sessions/0/relay")?.as_str()?;
    fleet
        .iter()
        .position(|member| relay.starts_with(&member.producer_url()))
}

fn read_archive(lab: &Lab, url: &str) -> Vec<String> {
    println!("$ test-live --no-follow {url}");
    let mut reader = lab.command(binaries::test_live());
    reader.arg("--no-follow").args(OPTIONS).arg(url);
    Process::start(&mut reader).wait().expect_success()
}

/// Number of events that the agent has been sent, by the copy that it exports.
fn sent_events(export: &Path) -> anyhow::Result<usize> {
    let events: Vec<Value> = serde_json::from_slice(&fs::read(export)?)?;
    Ok(events.len())
}

/// Expects as many events as were sent, of which no two are the same.
fn assert_all(lines: &[String], sent: usize) -> anyhow::Result<()> {
    let different: BTreeSet<_> = lines.iter().collect();
    let doubled = lines.len() - different.len();
    ensure!(doubled == 0, "{doubled} events are doubled");
    ensure!(
        lines.len() == sent,
        "{} events, not {sent}: {} are missing",
        lines.len(),
        sent.saturating_sub(lines.len())
    );
    Ok(())
}
