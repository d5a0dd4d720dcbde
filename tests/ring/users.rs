//! Several users in one run directory: what each consumer reads, and what none of them may do to
//! another.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tests::lab::Lab;
use tests::process::{CompletedProcess, Process};
use tests::relay::Relay;
use tests::{binaries, wait_until};

use crate::system::{self, Agent, Shown, Writer, Writing, session_directories, session_directory};

pub(crate) const OWNER: u32 = 65_534;
pub(crate) const STRANGER: u32 = 65_533;

/// A directory in which all users may work, with a run directory for all of them.
pub(crate) struct Host {
    pub(crate) lab: Lab,
    pub(crate) rings: PathBuf,
}

impl Host {
    /// Makes a host. Only root may start programs of other users: otherwise prints that and returns
    /// `None`.
    fn new() -> Option<Self> {
        Self::new_in(&std::env::temp_dir())
    }

    fn new_in(parent: &Path) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not root: test skipped");
            return None;
        }
        let lab = Lab::new_in(parent);
        fs::set_permissions(lab.path(), Permissions::from_mode(0o777)).unwrap();
        let rings = lab.path().join("shared-rings");
        Some(Self { lab, rings })
    }

    /// Makes a host with a run directory in which every user may also see the names.
    fn with_readable_rings() -> Option<Self> {
        Self::with_readable_rings_in(&std::env::temp_dir())
    }

    /// Makes a host as [`Self::with_readable_rings`] does, below this directory.
    pub(crate) fn with_readable_rings_in(parent: &Path) -> Option<Self> {
        let host = Self::new_in(parent)?;
        fs::create_dir(&host.rings).unwrap();
        fs::set_permissions(&host.rings, Permissions::from_mode(0o1777)).unwrap();
        Some(host)
    }

    fn command(&self, user: u32, program: &Path) -> Command {
        let mut command = system::command(&self.lab, program);
        command.env("TRACE_RING_DIR", &self.rings);
        command.uid(user).gid(user);
        command
    }

    pub(crate) fn start_writer(&self, user: u32) -> Writer {
        let program = self.lab.copy(binaries::ring_writer(), "ring-writer");
        let writing = Writing {
            pause: Duration::from_millis(1),
            ..Writing::default()
        };
        let command = self.command(user, &program);
        let writer = Writer::start_command(command, &self.lab, &user.to_string(), writing);
        writer.wait_for_events(1);
        writer
    }

    /// Returns the command `consumer rings` of a user.
    pub(crate) fn rings_command(&self, user: u32, arguments: &[&str]) -> Command {
        let program = self.lab.copy(binaries::consumer(), "consumer");
        let mut command = self.command(user, &program);
        command.arg("rings").args(arguments);
        command
    }

    pub(crate) fn run_rings(&self, user: u32, arguments: &[&str]) -> CompletedProcess {
        Process::start(&mut self.rings_command(user, arguments)).wait()
    }

    /// Runs a script in the run directory.
    fn run_script(&self, user: u32, script: &str) -> CompletedProcess {
        let mut command = self.command(user, Path::new("sh"));
        command.arg("-c").arg(script).current_dir(&self.rings);
        Process::start(&mut command).wait()
    }

    /// Records until `condition` holds. Returns the directory of the recording, and the log.
    fn record(
        &self,
        user: u32,
        name: &str,
        condition: impl Fn() -> bool,
    ) -> (PathBuf, Vec<String>) {
        let output = self.lab.path().join(name);
        let arguments = ["-v", "--record", output.to_str().unwrap()];
        let mut record = Process::start(&mut self.rings_command(user, &arguments));
        record.wait_for_stderr_text("consumer::frontend::ring: rings");
        wait_until("enough is recorded", condition);
        record.signal(Signal::INT);
        let ended = record.wait();
        assert!(ended.status.success(), "{:#?}", ended.stderr);
        (output, ended.stderr)
    }

    /// Returns the name of the directory of a process.
    pub(crate) fn directory_of(&self, pid: u32) -> String {
        let prefix = format!("{pid}-");
        let names = fs::read_dir(&self.rings).unwrap();
        let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.find(|name| name.starts_with(&prefix)).unwrap()
    }
}

/// Returns the number of lines of a log in which a name is.
fn lines_with(log: &[String], name: &str) -> usize {
    log.iter().filter(|line| line.contains(name)).count()
}

#[test]
fn consumer_of_root_reads_the_programs_of_every_user() {
    let Some(host) = Host::new() else { return };
    let relay = Relay::start(&host.lab);
    let agent = Agent::start_in(&host.rings, &host.lab, &relay, &[]);
    // Every user may add a directory; none may list, lock or clear the run directory.
    let mode = fs::metadata(&host.rings).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o1733);
    let refused = host.run_rings(OWNER, &["--list"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(refused.stderr.concat().contains("Permission denied"));
    let writers = [0, OWNER, STRANGER].map(|user| host.start_writer(user));
    writers.iter().for_each(|writer| writer.wait_for_events(50));
    let written = writers.map(Writer::kill);
    agent.stop_with_live_programs();
    assert_eq!(fs::read_dir(&host.rings).unwrap().count(), 0);
    for written in &written {
        let directory = session_directory(&relay.output, written.pid);
        Shown::read(&directory).assert_without_loss(written);
    }
}

#[test]
fn consumer_of_a_user_reads_only_its_own_programs() {
    let Some(host) = Host::with_readable_rings() else {
        return;
    };
    let [own, other] = [OWNER, STRANGER].map(|user| host.start_writer(user));
    let table = host.run_rings(OWNER, &["--list"]).expect_success();
    assert_eq!(table.len(), 2, "{table:#?}");
    assert!(table[1].starts_with(&own.pid().to_string()));
    let of_other = host.directory_of(other.pid());
    let of_own = host.directory_of(own.pid());
    own.wait_for_events(50);
    let own = own.kill();
    // The directory of a dead program is removed when everything is recorded.
    let is_drained = || !host.rings.join(&of_own).exists();
    let (output, log) = host.record(OWNER, "of-owner", is_drained);
    Shown::read(&session_directory(&output, own.pid)).assert_without_loss(&own);
    assert!(session_directories(&output, other.pid()).is_empty());
    assert_eq!(lines_with(&log, &of_other), 1, "{log:#?}");
    // The other program has lost nothing by that.
    let other = other.kill();
    let (output, _) = host.record(0, "of-root", || !host.rings.join(&of_other).exists());
    Shown::read(&session_directory(&output, other.pid)).assert_without_loss(&other);
}

#[test]
fn user_can_neither_remove_nor_change_the_rings_and_the_filter_of_another() {
    let Some(host) = Host::with_readable_rings() else {
        return;
    };
    let writer = host.start_writer(OWNER);
    let name = host.directory_of(writer.pid());
    for script in [
        format!("rm -r {name}"),
        format!("mv {name} 1-1-00000000"),
        format!("cat {name}/meta"),
        format!("echo off > {name}/control"),
        format!("rm {name}/r0"),
    ] {
        let ended = host.run_script(STRANGER, &script);
        assert!(!ended.status.success(), "{script}");
    }
    let pid = writer.pid().to_string();
    let refused = host.run_rings(STRANGER, &["--enable", "off", "--pid", &pid]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(host.directory_of(writer.pid()), name);
    writer.wait_for_events(writer.progress()[0] + 50);
    let written = writer.kill();
    let (output, _) = host.record(0, "recorded", || !host.rings.join(&name).exists());
    Shown::read(&session_directory(&output, written.pid)).assert_without_loss(&written);
}

#[test]
fn hostile_directory_of_a_stranger_is_refused_with_one_line_in_the_log() {
    let Some(host) = Host::with_readable_rings() else {
        return;
    };
    let relay = Relay::start(&host.lab);
    let writer = host.start_writer(OWNER);
    let name = host.directory_of(writer.pid());
    let script = format!(
        "ln -s {name} 1-17-00000000; \
         mkdir -m 0700 .2-17-00000000; ln -s ../{name}/meta .2-17-00000000/meta; mv .2-17-00000000 2-17-00000000; \
         mkdir -m 0700 .3-17-00000000; mkfifo .3-17-00000000/meta; mv .3-17-00000000 3-17-00000000; \
         mkdir -m 0777 4-17-00000000; \
         : > 5-17-00000000"
    );
    assert!(host.run_script(STRANGER, &script).status.success());
    // The stranger's directory has a file of the other user.
    let foreign = host.rings.join("6-17-00000000");
    fs::create_dir(&foreign).unwrap();
    fs::copy(host.rings.join(&name).join("meta"), foreign.join("meta")).unwrap();
    chown(foreign.join("meta"), Some(OWNER), None).unwrap();
    chown(&foreign, Some(STRANGER), None).unwrap();
    let agent = Agent::start_in(&host.rings, &host.lab, &relay, &[]);
    let refused = [
        ("1-17-00000000", "not a"),
        ("2-17-00000000", "symbolic link"),
        ("3-17-00000000", "not a regular file"),
        ("4-17-00000000", "other users may write"),
        ("5-17-00000000", "not a directory"),
        ("6-17-00000000", "owned by the user 65534"),
    ];
    for (name, reason) in refused {
        wait_until("the directory is refused", || {
            let log = agent.log();
            log.iter()
                .any(|line| line.contains(name) && line.contains(reason))
        });
    }
    // The run directory is read again when there is another program.
    let other = host.start_writer(STRANGER);
    let of_other = host.directory_of(other.pid());
    let other = other.kill();
    wait_until("the other program is drained", || {
        !host.rings.join(&of_other).exists()
    });
    let written = writer.kill();
    let log = agent.stop_with_live_programs();
    for (name, _) in refused {
        assert_eq!(lines_with(&log, name), 1, "{name}: {log:#?}");
    }
    for written in [written, other] {
        let directory = session_directory(&relay.output, written.pid);
        Shown::read(&directory).assert_without_loss(&written);
    }
}
