//! The main job, live, on defaults: a real program traced by LTTng, its events streamed to our
//! relay and shown while they happen, the trace left on disk.

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

use crate::packages;

use super::Shown;

/// Between two events.
const PAUSE_US: u32 = 100_000;
/// How often LTTng sends what it has.
const LIVE_TIMER_US: u32 = 100_000;
const SESSION: &str = "demo";

pub(super) fn run(events: usize) -> anyhow::Result<()> {
    packages::provide()?;
    eprintln!("xtask: building relayd, test-live and a small program to be traced");
    binaries::relayd();
    binaries::test_live();
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
    // Without what depends on the event before, so that the lines can be compared.
    viewer.args(["--no-delta", &url]).env("TZ", "UTC");
    let viewer = Process::start(&mut viewer);
    Viewer::connect(relay.live).wait_for_listed(SESSION, |session| session.viewers == 1);

    daemon.lttng(&["start", SESSION]);
    println!("$ lttng start; tracee {}\n", events);
    let traced = traced_app::start(&lab, events, PAUSE_US, "demo");
    let shown = show(viewer, traced, &daemon)?;

    let on_disk = Babeltrace::Two.read(&relay.output).expect_success();
    ensure!(
        relay.stop().status.success(),
        "relayd did not end in good order"
    );
    let directory = lab.keep();
    println!("\n{} events emitted, {} shown live,", events, shown.len());
    println!(
        "{} in the trace, says babeltrace2. To see them again:\n$ {} {}",
        on_disk.len(),
        binaries::test_live().display(),
        directory.join("output").display()
    );
    if !numbers(&shown).into_iter().eq(0..events) || shown != on_disk {
        bail!("they should be the same");
    }
    Ok(())
}

/// Prints what the viewer prints, as it comes; destroys the session when the traced program has
/// ended, and gives all lines when the viewer has.
fn show(
    viewer: Process,
    traced: Process,
    daemon: &SessionDaemon<'_>,
) -> anyhow::Result<Vec<String>> {
    let begun = Instant::now();
    let mut traced = Some(traced);
    let mut shown = Shown::new(viewer);
    while shown.more()? {
        if let Some(ended) = traced.take_if(|traced| !traced.is_running()) {
            ended.wait().expect_success();
            daemon.lttng(&["destroy", SESSION]);
        }
    }
    let lines = shown.end()?;
    println!(
        "\nThe session has ended after {:.1} s, and so has the viewer.",
        begun.elapsed().as_secs_f32()
    );
    Ok(lines)
}
