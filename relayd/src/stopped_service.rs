//! The service of the relay while it does not run: `relayd doctor` says why it would not work, with
//! the settings that systemd would start it with.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::Command;
use std::time::Duration;

use daemon::checkup::Report;

use crate::running_relay::{EXAMINED, PATH, doctor_as, findings_of, output_within, variable};

/// The unit of the service.
pub(crate) const UNIT: &str = "relayd.service";

/// Longest time that a program of the system may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The properties of the unit that are asked for.
const PROPERTIES: &str = "--property=LoadState,ActiveState,Result,ExecStart,User,Group,Environment";

/// The service of the relay, which does not run.
#[derive(Debug, PartialEq, Eq)]
pub struct StoppedService {
    /// Why it does not run, in the words of systemd.
    state: String,
    /// The user, and the group if it is not that of the user. Empty: root.
    user: String,
    group: String,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

impl StoppedService {
    /// Asks systemd. None: there is no such service, or it runs, or this process cannot take its
    /// place because it is not root's.
    #[must_use]
    pub fn find() -> Option<Self> {
        rustix::process::geteuid().is_root().then_some(())?;
        let mut systemctl = Command::new("systemctl");
        systemctl.env_clear().env("PATH", PATH);
        systemctl.args(["show", PROPERTIES, UNIT]);
        let (printed, _) = output_within(&mut systemctl, ANSWER_TIMEOUT).ok()?;
        Self::parse(&String::from_utf8(printed).ok()?)
    }

    /// Reads what `systemctl show` prints.
    fn parse(printed: &str) -> Option<Self> {
        let property = |name: &str| {
            let mut lines = printed.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            value.unwrap_or_default()
        };
        let active = property("ActiveState");
        if property("LoadState") != "loaded" || ["active", "reloading"].contains(&active) {
            return None;
        }
        // { path=PROGRAM ; argv[]=PROGRAM OPTION... ; ignore_errors=... }
        let (_, command) = property("ExecStart").split_once("argv[]=")?;
        let (command, _) = command.split_once(" ; ")?;
        let environment = property("Environment").split_whitespace();
        Some(Self {
            state: match property("Result") {
                "success" | "" => active.to_owned(),
                result => format!("{active}: {result}"),
            },
            user: property("User").to_owned(),
            group: property("Group").to_owned(),
            arguments: command
                .split_whitespace()
                .skip(1)
                .map(OsString::from)
                .collect(),
            environment: environment
                .filter_map(|word| variable(OsStr::new(word)))
                .collect(),
        })
    }

    /// Returns what a doctor finds with the settings of the service, as its user.
    #[must_use]
    pub fn examine(&self) -> Report {
        let mut report = Report::default();
        let state = &self.state;
        let options = self.arguments.join(OsStr::new(" "));
        let (user, options) = (&self.user, options.display());
        report.ok(match user.as_str() {
            "" => format!("the service {UNIT} does not run ({state}): relayd {options}"),
            _ => format!("the service {UNIT} of {user} does not run ({state}): relayd {options}"),
        });
        match self.run_doctor() {
            Ok(found) => report.append(found),
            Err(error) => report.problem(
                format!("{UNIT}: cannot be examined: {error}"),
                format!("relayd check-config {options}; systemctl status {UNIT}"),
            ),
        }
        report
    }

    fn run_doctor(&self) -> io::Result<Report> {
        let user = &self.user;
        let mut doctor = match user.as_str() {
            "" | "root" => Command::new(std::env::current_exe()?),
            _ => {
                let group = match self.group.as_str() {
                    "" => group_of(user)?,
                    group => group.to_owned(),
                };
                let (user, group) = (format!("--reuid={user}"), format!("--regid={group}"));
                doctor_as(&[user, group, "--init-groups".to_owned()])?
            }
        };
        doctor.arg("doctor").args(&self.arguments);
        doctor.env_clear().env(EXAMINED, UNIT).current_dir("/");
        findings_of(doctor, &self.environment)
    }
}

/// Returns the number of the first group of a user.
fn group_of(user: &str) -> io::Result<String> {
    let mut id = Command::new("id");
    id.env_clear().env("PATH", PATH).args(["-g", "--", user]);
    let (printed, _) = output_within(&mut id, ANSWER_TIMEOUT)?;
    Ok(String::from_utf8_lossy(&printed).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "LoadState=loaded\nActiveState=failed\nResult=exit-code\n\
        ExecStart={ path=/usr/bin/relayd ; argv[]=/usr/bin/relayd --config=/etc/relayd.conf -v ; ignore_errors=no ; \
        start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }\n\
        Environment=LTTNG_RUNDIR=/run/relayd HOME=/var/lib/relayd\nUser=_relayd\nGroup=_traces\n";

    #[test]
    fn settings_of_a_service_that_does_not_run_are_read() {
        let [config, verbose] = ["--config=/etc/relayd.conf", "-v"].map(OsString::from);
        let variables = [("LTTNG_RUNDIR", "/run/relayd"), ("HOME", "/var/lib/relayd")];
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        let expected = StoppedService {
            state: "failed: exit-code".to_owned(),
            user: "_relayd".to_owned(),
            group: "_traces".to_owned(),
            arguments: vec![config, verbose],
            environment: variables.to_vec(),
        };
        assert_eq!(StoppedService::parse(SHOWN), Some(expected));
    }

    #[test]
    fn a_service_that_runs_or_that_there_is_not_is_none() {
        for (before, after) in [
            ("ActiveState=failed", "ActiveState=active"),
            ("LoadState=loaded", "LoadState=not-found"),
            ("argv[]", ""),
        ] {
            let shown = SHOWN.replace(before, after);
            assert_eq!(StoppedService::parse(&shown), None, "{after}");
        }
        assert_eq!(StoppedService::parse(""), None);
    }
}
