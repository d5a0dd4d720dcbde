//! Programs compiled with `-finstrument-functions`, in Perfetto and in the page: with
//! `--debug-info`, spans have the names of functions.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tests::browser::Browser;
use tests::lab::Lab;
use tests::perfetto::rows;
use tests::process::Process;
use tests::{binaries, peers, test_live};

use crate::perfetto_format::open;
use crate::system::{Web, center, wait_for_row};

/// Records `tracee/instrumented.c` by `libtrace_ring_functions.so`. It opens and closes plugins
/// whose own functions have these names.
fn record(lab: &Lab, plugins: &[&str]) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compile = |source: &str, name: &str, options: &[&str]| {
        let built = lab.path().join(name);
        let mut compile = lab.command(peers::program("cc"));
        compile.args(["-g", "-O1", "-finstrument-functions"]);
        compile.args(options).arg(tests.join(source));
        compile.arg("-o").arg(&built).arg("-ldl");
        Process::start(&mut compile).wait().expect_success();
        built
    };
    let plugin = |name: &&str| {
        let define = format!("-DPLUGIN={name}");
        let options = ["-shared", "-fPIC", &define];
        compile("ring/functions/plugin.c", &format!("{name}.so"), &options)
    };
    let program = compile("tracee/instrumented.c", "instrumented", &[]);
    let mut traced = lab.command(program);
    traced.args(plugins.iter().map(plugin));
    traced.env("LD_PRELOAD", binaries::ring_functions());
    let mut snapshot = lab.command(binaries::consumer());
    let recording = lab.path().join("recording");
    snapshot.args(["rings", "--snapshot"]).arg(&recording);
    for command in [&mut traced, &mut snapshot] {
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
    let recording = record(&lab, &[]);
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
    let recording = record(&lab, &[]);
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
    };
    show(&wait_for_row(&browser, "main"));
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
}

#[test]
fn exports_of_the_page_have_the_functions_that_were_loaded_at_the_time() {
    let lab = Lab::new();
    // Each is where the one before was.
    let plugins = ["first_plugin", "second_plugin", "first_plugin"];
    let recording = record(&lab, &plugins);
    let words = ["--sink", "json", "--debug-info"];
    let shown = test_live::read(&lab, &words, &recording).expect_success();
    for (plugin, entries_and_exits) in [("first_plugin", 4), ("second_plugin", 2)] {
        let func = format!("\"func\":\"{plugin}+0\"");
        let located = shown.iter().filter(|line| line.contains(&func));
        assert_eq!(located.count(), entries_and_exits, "{shown:#?}");
    }
    let of_plugins = shown
        .iter()
        .filter(|line| line.contains("_plugin.so") && line.contains(":load"));
    let base = |line: &String| {
        let event: Value = serde_json::from_str(line).unwrap();
        event["fields"]["baddr"].as_u64().unwrap()
    };
    let bases: Vec<_> = of_plugins.map(base).collect();
    assert_eq!(bases, [bases[0]; 3]);

    let web = Web::start(&lab, &["--debug-info", recording.to_str().unwrap()]);
    let browser = Browser::start(&lab);
    browser.open(&web.long_url());
    let rows = format!(
        "return __view().sessions.some(s => s.events === {})",
        shown.len()
    );
    browser.wait_for("all events have been read", &rows);
    let range = format!("/download?format=json&from=0&to={}", i64::MAX);
    let exported = String::from_utf8(web.download(&range)).unwrap();
    assert_eq!(exported.lines().collect::<Vec<_>>(), shown);
}
