//! The library for C and C++: the examples and a program of these tests are compiled and run, and
//! their rings read.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::panic,
    reason = "a test stops at what it did not expect; its files are small"
)]

#[path = "../../trace-ring-core/tests/process/reader.rs"]
#[allow(dead_code, reason = "shared with the tests of processes")]
mod reader;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use tempfile::TempDir;
use trace_ring_core::Severity;
use trace_ring_core::format::{FieldType, Lost};

use crate::reader::{Event, Process, list_directories, read_process};

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// Returns the directory of `libtrace_ring.a` and `libtrace_ring.so`, which are built first.
fn library_directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        // TARGET/PROFILE/deps/PROGRAM
        let program = std::env::current_exe().unwrap();
        let profile = program.parent().unwrap().parent().unwrap();
        // A directory of its own: this build must not overwrite the library of the build that these
        // tests are part of.
        let target = profile.parent().unwrap().join("c-abi");
        let mut build = Command::new(env!("CARGO"));
        build
            .args(["build", "--package=trace-ring", "--target-dir"])
            .arg(&target)
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        let profile = profile.file_name().unwrap();
        if profile == "release" {
            build.arg("--release");
        }
        check(&build.output().unwrap());
        target.join(profile)
    })
}

fn check(output: &Output) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}

/// How a program gets the library.
#[derive(Clone, Copy, PartialEq)]
enum Link {
    Static,
    Shared,
}

/// A compiled program, and a run directory for it.
struct Program {
    directory: TempDir,
}

impl Program {
    /// Compiles a source file of this package without a warning.
    fn compile(compiler: &str, standard: &str, source: &str, link: Link) -> Self {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let directory = tempfile::tempdir().unwrap();
        let libraries = library_directory();
        let mut command = Command::new(compiler);
        command
            .arg(standard)
            // Signals and constructors are not part of C99.
            .arg("-D_GNU_SOURCE")
            .args(WARNINGS)
            .arg("-I")
            .arg(package.join("include"))
            .arg(package.join(source))
            .arg("-o")
            .arg(directory.path().join("program"));
        match link {
            Link::Static => {
                command
                    .arg(libraries.join("libtrace_ring.a"))
                    .args(["-lpthread", "-ldl", "-lm"])
            }
            Link::Shared => command.arg("-L").arg(libraries).arg("-ltrace_ring"),
        };
        let output = command.output();
        let output = output.unwrap_or_else(|error| panic!("{compiler} cannot be run: {error}"));
        check(&output);
        Self { directory }
    }

    /// Runs the program without a filter or mode from the environment of the tests.
    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = Command::new(self.directory.path().join("program"));
        for name in ["TRACE_RING", "TRACE_RING_SIZE", "TRACE_RING_FILTER"] {
            command.env_remove(name);
        }
        command
            .args(arguments)
            .env("LD_LIBRARY_PATH", library_directory())
            .env("TRACE_RING_DIR", self.directory.path().join("run"))
            .envs(variables.iter().copied())
            .output()
            .unwrap()
    }

    fn read(&self) -> Process {
        let directories = list_directories(&self.directory.path().join("run"));
        assert_eq!(directories.len(), 1);
        read_process(&directories[0])
    }
}

fn values(event: &Event) -> Vec<&str> {
    event
        .fields
        .iter()
        .map(|(_, value)| value.as_str())
        .collect()
}

fn check_example(process: &Process) {
    let events = &process.rings[0].events;
    let head: Vec<_> = events[..5]
        .iter()
        .map(|event| (event.name.as_str(), values(event)))
        .collect();
    let expected = [
        ("printf", vec!["before main"]),
        ("started", vec![]),
        (
            "request done",
            vec!["200", "/index.html", "0.25", "true", "[1, 2, 255]"],
        ),
        (
            "request done",
            vec!["404", "/missing", "0.25", "true", "[1, 2, 255]"],
        ),
        ("printf", vec!["signal 10"]),
    ];
    assert_eq!(head, expected);
    for (n, event) in (0..1000).zip(&events[5..]) {
        assert_eq!(event.field("message"), format!("{n} of 1000"));
    }
    assert_eq!(
        (events.len(), process.rings.len(), process.lost()),
        (1005, 1, 0)
    );
    let class = process
        .classes
        .values()
        .find(|class| class.name == "request done")
        .unwrap();
    assert_eq!(
        (class.target.as_str(), class.severity),
        ("app", Severity::Info)
    );
    assert!(class.file.ends_with("app.c") && class.line > 0);
    assert_eq!(class.fields[0], ("status".to_owned(), FieldType::U32));
}

#[test]
fn the_c_example_writes_its_events_with_either_library() {
    for link in [Link::Static, Link::Shared] {
        let program = Program::compile("cc", "-std=c99", "examples/app.c", link);
        check(&program.run(&[], &[]));
        check_example(&program.read());
    }
}

#[test]
fn a_killed_c_program_leaves_every_event() {
    let program = Program::compile("cc", "-std=c99", "examples/app.c", Link::Shared);
    let output = program.run(&["--kill"], &[]);
    assert!(!output.status.success());
    check_example(&program.read());
}

#[test]
fn the_filter_decides_for_c_call_sites() {
    let program = Program::compile("cc", "-std=c11", "examples/app.c", Link::Shared);
    check(&program.run(&[], &[("TRACE_RING_FILTER", "error,app=trace")]));
    assert_eq!(program.read().event_count(), 2005);
    let program = Program::compile("cc", "-std=c11", "examples/app.c", Link::Shared);
    check(&program.run(&[], &[("TRACE_RING_FILTER", "app=error")]));
    assert_eq!(program.read().event_count(), 1);
}

#[test]
fn a_c_program_without_a_run_directory_runs_on() {
    let program = Program::compile("cc", "-std=c99", "examples/app.c", Link::Static);
    let output = program.run(&[], &[("TRACE_RING_DIR", "/dev/null/ring")]);
    check(&output);
    assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 1);
}

#[test]
fn the_cpp_example_writes_its_events() {
    for standard in ["-std=c++11", "-std=c++20"] {
        let program = Program::compile("c++", standard, "examples/app.cpp", Link::Shared);
        check(&program.run(&[], &[]));
        let process = program.read();
        let found: Vec<_> = process.rings[0].events.iter().map(values).collect();
        assert_eq!(found, [vec!["-5", "ABC"], vec!["filled 1"]]);
    }
}

#[test]
fn every_type_of_field_arrives_and_wrong_events_are_counted() {
    let program = Program::compile("cc", "-std=c99", "tests/c_abi/rules.c", Link::Static);
    let output = program.run(&[], &[]);
    check(&output);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors.lines().count(), 1, "{errors}");
    let process = program.read();
    let [cut, every, handler, whole] = &process.rings[0].events[..] else {
        panic!("four events")
    };
    assert_eq!(cut.field("message"), "a text that is ");
    let expected = [
        "255",
        "65535",
        "4294967295",
        "18446744073709551615",
        "-128",
        "-32768",
        "-2147483648",
        "-9223372036854775808",
        "0.5",
        "-0.25",
        "true",
        "",
        "[97, 98, 99]",
    ];
    assert_eq!(values(every), expected);
    assert_eq!(handler.field("message"), "10");
    assert_eq!(values(whole), ["2", "whole"]);
    let lost = Lost {
        full: 0,
        big: 1,
        nested: 1,
    };
    assert_eq!(
        (process.rings[0].control.lost, process.meta.lost_no_ring),
        (lost, 2)
    );
}
