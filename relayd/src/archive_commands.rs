//! `relayd archive`: what it prints about an archive.

use std::fmt::{self, Write};
use std::io::IsTerminal;
use std::time::Duration;

use archive::catalog::{self, CatalogError, ListedSession, Verified};
use archive::store::{OpenError, ProbeError, ProbeReport, open, probe};
use daemon::error_text::describe_error;
use daemon::output::print_message;
use jiff::Timestamp;
use serde::Serialize;
use thiserror::Error;

use crate::cli::ArchiveLocation;

/// Number of objects after which `verify` says again how far it has come.
const PROGRESS_OBJECTS: u64 = 1000;

/// A clock that differs by less, in seconds, is not mentioned: some stores round times to seconds.
const MAX_CLOCK_DIFFERENCE: f64 = 1.0;

/// Why a command about an archive has failed.
#[derive(Debug, Error)]
pub enum ArchiveCommandError {
    /// There is no store at the URL.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store does not keep what an archive relies on, or does not answer.
    #[error("{url} cannot be used")]
    Probe {
        /// The URL of the archive.
        url: String,
        /// The reason why it cannot be used.
        source: ProbeError,
    },
    /// The archive cannot be read.
    #[error("{url} cannot be read")]
    Read {
        /// The URL of the archive.
        url: String,
        /// The reason why it cannot be read.
        source: CatalogError,
    },
}

/// Runs `relayd archive check`: probes the store. Returns what to print about one that can be used.
///
/// # Errors
/// If the store cannot be used.
pub async fn check(location: &ArchiveLocation) -> Result<String, ArchiveCommandError> {
    let ArchiveLocation {
        url,
        archive_endpoint,
    } = location;
    let store = open(url, archive_endpoint.as_deref())?;
    match probe(&*store).await {
        Ok(report) => Ok(describe(url, &report)),
        Err(source) => Err(ArchiveCommandError::Probe {
            url: url.clone(),
            source,
        }),
    }
}

/// The sessions of an archive, the oldest first. Displayed as a table; as JSON it is an array.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct ArchivedSessions(Vec<ArchivedSession>);

#[derive(Debug, Serialize)]
struct ArchivedSession {
    host: String,
    name: String,
    /// When it was created, in UTC.
    created: String,
    /// When it ended, in UTC. Absent, as what follows, if it has not ended or its relay died.
    ended: Option<String>,
    packets: Option<u64>,
    bytes: Option<u64>,
}

/// Runs `relayd archive ls`. Returns the list, and whether all sessions could be listed: those that
/// could not are reported on standard error.
///
/// # Errors
/// If the archive cannot be read.
pub async fn ls(
    location: &ArchiveLocation,
) -> Result<(ArchivedSessions, bool), ArchiveCommandError> {
    let store = open(&location.url, location.archive_endpoint.as_deref())?;
    let failed = |source| ArchiveCommandError::Read {
        url: location.url.clone(),
        source,
    };
    catalog::check_format(&*store).await.map_err(failed)?;
    let found = catalog::list_sessions(&*store, &Default::default(), &[]).await;
    let found = found.map_err(failed)?;
    let (mut sessions, failures) = catalog::read_listed(&*store, found).await;
    sessions.sort_by_key(|session| session.created.created);
    report(&failures);
    let sessions = sessions.iter().map(ArchivedSession::of).collect();
    Ok((ArchivedSessions(sessions), failures.is_empty()))
}

fn report(failures: &[CatalogError]) {
    for failure in failures {
        print_message(format_args!("relayd archive: {}", describe_error(failure)));
    }
}

impl ArchivedSession {
    fn of(listed: &ListedSession) -> Self {
        let ended = listed.ended.as_ref();
        Self {
            host: listed.created.host.clone(),
            name: listed.created.name.clone(),
            created: time(listed.created.created),
            ended: ended.map(|ended| time(ended.ended)),
            packets: ended.map(|ended| ended.packets),
            bytes: ended.map(|ended| ended.bytes),
        }
    }
}

impl fmt::Display for ArchivedSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:20} {:20} {:>12} {:>15}  session",
            "created", "ended", "packets", "bytes"
        )?;
        let number = |number: Option<u64>| number.map_or("-".to_owned(), |own| own.to_string());
        self.0.iter().try_for_each(|session| {
            writeln!(
                f,
                "{:20} {:20} {:>12} {:>15}  host/{}/{}",
                session.created,
                session.ended.as_deref().unwrap_or("-"),
                number(session.packets),
                number(session.bytes),
                session.host.escape_debug(),
                session.name.escape_debug(),
            )
        })
    }
}

/// A time in nanoseconds since 1970, to the second, in UTC.
fn time(nanoseconds: u64) -> String {
    let time = Timestamp::from_nanosecond(nanoseconds.into()).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Runs `relayd archive verify`. Returns what was read, and whether no object is damaged: those
/// that are, are reported on standard error.
///
/// # Errors
/// If the archive cannot be read.
pub async fn verify(location: &ArchiveLocation) -> Result<(String, bool), ArchiveCommandError> {
    let store = open(&location.url, location.archive_endpoint.as_deref())?;
    let is_terminal = std::io::stderr().is_terminal();
    let verified = catalog::verify(&*store, |verified, objects| {
        let done = verified.objects;
        if is_terminal && done.is_multiple_of(PROGRESS_OBJECTS) {
            print_message(format_args!("{done} of {objects} objects"));
        }
    });
    let verified = verified.await.map_err(|source| ArchiveCommandError::Read {
        url: location.url.clone(),
        source,
    })?;
    report(&verified.first_faults);
    Ok((describe_verified(&verified), verified.faults == 0))
}

fn describe_verified(verified: &Verified) -> String {
    let Verified {
        objects,
        bytes,
        packets,
        foreign,
        faults,
        ..
    } = verified;
    let mut text = format!("{objects} objects, {bytes} bytes, {packets} packets: ");
    text += &match faults {
        0 => "no object is damaged\n".to_owned(),
        1 => "1 object is damaged\n".to_owned(),
        faults => format!("{faults} objects are damaged\n"),
    };
    if *foreign > 0 {
        let _ = writeln!(text, "{foreign} objects of others were not read");
    }
    text
}

fn describe(url: &str, report: &ProbeReport) -> String {
    let mut text = format!("{url} can be used: one of each 16 racing creates succeeded\n\n");
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "{:20} {:>6} {:>10} {:>10}",
        "call", "count", "median ms", "max ms"
    );
    for times in &report.times {
        let [p50, max] = [times.p50, times.max].map(milliseconds);
        let _ = writeln!(
            text,
            "{:20} {:6} {p50:10.1} {max:10.1}",
            times.call, times.count
        );
    }
    if let Some(difference) = describe_clock(report) {
        let _ = writeln!(text, "\nwarning: {difference}");
    }
    if let Some(reason) = &report.undeleted {
        let _ = writeln!(
            text,
            "\nwarning: objects of this check are left below probe/: {reason}; they do no harm"
        );
    }
    text
}

/// By how much the clock of the store differs from that of this host. None: not much, or it is
/// unknown.
pub(crate) fn describe_clock(report: &ProbeReport) -> Option<String> {
    let (least, most) = report.clock_ahead?;
    let (difference, where_to) = match (least, most) {
        (least, _) if least > MAX_CLOCK_DIFFERENCE => (least, "ahead"),
        (_, most) if most < -MAX_CLOCK_DIFFERENCE => (-most, "behind"),
        _ => return None,
    };
    Some(format!(
        "the clock of the store is {difference:.1} s {where_to}"
    ))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use archive::store::CallTimes;

    use super::*;

    #[test]
    fn report_has_a_line_for_each_call_and_warns_of_a_clock_that_is_wrong() {
        let mut report = ProbeReport {
            times: vec![CallTimes {
                call: "create, 16 at once",
                count: 128,
                p50: Duration::from_micros(12_340),
                max: Duration::from_secs(1),
            }],
            clock_ahead: Some((-0.5, 0.7)),
            undeleted: None,
        };
        let all = "s3://b can be used: one of each 16 racing creates succeeded\n\n\
                   call                  count  median ms     max ms\n\
                   create, 16 at once      128       12.3     1000.0\n";
        assert_eq!(describe("s3://b", &report), all);
        for (clock, want) in [
            ((2.0, 3.0), "the clock of the store is 2.0 s ahead"),
            ((-70.0, -69.0), "the clock of the store is 69.0 s behind"),
        ] {
            report.clock_ahead = Some(clock);
            let text = describe("s3://b", &report);
            assert!(text.contains(want), "{text}");
        }
    }
}
