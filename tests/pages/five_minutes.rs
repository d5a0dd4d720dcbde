//! Runs the commands of the page `doc/five-minutes.md`.

use tests::lab::Lab;
use tests::machine::Machine;
use tests::network::{Host, Network};
use tests::page::Page;
use tests::{binaries, peers, wait_until};

/// The port of the page that `test-live web` serves.
const WEB: u16 = 5380;

/// Commands that change the machine, which tests of packages run, and those that compile for
/// minutes.
const NOT_RUN: [&str; 2] = ["apt-get install", "cargo install"];

/// Answers `cargo run --example NAME` by the program that was built before.
const CARGO: &str = r#"
cargo() {
    while [ "$1" != --example ]; do shift; done
    "/opt/examples/$2"
}
export LTTNG_UST_REGISTER_TIMEOUT=-1
"#;

#[test]
fn commands_of_every_frontend_show_their_events_in_the_page() {
    let lab = Lab::new();
    let Some(network) = Network::create() else {
        return;
    };
    build_programs();
    let _ = (binaries::ring_requests(), peers::program("lttng"));
    let mut page = Page::open("doc/five-minutes.md");
    let machine = Machine::start(&lab, &network, Host::Traced);
    let mut running = vec![machine.start_script(&(page.commands("test-live web") + "\nwait"))];
    machine.wait_for_port(5342);
    machine.wait_for_port(WEB);
    running.push(machine.start_script(&(page.commands("consumer serve") + "\nwait")));
    wait_until("the agent listens", || {
        machine
            .try_run("test -S /tmp/tldrs.socket")
            .status
            .success()
    });
    for (commands, event) in [
        ("perl", r#""name":"work""#),
        ("cargo run", r#""event":"requests:request_begin""#),
        ("lttng create", r#""event":"lttng_ust_libc:malloc""#),
        ("consumer codetracer", r#""function":"greet""#),
        ("consumer replay", "traced/again"),
    ] {
        machine.run(&format!("{CARGO}{}", page.commands(commands)));
        wait_for_event(&machine, event);
    }
    assert!(machine.get(WEB, "/").contains("text/html"));
    page.assert_all_used(&NOT_RUN);
}

#[test]
fn first_screen_of_the_readme_shows_an_event_that_is_sent_to_the_agent() {
    let lab = Lab::new();
    let Some(network) = Network::create() else {
        return;
    };
    build_programs();
    let machine = Machine::start(&lab, &network, Host::Traced);
    let mut readme = Page::open("README.md");
    let _running = machine.start_script(&(readme.commands("test-live web") + "\nwait"));
    readme.assert_all_used(&[]);
    wait_until("the agent listens", || {
        machine
            .try_run("test -S /tmp/tldrs.socket")
            .status
            .success()
    });
    machine.wait_for_port(WEB);
    let mut page = Page::open("doc/five-minutes.md");
    machine.run(&page.commands("perl"));
    wait_for_event(&machine, r#""name":"work""#);
}

fn build_programs() {
    let _ = (
        binaries::relayd(),
        binaries::consumer(),
        binaries::test_live(),
    );
}

/// Waits until the page has an event whose JSON contains a text.
fn wait_for_event(machine: &Machine, text: &str) {
    wait_until(text, || {
        let path = "/download?format=json&from=0&to=9000000000000000000";
        let events = machine.get(WEB, path);
        events.starts_with("HTTP/1.1 200") && events.contains(text)
    });
}
