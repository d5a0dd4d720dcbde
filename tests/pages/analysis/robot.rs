//! A node of ROS 2 as `ros2 trace` records it, for 20 s: a timer of 10 ms, and a subscription whose
//! callback sometimes takes so long that the timer is late.

use std::path::Path;

use ctf::write::Value::{Signed, Text, Unsigned};

use super::recording::{
    MICROSECOND as US, MILLISECOND as MS, Place, Recording, SECOND, TEN_O_CLOCK,
};

const PERIOD: u64 = 10 * MS;
const TICKS: u64 = 2000;
/// The subscription is called after each tenth tick.
const TICKS_PER_MESSAGE: u64 = 10;

const PLACE: Place = Place {
    cpu: 0,
    process: 700,
    thread: 700,
};
const NODE: (&str, ctf::write::Value<'static>) = ("node_handle", Unsigned(0x1000));
const TIMER: (&str, ctf::write::Value<'static>) = ("timer_handle", Unsigned(0x2000));
const ON_TIMER: u64 = 0x3000;
const ON_SCAN: u64 = 0x4000;

pub(super) fn record(directory: &Path) {
    let mut robot = Recording::new("robot", &[("procname", "controller")]);
    let begin = TEN_O_CLOCK;
    node(&mut robot, begin);
    let mut free = 0;
    for tick in 1..=TICKS {
        let due = begin + SECOND + tick * PERIOD;
        if due + PERIOD <= free {
            // The executor skips what the next call is due for, too.
            continue;
        }
        let started = (due + 40 * US + tick * 29 % 17 * 5 * US).max(free);
        let ended = started + 1200 * US + tick * 31 % 13 * 40 * US;
        callback(&mut robot, ON_TIMER, started, ended);
        free = ended + 20 * US;
        if tick % TICKS_PER_MESSAGE == 0 {
            let message = tick / TICKS_PER_MESSAGE;
            let sent = ended + 100 * US;
            let taken = sent + 300 * US + message * 17 % 11 * 50 * US;
            let duration = match message % 25 {
                0 => 11 * MS + message * 80 * US,
                _ => 2 * MS + message * 19 % 7 * 100 * US,
            };
            let take = [
                ("rmw_subscription_handle", Unsigned(0x5100)),
                ("message", Unsigned(0x6000)),
                ("source_timestamp", Signed(sent as i64)),
                ("taken", Unsigned(1)),
            ];
            robot.emit(taken, PLACE, "ros2:rmw_take", &take);
            callback(
                &mut robot,
                ON_SCAN,
                taken + 30 * US,
                taken + 30 * US + duration,
            );
            free = taken + 50 * US + duration;
        }
    }
    robot.write(directory);
}

/// What is recorded when the node is made.
fn node(robot: &mut Recording, begin: u64) {
    let callback = |address| ("callback", Unsigned(address));
    let mut at = begin;
    let mut emit = |name, fields: &[(&'static str, ctf::write::Value<'static>)]| {
        at += 10 * US;
        robot.emit(at, PLACE, name, fields);
    };
    emit(
        "ros2:rcl_node_init",
        &[
            NODE,
            ("rmw_handle", Unsigned(0x1100)),
            ("node_name", Text("controller")),
            ("namespace", Text("/")),
        ],
    );
    let period = ("period", Signed(PERIOD as i64));
    emit("ros2:rcl_timer_init", &[TIMER, period]);
    emit(
        "ros2:rclcpp_timer_callback_added",
        &[TIMER, callback(ON_TIMER)],
    );
    let symbol = ("symbol", Text("Controller::on_timer()"));
    emit(
        "ros2:rclcpp_callback_register",
        &[callback(ON_TIMER), symbol],
    );
    emit("ros2:rclcpp_timer_link_node", &[TIMER, NODE]);
    emit(
        "ros2:rcl_subscription_init",
        &[
            ("subscription_handle", Unsigned(0x5000)),
            NODE,
            ("rmw_subscription_handle", Unsigned(0x5100)),
            ("topic_name", Text("/scan")),
            ("queue_depth", Unsigned(10)),
        ],
    );
    let symbol = ("symbol", Text("Controller::on_scan(LaserScan)"));
    emit(
        "ros2:rclcpp_callback_register",
        &[callback(ON_SCAN), symbol],
    );
}

fn callback(robot: &mut Recording, address: u64, started: u64, ended: u64) {
    let callback = ("callback", Unsigned(address));
    let is_intra = ("is_intra_process", Signed(0));
    robot.emit(started, PLACE, "ros2:callback_start", &[callback, is_intra]);
    robot.emit(ended, PLACE, "ros2:callback_end", &[callback]);
}
