//! A host of its own for the commands of a page: network, host name, processes, and empty `/tmp`,
//! `/run`, `/srv` and home, so that commands run as they are written, with the default ports and
//! paths.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use crate::lab::Lab;
use crate::network::{Host, Network};
use crate::process::{CompletedProcess, Process};
use crate::{build_directory, peers, wait_for, wait_until};

/// The directory of this project's programs on every machine.
const PROGRAMS: &str = "/opt";

/// The directory of the source tree on every machine.
const SOURCES: &str = "/mnt";

/// The names by which machines know each other.
const COLLECTOR: &str = "collector";
const TRACED: &str = "traced";

/// Directories that are empty at the start.
const EMPTY: [&str; 6] = ["/tmp", "/var/tmp", "/run", "/srv", "/root", "/dev/shm"];

/// A host, or a container on one. All its processes are killed when the value is dropped.
#[derive(Debug)]
pub struct Machine {
    /// `unshare`, the parent of the first process of the machine.
    _unshare: Process,
    /// The first process of the machine.
    init: Pid,
    /// User and group of its commands.
    user: u32,
}

/// A directory of the test that machines share, and its path on the machine.
pub type SharedDirectory<'a> = (&'a Path, &'a str);

impl Machine {
    /// Starts a machine in a network. Those on the same host of the network have its addresses and
    /// ports in common, as the containers of a pod have.
    ///
    /// # Panics
    /// If it cannot be made. Only root can.
    #[must_use]
    pub fn start(lab: &Lab, network: &Network, host: Host) -> Self {
        Self::start_with(lab, network, host, &[])
    }

    /// Starts a machine as [`Self::start`] does, with directories that it shares with others.
    ///
    /// # Panics
    /// As [`Self::start`].
    #[must_use]
    pub fn start_with(
        lab: &Lab,
        network: &Network,
        host: Host,
        shared: &[SharedDirectory<'_>],
    ) -> Self {
        let hosts = lab.path().join("hosts");
        let address = Network::collector(0).ip();
        let names = format!("127.0.0.1 localhost {TRACED}\n{address} {COLLECTOR} relayd\n");
        fs::write(&hosts, names).unwrap();
        let name = match host {
            Host::Collector => COLLECTOR,
            Host::Traced => TRACED,
        };
        let mut command = network.command(lab, host, &peers::program("unshare"));
        command
            .args(["--mount", "--uts", "--ipc", "--pid", "--fork"])
            .args(["--kill-child", "--mount-proc", "--", "bash", "-ec"])
            .arg(set_up(name, &hosts, shared))
            .stdin(std::process::Stdio::piped());
        let mut unshare = Process::start(&mut command);
        let children = format!("/proc/{0}/task/{0}/children", unshare.id());
        wait_until("the machine is ready", || {
            assert!(unshare.is_running(), "{:?}", unshare.stderr());
            unshare.stdout().contains(&"ready".to_owned())
        });
        let init = wait_for("the first process of the machine", || {
            let children = fs::read_to_string(&children).ok()?;
            children.split_whitespace().next()?.parse().ok()
        });
        Self {
            _unshare: unshare,
            init: Pid::from_raw(init).unwrap(),
            user: 0,
        }
    }

    /// Lets commands run as another user, without a home and without privileges.
    #[must_use]
    pub fn with_user(mut self, user: u32) -> Self {
        self.user = user;
        self
    }

    /// Returns a command that runs a script of the shell `bash` on the machine. The script ends
    /// when a command of it fails.
    #[must_use]
    pub fn shell(&self, script: &str) -> Command {
        let mut command = Command::new(peers::program("nsenter"));
        let path = format!("PATH={PROGRAMS}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        command
            .arg(format!("--target={}", self.init.as_raw_nonzero()))
            .args([
                "--mount",
                "--uts",
                "--ipc",
                "--pid",
                "--net",
                "--wd=/root",
                "--",
            ])
            .args(["setpriv", "--clear-groups", "--no-new-privs"])
            .arg(format!("--reuid={}", self.user))
            .arg(format!("--regid={}", self.user))
            .args(["env", "-i", "HOME=/root", "LC_ALL=C.UTF-8", "TZ=UTC", &path])
            .args(["bash", "-ec", script]);
        command
    }

    /// Runs a script and returns the lines of its standard output.
    ///
    /// # Panics
    /// If the script fails.
    pub fn run(&self, script: &str) -> Vec<String> {
        let ended = self.try_run(script);
        assert!(
            ended.status.success(),
            "{script}\n{}: {:#?} {:#?}",
            ended.status,
            ended.stdout,
            ended.stderr
        );
        ended.stdout
    }

    /// Runs a script, which may fail.
    #[must_use]
    pub fn try_run(&self, script: &str) -> CompletedProcess {
        self.start_script(script).wait()
    }

    /// Starts a script on the machine, without standard input.
    #[must_use]
    pub fn start_script(&self, script: &str) -> Process {
        Process::start(self.shell(script).stdin(std::process::Stdio::null()))
    }

    /// Waits until a process of the machine listens on a TCP port.
    pub fn wait_for_port(&self, port: u16) {
        let connect = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
        wait_until("a port is open", || self.try_run(&connect).status.success());
    }

    /// Sends a request of HTTP from this machine to a port of it, and returns the whole response.
    #[must_use]
    pub fn get(&self, port: u16, path: &str) -> String {
        let request = format!(
            "GET {path} HTTP/1.1\\r\\nHost: 127.0.0.1:{port}\\r\\nConnection: close\\r\\n\\r\\n"
        );
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; printf '{request}' >&3; cat <&3");
        self.run(&script).join("\n")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // With the first process the kernel kills all others.
        let _ = kill_process(self.init, Signal::KILL);
    }
}

/// Returns the script that makes the machine and waits until it is killed.
fn set_up(name: &str, hosts: &Path, shared: &[SharedDirectory<'_>]) -> String {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut lines = vec![
        "mount --make-rprivate /".to_owned(),
        format!("echo {name} > /proc/sys/kernel/hostname"),
        format!("mount --bind '{}' /etc/hosts", hosts.display()),
        format!("mount --bind '{}' {SOURCES}", sources.display()),
        format!("mount --bind '{}' {PROGRAMS}", build_directory().display()),
    ];
    // The directories of the test may be below /tmp, which becomes empty: they are opened before.
    for (number, (directory, _)) in shared.iter().enumerate() {
        let descriptor = 10 + number;
        lines.push(format!("exec {descriptor}<'{}'", directory.display()));
    }
    lines.extend(EMPTY.map(|path| format!("mount -t tmpfs -o mode=1777 tmpfs {path}")));
    for (number, (_, path)) in shared.iter().enumerate() {
        let descriptor = 10 + number;
        lines.push(format!(
            "mkdir -p {path}; mount --bind /proc/self/fd/{descriptor} {path}"
        ));
    }
    lines.push("echo ready; cat".to_owned());
    lines.join("\n")
}
