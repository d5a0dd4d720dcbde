//! The demonstration without any peer: several short-lived processes write to the tldrs socket of
//! the consumer, and `test-live` shows their events from the relay.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;
use tests::binaries;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::viewer::{Viewer, hostname};

use super::ViewerOutput;

/// The pause between two files that the traced processes read. Without it they end before anything
/// is shown.
const PAUSE_MS: &str = "15";

pub(super) fn run() -> anyhow::Result<()> {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    println!("$ relayd -o {}", relay.output.display());
    let socket = lab.path().join("tldrs.socket");
    let agent = start_consumer(&lab, &relay, &socket);

    let (traced, session) = start_traced_program(&lab, &socket, PAUSE_MS)?;
    let url = format!("net://{}/host/{}/{session}", relay.live, hostname());
    println!("$ test-live --seek beginning {url}\n");
    let color = if std::io::stdout().is_terminal() {
        "--color=always"
    } else {
        "--color=never"
    };
    let mut viewer = lab.command(binaries::test_live());
    let wait = ["--session-not-found=continue", "--seek=beginning"];
    viewer.args(wait).args([color, &url]);
    let mut shown = ViewerOutput::new(Process::start(&mut viewer));
    Viewer::connect(relay.live).wait_for_listed(&session, |session| session.viewers == 1);
    while shown.print_new()? {}
    let shown = shown.finish()?;
    traced.wait().expect_success();

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
    let on_disk = read_trace(&output, &["--quiet", without_samples]);
    let json = lab.path().join("perfetto.json");
    let json_option = json.to_string_lossy();
    let perfetto = [
        "--quiet",
        "--sink=tef",
        "--for=perfetto",
        "-w",
        &json_option,
    ];
    read_trace(&output, &perfetto);
    let directory = lab.keep();
    println!("\nThe session has ended, and the viewer has exited.");
    println!(
        "{} events shown live, {} in the trace. To show them again:",
        shown.len(),
        on_disk.len()
    );
    println!("$ {} {}", binaries::test_live().display(), output.display());
    println!("Or open in https://ui.perfetto.dev: {}", json.display());
    ensure!(
        !shown.is_empty() && shown.len() == on_disk.len(),
        "the numbers of events differ"
    );
    ensure!(directory.is_dir(), "the trace is gone");
    Ok(())
}

/// Starts `consumer serve`, and waits until the consumer is ready.
fn start_consumer(lab: &Lab, relay: &Relay, socket: &Path) -> Process {
    let url = relay.producer_url();
    let mut command = lab.command(binaries::consumer());
    command
        .args(["serve", "-v", "-U", &url])
        .arg(format!("--tldrs={}", socket.display()))
        .arg(format!("--tldrs-dir={}", lab.directory("tldrs").display()))
        .arg(format!("--socket={}", lab.path().join("status").display()));
    let mut consumer = Process::start(&mut command);
    consumer.wait_for_stderr("the consumer is ready", |line| {
        line.contains("consumer::agent: ready").then_some(())
    });
    println!("$ consumer serve -U {url} --tldrs={}", socket.display());
    consumer
}

/// Starts the traced program, which pauses between two files for this number of milliseconds.
/// Returns the program and the name of its session.
pub(super) fn start_traced_program(
    lab: &Lab,
    socket: &Path,
    pause_ms: &str,
) -> anyhow::Result<(Process, String)> {
    let export = lab.path().join("trace.json");
    let sources = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()?;
    let mut command = lab.command(binaries::count_lines());
    command
        .arg(&sources)
        .arg(&export)
        .env("TRACE_TEF_TLDR_SOCKET", socket)
        .env("COUNT_LINES_PAUSE_MS", pause_ms);
    let traced = Process::start(&mut command);
    let session = format!("count-{}", traced.id());
    println!("$ count_lines {} {} &", sources.display(), export.display());
    Ok((traced, session))
}

/// Returns the lines that `test-live` prints for the trace on disk.
fn read_trace(directory: &Path, arguments: &[&str]) -> Vec<String> {
    let mut reader = Command::new(binaries::test_live());
    Process::start(reader.arg(directory).args(arguments))
        .wait()
        .expect_success()
}
