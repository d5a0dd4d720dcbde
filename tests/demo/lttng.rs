//! The demonstration with LTTng: a program traced by LTTng, its events streamed to the relay and
//! shown while they happen, the trace left on disk.

use std::process::Command;
use std::time::Instant;

use anyhow::{bail, ensure};
use tests::babeltrace::{Babeltrace, numbers};
use tests::binaries;
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::process::Process;
use tests::relay::Relay;
use tests::traced_app;
use tests::viewer::{Viewer, hostname};

use super::ViewerOutput;

/// The pause between two events, in microseconds.
const PAUSE_US: u32 = 100_000;
/// The live timer of the session, in microseconds.
const LIVE_TIMER_US: u32 = 100_000;
const SESSION: &str = "demo";

pub(super) fn run(events: usize) -> anyhow::Result<()> {
    binaries::relayd();
    traced_app::program();

    let lab = Lab::new();
    let relay = Relay::start(&lab);
    println!(
        "relayd listens for LTTng on {} and {},",
        relay.control, relay.data
    );
    println!(
        "for viewers on {}, and writes to {}",
        relay.live,
        relay.output.display()
    );

    let daemon = SessionDaemon::start(&lab);
    daemon.create_session(SESSION, &relay, Some(LIVE_TIMER_US));
    daemon.enable_channel(SESSION, "channel", &[], true);
    println!(
        "$ lttng create {SESSION} --live=100000 --set-url=net://{}",
        relay.control.ip()
    );

    let url = format!("net://{}/host/{}/{SESSION}", relay.live, hostname());
    println!("$ test-live {url}");
    let mut viewer = Command::new(binaries::test_live());
    // Without the time since the event before, so that the lines can be compared with those of
    // babeltrace2.
    viewer.args(["--no-delta", &url]).env("TZ", "UTC");
    let viewer = Process::start(&mut viewer);
    Viewer::connect(relay.live).wait_for_listed(SESSION, |session| session.viewers == 1);

    daemon.lttng(&["start", SESSION]);
    println!("$ lttng start; tracee {}\n", events);
    let traced = traced_app::start(&lab, events, PAUSE_US, "demo");
    let shown = show_events(viewer, traced, &daemon)?;

    let on_disk = Babeltrace::Two.read(&relay.output).expect_success();
    ensure!(
        relay.stop().status.success(),
        "relayd did not exit with success"
    );
    let directory = lab.keep();
    println!("\n{} events emitted, {} shown live,", events, shown.len());
    println!(
        "{} in the trace as babeltrace2 reads it. To show them again:\n$ {} {}",
        on_disk.len(),
        binaries::test_live().display(),
        directory.join("output").display()
    );
    if !numbers(&shown).into_iter().eq(0..events) || shown != on_disk {
        bail!("the events shown live and those in the trace differ");
    }
    Ok(())
}

/// Prints the output of the viewer as it comes, destroys the session when the traced program has
/// exited, and returns all lines when the viewer has exited.
fn show_events(
    viewer: Process,
    traced: Process,
    daemon: &SessionDaemon<'_>,
) -> anyhow::Result<Vec<String>> {
    let begun = Instant::now();
    let mut traced = Some(traced);
    let mut shown = ViewerOutput::new(viewer);
    while shown.print_new()? {
        if let Some(ended) = traced.take_if(|traced| !traced.is_running()) {
            ended.wait().expect_success();
            daemon.lttng(&["destroy", SESSION]);
        }
    }
    let lines = shown.finish()?;
    println!(
        "\nThe session has ended after {:.1} s, and the viewer has exited.",
        begun.elapsed().as_secs_f32()
    );
    Ok(lines)
}
