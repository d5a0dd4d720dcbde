//! Finds the relays that run on this host, and runs `relayd doctor` in the place of one: as its
//! user, with its command line, environment and first directory. No other way shows what that relay
//! can read and write.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use daemon::checkup::Report;
use daemon::checkup::listener::program_name;
use daemon::event_text::printable;

/// Name of the program, as the kernel shows it.
pub const OWN_NAME: &str = "relayd";

/// Commands of the program: with one of these a process is no relay.
const COMMANDS: [&str; 5] = ["archive", "certs", "check-config", "doctor", "drain"];

/// Runs a program in a session of its own, without the terminal of this one.
const SETSID: &str = "/usr/bin/setsid";

/// Runs a program as another user.
const SETPRIV: &str = "/usr/bin/setpriv";

/// Longest time for which a doctor may run. It takes longest to probe an archive.
pub(crate) const DOCTOR_TIMEOUT: Duration = Duration::from_secs(60);

/// Largest number of bytes that a doctor may print.
const MAX_PRINTED: u64 = 1 << 20;

/// Where a doctor finds the programs of the system.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Variable for the doctor in the place of a relay: its process id, or the unit that does not run.
pub(crate) const EXAMINED: &str = "RELAYD_DOCTOR_OF";

/// A relay that runs, as `/proc` shows it.
#[derive(Debug)]
pub struct RunningRelay {
    pid: u32,
    owner: Owner,
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

/// In whose place a doctor runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Examined {
    /// That of a relay, by its process id.
    Process(u32),
    /// That of a service that does not run.
    Service,
}

/// Returns in whose place this doctor runs. None: in that of no other.
#[must_use]
pub fn examined() -> Option<Examined> {
    let examined = std::env::var(EXAMINED).ok()?;
    let process = examined.parse().map(Examined::Process);
    Some(process.unwrap_or(Examined::Service))
}

/// The process of a relay, and whose it is. All that is read of a process belongs together only if
/// this is the same before and after: the process may execute another program meanwhile, one that
/// runs as root.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    user: u32,
    group: u32,
    /// The further groups, as `setpriv` takes them: numbers with commas between.
    groups: String,
    program: PathBuf,
}

impl Owner {
    fn of(process: &Path) -> io::Result<Self> {
        let program = fs::read_link(process.join("exe"))?;
        let status = fs::read_to_string(process.join("status"))?;
        let numbers = |name: &str| -> Vec<u32> {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let words = line.unwrap_or_default().split_whitespace();
            words.filter_map(|word| word.parse().ok()).collect()
        };
        // The real, effective, saved and file system's one: a program with privileges has several.
        let only = |numbers: &[u32]| match numbers {
            [first, others @ ..] if others.iter().all(|other| other == first) => Ok(*first),
            _ => Err(io::Error::other("it has several users or groups")),
        };
        let groups = numbers("Groups:");
        let groups: Vec<_> = groups.iter().map(u32::to_string).collect();
        Ok(Self {
            user: only(&numbers("Uid:"))?,
            group: only(&numbers("Gid:"))?,
            groups: groups.join(","),
            program,
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
        let began = began.filter(|began| began.is_absolute() && began.is_dir());
        Ok(Self {
            pid,
            owner,
            directory: match directory == Path::new("/") {
                true => began.unwrap_or(directory),
                // Not its name: the directory may have been removed.
                false => process.join("cwd"),
            },
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
        self.owner.user != 0 && rustix::process::geteuid().is_root()
    }

    /// Runs `relayd doctor` in the place of the relay: with its environment, and with its options
    /// and directory unless options are `given`. Returns what it finds.
    ///
    /// The user of the relay may be hostile, and rules over the doctor that runs as it: that has
    /// neither the terminal nor the variables of this one, and is waited for a limited time.
    ///
    /// # Errors
    /// If it cannot be started, fails before it examines anything, or does not end.
    pub fn run_doctor(&self, given: Option<&[OsString]>) -> io::Result<Report> {
        let program = std::env::current_exe()?;
        let Owner {
            user,
            group,
            groups,
            ..
        } = &self.owner;
        let mut doctor = if self.is_of_lesser_user() {
            let mut session = Command::new(SETSID);
            session.arg("--wait").arg(SETPRIV);
            session.args([format!("--reuid={user}"), format!("--regid={group}")]);
            session.arg(match groups.is_empty() {
                true => "--clear-groups".to_owned(),
                false => format!("--groups={groups}"),
            });
            session.arg(program);
            session
        } else {
            Command::new(program)
        };
        doctor.arg("doctor").env_clear().stdin(Stdio::null());
        doctor.envs(passed_on(&self.environment)).env("PATH", PATH);
        doctor.env(EXAMINED, self.pid.to_string());
        match given {
            Some(given) => doctor.args(given),
            None => doctor.args(&self.arguments).current_dir(&self.directory),
        };
        let (printed, errors) = output_within(doctor.arg("--json"), DOCTOR_TIMEOUT)?;
        parse_findings(&printed, &errors)
    }
}

/// Reads what a doctor has found.
///
/// # Errors
/// If it has found nothing but printed why.
pub(crate) fn parse_findings(printed: &[u8], errors: &[u8]) -> io::Result<Report> {
    serde_json::from_slice(printed).map_err(|_| {
        let errors = String::from_utf8_lossy(errors);
        io::Error::other(printable(errors.trim()))
    })
}

/// Runs a program. Returns the first part of what it prints on standard output and standard error.
///
/// # Errors
/// If it cannot be started, or has not closed both in time. It is killed then.
pub(crate) fn output_within(
    program: &mut Command,
    timeout: Duration,
) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut child = program
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let end = Instant::now() + timeout;
    let [printed, errors] = [
        child.stdout.take().map(|pipe| read_aside(Box::new(pipe))),
        child.stderr.take().map(|pipe| read_aside(Box::new(pipe))),
    ]
    .map(|read| {
        let read = read?;
        read.recv_timeout(end.saturating_duration_since(Instant::now()))
            .ok()
    });
    // What has closed both may still run.
    let _ = child.kill();
    child.wait()?;
    let late = || {
        let name = program.get_program().display();
        io::Error::new(io::ErrorKind::TimedOut, format!("{name} does not end"))
    };
    printed.zip(errors).ok_or_else(late)
}

/// Reads the first part of a pipe on a thread of its own, which ends with this process if nobody
/// closes the pipe.
pub(crate) fn read_aside(pipe: Box<dyn Read + Send>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What could be read shows whether that is enough.
        let _ = pipe.take(MAX_PRINTED).read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    });
    receiver
}

/// The variables of a relay that a doctor has: its settings, and nothing that makes programs run.
fn passed_on(variables: &[(OsString, OsString)]) -> impl Iterator<Item = (&OsString, &OsString)> {
    let is_passed_on = |name: &OsStr| {
        let name = name.to_string_lossy().to_uppercase();
        ["HOME", "TZ", "NO_COLOR", "SSL_CERT_FILE", "SSL_CERT_DIR"].contains(&&*name)
            || ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"].contains(&&*name)
            || ["LTTNG_", "XDG_", "AWS_", "GOOGLE_", "AZURE_"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
    };
    let variables = variables.iter().map(|(name, value)| (name, value));
    variables.filter(move |(name, _)| is_passed_on(name))
}

/// Splits what ends with a zero byte each.
fn fields(bytes: &[u8]) -> impl Iterator<Item = &OsStr> {
    let fields = bytes.split_inclusive(|byte| *byte == 0);
    fields.map(|field| OsStr::from_bytes(field.strip_suffix(b"\0").unwrap_or(field)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doctor_that_does_not_end_is_killed_and_one_that_prints_without_end_is_cut() {
        let late = output_within(
            Command::new("sleep").arg("1000"),
            Duration::from_millis(100),
        );
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let (printed, errors) = output_within(&mut Command::new("yes"), DOCTOR_TIMEOUT).unwrap();
        assert_eq!(printed.len() as u64, MAX_PRINTED);
        assert!(errors.is_empty());
    }

    #[test]
    fn variables_that_make_programs_run_are_not_passed_on() {
        let all = ["LD_PRELOAD", "HOME", "AWS_REGION", "https_proxy", "PWD"];
        let all = all.map(|name| (OsString::from(name), OsString::from("x")));
        let names: Vec<_> = passed_on(&all).map(|(name, _)| name).collect();
        assert_eq!(names, ["HOME", "AWS_REGION", "https_proxy"]);
    }
}
