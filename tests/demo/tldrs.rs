//! The demonstration without any peer: a program writes to the tldrs socket of the agent, and
//! `test-live` shows its events from the relay.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::ensure;
use tests::binaries;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::viewer::hostname;

use super::ViewerOutput;

/// The session of the traced program.
pub(super) const SESSION: &str = "shop";

/// For how long the program runs, in seconds.
const SECONDS: &str = "4";

/// Number of lines that are printed: more than that nobody reads.
const SCREEN: usize = 32;

pub(super) fn run() -> anyhow::Result<()> {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    println!("$ relayd -o {} &", relay.output.display());
    let (agent, socket) = start_agent(&lab, &relay);
    let url = format!("net://{}/host/{}/{SESSION}", relay.live, hostname());
    println!("$ test-live --sink log {url} &");
    let color = if std::io::stdout().is_terminal() {
        "--color=always"
    } else {
        "--color=never"
    };
    let mut viewer = lab.command(binaries::test_live());
    let wait = ["--session-not-found=continue", "--seek=beginning"];
    viewer.args(wait).args(["--sink=log", color, &url]);
    // Before the program: the viewer waits for the session.
    let mut shown = ViewerOutput::of_screen(Process::start(&mut viewer), SCREEN);
    let begun = Instant::now();
    let traced = start_shop(&lab, &socket, &[SECONDS.as_ref()]);
    while shown.print_new()? {}
    let shown = shown.finish()?;
    traced.wait().expect_success();
    let seconds = begun.elapsed().as_secs_f64();

    agent.signal(rustix::process::Signal::TERM);
    ensure!(
        agent.wait().status.success(),
        "consumer did not exit with success"
    );
    let output = relay.output.clone();
    ensure!(
        relay.stop().status.success(),
        "relayd did not exit with success"
    );
    // The agent records its clock in a session of its own.
    let without_samples = "--filter=$name != \"clock:sample\"";
    let on_disk = read_trace(&output, &["--sink=log", without_samples]);
    let events = read_trace(&output, &[without_samples]).len();
    let perfetto = lab.path().join("shop.pftrace");
    let file = perfetto.to_string_lossy();
    read_trace(&output, &["--sink=perfetto", "-w", &file]);
    let directory = lab.keep();
    ensure!(
        !shown.is_empty() && shown.len() == on_disk.len(),
        "{} lines were shown live, and there are {} of the trace",
        shown.len(),
        on_disk.len()
    );
    ensure!(directory.is_dir(), "the trace is gone");
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = events as f64 / seconds;
    println!(
        "\n{events} events in {seconds:.1} s, {rate:.0} a second: all were shown, and all are in the trace. Next:\n\n\
         {program} info {trace}\n\
         {program} spans {trace}    # how long they took\n\
         {program} web {trace}      # in a browser\n\
         cargo xtask demo --web     # the same in a browser, live\n\
         Or open {file} in https://ui.perfetto.dev",
        trace = output.display(),
        program = binaries::test_live().display(),
    );
    Ok(())
}

/// Starts the agent, and waits until it is ready. Returns it, and its socket for events.
pub(super) fn start_agent(lab: &Lab, relay: &Relay) -> (Process, PathBuf) {
    let (url, socket) = (relay.producer_url(), lab.path().join("tldrs.socket"));
    let mut command = lab.command(binaries::consumer());
    command
        .args(["serve", "-v", "-U", &url])
        .arg(format!("--tldrs={}", socket.display()))
        .arg(format!("--tldrs-dir={}", lab.directory("tldrs").display()))
        .arg(format!("--socket={}", lab.path().join("status").display()));
    let mut agent = Process::start(&mut command);
    agent.wait_for_stderr_text("consumer::agent: ready");
    println!("$ consumer serve -U {url} --tldrs={} &", socket.display());
    (agent, socket)
}

/// Starts the traced program with arguments.
pub(super) fn start_shop(lab: &Lab, socket: &Path, arguments: &[&Path]) -> Process {
    let mut command = lab.command(binaries::shop());
    command.args(arguments).env("TRACE_TEF_TLDR_SOCKET", socket);
    println!("$ shop &      # it serves requests that are made up\n");
    Process::start(&mut command)
}

/// Returns the lines that `test-live` prints for the trace on disk.
fn read_trace(directory: &Path, arguments: &[&str]) -> Vec<String> {
    let mut reader = Command::new(binaries::test_live());
    reader.arg(directory).arg("--quiet").args(arguments);
    Process::start(&mut reader).wait().expect_success()
}
