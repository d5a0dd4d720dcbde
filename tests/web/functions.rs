//! Programs compiled with `-finstrument-functions`, in Perfetto and in the page: with
//! `--debug-info`, spans have the names of functions.

use std::path::{Path, PathBuf};

use tests::lab::Lab;
use tests::process::Process;
use tests::{binaries, peers};

use crate::perfetto_format::{open, rows};

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
