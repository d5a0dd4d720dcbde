//! `doc/ros2.md`, with a program that has the events of a node of ROS 2.

use std::io::Write;
use std::process::Stdio;

use tests::lab::Lab;
use tests::machine::Machine;
use tests::network::{Host, Network};
use tests::page::Page;
use tests::process::Process;
use tests::{binaries, peers, traced_app, wait_until};

/// The port of the page that `test-live web` serves.
const WEB: u16 = 5380;

/// Answers `ros2 run PACKAGE NODE` by the program, which makes 20 callbacks.
const ROS2: &str = r"
ros2() { /opt/ros2-node 20 1000; }
export LTTNG_UST_REGISTER_TIMEOUT=-1
";

const CALLBACKS: usize = 20;

#[test]
fn commands_for_ros_2_record_a_node_on_a_remote_relay_and_show_its_callbacks_as_spans() {
    let lab = Lab::new();
    let Some(network) = Network::create() else {
        return;
    };
    let _ = (
        binaries::relayd(),
        binaries::consumer(),
        binaries::test_live(),
    );
    let _ = (traced_app::ros2_node(), peers::program("lttng"));
    let mut page = Page::open("doc/ros2.md");
    let collector = Machine::start(&lab, &network, Host::Collector);
    let robot = Machine::start(&lab, &network, Host::Traced);
    let _relay = collector.start_script(&page.commands("relayd -o"));
    collector.wait_for_port(5344);
    let _web = collector.start_script(&page.commands("test-live web"));
    collector.wait_for_port(WEB);

    robot.run(&page.commands("lttng create"));
    let mut text = collector.start_script(&page.commands("test-live --sink log"));
    text.wait_for_stderr_text("robot");
    robot.run(&format!("{ROS2}{}", page.commands("ros2 run")));
    wait_until("the page has the events of the node", || {
        let path = "/download?format=tef&from=0&to=9000000000000000000";
        let events = collector.get(WEB, path);
        events.matches(r#""ph":"X""#).count() == CALLBACKS
    });
    robot.run(&page.commands("lttng destroy"));
    let lines = text.wait().expect_success();
    let spans = lines
        .iter()
        .filter(|line| line.contains("ros2:callback_end ("));
    assert_eq!(spans.count(), CALLBACKS, "{lines:#?}");

    let selected = collector.run(&page.commands("--filter"));
    // The node and its publisher, both again, 20 begins and ends, and what they publish.
    assert_eq!(selected.len(), 2 + 2 + 2 * CALLBACKS + CALLBACKS);
    let counted = collector.run(&page.commands("test-live top"));
    let names: Vec<&String> = counted
        .iter()
        .filter(|l| l.contains("ros2:callback_start"))
        .collect();
    assert!(!names.is_empty(), "{counted:#?}");
    let read = collector.run(&page.commands("babeltrace2"));
    let read = read
        .iter()
        .filter(|line| line.contains("ros2:callback_start"));
    assert!(read.count() >= CALLBACKS);

    replay(&collector, &robot, &mut page);
    page.assert_all_used(&[]);
}

/// Runs the commands for what `ros2 trace` has recorded on the robot: here a copy of what the relay
/// has.
fn replay(collector: &Machine, robot: &Machine, page: &mut Page) {
    let archive = collector
        .shell("cd /srv/traces/traced/robot-*; tar -c .")
        .output();
    let unpack = "mkdir -p ~/.ros/tracing/robot; cd ~/.ros/tracing/robot; tar -x";
    let mut unpack = Process::start(robot.shell(unpack).stdin(Stdio::piped()));
    let mut input = unpack.stdin().unwrap();
    input.write_all(&archive.unwrap().stdout).unwrap();
    drop(input);
    unpack.wait().expect_success();
    // Enter is pressed at once.
    robot.run(&format!(
        "yes '' | {{ {}\n}}",
        page.commands("consumer replay")
    ));
    let sessions = collector.run("ls /srv/traces/traced");
    for name in ["again-", "robot-"] {
        let found = sessions.iter().filter(|session| session.starts_with(name));
        assert!(found.count() >= 1, "{sessions:?}");
    }
}
