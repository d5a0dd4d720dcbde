//! A relay with an archive in a directory, and what readers show of both.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tests::babeltrace::Babeltrace;
use tests::binaries;
use tests::lab::Lab;
use tests::process::{CompletedProcess, Process};
use tests::relay::Relay;
use tests::test_live;
use tests::tree::files;
use tests::viewer::Viewer;

/// The archive of a test, in a directory beside the output of its relay.
#[derive(Debug)]
pub(crate) struct ArchiveDirectory(PathBuf);

impl ArchiveDirectory {
    pub(crate) fn new(lab: &Lab) -> Self {
        Self(lab.path().join("archive"))
    }

    pub(crate) fn url(&self) -> String {
        format!("file://{}", self.0.display())
    }

    /// URL of a session for `test-live`.
    pub(crate) fn session_url(&self, host: &str, name: &str) -> String {
        format!("{}/host/{host}/{name}", self.url())
    }

    /// Host and name of each session that is listed.
    pub(crate) fn sessions(&self) -> BTreeSet<(String, String)> {
        let objects = files(&self.0.join("days"), "");
        let names = objects.keys().filter_map(|object| {
            let mut parts = object.split('/').skip(1).map(str::to_owned);
            Some((parts.next()?, parts.next()?))
        });
        names.collect()
    }

    /// Adds an object that is JSON.
    pub(crate) fn add(&self, name: &str, content: &Value) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content.to_string()).unwrap();
    }

    /// The names of the objects below a prefix, without those that relays had begun when they were
    /// killed.
    pub(crate) fn objects(&self, prefix: &str) -> Vec<String> {
        let directory = self.0.join(prefix);
        match directory.exists() {
            true => {
                let names = files(&directory, "").into_keys();
                names.filter(|name| !name.contains('#')).collect()
            }
            false => Vec::new(),
        }
    }

    /// The relays that have objects in their logs.
    pub(crate) fn logs(&self) -> BTreeSet<String> {
        let objects = self.objects("log");
        let logs = objects.iter().filter_map(|name| name.split('/').next());
        logs.map(str::to_owned).collect()
    }

    /// Number of parts of all sessions.
    pub(crate) fn parts(&self) -> usize {
        let objects = self.objects("sessions");
        objects
            .iter()
            .filter(|name| name.contains("/part-"))
            .count()
    }

    /// Number of sessions whose end is listed.
    pub(crate) fn ended(&self) -> usize {
        let objects = self.objects("days");
        objects.iter().filter(|name| name.ends_with(".end")).count()
    }

    /// Number of packets of each session whose end is listed, as it says.
    pub(crate) fn packets_of_ended(&self) -> Vec<u64> {
        let ends = files(&self.0.join("days"), ".end").into_values();
        let ends = ends.map(|end| serde_json::from_slice::<Value>(&end).unwrap());
        ends.map(|end| end["packets"].as_u64().unwrap()).collect()
    }
}

/// Starts a relay that archives to the directory, with more options.
pub(crate) fn start_relay(lab: &Lab, archive: &ArchiveDirectory, options: &[&str]) -> Relay {
    let url = archive.url();
    Relay::start_with(lab, &[&["--archive", &url], options].concat())
}

/// Starts such a relay on given addresses.
pub(crate) fn start_relay_at(
    lab: &Lab,
    archive: &ArchiveDirectory,
    options: &[&str],
    addresses: [SocketAddr; 3],
) -> Relay {
    let mut command = lab.command(binaries::relayd());
    command.args(["--archive", &archive.url()]).args(options);
    Relay::start_from_command_at(lab, command, addresses)
}

/// Runs `test-live` on a target until it exits.
pub(crate) fn read(lab: &Lab, options: &[&str], target: &str) -> CompletedProcess {
    Process::start(test_live::command(lab, options).arg(target)).wait()
}

/// What `test-live` prints of a target.
pub(crate) fn text(lab: &Lab, target: impl AsRef<Path>) -> Vec<String> {
    read(lab, &["--clock-gmt"], target.as_ref().to_str().unwrap()).expect_success()
}

/// Compares texts line by line.
pub(crate) fn assert_same_text(what: &str, got: &[String], want: &[String]) {
    let differing = got.iter().zip(want).position(|(got, want)| got != want);
    let Some(place) = differing.or((got.len() != want.len()).then(|| got.len().min(want.len())))
    else {
        return;
    };
    panic!(
        "{what}: {} lines, not {}; line {place}:\n{:?}\n{:?}",
        got.len(),
        want.len(),
        got.get(place),
        want.get(place)
    );
}

/// Removes the output of a relay that has died, with everything in it.
pub(crate) fn remove_output(output: &Path) {
    fs::remove_dir_all(output).unwrap();
}

/// What viewers show of a session at a relay that has nothing but the archive: `test-live`, and
/// `babeltrace2`, which always seeks the end.
pub(crate) fn texts_of_other_relay(
    archive: &ArchiveDirectory,
    host: &str,
    session: &str,
) -> [CompletedProcess; 2] {
    let lab = Lab::new();
    let relay = start_relay(&lab, archive, &[]);
    Viewer::connect(relay.live).wait_for_session(session);
    let url = test_live::url(relay.live, host, session);
    let viewers = [
        test_live::start(&lab, &["--clock-gmt", "--seek", "beginning", &url]),
        Babeltrace::Two.follow_host_at(relay.live, host, session),
    ];
    let shown = viewers.map(Process::wait);
    relay.stop().expect_success();
    shown
}
