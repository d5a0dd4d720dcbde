//! `doc/analysis.md`: its commands are run on recordings that have the same events each time, and
//! print what the page says. Only the times of a program that LTTng traces differ.

mod kernel;
mod recording;
mod robot;
mod shop;

use std::fs;
use std::path::Path;

use tests::browser::Browser;
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::perfetto;
use tests::process::Process;
use tests::{binaries, peers};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../doc/analysis.md");
/// What a user installs, and the tests have.
const NOT_RUN: &str = "pip install";
/// The recording of a program that runs, whose durations differ.
const LIVE: &str = " functions";
/// The directory in which the page has its recordings.
const DIRECTORY: &str = "/srv/traces";
const PERFETTO_TRACE: &str = "kernel.pftrace";
const UNITS: [&str; 4] = ["ns", "us", "ms", "s"];

/// A piece of the page: what is between two fences, or between such pieces.
#[derive(Debug)]
struct Piece {
    /// What follows the fence, as `sh`; absent if this is prose.
    language: Option<String>,
    text: String,
}

#[test]
fn commands_for_analysis_print_what_the_page_says() {
    let lab = Lab::new();
    record(&lab);
    let mut pieces = read_page();
    save_first(&lab, &pieces, "python", "ask.py");
    save_first(&lab, &pieces, "sql", "spans.sql");
    let mut perfetto = None;
    let (mut answers, mut differences) = (0, String::new());
    for number in 0..pieces.len() {
        let command = &pieces[number];
        if command.language.as_deref() != Some("sh") || command.text.starts_with(NOT_RUN) {
            continue;
        }
        let session = perfetto
            .as_ref()
            .map(|(browser, _): &(Browser, Process)| browser.url());
        let printed = run(&lab, &command.text, session);
        if perfetto.is_none() && lab.path().join(PERFETTO_TRACE).exists() {
            perfetto = Some(open_perfetto(&lab));
        }
        let is_live = command.text.contains(LIVE);
        let Some(answer) = answer_of(&mut pieces, number) else {
            continue;
        };
        answers += 1;
        let is_same = match is_live {
            true => without_durations(&answer.text) == without_durations(&printed),
            false => answer.text == printed,
        };
        if !is_same {
            differences += &format!("the page has:\n{}\nit is:\n{printed}\n", answer.text);
            answer.text = printed;
        }
    }
    assert_eq!(answers, 20);
    if !differences.is_empty() {
        let page = tests::build_directory().join("analysis.md");
        fs::write(&page, text_of(&pieces)).unwrap();
        panic!(
            "{differences}\nthe page with these answers is {}",
            page.display()
        );
    }
}

/// Makes the recordings that the page names.
fn record(lab: &Lab) {
    kernel::record(&lab.path().join("kernel"));
    shop::record(&lab.path().join("shop"));
    shop::record_build(&lab.path().join("old"), shop::Build::Old);
    shop::record_build(&lab.path().join("new"), shop::Build::New);
    robot::record(&lab.path().join("robot"));
    record_functions(lab);
}

/// Records an instrumented program.
fn record_functions(lab: &Lab) {
    let program = lab.path().join("report");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tracee/functions.c");
    let mut compiler = lab.command(peers::program("cc"));
    compiler.args(["-O0", "-g", "-finstrument-functions", "-o"]);
    Process::start(compiler.arg(&program).arg(source))
        .wait()
        .expect_success();
    let daemon = SessionDaemon::start(lab);
    let output = lab.path().join("functions");
    daemon.lttng(&["create", "functions", "--output", output.to_str().unwrap()]);
    daemon.lttng(&[
        "enable-event",
        "--userspace",
        "lttng_ust_cyg_profile:*,lttng_ust_statedump:*",
    ]);
    daemon.lttng(&["add-context", "--userspace", "--type=vpid", "--type=vtid"]);
    daemon.lttng(&["start"]);
    let mut traced = lab.traced_command(&program);
    traced.env("LD_PRELOAD", "liblttng-ust-cyg-profile.so.1");
    Process::start(&mut traced).wait().expect_success();
    daemon.lttng(&["destroy"]);
}

fn read_page() -> Vec<Piece> {
    let page = fs::read_to_string(PAGE).unwrap();
    let mut pieces = Vec::new();
    for (number, text) in page.split("```").enumerate() {
        let (language, text) = match text.split_once('\n') {
            Some((language, text)) if number % 2 == 1 => (Some(language.to_owned()), text),
            _ => (None, text),
        };
        let text = text.to_owned();
        pieces.push(Piece { language, text });
    }
    pieces
}

fn text_of(pieces: &[Piece]) -> String {
    let texts = pieces.iter().map(|piece| match &piece.language {
        Some(language) => format!("```{language}\n{}```", piece.text),
        None => piece.text.clone(),
    });
    texts.collect()
}

/// The answer after a command: what has a fence without a language, with nothing in between.
fn answer_of(pieces: &mut [Piece], command: usize) -> Option<&mut Piece> {
    let [between, answer] = pieces.get_mut(command + 1..command + 3)? else {
        return None;
    };
    let is_answer = between.text.trim().is_empty() && answer.language.as_deref() == Some("");
    is_answer.then_some(answer)
}

/// Writes the first piece in a language to a file, as the page says.
fn save_first(lab: &Lab, pieces: &[Piece], language: &str, name: &str) {
    let mut pieces = pieces.iter();
    let first = pieces.find(|piece| piece.language.as_deref() == Some(language));
    fs::write(lab.path().join(name), &first.unwrap().text).unwrap();
}

/// Runs commands of the page, and returns what they print.
fn run(lab: &Lab, commands: &str, perfetto: Option<String>) -> String {
    let programs = binaries::test_live()
        .parent()
        .unwrap()
        .display()
        .to_string();
    let mut shell = lab.command("bash");
    shell.args(["-o", "pipefail", "-ec", commands]);
    shell.env(
        "PATH",
        format!("{programs}:{}", std::env::var("PATH").unwrap()),
    );
    let adapter = Path::new(env!("CARGO_MANIFEST_DIR")).join("pages/analysis");
    let modules = [peers::DUCKDB.directory(), adapter];
    shell.env("PYTHONPATH", std::env::join_paths(modules).unwrap());
    shell.env("PYTHONDONTWRITEBYTECODE", "1");
    shell.env("PERFETTO_TRACE", PERFETTO_TRACE);
    shell.envs(perfetto.map(|session| ("PERFETTO_SESSION", session)));
    let ended = Process::start(&mut shell).wait();
    assert!(
        ended.status.success(),
        "{commands}\n{}",
        ended.stderr.join("\n")
    );
    let printed = String::from_utf8(ended.stdout_bytes).unwrap();
    printed.replace(lab.path().to_str().unwrap(), DIRECTORY)
}

/// Opens in Perfetto the trace that a command of the page has written.
fn open_perfetto(lab: &Lab) -> (Browser, Process) {
    let trace = lab.path().join(PERFETTO_TRACE);
    perfetto::open_output(lab, PERFETTO_TRACE, |path| {
        fs::copy(trace, path).unwrap();
    })
}

/// The words of each line without durations and their places.
fn without_durations(text: &str) -> Vec<Vec<&str>> {
    let is_number = |word: &&str| word.parse::<f64>().is_ok();
    let mut lines: Vec<_> = text
        .lines()
        .map(|line| {
            let mut words = Vec::new();
            for word in line.split_whitespace() {
                let is_duration = UNITS.contains(&word) && words.last().is_some_and(is_number);
                match is_duration {
                    true => drop(words.pop()),
                    false => words.push(word),
                }
            }
            // A stack is followed by nanoseconds.
            if words.last().is_some_and(is_number) {
                words.pop();
            }
            words
        })
        .collect();
    lines.sort_unstable();
    lines
}
