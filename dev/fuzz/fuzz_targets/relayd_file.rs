//! A configuration file of `relayd`. What `check-config` prints of it is a file with the same
//! meaning.
#![no_main]

use std::fs;
use std::sync::LazyLock;

use clap::Parser;
use libfuzzer_sys::fuzz_target;
use relayd::cli::Arguments;
use tempfile::TempDir;

static DIRECTORY: LazyLock<TempDir> = LazyLock::new(fuzz::output);

fuzz_target!(|input: &[u8]| {
    if let Some(printed) = check(input) {
        let again = check(printed.as_bytes());
        assert_eq!(again.as_ref(), Some(&printed));
    }
});

/// The settings of a relay with this file. None: it would not start.
fn check(file: &[u8]) -> Option<String> {
    let path = DIRECTORY.path().join("lttng.conf");
    fs::write(&path, file).expect("a file");
    let config = format!("--config={}", path.display());
    let arguments = Arguments::try_parse_from(["relayd", &config]).expect("a valid option");
    let (arguments, _) = arguments.with_files().ok()?;
    Some(arguments.config(1024).ok()?.to_file())
}
