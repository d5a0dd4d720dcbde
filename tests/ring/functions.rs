//! Functions of programs compiled with `-finstrument-functions`, recorded by
//! `libtrace_ring_functions.so`: every call is in the trace once, and the trace alone is enough to
//! name its function with the tools of binutils.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use tests::babeltrace::Babeltrace;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::{binaries, test_live, wait_until};

use crate::instrumented::{Calls, Event, Use, plugin, program, run};
use crate::system::{
    Agent, directories, read_trace, rings, rings_command, session_directories_of,
    session_directory_of,
};

/// Runs a program to its end; returns its process id and its lines.
fn run_program(command: &mut Command) -> (u32, Vec<String>) {
    let process = Process::start(command);
    (process.id(), process.wait().expect_success())
}

/// Reads a trace with babeltrace2 and with test-live, which must agree. Returns the events and the
/// number of those that were lost.
fn read_both(lab: &Lab, directory: &Path) -> (Vec<Event>, u64) {
    let (lines, lost) = read_trace(directory);
    let theirs: Vec<_> = lines.iter().map(|line| Event::from_line(line)).collect();
    let ours = test_live::read(lab, &["--sink", "json"], directory).expect_success();
    let ours = ours.iter().map(|line| Event::from_json(line));
    assert!(ours.eq(theirs.iter().cloned()));
    (theirs, lost)
}

/// Reads a trace in which nothing is lost.
fn read_calls(lab: &Lab, directory: &Path) -> Calls {
    let (events, lost) = read_both(lab, directory);
    assert_eq!(lost, 0);
    let calls = Calls::of(&events);
    calls.assert_build_ids();
    calls
}

fn assert_counts(calls: &Calls, expected: &[(&str, u64)]) {
    for (name, count) in expected {
        assert_eq!(calls.counts.get(*name), Some(count), "{name}: {calls:?}");
    }
}

#[test]
fn library_exports_only_what_it_intercepts() {
    let mut nm = Command::new("nm");
    nm.args(["--dynamic", "--defined-only"]);
    let symbols = run(nm.arg(binaries::ring_functions()));
    let names = symbols.iter().map(|line| line.rsplit_once(' ').unwrap().1);
    let names: Vec<_> = names.collect();
    let expected = [
        "__cyg_profile_func_enter",
        "__cyg_profile_func_exit",
        "dlclose",
    ];
    assert_eq!(names, expected);
}

#[test]
fn every_call_is_recorded_once_and_has_a_name() {
    for (way, options) in [
        (Use::Preloaded, &["-std=c++17", "-O0"]),
        (Use::Linked, &["-std=c++11", "-O1"]),
    ] {
        let (lab, relay) = Relay::start_in_new_lab();
        let agent = Agent::start(&lab, &relay, &[]);
        let mut command = program(&lab, "program.cpp", options, way);
        let plugins = ["first_plugin", "second_plugin", "first_plugin"];
        command
            .args([
                "leaves",
                "recursion",
                "exceptions",
                "threads",
                "signals",
                "plugins",
            ])
            .args(plugins.map(|name| plugin(&lab, name)));
        let (pid, _) = run_program(&mut command);
        agent.stop(&lab);
        let calls = read_calls(&lab, &session_directory_of("program", &relay.output, pid));
        let expected = [
            ("leaf", 1 + 100_000 + 10 + 4 * 1001 + 1),
            ("call_leaf", 1 + 4),
            ("recurse", 501),
            ("throw_below", 100),
            ("catch_thrown", 10),
            ("at_thread_end", 4),
            ("on_signal", 10),
            ("call_plugin", 3),
            ("plugin_work", 3),
            ("first_plugin", 20),
            ("second_plugin", 10),
            ("before_main", 1),
            ("at_exit", 1),
            ("main", 1),
        ];
        assert_counts(&calls, &expected);
        let is_plugin = |(path, _): &&(String, u64)| path.ends_with("_plugin.so");
        let bases: Vec<_> = calls.loads.iter().filter(is_plugin).collect();
        assert_eq!(bases.len(), 3, "{bases:?}");
        // Otherwise nothing is tested of an address that means another function later.
        assert!(
            bases.iter().all(|(_, base)| *base == bases[0].1),
            "{bases:?}"
        );
        assert_eq!(calls.unloads, [bases[0].1; 3]);
    }
}

#[test]
fn spans_and_stacks_of_instrumented_functions_have_their_addresses() {
    let (lab, relay) = Relay::start_in_new_lab();
    let mut command = program(&lab, "program.cpp", &["-std=c++17"], Use::Preloaded);
    let (pid, _) = run_program(command.args(["recursion", "threads"]));
    Agent::start(&lab, &relay, &[]).stop(&lab);
    let directory = session_directory_of("program", &relay.output, pid);
    let (events, _) = read_both(&lab, &directory);
    let entries = events
        .iter()
        .filter(|event| event.name.ends_with("func_entry"));
    let mut entries: Vec<_> = entries.map(|event| event.number("addr")).collect();
    let mut spans = lab.command(binaries::test_live());
    spans.args(["spans", "--json"]).arg(&directory);
    let spans = run(&mut spans).join("\n");
    entries.sort_unstable();
    for called in entries.chunk_by(|a, b| a == b) {
        let name = format!("{:#x}", called[0]);
        assert!(spans.contains(&name), "{name}: {spans}");
    }
    let folded = test_live::read(&lab, &["--sink", "folded"], &directory).expect_success();
    let deepest = folded.iter().map(|line| line.split(';').count()).max();
    // The process, the thread, main, run and 501 calls of the recursion.
    assert_eq!(deepest, Some(505));

    // The names of functions of C are those that binutils gives to the addresses; those of C++ are
    // not mangled in debug information.
    let mut named = lab.command(binaries::test_live());
    named
        .args(["spans", "--json", "--debug-info"])
        .arg(&directory);
    let rows = run(&mut named).join("\n");
    let rows: Vec<serde_json::Value> = serde_json::from_str(&rows).unwrap();
    let names = rows.iter().map(|row| row["name"].as_str().unwrap());
    let names: BTreeSet<_> = names.collect();
    assert!(
        names.iter().all(|name| !name.starts_with("0x")),
        "{names:?}"
    );
    let counts = Calls::of(&events).counts;
    let of_c = counts.keys().filter(|name| !name.starts_with("_Z"));
    let of_c: Vec<_> = of_c.collect();
    assert!(of_c.len() > 3, "{of_c:?}");
    assert!(
        of_c.iter().all(|name| names.contains(name.as_str())),
        "{of_c:?}"
    );
    let words = ["--sink", "folded", "--debug-info"];
    let folded = test_live::read(&lab, &words, &directory).expect_success();
    let recursion = [";recurse"; 501].concat();
    assert!(
        folded.iter().any(|line| line.contains(&recursion)),
        "{folded:?}"
    );
    let words = ["--sink", "tef", "--for", "any", "--debug-info"];
    let tef = test_live::read(&lab, &words, &directory).expect_success();
    assert!(tef.iter().any(|line| line.contains("\"recurse\"")));
}

#[test]
fn forked_children_write_a_list_and_calls_of_their_own() {
    let (lab, relay) = Relay::start_in_new_lab();
    let mut command = program(&lab, "program.cpp", &["-std=c++17"], Use::Preloaded);
    let (parent, lines) = run_program(command.args(["leaves", "forks"]));
    Agent::start(&lab, &relay, &[]).stop(&lab);
    let children = lines.iter().filter_map(|line| line.strip_prefix("child "));
    let children: Vec<u32> = children.map(|id| id.parse().unwrap()).collect();
    let [inner, outer] = children[..] else {
        panic!("{lines:?}")
    };
    let calls = |pid| read_calls(&lab, &session_directory_of("program", &relay.output, pid));
    let of_parent = calls(parent);
    assert_counts(
        &of_parent,
        &[("leaf", 100_002), ("call_leaf", 1), ("fork_child", 1)],
    );
    assert_counts(
        &calls(outer),
        &[("leaf", 6), ("call_leaf", 1), ("fork_child", 1)],
    );
    assert_counts(
        &calls(inner),
        &[("leaf", 6), ("call_leaf", 1), ("at_exit", 1)],
    );
}

#[test]
fn signal_handlers_in_the_middle_of_an_event_are_lost_whole_and_counted() {
    let (lab, relay) = Relay::start_in_new_lab();
    let mut command = program(&lab, "program.cpp", &["-std=c++17"], Use::Preloaded);
    command.env("TRACE_RING_SIZE", "256M").arg("interrupts");
    let (pid, lines) = run_program(&mut command);
    Agent::start(&lab, &relay, &[]).stop(&lab);
    let handled = lines.iter().find_map(|line| line.strip_prefix("handled "));
    let handled: u64 = handled.unwrap().parse().unwrap();
    let directory = session_directory_of("program", &relay.output, pid);
    let (lines, lost) = read_trace(&directory);
    let events: Vec<_> = lines.iter().map(|line| Event::from_line(line)).collect();
    let recorded = Calls::of(&events).counts["on_signal"];
    // Each handler that is lost would have had an entry and an exit.
    assert_eq!((handled - recorded) * 2, lost);
    assert!(handled >= 2000 && recorded > 100, "{recorded} of {handled}");
}

#[test]
fn instrumented_allocator_is_recorded_without_recursion() {
    let (lab, relay) = Relay::start_in_new_lab();
    let options = ["-std=c11", "-no-pie", "-D_GNU_SOURCE"];
    let mut command = program(&lab, "allocator.c", &options, Use::Preloaded);
    let (pid, _) = run_program(&mut command);
    Agent::start(&lab, &relay, &[]).stop(&lab);
    let directory = session_directory_of("allocator", &relay.output, pid);
    let (lines, _) = read_trace(&directory);
    let events: Vec<_> = lines.iter().map(|line| Event::from_line(line)).collect();
    let calls = Calls::of(&events);
    calls.assert_build_ids();
    assert_counts(&calls, &[("allocate", 1000), ("main", 1)]);
    assert!(calls.counts["malloc"] >= 1000 && calls.counts["free"] >= 1000);
}

#[test]
fn flight_recorder_keeps_the_list_when_functions_have_overwritten_their_ring() {
    let lab = Lab::new();
    let mut command = program(&lab, "program.cpp", &["-std=c++17"], Use::Preloaded);
    command
        .env("TRACE_RING", "overwrite")
        .env("TRACE_RING_SIZE", "64K");
    let (pid, _) = run_program(command.arg("leaves"));
    let output = lab.path().join("snapshot");
    let snapshot = ["--snapshot", output.to_str().unwrap()];
    run(&mut rings_command(&lab, &snapshot));
    let directory = session_directory_of("program", &output, pid);
    let lines = Babeltrace::Two.read(&directory).stdout;
    let events: Vec<_> = lines.iter().map(|line| Event::from_line(line)).collect();
    let (functions, objects): (Vec<_>, Vec<_>) = events
        .iter()
        .partition(|event| event.name.starts_with("lttng_ust_cyg_profile:"));
    assert!(
        (100..100_000).contains(&functions.len()),
        "{}",
        functions.len()
    );
    let mut objects = objects
        .iter()
        .filter(|event| event.name.ends_with(":bin_info"));
    let program = objects.find(|event| event.fields["path"].ends_with("/program"));
    let (base, size) = program
        .map(|event| (event.number("baddr"), event.number("memsz")))
        .unwrap();
    for function in functions {
        assert!(
            (base..base + size).contains(&function.number("addr")),
            "{function:?}"
        );
    }
}

#[test]
fn every_trace_of_a_process_has_the_list_and_functions_can_be_switched_on_later() {
    let (lab, relay) = Relay::start_in_new_lab();
    let mut command = program(&lab, "program.cpp", &["-std=c++17"], Use::Preloaded);
    command.env("TRACE_RING_FILTER", "info").arg("endless");
    let process = Process::start(&mut command);
    let pid = process.id();
    wait_until("the program has a directory", || {
        directories(&lab).len() == 1
    });
    let on = ["--enable", "lttng_ust_cyg_profile=debug"];
    run(&mut rings_command(&lab, &on));
    let sessions = || match relay.output.is_dir() {
        true => session_directories_of("program", &relay.output, pid),
        false => Vec::new(),
    };
    for number in 1..=2 {
        let agent = Agent::start(&lab, &relay, &[]);
        wait_until("the trace has functions after its list", || {
            let sessions = sessions();
            let lines = sessions.iter().map(|session| {
                let lines = Babeltrace::Two.read(session).stdout;
                let end = lines.iter().position(|line| line.contains("statedump:end"));
                end.map_or(0, |end| lines.len() - end)
            });
            sessions.len() == number && lines.min() > Some(100)
        });
        agent.stop_with_live_programs();
    }
    process.signal(Signal::KILL);
    let _ = process.wait();
    for session in sessions() {
        let (lines, _) = read_trace(&session);
        let lists = lines.iter().filter(|line| line.contains("statedump:start"));
        assert_eq!(lists.count(), 1, "{}", session.display());
    }
}

#[test]
fn switched_off_tracing_leaves_nothing() {
    let lab = Lab::new();
    let mut command = program(&lab, "program.cpp", &["-std=c++17"], Use::Preloaded);
    run_program(command.env("TRACE_RING", "off").arg("leaves"));
    assert!(rings(&lab).is_dir());
    assert_eq!(directories(&lab), [""; 0]);
}
