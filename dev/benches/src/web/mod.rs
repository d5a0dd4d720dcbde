//! `test-live web` with real programs on one machine: a traced program, `consumer`, `relayd`,
//! `test-live` and Chromium.
//!
//! `live`, `history` or `catch-up` as argument selects one part; after `live` rates may follow.

mod browser_processes;
mod catch_up;
mod history;
mod live;
pub(crate) mod load;

use std::path::PathBuf;

use tests::browser::Browser;
use tests::lab::Lab;
use tests::process::Process;
use tests::{test_live, wait_for};

/// Events per second of the live measurements.
const RATES: [u64; 4] = [10_000, 50_000, 100_000, 200_000];

/// `test-live web`, and the URL that it has printed.
struct Web {
    process: Process,
    url: String,
}

impl Web {
    fn start(lab: &Lab, arguments: &[&str]) -> Self {
        // Port 0: the system chooses one that is free.
        let arguments = [&["web", "--listen=127.0.0.1:0"], arguments].concat();
        let process = test_live::start(lab, &arguments);
        let url = wait_for("the URL", || {
            let lines = process.stdout();
            Some(lines.first()?.strip_prefix("open ")?.to_owned())
        });
        Self { process, url }
    }
}

/// Keeps a picture of the page in the directory that `WEB_SCREENSHOTS` names.
fn screenshot(browser: &Browser, name: &str) {
    if let Some(directory) = std::env::var_os("WEB_SCREENSHOTS") {
        let path = PathBuf::from(directory).join(format!("{name}.png"));
        std::fs::write(path, browser.screenshot()).unwrap();
    }
}

/// Prints all tables, or those that are asked for.
pub(crate) fn run() {
    let mut arguments = std::env::args().skip(2);
    let part = arguments.next();
    let is_chosen = |name: &str| part.as_deref().is_none_or(|part| part == name);
    if is_chosen("live") {
        let rates: Vec<u64> = arguments.map(|text| text.parse().unwrap()).collect();
        live::print_head();
        let rates = if rates.is_empty() { &RATES[..] } else { &rates };
        for rate in rates {
            live::run(*rate);
        }
    }
    if is_chosen("history") {
        history::run();
    }
    if is_chosen("catch-up") {
        catch_up::run();
    }
}
