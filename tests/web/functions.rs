//! Programs compiled with `-finstrument-functions`, in Perfetto and in the page: with
//! `--debug-info`, spans have the names of functions.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tests::browser::Browser;
use tests::lab::Lab;
use tests::process::Process;
use tests::{binaries, peers};

use crate::perfetto_format::{open, rows};
use crate::system::{Web, center, wait_for_row};

/// Records a program by `libtrace_ring_functions.so`. In it, main calls outer, which calls inner
/// twice.
fn record(lab: &Lab) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tracee/instrumented.c");
    let program = lab.path().join("instrumented");
    let mut compile = lab.command(peers::program("cc"));
    compile.args(["-g", "-O1", "-finstrument-functions"]);
    compile.arg(source).arg("-o").arg(&program);
    let mut traced = lab.command(&program);
    traced.env("LD_PRELOAD", binaries::ring_functions());
    let mut snapshot = lab.command(binaries::consumer());
    let recording = lab.path().join("recording");
    snapshot.args(["rings", "--snapshot"]).arg(&recording);
    for command in [&mut compile, &mut traced, &mut snapshot] {
        command.env("TRACE_RING_DIR", lab.directory("rings"));
        // Rings that nobody reads stay until the snapshot.
        command.env("TRACE_RING", "overwrite");
        Process::start(command).wait().expect_success();
    }
    recording
}

#[test]
fn slices_of_instrumented_functions_have_their_names_in_perfetto() {
    let lab = Lab::new();
    let recording = record(&lab);
    let (browser, _server) = open(&lab, &recording, &["--debug-info"], "functions.pftrace");
    let slices = "select name || ' ' || depth || ' ' || extract_arg(arg_set_id, 'debug.src') as row \
                  from slice where category = 'lttng_ust_cyg_profile' order by ts";
    let slices = rows(&browser, slices);
    let named: Vec<_> = slices
        .iter()
        .map(|row| row.split(':').next().unwrap())
        .collect();
    let source = |span: &str| format!("{span} instrumented.c");
    assert_eq!(
        named,
        ["main 0", "outer 1", "inner 2", "inner 2"].map(source)
    );
}

#[test]
fn page_shows_instrumented_functions_by_name_with_their_source_lines() {
    let lab = Lab::new();
    let recording = record(&lab);
    let web = Web::start(&lab, &["--debug-info", recording.to_str().unwrap()]);
    let browser = Browser::start(&lab);
    browser.open(&web.long_url());
    // A function fills the width when it is clicked, however short it was.
    let show = |row: &Value| {
        let time = |name: &str| row[name].as_str().unwrap().to_owned();
        let (from, to) = (time("begin"), time("end"));
        browser.run(&format!("location.hash = 'from={from}&to={to}'"));
        let is_shown = format!("return __view().from === '{from}' && __view().to === '{to}'");
        browser.wait_for("the function is shown", &is_shown);
        (from, to)
    };
    let (from, to) = show(&wait_for_row(&browser, "main"));
    show(&wait_for_row(&browser, "outer"));
    wait_for_row(&browser, "inner");
    let (x, y) = center(&wait_for_row(&browser, "outer"));
    browser.click(x, y);
    let fields = "return document.getElementById('panel-facts').textContent";
    browser.wait_for(
        "the fields are shown",
        &format!("{fields}.includes('call_site')"),
    );
    let fields = browser.run(fields);
    let fields = fields.as_str().unwrap();
    for field in ["functionouter", "srcinstrumented.c:", "callermain+0x"] {
        assert!(fields.contains(field), "{field}: {fields}");
    }
    let range = format!("/download?format=json&from={from}&to={to}");
    let exported = String::from_utf8(web.download(&range)).unwrap();
    let inner = exported
        .lines()
        .filter(|line| line.contains("\"func\":\"inner+0\""));
    assert_eq!(inner.count(), 4, "{exported}");
}
