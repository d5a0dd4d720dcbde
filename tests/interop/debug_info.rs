//! `test-live --debug-info` on recordings of LTTng-UST prints the same bytes as Babeltrace 2.

use std::path::{Path, PathBuf};
use std::process::Command;

use tests::babeltrace::Babeltrace;
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::process::Process;
use tests::relay::Relay;
use tests::{peers, test_live};

/// Events of the application.
const APPLICATION_EVENTS: usize = 18;

/// Compiles a source file of `tracee/`.
fn compile(lab: &Lab, source: &str, name: &str, options: &[&str]) -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tracee");
    let built = lab.path().join(name);
    let mut cc = lab.command(peers::program("cc"));
    cc.args(["-g", "-Wall", "-I"]).arg(&directory).args(options);
    cc.arg(directory.join(source)).arg("-o").arg(&built);
    run(cc.args(["-llttng-ust", "-ldl"]));
    built
}

fn run(command: &mut Command) {
    Process::start(command).wait().expect_success();
}

/// Records applications, and returns the directory of the recording.
fn record(lab: &Lab, applications: &[&Path]) -> PathBuf {
    let relay = Relay::start(lab);
    let daemon = SessionDaemon::start(lab);
    daemon.create_session("located", &relay, None);
    let enable = ["enable-event", "-u", "-s", "located"];
    daemon.lttng(&[&enable[..], &["tracee:*,lttng_ust_statedump:*"]].concat());
    daemon.lttng(&[
        "add-context",
        "-u",
        "-s",
        "located",
        "-t",
        "vpid",
        "-t",
        "ip",
    ]);
    daemon.lttng(&["start", "located"]);
    for application in applications {
        run(&mut lab.traced_command(application));
    }
    daemon.lttng(&["destroy", "located"]);
    relay.output.clone()
}

/// Checks that a recording is printed as Babeltrace 2 prints it, and returns the lines.
fn assert_same_text(lab: &Lab, directory: &Path, options: &[&str]) -> Vec<String> {
    let options = [&["--clock-gmt"], options].concat();
    let theirs = Babeltrace::Two.read_with(&options, directory);
    let ours = test_live::read(lab, &options, directory);
    assert!(theirs.status.success(), "{:?}", theirs.stderr);
    assert!(!theirs.stdout.is_empty());
    for (ours, theirs) in ours.stdout.iter().zip(&theirs.stdout) {
        assert_eq!(ours, theirs, "{options:?}");
    }
    assert_eq!(ours.stdout_bytes, theirs.stdout_bytes, "{options:?}");
    ours.expect_success()
}

/// Counts the events of the application whose location has this text.
fn count(lines: &[String], text: &str) -> usize {
    let ticks = lines.iter().filter(|line| line.contains("tracee:tick"));
    ticks.filter(|line| line.contains(text)).count()
}

#[test]
fn locations_in_programs_are_those_of_babeltrace() {
    let lab = Lab::new();
    let pie = compile(&lab, "located.c", "pie", &["-O2", "-fPIE", "-pie"]);
    let fixed = compile(&lab, "located.c", "fixed", &["-O0", "-fno-pie", "-no-pie"]);
    let applications = [&*pie, &*fixed];
    let recorded = record(&lab, &applications);

    let events = 2 * APPLICATION_EVENTS;
    for options in [
        &["--debug-info"][..],
        &["--debug-info", "--debug-info-full-path"],
        &["--debug-info", "-n", "all", "-f", "all"],
    ] {
        let lines = assert_same_text(&lab, &recorded, options);
        assert_eq!(count(&lines, "located.c:"), 2 * APPLICATION_EVENTS);
        assert_eq!(count(&lines, "fixed@0x"), APPLICATION_EVENTS);
        assert_eq!(count(&lines, "pie+0x"), APPLICATION_EVENTS);
        assert_eq!(count(&lines, ""), events);
    }
    let lines = assert_same_text(&lab, &recorded, &[]);
    assert_eq!(count(&lines, "located.c:"), 0);
    assert_eq!(count(&lines, ""), events);
}

#[test]
fn separate_debug_information_is_found_by_debug_link() {
    let lab = Lab::new();
    for (name, id) in [("linked", "--build-id=none"), ("named", "--build-id=sha1")] {
        let lab = Lab::new_in(lab.path());
        let id = format!("-Wl,{id}");
        let program = compile(&lab, "located.c", name, &["-O2", &id]);
        let debug = lab.path().join("debug");
        let beside = lab.path().join(format!("{name}.debug"));
        let objcopy = || lab.command(peers::program("objcopy"));
        run(objcopy().arg("--only-keep-debug").args([&program, &beside]));
        let link = format!("--add-gnu-debuglink={}", beside.display());
        run(objcopy().args(["--strip-all", &link]).arg(&program));
        let recorded = record(&lab, &[&program]);

        let options = ["--debug-info", "--debug-info-dir", debug.to_str().unwrap()];
        let lines = assert_same_text(&lab, &recorded, &options);
        assert_eq!(count(&lines, "located.c:"), APPLICATION_EVENTS, "{name}");

        // Below the directory, by the path of the program.
        let below = debug.join(lab.path().strip_prefix("/").unwrap());
        std::fs::create_dir_all(&below).unwrap();
        std::fs::rename(&beside, below.join(beside.file_name().unwrap())).unwrap();
        let lines = assert_same_text(&lab, &recorded, &options);
        assert_eq!(count(&lines, "located.c:"), APPLICATION_EVENTS, "{name}");
        let lines = assert_same_text(&lab, &recorded, &["--debug-info"]);
        assert_eq!(count(&lines, "located.c:"), 0, "{name}");
    }
}
