//! The log of a resumable session, whose records have valid checksums, and the files that it speaks
//! of: the relay that starts repairs them and restores the session, or leaves them as they are.
#![no_main]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuzz::{output, sections};
use libfuzzer_sys::fuzz_target;
use relayd::producer::restore_sessions;
use relayd::registry::{Registry, RegistrySettings};
use relayd::store::pool::Pool;
use relayd::store::repair::repair;
use relayd::store::session_log::SessionLog;

/// A session as a relay has logged it, with its directory: what is changed is more often valid than
/// what is made up.
const SESSION: &str = "host/name-20261120-213831";

fuzz_target!(|input: &[u8]| {
    let output = output();
    let output = output.path();
    let mut sections = sections(input);
    let trace = output.join(SESSION).join("ust/uid/0/64-bit");
    fs::create_dir_all(trace.join("index")).expect("a directory");
    for name in ["metadata", "chan_0", "index/chan_0.idx"] {
        let content = sections.next().unwrap_or_default();
        fs::write(trace.join(name), content).expect("a file");
    }
    let mut log = b"rlysess1".to_vec();
    for body in sections {
        record_log::encode(&[body], &mut log);
    }
    let logs = output.join(".relayd/sessions");
    fs::create_dir_all(&logs).expect("a directory");
    fs::write(logs.join("any-0.log"), log).expect("a file");
    // In the order of a relay that starts.
    let _ = repair(output, &SessionLog::trace_directories(output));
    let registry = registry(output);
    restore_sessions(&registry, Instant::now());
    // Closed as at the end of a relay, which writes what is left.
    for session in registry.take_sessions() {
        registry.close(&session);
    }
});

fn registry(output: &Path) -> Arc<Registry> {
    Registry::new(RegistrySettings {
        resume_timeout: Duration::from_secs(600),
        ..RegistrySettings::new(output.to_owned(), Pool::new(100))
    })
}
