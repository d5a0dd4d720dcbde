//! Finds the relays that run on this host, and runs `relayd doctor` in the place of one: as its
//! user, with its command line, environment and first directory. No other way shows what that relay
//! can read and write.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use daemon::checkup::Report;
use daemon::checkup::listener::program_name;
use daemon::event_text::printable;

/// Name of the program, as the kernel shows it.
pub const OWN_NAME: &str = "relayd";

/// Commands of the program: with one of these a process is no relay.
const COMMANDS: [&str; 5] = ["archive", "certs", "check-config", "doctor", "drain"];

/// Runs a program in a session of its own, without the terminal of this one.
const SETSID: &str = "/usr/bin/setsid";

/// Where a doctor finds the programs of the system.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Variable with the process id of the relay, for the doctor in its place.
const PROCESS: &str = "RELAYD_DOCTOR_OF";

/// A relay that runs, as `/proc` shows it.
#[derive(Debug)]
pub struct RunningRelay {
    pid: u32,
    user: u32,
    group: u32,
    directory: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

/// Returns the process ids of the relays of this host that this user may examine, and of those of
/// other users.
#[must_use]
pub fn find() -> (Vec<u32>, Vec<u32>) {
    let (mut own, mut foreign) = (Vec::new(), Vec::new());
    // Other network namespaces are those of containers, whose paths and ports are others.
    let network = |process: &Path| fs::read_link(process.join("ns/net"));
    let here = network(Path::new("/proc/self")).ok();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|pid| pid.parse().ok())
        else {
            continue;
        };
        let process = process.path();
        match program_name(&process) {
            Some(name) if name == OWN_NAME => {
                if is_relay(&process) && network(&process).ok() == here {
                    own.push(pid);
                }
            }
            Some(_) => {}
            None => {
                let name = fs::read_to_string(process.join("comm"));
                if name.is_ok_and(|name| name.trim_end() == OWN_NAME) && is_relay(&process) {
                    foreign.push(pid);
                }
            }
        }
    }
    (own, foreign)
}

/// Returns the process id in a file that a relay has written.
///
/// # Errors
/// If it cannot be read, or its process is no relay.
pub fn of_pid_file(file: &Path) -> io::Result<u32> {
    let failed = |why: String| io::Error::other(format!("{}: {why}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    let pid = text.trim().parse();
    let pid: u32 = pid.map_err(|_| failed("not a process id".to_owned()))?;
    match program_name(&Path::new("/proc").join(pid.to_string())) {
        Some(name) if name == OWN_NAME => Ok(pid),
        _ => Err(failed(format!("process {pid} is no relay of this user"))),
    }
}

fn is_relay(process: &Path) -> bool {
    let line = fs::read(process.join("cmdline")).unwrap_or_default();
    let mut words = fields(&line);
    // One that has ended has no command line.
    let runs = words.next().is_some();
    let first = words.next().and_then(OsStr::to_str);
    runs && first.is_none_or(|first| !COMMANDS.contains(&first))
}

/// Returns the process id of the relay in whose place this doctor runs. None: in that of no other.
#[must_use]
pub fn examined() -> Option<u32> {
    std::env::var(PROCESS).ok()?.parse().ok()
}

/// The process of a relay, and whose it is. All that is read of a process belongs together only if
/// this is the same before and after: the process may execute another program meanwhile, one that
/// runs as root.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    user: u32,
    group: u32,
    program: PathBuf,
}

impl Owner {
    fn of(process: &Path) -> io::Result<Self> {
        let owner = fs::metadata(process)?;
        Ok(Self {
            user: owner.uid(),
            group: owner.gid(),
            program: fs::read_link(process.join("exe"))?,
        })
    }
}

impl RunningRelay {
    /// Reads the command line and environment of a relay.
    ///
    /// # Errors
    /// If it has ended, or is another user's.
    pub fn read(pid: u32) -> io::Result<Self> {
        let process = Path::new("/proc").join(pid.to_string());
        let owner = Owner::of(&process)?;
        let (line, environment, directory) = (
            fs::read(process.join("cmdline"))?,
            fs::read(process.join("environ"))?,
            fs::read_link(process.join("cwd"))?,
        );
        if Owner::of(&process)? != owner {
            return Err(io::Error::other("it has become another program"));
        }
        let variables = fields(&environment).filter_map(|variable| {
            let bytes = variable.as_bytes();
            let equals = bytes.iter().position(|byte| *byte == b'=')?;
            let (name, value) = bytes.split_at_checked(equals)?;
            let value = value.get(1..)?;
            let text = |bytes| OsStr::from_bytes(bytes).to_owned();
            Some((text(name), text(value)))
        });
        let environment: Vec<_> = variables.collect();
        // A relay in the background has left the directory that its relative paths begin at.
        let began = environment.iter().find(|(name, _)| name == "PWD");
        let began = began.map(|(_, directory)| PathBuf::from(directory));
        let began = began.filter(|began| began.is_absolute() && directory == Path::new("/"));
        Ok(Self {
            pid,
            user: owner.user,
            group: owner.group,
            // Not its name: the directory may have been removed.
            directory: began.unwrap_or_else(|| process.join("cwd")),
            arguments: fields(&line).skip(1).map(OsStr::to_owned).collect(),
            environment,
        })
    }

    /// Returns the process id of the relay.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the relay has ended since it was read.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        Owner::of(&Path::new("/proc").join(self.pid.to_string())).is_err()
    }

    /// Returns the options of the relay.
    #[must_use]
    pub fn arguments(&self) -> &[OsString] {
        &self.arguments
    }

    /// Whether the relay has another user than this process, which can take its place.
    #[must_use]
    pub fn is_of_lesser_user(&self) -> bool {
        self.user != 0 && rustix::process::geteuid().is_root()
    }

    /// Runs `relayd doctor` in the place of the relay, with its options, environment and directory;
    /// or with the options that are `given`, and those of this process. Returns what it finds.
    ///
    /// The user of the relay may be hostile, and rules over the doctor that runs as it: that has
    /// neither the terminal of this one, nor variables by which others run.
    ///
    /// # Errors
    /// If it cannot be started, or fails before it examines anything.
    pub fn run_doctor(&self, given: Option<&[OsString]>) -> io::Result<Report> {
        let program = std::env::current_exe()?;
        let mut doctor = if self.is_of_lesser_user() {
            let mut session = Command::new(SETSID);
            // Without further groups, which the relay may have.
            session.arg("--wait").arg(program);
            session.gid(self.group).uid(self.user);
            session
        } else {
            Command::new(program)
        };
        doctor.arg("doctor").env_clear().stdin(Stdio::null());
        match given {
            Some(given) => doctor.args(given).envs(passed_on(std::env::vars_os())),
            None => {
                let environment = self.environment.iter().cloned();
                doctor.args(&self.arguments);
                doctor
                    .envs(passed_on(environment))
                    .current_dir(&self.directory)
            }
        };
        doctor.arg("--json").env("PATH", PATH);
        let ended = doctor.env(PROCESS, self.pid.to_string()).output()?;
        serde_json::from_slice(&ended.stdout).map_err(|_| {
            let printed = String::from_utf8_lossy(&ended.stderr);
            io::Error::other(printable(printed.trim()))
        })
    }
}

/// The variables that a doctor has: the settings of a relay, and nothing that makes programs run.
fn passed_on(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> impl Iterator<Item = (OsString, OsString)> {
    variables.filter(|(name, _)| {
        let name = name.to_string_lossy();
        ["HOME", "TZ", "NO_COLOR"].contains(&&*name)
            || ["LTTNG_", "XDG_", "AWS_", "GOOGLE_", "AZURE_"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
    })
}

/// Splits what ends with a zero byte each.
fn fields(bytes: &[u8]) -> impl Iterator<Item = &OsStr> {
    let fields = bytes.split_inclusive(|byte| *byte == 0);
    fields.map(|field| OsStr::from_bytes(field.strip_suffix(b"\0").unwrap_or(field)))
}
