//! Traces to export: of every kind that the tests make or have.

use std::fs;
use std::path::{Path, PathBuf};

use tests::capture_proxy::Capture;
use tests::lab::Lab;
use tests::relay::Relay;
use tests::traces;

/// Returns the synthetic traces.
pub(crate) fn synthetic(lab: &Lab) -> Vec<PathBuf> {
    vec![
        traces::with_every_field_type(lab),
        traces::with_equal_timestamps(lab),
        traces::with_losses(lab),
        traces::with_idle_streams(lab),
        traces::with_restarted_clock(lab),
        traces::with_numbered_events(lab, "numbered", 20_000, 1_000_000_000_000),
    ]
}

/// Returns what a relay has recorded of producers of LTTng 2.15, which were captured.
pub(crate) fn captured(lab: &Lab) -> Vec<PathBuf> {
    let names = ["producer-2.15-live", "producer-2.15-ctf2"];
    let record = |name| {
        let relay = Relay::start(lab);
        let capture = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("data")
            .join(name);
        Capture::load(&capture).replay(&relay);
        let kept = lab.path().join(name);
        fs::rename(&relay.output, &kept).unwrap();
        kept
    };
    names.map(record).into()
}

/// Writes the cases of the reader as traces: they have every class of fields, in every order of
/// bits.
pub(crate) fn reader_cases(lab: &Lab) -> Vec<PathBuf> {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/ctf/tests/cases");
    let mut traces = Vec::new();
    for entry in fs::read_dir(cases).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if name.starts_with("pass-") {
            let directory = lab.directory(name);
            write_case(&directory, &fs::read_to_string(&path).unwrap());
            traces.push(directory);
        }
    }
    traces.sort();
    traces
}

fn write_case(directory: &Path, text: &str) {
    let mut sections: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        if line.starts_with('[') && line.ends_with(']') && !line.contains([',', '"']) {
            sections.push((line, Vec::new()));
        } else if let Some((_, lines)) = sections.last_mut() {
            lines.push(line);
        }
    }
    for (number, (head, lines)) in sections.iter().enumerate() {
        let bytes = || wire::hex::parse(&lines.join("\n")).unwrap();
        let file = directory.join(format!("stream-{number}"));
        match *head {
            "[metadata]" => fs::write(directory.join("metadata"), metadata(lines)).unwrap(),
            "[metadata packets]" => fs::write(directory.join("metadata"), bytes()).unwrap(),
            "[stream]" => fs::write(file, bytes()).unwrap(),
            _ => {}
        }
    }
}

/// Metadata as text. Fragments of CTF 2 begin with a record separator.
fn metadata(lines: &[&str]) -> String {
    let mark = |line: &&str| match line.starts_with('{') {
        true => format!("\u{1e}{line}\n"),
        false => format!("{line}\n"),
    };
    let text: String = lines.iter().map(mark).collect();
    match text.starts_with("/* CTF") || text.contains('\u{1e}') {
        true => text,
        false => format!("/* CTF 1.8 */\n{text}"),
    }
}
