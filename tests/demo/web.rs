//! The demonstration of `test-live web`: a program runs until it is interrupted, and a URL shows
//! its spans and counters.

use std::process::Command;

use anyhow::{Context, bail};
use tests::binaries;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::wait_for;

use super::tldrs::{start_agent, start_shop};

pub(super) fn run() -> anyhow::Result<()> {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    println!("$ relayd -o {} &", relay.output.display());
    let (_agent, socket) = start_agent(&lab, &relay);
    let _shop = start_shop(&lab, &socket, &[]);

    let target = format!("net://{}", relay.live);
    println!("$ test-live web {target}\n");
    let mut web = Command::new(binaries::test_live());
    web.args(["web", "--listen=127.0.0.1:0", "--seek=beginning", &target]);
    let mut web = Process::start(&mut web);
    let url = wait_for("the URL", || web.stdout().into_iter().next());
    println!("{url}\n\nInterrupt with Ctrl-C.");
    while web.is_running() {
        std::thread::sleep(super::READ_INTERVAL);
    }
    let ended = web.wait();
    let error = ended.stderr.last().context("test-live web has ended")?;
    bail!("test-live web has ended: {error}");
}
