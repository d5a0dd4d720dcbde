//! A fresh Debian that shares nothing with the host but its kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use tests::process::Process;
use tests::{build_directory, peers, wait_for, wait_until};

use crate::built;

/// Changes when [`create`] makes something else than before.
const RECIPE: u32 = 2;

/// Where the packages of lttng-tools are in a root, to be installed without a network.
pub(crate) const LTTNG: &str = "/srv/lttng";

/// Where a root has the packages of this project.
pub(crate) const PACKAGES: &str = "/srv/packages";

/// Downloads the packages of LTTng into a root that is being made, without installing them.
const DOWNLOAD_LTTNG: &str = "rm --force \"$1\"/var/cache/apt/archives/*.deb && chroot \"$1\" apt-get --yes --no-install-recommends --download-only install lttng-tools \
                              liblttng-ust1 && mkdir \"$1/srv/lttng\" && mv \"$1\"/var/cache/apt/archives/*.deb \"$1/srv/lttng\"";

/// What runs as process 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Init {
    /// Nothing but a process that sleeps, as where a system is installed before it is started.
    None,
    /// The init system systemd, which starts services.
    Systemd,
}

/// A running Debian, whose changes are in memory. It ends when the value is dropped.
#[derive(Debug)]
pub(crate) struct Debian {
    nspawn: Process,
    /// Process 1 of the system, as the host numbers it.
    leader: u32,
}

impl Debian {
    /// Starts a system on a copy of the fresh root. Only root may: otherwise prints that and
    /// returns `None`.
    pub(crate) fn start(init: Init) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("only root can start a Debian in namespaces: test skipped");
            return None;
        }
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut nspawn = Command::new(peers::program("systemd-nspawn"));
        nspawn
            .args(["--quiet", "--volatile=overlay", "--private-network"])
            // Nothing of the host's systemd takes part: it may have none.
            .args(["--register=no", "--keep-unit", "--console=pipe"])
            .arg(format!(
                "--bind-ro={}:{PACKAGES}",
                built::packages().display()
            ))
            .arg(format!(
                "--machine=packages-{}-{number}",
                std::process::id()
            ))
            .arg(format!("--directory={}", root().display()));
        match init {
            Init::None => nspawn.args(["--as-pid2", "/bin/sleep", "infinity"]),
            Init::Systemd => nspawn.arg("--boot"),
        };
        let mut nspawn = Process::start(nspawn.stdin(std::process::Stdio::null()));
        let leader = wait_for("the system starts", || {
            assert!(nspawn.is_running(), "nspawn: {:?}", nspawn.stderr());
            process_1(nspawn.id())
        });
        let debian = Self { nspawn, leader };
        match init {
            Init::None => {
                wait_until("the root is there", || debian.try_run("true").0);
                // The usual way to keep packages from starting services while a root is made.
                debian.run("printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d");
            }
            Init::Systemd => wait_until("systemd has started", || {
                let (_, state) = debian.try_run("systemctl is-system-running");
                // Degraded: a unit of Debian that needs what a namespace has not.
                ["running", "degraded"].contains(&state.trim())
            }),
        }
        Some(debian)
    }

    /// Returns a command of the system.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut nsenter = Command::new(peers::program("nsenter"));
        nsenter
            .arg(format!("--target={}", self.leader))
            .args([
                "--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd=/", "--", program,
            ])
            .env_clear()
            .env("HOME", "/root")
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .env("DEBIAN_FRONTEND", "noninteractive");
        nsenter
    }

    /// Runs a script of the shell. Returns whether it succeeds, and what it prints on both outputs.
    pub(crate) fn try_run(&self, script: &str) -> (bool, String) {
        let mut shell = self.command("/bin/sh");
        shell.args(["-ec", &format!("exec 2>&1; {script}")]);
        let ended = shell.output().unwrap();
        let printed = String::from_utf8_lossy(&ended.stdout).into_owned();
        (ended.status.success(), printed)
    }

    /// Runs a script of the shell, which must succeed. Returns what it prints.
    pub(crate) fn run(&self, script: &str) -> String {
        let (is_successful, printed) = self.try_run(script);
        assert!(is_successful, "{script}:\n{printed}");
        printed
    }

    /// Installs or upgrades a package of this project. Returns what that prints.
    pub(crate) fn install(&self, package: &str, revision: &str) -> String {
        self.run(&format!(
            "dpkg --install {PACKAGES}/{package}_*-{revision}_*.deb"
        ))
    }

    /// Installs lttng-tools and what it needs, or installs it again.
    pub(crate) fn install_lttng(&self) -> String {
        self.run(&format!("dpkg --install {LTTNG}/*.deb"))
    }

    /// Returns the path at which the host sees a file of the system.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.leader))
    }

    /// Copies a program of the host into the system.
    pub(crate) fn copy(&self, program: &Path, path: &str) {
        let copied = Command::new("cp")
            .arg(program)
            .arg(self.path(path))
            .status();
        assert!(copied.unwrap().success(), "{}", program.display());
    }
}

impl Drop for Debian {
    fn drop(&mut self) {
        // All processes of the system end with its process 1.
        let leader = i32::try_from(self.leader).ok().and_then(Pid::from_raw);
        let _ = leader.map(|leader| kill_process(leader, Signal::KILL));
        for _ in 0..1000 {
            if !self.nspawn.is_running() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

/// Returns the child of nspawn that is process 1 of its system, as the host numbers it. Before
/// there is one, nspawn has another child.
fn process_1(nspawn: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{nspawn}/task/{nspawn}/children")).ok()?;
    children.split_whitespace().find_map(|child| {
        let status = fs::read_to_string(format!("/proc/{child}/status")).ok()?;
        let mut lines = status.lines();
        let numbers = lines.find_map(|line| line.strip_prefix("NSpid:"))?;
        numbers.ends_with("\t1").then(|| child.parse().ok())?
    })
}

/// Returns the fresh root, which nobody changes. It is made at the first call, and kept for further
/// runs of the tests.
fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let target = build_directory().join("..").canonicalize().unwrap();
        let suite = suite();
        let root = target.join(format!("debian-{suite}-{RECIPE}"));
        if !root.exists() {
            let new = target.join(format!("debian-new-{}", std::process::id()));
            create(&suite, &new);
            // Another run of the tests may have made it meanwhile.
            if fs::rename(&new, &root).is_err() {
                fs::remove_dir_all(&new).unwrap();
            }
        }
        root
    })
}

/// Returns the release of Debian that this host has, such as bookworm.
fn suite() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap();
    let mut lines = release.lines();
    let suite = lines.find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    suite
        .expect("this host is a Debian")
        .trim_matches('"')
        .to_owned()
}

/// Makes a root with the sources and the proxy of this host's apt.
fn create(suite: &str, path: &Path) {
    let mut mmdebstrap = Command::new(peers::program("mmdebstrap"));
    mmdebstrap
        .args(["--variant=minbase", "--include=systemd,systemd-sysv"])
        .arg(format!("--customize-hook={DOWNLOAD_LTTNG}"));
    let proxies = Command::new("apt-config")
        .args(["dump", "Acquire"])
        .output()
        .unwrap();
    for line in String::from_utf8_lossy(&proxies.stdout).lines() {
        if line.contains("::Proxy ") {
            mmdebstrap.arg(format!("--aptopt={line}"));
        }
    }
    mmdebstrap.arg(suite).arg(path);
    for sources in [
        "/etc/apt/sources.list",
        "/etc/apt/sources.list.d/debian.sources",
    ] {
        if fs::metadata(sources).is_ok_and(|file| file.len() > 0) {
            mmdebstrap.arg(sources);
        }
    }
    let made = mmdebstrap.output().unwrap();
    let printed = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{mmdebstrap:?}: {printed}");
}
