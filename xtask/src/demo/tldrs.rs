//! Nothing but our own programs: several short-lived processes write to the tldrs socket of the
//! agent, and are watched from the relay.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::Command;

use anyhow::ensure;
use tests::binaries;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::viewer::hostname;

use super::Shown;

/// Between two files that the traced processes read, so that there is something to watch.
const PAUSE_MS: &str = "15";

pub(super) fn run() -> anyhow::Result<()> {
    eprintln!("xtask: building relayd, consumer, test-live and a small program to be traced");
    binaries::relayd();
    binaries::consumer();
    binaries::test_live();
    let program = binaries::count_lines();

    let lab = Lab::new();
    let relay = Relay::start(&lab);
    println!("$ relayd -o {}", relay.output.display());
    let socket = lab.path().join("tldrs.socket");
    let collector = format!(
        "net://{}:{}:{}",
        relay.control.ip(),
        relay.control.port(),
        relay.data.port()
    );
    let mut agent = lab.command(binaries::consumer());
    agent
        .args(["serve", "-v", "-U", &collector])
        .arg(format!("--tldrs={}", socket.display()))
        .arg(format!("--tldrs-dir={}", lab.directory("tldrs").display()))
        .arg(format!("--socket={}", lab.path().join("status").display()));
    let mut agent = Process::start(&mut agent);
    agent.wait_for_stderr("the agent is ready", |line| {
        line.contains("consumer::agent: ready").then_some(())
    });
    println!(
        "$ consumer serve -U {collector} --tldrs={}",
        socket.display()
    );

    let export = lab.path().join("trace.json");
    let sources = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()?;
    let mut traced = lab.command(program);
    traced
        .arg(&sources)
        .arg(&export)
        .env("TRACE_TEF_TLDR_SOCKET", &socket)
        .env("COUNT_LINES_PAUSE_MS", PAUSE_MS);
    let traced = Process::start(&mut traced);
    let session = format!("count-{}", traced.id());
    println!("$ count_lines {} {} &", sources.display(), export.display());
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
    let mut shown = Shown::new(Process::start(&mut viewer));
    while shown.more()? {}
    let shown = shown.end()?;
    traced.wait().expect_success();

    agent.signal(rustix::process::Signal::TERM);
    ensure!(
        agent.wait().status.success(),
        "consumer did not end in good order"
    );
    let output = relay.output.clone();
    ensure!(
        relay.stop().status.success(),
        "relayd did not end in good order"
    );
    let read = |arguments: &[&str]| {
        let mut reader = Command::new(binaries::test_live());
        Process::start(reader.arg(&output).args(arguments))
            .wait()
            .expect_success()
    };
    let on_disk = read(&["--quiet"]);
    let json = lab.path().join("perfetto.json");
    read(&[
        "--quiet",
        "--sink=tef",
        "--for=perfetto",
        "-w",
        &json.to_string_lossy(),
    ]);
    let directory = lab.keep();
    println!("\nThe session has ended, and so has the viewer.");
    println!(
        "{} events shown live, {} in the trace. To see them again:",
        shown.len(),
        on_disk.len()
    );
    println!("$ {} {}", binaries::test_live().display(), output.display());
    println!("Or open in https://ui.perfetto.dev: {}", json.display());
    ensure!(
        !shown.is_empty() && shown.len() == on_disk.len(),
        "they should be as many"
    );
    ensure!(directory.is_dir(), "the trace is gone");
    Ok(())
}
