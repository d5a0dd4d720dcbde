//! The file `control` of a traced process, which this process is. Sections: its directives, and
//! those that `consumer rings --enable` adds. The rest is written over the file, as in `ring`.
//!
//! What is added is in force where it says so, and the old directives are elsewhere; the process
//! obeys, whatever was in the file before.
#![no_main]

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{self, Command};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use consumer::rings::filter::enable;
use fuzz::{Overwrites, sections};
use libfuzzer_sys::fuzz_target;
use trace_ring_core::filter::Filter;
use trace_ring_core::format::{CONTROL_FILE, Control, MAX_DIRECTIVES_SIZE};
use trace_ring_core::{CallSite, Severity};

/// The variable that names the directory of rings.
const DIRECTORY: &str = "TRACE_RING_DIR";
/// Targets of events: some are below others, some only look so.
const TARGETS: [&str; 5] = ["app", "app::db", "app::db::pool", "application", "lib"];

static SITES: LazyLock<Vec<&'static CallSite>> = LazyLock::new(|| {
    let site = |target, severity| CallSite::new(severity, target, "event", "file.rs", 1, &[]);
    let sites = TARGETS.iter().flat_map(|target| {
        let sites = Severity::ALL.map(|severity| site(target, severity));
        // Call sites are `static` in a program, and so live as long as this one.
        sites.map(|site| &*Box::leak(Box::new(site)))
    });
    sites.collect()
});
static CONTROL: LazyLock<File> = LazyLock::new(|| {
    assert!(trace_ring_core::init(), "this process writes to rings");
    let mut processes = fs::read_dir(directory()).expect("a directory");
    let process = processes.next().expect("a process").expect("an entry");
    let path = process.path().join(CONTROL_FILE);
    let opened = OpenOptions::new().read(true).write(true).open(path);
    opened.expect("a file")
});
static GENERATION: AtomicU32 = AtomicU32::new(1000);

fuzz_target!(init: restart(), |input: &[u8]| {
    let mut rest = input;
    let mut text = || {
        let section = sections(rest).next()?;
        rest = rest.get(2 + section.len()..).unwrap_or_default();
        std::str::from_utf8(section).ok()
    };
    let (Some(old), Some(new)) = (text(), text()) else {
        return;
    };
    // The process looks at a file whose generation is another one, and each call site may have seen
    // any before. With `trace` all of them look.
    let generation = GENERATION.fetch_add(16, Ordering::Relaxed);
    for (generation, directives) in [(generation, "trace"), (generation + 1, old)] {
        let directives = directives.to_owned();
        let control = Control {
            generation,
            directives,
        };
        let Some(bytes) = control.encode() else {
            return;
        };
        CONTROL.write_all_at(&bytes, 0).expect("a write");
        ask_sites();
    }
    if let Ok(filter) = Filter::parse(old) {
        obeys(&filter);
    }
    change(old, new);
    for (offset, bytes) in Overwrites(rest) {
        // A file that is longer than it should be is not read.
        CONTROL.write_all_at(bytes, offset % 4096).expect("a write");
        ask_sites();
        let _ = enable(&directory(), &[process::id()], new);
    }
    // What was written over the end is cut off for the next input.
    let _ = CONTROL.set_len(4096);
});

/// Starts this program again, with a directory for its rings.
fn restart() {
    if std::env::var_os(DIRECTORY).is_none() {
        let mut again = Command::new("/proc/self/exe");
        again.args(std::env::args_os().skip(1));
        again.env(DIRECTORY, fuzz::output().keep());
        panic!("not started again: {}", again.exec());
    }
}

fn directory() -> PathBuf {
    std::env::var_os(DIRECTORY).expect("set").into()
}

/// Adds directives to those of a good file.
fn change(old: &str, new: &str) {
    let changed = enable(&directory(), &[process::id()], new);
    let text = match changed.as_deref() {
        Ok([(pid, text)]) => {
            assert_eq!(*pid, process::id());
            text
        }
        Ok(other) => unreachable!("other processes: {other:?}"),
        Err(error) => {
            let are_good = [old, new].map(Filter::parse).iter().all(Result::is_ok);
            let are_short = old.len() + new.len() < MAX_DIRECTIVES_SIZE;
            assert!(!are_good || !are_short, "{error}");
            return;
        }
    };
    let filter = Filter::parse(text).expect("a filter that is in force");
    obeys(&filter);
    // The later one of two directives for a target decides.
    let old = match old.split(',').all(|part| part.trim().is_empty()) {
        true => Filter::DEFAULT,
        false => old,
    };
    // What is no directive is left out.
    let is_good = |part: &&str| Filter::parse(part).is_ok();
    let old: Vec<_> = old.split(',').filter(is_good).collect();
    let old = old.join(",");
    let expected = Filter::parse(&format!("{old},{new}")).expect("two filters");
    for target in TARGETS {
        for severity in Severity::ALL {
            let is_enabled = expected.is_enabled(target, severity);
            let case = format!("{text}: {target} {severity}");
            assert_eq!(filter.is_enabled(target, severity), is_enabled, "{case}");
        }
    }
}

/// Lets each call site look at the file.
fn ask_sites() {
    for site in SITES.iter() {
        let _ = site.is_enabled();
    }
}

/// Checks that this process writes what a filter lets pass.
fn obeys(filter: &Filter) {
    let mut sites = SITES.iter();
    for target in TARGETS {
        for severity in Severity::ALL {
            let site = sites.next().expect("one for each");
            assert_eq!(site.is_enabled(), filter.is_enabled(target, severity));
        }
    }
}
