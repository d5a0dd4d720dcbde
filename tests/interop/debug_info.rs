//! `test-live --debug-info` on recordings of LTTng-UST prints the same bytes as Babeltrace 2.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use tests::babeltrace::Babeltrace;
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::process::Process;
use tests::relay::Relay;
use tests::{binaries, peers, test_live};

/// Events of `located.c`.
const APPLICATION_EVENTS: usize = 18;
/// Events of a call of `located_library.c`.
const LIBRARY_EVENTS: usize = 2;
/// What is selected of programs that load nothing later.
const EVENTS: &str = "tracee:*,lttng_ust_statedump:*";

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

/// Runs a program to its end, and returns the lines of its standard output.
fn run(command: &mut Command) -> Vec<String> {
    Process::start(command).wait().expect_success()
}

/// Records the events of applications that `events` select, and returns the directory of the
/// recording.
fn record(lab: &Lab, events: &str, applications: &mut [Command]) -> PathBuf {
    let relay = Relay::start(lab);
    let daemon = SessionDaemon::start(lab);
    daemon.create_session("located", &relay, None);
    daemon.lttng(&["enable-event", "-u", "-s", "located", events]);
    let contexts = ["-t", "vpid", "-t", "vtid", "-t", "ip"];
    daemon.lttng(&[&["add-context", "-u", "-s", "located"], &contexts[..]].concat());
    daemon.lttng(&["start", "located"]);
    for application in applications {
        run(application);
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
    let mut applications = [pie, fixed].map(|program| lab.traced_command(program));
    let recorded = record(&lab, EVENTS, &mut applications);

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
fn locations_in_shared_objects_are_those_of_babeltrace() {
    let lab = Lab::new();
    let options = ["-O2", "-fPIC", "-shared"];
    let library = compile(&lab, "located_library.c", "liblocated.so", &options);
    let caller = |name: &str, options: &[&str]| {
        // Without the library, it needs no function of liblttng-ust.
        let options = [&["-O2", "-Wl,--no-as-needed"], options].concat();
        compile(&lab, "located_caller.c", name, &options)
    };
    let linked = &caller("linked", &[library.to_str().unwrap()]);
    let opener = &caller("opener", &[]);
    let (dl, both) = ("liblttng-ust-dl.so", "lttng_ust_lib:*,lttng_ust_dl:*");
    for (program, loads, times_opened, preloaded, times_located) in [
        (linked, "lttng_ust_lib:*", 0, "", 1),
        // Nothing tells of what is loaded after the start.
        (opener, "lttng_ust_lib:*", 1, "", 0),
        (opener, "lttng_ust_lib:*", 2, dl, 2),
        (opener, "lttng_ust_dl:*", 1, dl, 1),
        (opener, both, 1, dl, 1),
    ] {
        let lab = Lab::new_in(lab.path());
        let mut command = lab.traced_command(program);
        command.args(std::iter::repeat_n(&library, times_opened));
        command.env("LD_PRELOAD", preloaded);
        let events = format!("{EVENTS},{loads}");
        let recorded = record(&lab, &events, std::slice::from_mut(&mut command));
        let located = times_located * LIBRARY_EVENTS;
        let options = ["--debug-info", "--debug-info-full-path"];
        for options in [&options[..1], &options] {
            let lines = assert_same_text(&lab, &recorded, options);
            assert_eq!(count(&lines, "liblocated.so+0x"), located, "{command:?}");
            assert_eq!(count(&lines, "located_library.c:"), located, "{command:?}");
            assert_eq!(count(&lines, ""), LIBRARY_EVENTS * times_opened.max(1));
        }
    }
}

#[test]
fn separate_debug_information_is_found_by_build_id_below_the_root_of_the_traced_host() {
    let lab = Lab::new();
    let program = compile(&lab, "located.c", "named", &["-O2", "-Wl,--build-id=sha1"]);
    let notes = run(lab.command("readelf").arg("--notes").arg(&program));
    let id = notes
        .iter()
        .find_map(|line| line.trim().strip_prefix("Build ID: "));
    let (first, rest) = id.unwrap().split_at(2);
    let debug = lab.directory(&format!("debug/.build-id/{first}"));
    let separate = debug.join(format!("{rest}.debug"));
    let objcopy = || lab.command(peers::program("objcopy"));
    run(objcopy()
        .arg("--only-keep-debug")
        .args([&program, &separate]));
    run(objcopy().arg("--strip-all").arg(&program));
    let recorded = record(&lab, EVENTS, &mut [lab.traced_command(&program)]);

    let debug = lab.path().join("debug");
    let by_build_id = ["--debug-info-dir", debug.to_str().unwrap()];
    let lines = assert_same_text(&lab, &recorded, &by_build_id);
    assert_eq!(count(&lines, "located.c:"), APPLICATION_EVENTS);

    // The program is now in a copy of the root of the traced host only.
    let root = lab.path().join("root");
    let below = root.join(program.strip_prefix("/").unwrap());
    std::fs::create_dir_all(below.parent().unwrap()).unwrap();
    std::fs::rename(&program, &below).unwrap();
    symlink("/usr", root.join("usr")).unwrap();
    let lines = assert_same_text(&lab, &recorded, &by_build_id);
    assert_eq!(count(&lines, "located.c:"), 0);
    let below_root = ["--debug-info-target-prefix", root.to_str().unwrap()];
    let options = [by_build_id, below_root].concat();
    for options in [
        &options[..],
        &[&options[..], &["--debug-info-full-path"]].concat(),
    ] {
        let lines = assert_same_text(&lab, &recorded, options);
        assert_eq!(count(&lines, "located.c:"), APPLICATION_EVENTS);
        assert_eq!(count(&lines, "named+0x"), APPLICATION_EVENTS);
    }
    let lines = assert_same_text(&lab, &recorded, &below_root);
    assert_eq!(count(&lines, "located.c:"), 0);
    assert_eq!(count(&lines, "named+0x"), APPLICATION_EVENTS);
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
        let recorded = record(&lab, EVENTS, &mut [lab.traced_command(&program)]);

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

#[test]
fn instrumented_functions_have_names_in_all_sinks_that_show_calls() {
    let lab = Lab::new();
    let options = ["-O1", "-finstrument-functions"];
    let program = compile(&lab, "instrumented.c", "instrumented", &options);
    let mut command = lab.traced_command(program);
    command.env("LD_PRELOAD", "liblttng-ust-cyg-profile.so");
    let events = format!("{EVENTS},lttng_ust_cyg_profile:*");
    let recorded = record(&lab, &events, std::slice::from_mut(&mut command));
    assert_same_text(&lab, &recorded, &["--debug-info"]);

    let only_calls = ["--filter", "$name == \"lttng_ust_cyg_profile:*\""];
    let show = |words: &[&str]| {
        let words = [&["--debug-info"], &only_calls[..], words].concat();
        test_live::read(&lab, &words, &recorded).expect_success()
    };
    let stacks = show(&["--sink", "folded"]);
    let stacks: Vec<_> = stacks
        .iter()
        .map(|line| {
            let (stack, _) = line.rsplit_once(' ').unwrap();
            stack.splitn(3, ';').last().unwrap()
        })
        .collect();
    assert_eq!(stacks, ["main", "main;outer", "main;outer;inner"]);

    let log = show(&["--sink", "log"]);
    let functions = log.iter().map(|line| {
        let (_, after) = line.split_once(" addr=").unwrap();
        after.split(' ').next().unwrap()
    });
    let called = [
        "main", "outer", "inner", "inner", "inner", "inner", "outer", "main",
    ];
    assert!(functions.eq(called), "{log:?}");
    assert!(log[2].contains(" src=instrumented.c:"), "{log:?}");

    let mut spans = lab.command(binaries::test_live());
    let spans = run(spans
        .args(["spans", "--json", "--debug-info"])
        .arg(&recorded));
    let spans: Vec<serde_json::Value> = serde_json::from_str(&spans.join("\n")).unwrap();
    let mut spans: Vec<_> = spans
        .iter()
        .map(|span| {
            (
                span["name"].as_str().unwrap().to_owned(),
                span["count"].as_u64().unwrap(),
            )
        })
        .collect();
    spans.sort();
    let counts = [("inner", 2), ("main", 1), ("outer", 1)];
    assert_eq!(spans, counts.map(|(name, count)| (name.to_owned(), count)));
}
