//! The service of the relay while it does not run: `relayd doctor` says why it would not work. It
//! runs as another service with the same user, variables and limits, because no other way shows
//! what the relay could read and write.

use std::io::{self, PipeWriter};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use daemon::checkup::Report;

use crate::running_relay::{DOCTOR_TIMEOUT, EXAMINED, output_within, parse_findings, read_aside};

/// The unit of the service.
pub(crate) const UNIT: &str = "relayd.service";

/// Longest time that systemd may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The properties of the unit that its doctor has, too: what it may read, write and listen on.
const COPIED: [&str; 20] = [
    "User",
    "Group",
    "DynamicUser",
    "SupplementaryGroups",
    "AmbientCapabilities",
    "Environment",
    "WorkingDirectory",
    "RootDirectory",
    "LimitNOFILE",
    "StateDirectory",
    "StateDirectoryMode",
    "ProtectSystem",
    "ProtectHome",
    "PrivateTmp",
    "PrivateDevices",
    "PrivateNetwork",
    "ReadWritePaths",
    "ReadOnlyPaths",
    "InaccessiblePaths",
    "BindPaths",
];

/// The service of the relay, which does not run.
#[derive(Debug, PartialEq, Eq)]
pub struct StoppedService {
    /// Why it does not run, in the words of systemd.
    state: String,
    has_failed: bool,
    /// The program and its arguments. Empty: the unit is faulty.
    command: Vec<String>,
    /// The properties of the unit, as `systemd-run` takes them.
    properties: Vec<String>,
}

impl StoppedService {
    /// Asks systemd. None: there is no such service, or it runs, or this process is not root's.
    #[must_use]
    pub fn find() -> Option<Self> {
        rustix::process::geteuid().is_root().then_some(())?;
        let copied = COPIED.join(",");
        let mut systemctl = Command::new("systemctl");
        systemctl.args(["show", UNIT]).arg(format!(
            "--property=LoadState,ActiveState,Result,ExecStart,EnvironmentFiles,{copied}"
        ));
        let (printed, _) = output_within(&mut systemctl, ANSWER_TIMEOUT).ok()?;
        Self::parse(&String::from_utf8(printed).ok()?)
    }

    /// Reads what `systemctl show` prints: a line for each value.
    fn parse(printed: &str) -> Option<Self> {
        let values: Vec<_> = printed
            .lines()
            .filter_map(|line| line.split_once('='))
            .collect();
        let value = |name: &str| {
            let value = values.iter().find(|(known, _)| *known == name);
            value.map_or("", |(_, value)| *value)
        };
        let (load, active, result) = (value("LoadState"), value("ActiveState"), value("Result"));
        match load {
            "loaded" if ["active", "reloading"].contains(&active) => return None,
            "" | "not-found" => return None,
            _ => {}
        }
        let has_failed = load != "loaded" || !["", "success"].contains(&result);
        let copied = values.iter().filter_map(|(name, value)| match *name {
            // PATH (ignore_errors=no)
            "EnvironmentFiles" => {
                let (path, ignored) = value.split_once(" (ignore_errors=")?;
                let sign = if ignored.starts_with("yes") { "-" } else { "" };
                Some(format!("EnvironmentFile={sign}{path}"))
            }
            _ if !COPIED.contains(name) || value.is_empty() => None,
            _ => Some(format!("{name}={value}")),
        });
        // { path=PROGRAM ; argv[]=PROGRAM OPTION... ; ignore_errors=... }
        let command = value("ExecStart").split_once("argv[]=");
        let command = command.and_then(|(_, command)| command.split_once(" ; "));
        let words = command
            .into_iter()
            .flat_map(|(words, _)| words.split_whitespace());
        Some(Self {
            state: match (load, has_failed) {
                ("loaded", true) => format!("{active}: {result}"),
                ("loaded", false) => active.to_owned(),
                _ => format!("its unit: {load}"),
            },
            has_failed,
            command: words.map(str::to_owned).collect(),
            properties: copied.collect(),
        })
    }

    /// Returns what a doctor finds in the place of the service.
    #[must_use]
    pub fn examine(&self) -> Report {
        let mut report = Report::default();
        let text = format!("the service {UNIT} does not run ({})", self.state);
        match self.has_failed {
            true => report.problem(text, format!("journalctl --unit={UNIT} says why")),
            false => report.warning(text, format!("systemctl start {UNIT}")),
        }
        let Some((program, arguments)) = self.command.split_first() else {
            return report;
        };
        let arguments_text = arguments.join(" ");
        report.ok(format!("examined in its place: relayd {arguments_text}"));
        match self.run_doctor(program, arguments) {
            Ok(found) => report.append(found),
            Err(error) => report.problem(
                format!("{UNIT} cannot be examined: {error}"),
                format!("relayd check-config {arguments_text}; systemctl status {UNIT}"),
            ),
        }
        report
    }

    fn run_doctor(&self, program: &str, arguments: &[String]) -> io::Result<Report> {
        let (printed, output) = io::pipe()?;
        let (errors, error_output) = io::pipe()?;
        // systemd opens them by these names. Its own pipes need D-Bus, which small systems lack.
        let name = |pipe: &PipeWriter| {
            let process = std::process::id();
            format!("file:/proc/{process}/fd/{}", pipe.as_raw_fd())
        };
        let mut systemd_run = Command::new("systemd-run");
        systemd_run.args(["--quiet", "--collect", "--service-type=exec"]);
        let added = [
            format!("StandardOutput={}", name(&output)),
            format!("StandardError={}", name(&error_output)),
            // It would go on if this process is killed.
            format!("RuntimeMaxSec={}", DOCTOR_TIMEOUT.as_secs()),
        ];
        let properties = self.properties.iter().chain(&added);
        systemd_run.args(properties.map(|property| format!("--property={property}")));
        systemd_run.arg(format!("--setenv={EXAMINED}={UNIT}"));
        systemd_run.args(["--", program, "doctor"]);
        systemd_run.args(arguments).arg("--json");
        let (_, failure) = output_within(&mut systemd_run, DOCTOR_TIMEOUT)?;
        // Only the doctor has them now, if it was started.
        drop((output, error_output));
        let [printed, errors] = [printed, errors].map(|pipe| read_aside(Box::new(pipe)));
        let wait = |read: Receiver<Vec<u8>>| {
            let read = read.recv_timeout(DOCTOR_TIMEOUT);
            read.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))
        };
        let (printed, errors) = (wait(printed)?, wait(errors)?);
        parse_findings(&printed, &[failure, errors].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "Result=exit-code\n\
        ExecStart={ path=/usr/bin/relayd ; argv[]=/usr/bin/relayd --config=/etc/relayd.conf -v ; ignore_errors=no ; \
        start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }\n\
        Environment=HOME=/var/lib/relayd \"A=b c\"\n\
        EnvironmentFiles=/etc/relayd.credentials (ignore_errors=no)\n\
        EnvironmentFiles=/etc/default/relayd (ignore_errors=yes)\n\
        User=_relayd\nGroup=\nProtectSystem=strict\nLoadState=loaded\nActiveState=failed\n";

    #[test]
    fn settings_of_a_service_that_does_not_run_are_read() {
        let words = ["/usr/bin/relayd", "--config=/etc/relayd.conf", "-v"];
        let properties = [
            r#"Environment=HOME=/var/lib/relayd "A=b c""#,
            "EnvironmentFile=/etc/relayd.credentials",
            "EnvironmentFile=-/etc/default/relayd",
            "User=_relayd",
            "ProtectSystem=strict",
        ];
        let expected = StoppedService {
            state: "failed: exit-code".to_owned(),
            has_failed: true,
            command: words.map(str::to_owned).to_vec(),
            properties: properties.map(str::to_owned).to_vec(),
        };
        assert_eq!(StoppedService::parse(SHOWN), Some(expected));
        let stopped = SHOWN.replace("Result=exit-code", "Result=success");
        let stopped = stopped.replace("=failed", "=inactive");
        let stopped = StoppedService::parse(&stopped).unwrap();
        assert_eq!(
            (stopped.state.as_str(), stopped.has_failed),
            ("inactive", false)
        );
    }

    #[test]
    fn a_service_that_runs_or_that_there_is_not_is_none_and_a_faulty_unit_has_failed() {
        let parse = |before, after| StoppedService::parse(&SHOWN.replace(before, after));
        assert_eq!(parse("=failed", "=active"), None);
        assert_eq!(parse("LoadState=loaded", "LoadState=not-found"), None);
        assert_eq!(StoppedService::parse(""), None);
        let faulty = parse("LoadState=loaded", "LoadState=bad-setting").unwrap();
        assert_eq!(faulty.state, "its unit: bad-setting");
        assert!(faulty.has_failed);
    }
}
