//! A configuration file of `consumer`. What `check-config` prints of it is a file with the same
//! meaning, and the daemon of `tldrs` in it starts.
#![no_main]

use std::fs;
use std::sync::LazyLock;

use clap::Parser;
use consumer::cli::{Arguments, Command};
use consumer::config::Config;
use consumer::frontend::Frontend;
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use tldrs_daemon::{Daemon, DaemonOptions};
use tokio::runtime::Runtime;

static DIRECTORY: LazyLock<TempDir> = LazyLock::new(fuzz::output);
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("threads"));

fuzz_target!(|input: &[u8]| {
    let Some(config) = check(input) else { return };
    let printed = config.to_toml().expect("a file is text");
    assert_eq!(check(printed.as_bytes()).as_ref(), Some(&config));
    // What is derived from a valid file must not panic.
    let _ = (
        config.session.live_timer(),
        config.session.packet_bytes(),
        config.frontends().flat_map(Frontend::sockets).count(),
    );
    config.uplink().expect("a relay is named");
    if let Some(options) = &config.tldrs {
        start(options);
    }
});

/// The settings of an agent with this file. None: it would not start.
fn check(file: &[u8]) -> Option<Config> {
    let path = DIRECTORY.path().join("consumer.toml");
    fs::write(&path, file).expect("a file");
    let config = format!("--config={}", path.display());
    let arguments = Arguments::try_parse_from(["consumer", "serve", &config]);
    let Command::Serve(serve) = arguments.expect("a valid option").command else {
        unreachable!("another command");
    };
    serve.config().ok()
}

/// Starts a daemon with all options but the paths, and stops it.
fn start(options: &DaemonOptions) {
    let directory = DIRECTORY.path();
    // Paths of its own, because the file may name any of this machine.
    let options = DaemonOptions {
        sockets: vec![directory.join("socket")],
        directory: Some(directory.join("traces")),
        into_file: None,
        ..options.clone()
    };
    let Ok(settings) = options.settings() else {
        return;
    };
    let _guard = RUNTIME.enter();
    Daemon::start(settings, None).expect("a free socket");
}
