//! The directories of sessions, and the form of times in names of directories.

use std::fmt;
use std::path::Path;

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use relay_proto::session::{CreateSession, Recording};
use thiserror::Error;
use wire::{EpochSeconds, FileName, NAME_MAX, NameError, Text, TracePath};

use crate::limits::MAX_TRACE_DEPTH;

/// Length of a path with its NUL, in a reply to a producer.
const PATH_LIMIT: usize = 4096;

/// Longest path that a system call accepts, in bytes without its NUL (`PATH_MAX`).
const MAX_PATH: usize = 4095;

/// Bytes of the directory of index files and of the separators around it.
const INDEX_BYTES: usize = "/index/".len();

/// Bytes of the longest directory of a chunk: one that a producer has named. `archives/NAME` is
/// shorter.
const CHUNK_BYTES: usize = NAME_MAX + 1;

/// The reason why a session gets no directory.
#[derive(Debug, Error)]
pub enum LayoutError {
    /// The name is not valid as that of a directory.
    #[error("invalid {what} {name:?}: {source}")]
    Name {
        /// Noun of the name: "host name", "session name".
        what: &'static str,
        /// The name as the producer sent it.
        name: Text,
        /// The reason why the name is rejected.
        source: NameError,
    },
    /// The name begins with a dot: its directory would be hidden.
    #[error("invalid {what} {name:?}: it starts with a dot")]
    Hidden {
        /// Noun of the name: "host name", "session name".
        what: &'static str,
        /// The name as the producer sent it.
        name: Text,
    },
    /// The calendar does not reach as far as the time.
    #[error("time {} has no date", .0.0)]
    Date(EpochSeconds),
    /// The producer sent no name: it is older than LTTng 2.4.
    #[error("the session has no name")]
    Unnamed,
    /// The directory is deeper below the output than the relay looks for traces.
    #[error("its directory has more than {MAX_TRACE_DEPTH} parts below the output")]
    TooDeep,
    /// A file would have a path that no system call accepts.
    #[error("the paths of its files are longer than {MAX_PATH} bytes")]
    LongPath,
}

impl LayoutError {
    pub(super) fn invalid(what: &'static str, name: Text) -> impl FnOnce(NameError) -> Self {
        move |source| Self::Name { what, name, source }
    }
}

/// The scheme by which directories of sessions are named (`--group-output-by-...`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Grouping {
    /// Directories of sessions lie below those of their hosts: `HOST/SESSION-DATE`.
    #[default]
    ByHost,
    /// Directories of hosts lie below those of their sessions: `SESSION/HOST-DATE`.
    BySession,
}

impl fmt::Display for Grouping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ByHost => "host",
            Self::BySession => "session",
        })
    }
}

/// Directory of a session, relative to the relay's output. A base path that the user has set stands
/// at the end; grouped by host, it replaces session and date.
///
/// None for producers before LTTng 2.11, which put host and session into the path of every stream
/// ([`OldPaths`](super::old_paths::OldPaths)).
///
/// # Errors
/// If a name is missing or invalid, the directory is too long, or the calendar does not reach as
/// far as the time at which the session was created.
pub fn session_directory(
    session: &CreateSession,
    grouping: Grouping,
    time_zone: &TimeZone,
) -> Result<Option<TracePath>, LayoutError> {
    if session.name.is_empty() && session.recording.is_none() {
        return Err(LayoutError::Unnamed);
    }
    let name = visible_name("session name", &session.name)?;
    let host = visible_name("host name", &session.host)?;
    let Some(recording) = &session.recording else {
        return Ok(None);
    };
    let dated = |what, name: &FileName| {
        let suffix = format!("-{}", date(recording.created, time_zone)?);
        let text = Text::from(name.to_string().as_str());
        let dated = name.with_suffix(&suffix);
        dated.map_err(LayoutError::invalid(what, text))
    };
    let base = &session.base_path;
    let has_base = !base.is_empty();
    if has_base {
        // Checked on its own: after the host, an absolute path would pass for a relative one.
        path("base path", base)?;
    }
    let directory = match grouping {
        Grouping::ByHost if has_base => format!("{host}/{base}"),
        Grouping::ByHost if recording.name_has_date => format!("{host}/{name}"),
        Grouping::ByHost => format!("{host}/{}", dated("session name", &name)?),
        Grouping::BySession => format!("{name}/{}/{base}", dated("host name", &host)?),
    };
    let directory = path("session directory", &Text::from(directory.as_str()))?;
    if directory.len() >= PATH_LIMIT {
        let max = PATH_LIMIT - 1;
        let invalid = LayoutError::invalid("session directory", directory.to_text());
        return Err(invalid(NameError::TooLong { max }));
    }
    check_depth(&[&directory])?;
    Ok(Some(directory))
}

/// Checks that a stream's files can be written, moved to the archives, repaired and removed: their
/// paths are not too long and not too deep. `file` is the longest name of a file, `directory` that
/// of the session, None if `path` contains it.
///
/// # Errors
/// If they are.
pub fn check_stream_path(
    output: &Path,
    directory: Option<&TracePath>,
    path: &TracePath,
    file: &FileName,
) -> Result<(), LayoutError> {
    let parts: Vec<_> = directory.into_iter().chain([path]).collect();
    check_depth(&parts)?;
    let parts: usize = parts.iter().map(|part| 1 + part.len()).sum();
    let file = INDEX_BYTES + file.as_os_str().len();
    if output.as_os_str().len() + CHUNK_BYTES + parts + file > MAX_PATH {
        return Err(LayoutError::LongPath);
    }
    Ok(())
}

fn check_depth(parts: &[&TracePath]) -> Result<(), LayoutError> {
    let depth = |part: &&TracePath| Path::new(part.as_ref()).components().count();
    if parts.iter().map(depth).sum::<usize>() > MAX_TRACE_DEPTH {
        return Err(LayoutError::TooDeep);
    }
    Ok(())
}

/// Whether the directory of a session has the time of its creation in its name, so that a session
/// created at another second has another directory.
#[must_use]
pub fn is_directory_dated(session: &CreateSession, grouping: Grouping) -> bool {
    let is_dated_by_relay = |recording: &Recording| match grouping {
        Grouping::ByHost => session.base_path.is_empty() && !recording.name_has_date,
        Grouping::BySession => true,
    };
    session.recording.as_ref().is_some_and(is_dated_by_relay)
}

fn visible_name(what: &'static str, name: &Text) -> Result<FileName, LayoutError> {
    if name.as_bytes().first() == Some(&b'.') {
        return Err(LayoutError::Hidden {
            what,
            name: name.clone(),
        });
    }
    FileName::parse(name).map_err(LayoutError::invalid(what, name.clone()))
}

fn path(what: &'static str, path: &Text) -> Result<TracePath, LayoutError> {
    TracePath::parse(path).map_err(LayoutError::invalid(what, path.clone()))
}

/// The form of a time in names of sessions: `20261120-213831`.
///
/// # Errors
/// If the calendar does not reach as far as the time.
pub fn date(time: EpochSeconds, time_zone: &TimeZone) -> Result<String, LayoutError> {
    let zoned = zoned(time, time_zone)?;
    Ok(format!("{}-{}", day(&zoned), time_of_day(&zoned)))
}

/// The form of a time in names of chunks: `20261120T213831+0000`.
///
/// # Errors
/// If the calendar does not reach as far as the time.
pub fn chunk_date(time: EpochSeconds, time_zone: &TimeZone) -> Result<String, LayoutError> {
    let zoned = zoned(time, time_zone)?;
    let seconds = zoned.offset().seconds();
    let sign = if seconds < 0 { '-' } else { '+' };
    let minutes = seconds.abs() / 60;
    Ok(format!(
        "{}T{}{sign}{:02}{:02}",
        day(&zoned),
        time_of_day(&zoned),
        minutes / 60,
        minutes % 60
    ))
}

// Not `strftime`: all its conversions would be in the program.

fn day(zoned: &Zoned) -> String {
    format!("{:04}{:02}{:02}", zoned.year(), zoned.month(), zoned.day())
}

fn time_of_day(zoned: &Zoned) -> String {
    let (hour, minute, second) = (zoned.hour(), zoned.minute(), zoned.second());
    format!("{hour:02}{minute:02}{second:02}")
}

fn zoned(time: EpochSeconds, time_zone: &TimeZone) -> Result<Zoned, LayoutError> {
    let seconds = i64::try_from(time.0).map_err(|_| LayoutError::Date(time))?;
    let timestamp = Timestamp::from_second(seconds).map_err(|_| LayoutError::Date(time))?;
    Ok(timestamp.to_zoned(time_zone.clone()))
}

#[cfg(test)]
mod tests {
    use jiff::tz::Offset;
    use relay_proto::session::{DaemonId, Recording, TraceFormat};
    use wire::Micros;

    use super::*;

    fn session(name: &str, host: &str, base: &str) -> CreateSession {
        CreateSession {
            name: Text::from(name),
            host: Text::from(host),
            base_path: Text::from(base),
            live_timer: Micros(0),
            snapshot: false,
            recording: Some(Recording {
                daemon: DaemonId([1; 16]),
                id: 0,
                created: EpochSeconds(1_795_210_711),
                name_has_date: false,
                current_chunk: None,
            }),
            trace_format: TraceFormat::Ctf1,
        }
    }

    fn directory(session: &CreateSession) -> Result<String, String> {
        grouped(session, Grouping::ByHost)
    }

    fn grouped(session: &CreateSession, grouping: Grouping) -> Result<String, String> {
        session_directory(session, grouping, &TimeZone::UTC)
            .map(|path| path.unwrap().to_string())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_session_lies_below_its_host() {
        let plain = session("livesess", "tracehost", "");
        assert_eq!(
            directory(&plain).unwrap(),
            "tracehost/livesess-20261120-213831"
        );
        let based = session("regen", "tracehost", "my/base");
        assert_eq!(directory(&based).unwrap(), "tracehost/my/base");
        let mut automatic = session("auto-20261120-213911", "tracehost", "");
        automatic.recording.as_mut().unwrap().name_has_date = true;
        assert_eq!(
            directory(&automatic).unwrap(),
            "tracehost/auto-20261120-213911"
        );
    }

    #[test]
    fn a_host_lies_below_its_session_if_so_grouped() {
        let by_session = |session| grouped(session, Grouping::BySession).unwrap();
        let plain = session("livesess", "tracehost", "");
        assert_eq!(by_session(&plain), "livesess/tracehost-20261120-213831");
        let based = session("regen", "tracehost", "my/base");
        assert_eq!(
            by_session(&based),
            "regen/tracehost-20261120-213831/my/base"
        );
        let mut automatic = session("auto-20261120-213911", "tracehost", "");
        automatic.recording.as_mut().unwrap().name_has_date = true;
        assert_eq!(
            by_session(&automatic),
            "auto-20261120-213911/tracehost-20261120-213831"
        );
        let long = session("name", &"x".repeat(250), "");
        assert!(grouped(&long, Grouping::BySession).is_err());
    }

    #[test]
    fn times_in_names_are_in_the_time_zone_of_the_relay() {
        let zone = TimeZone::fixed(jiff::tz::offset(-3));
        let time = EpochSeconds(1_795_210_711);
        assert_eq!(date(time, &zone).unwrap(), "20261120-183831");
        assert_eq!(chunk_date(time, &zone).unwrap(), "20261120T183831-0300");
        let east = Offset::from_seconds(5 * 3600 + 45 * 60).unwrap();
        let chunk = |offset| chunk_date(time, &TimeZone::fixed(offset)).unwrap();
        assert_eq!(chunk(east), "20261121T032331+0545");
        assert_eq!(chunk(-east), "20261120T155331-0545");
        assert_eq!(chunk(Offset::UTC), "20261120T213831+0000");
    }

    #[test]
    fn host_and_session_names_that_leave_the_output_are_refused() {
        for (name, host, base) in [
            ("..", "host", ""),
            (".hidden", "host", ""),
            ("a/b", "host", ""),
            ("", "host", ""),
            ("name", "..", ""),
            ("name", "", ""),
            ("name", "a/b", ""),
            ("name", "host", ".."),
            ("name", "host", "a/.."),
            ("name", "host", "/etc"),
            ("name", "host", "../other"),
        ] {
            for grouping in [Grouping::ByHost, Grouping::BySession] {
                assert!(
                    grouped(&session(name, host, base), grouping).is_err(),
                    "{name:?} {host:?} {base:?}"
                );
            }
        }
        let long = "x".repeat(250);
        assert!(directory(&session(&long, "host", "")).is_err());
        let deep = "x/".repeat(2045);
        assert!(directory(&session("name", "host-name", &deep)).is_err());
    }

    #[test]
    fn directories_that_later_stages_could_not_handle_are_refused() {
        let deep = |parts: usize| Text::from(vec!["d"; parts].join("/").as_str());
        let based = |parts| {
            grouped(
                &session("name", "host", &deep(parts).to_string()),
                Grouping::ByHost,
            )
        };
        assert!(based(MAX_TRACE_DEPTH - 1).is_ok());
        let refused = based(MAX_TRACE_DEPTH).unwrap_err();
        assert!(refused.contains("more than 120 parts"), "{refused}");
        let path = |text: Text| TracePath::parse(&text).unwrap();
        let file = FileName::parse(&Text::from("chan_0.idx")).unwrap();
        let check = |directory: &TracePath, path: &TracePath| {
            check_stream_path(Path::new("/output"), Some(directory), path, &file)
        };
        let session = path(deep(MAX_TRACE_DEPTH - 4));
        assert!(check(&session, &path(deep(4))).is_ok());
        assert!(matches!(
            check(&session, &path(deep(5))),
            Err(LayoutError::TooDeep)
        ));
        assert!(check_stream_path(Path::new("/"), None, &path(deep(121)), &file).is_err());
        // Below the session there may be a chunk with the longest name, then the index file.
        let long = |bytes: usize| {
            path(Text::from(
                vec!["d".repeat(99); bytes / 100].join("/").as_str(),
            ))
        };
        let rest = "/output".len() + 256 + "/ust".len() + "/index/chan_0.idx".len();
        let fits = (MAX_PATH - rest) / 100 * 100;
        assert!(check(&long(fits), &path(Text::from("ust"))).is_ok());
        let refused = check(&long(fits + 100), &path(Text::from("ust"))).unwrap_err();
        assert!(matches!(refused, LayoutError::LongPath));
    }

    #[test]
    fn times_beyond_the_calendar_are_refused() {
        for seconds in [u64::MAX, (1 << 63) - 1, 253_402_300_800] {
            let mut session = session("name", "host", "");
            session.recording.as_mut().unwrap().created = EpochSeconds(seconds);
            assert!(directory(&session).is_err(), "{seconds}");
        }
    }
}
