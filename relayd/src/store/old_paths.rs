//! The directories of streams of producers before LTTng 2.11, which send no directory for the
//! session. The path of each stream begins with host, session and date, or with host and base path.
//! To group by session, these are taken apart. `doc/store.md` has a table of the cases.

use jiff::tz::TimeZone;
use wire::{EpochSeconds, FileName, NameError, Text, TracePath};

use super::layout::{Grouping, LayoutError, date};

/// Length of a date at the end of a name, with its dash: `-20261120-213831`.
const DATE_BYTES: usize = 16;

/// The rules by which the paths of one session's streams become directories.
#[derive(Debug, Clone)]
pub struct OldPaths {
    grouping: Grouping,
    session: FileName,
    /// Date at which the session was opened, for sessions whose names have none.
    opened: String,
}

impl OldPaths {
    /// The rules of a session that is opened at `now`.
    ///
    /// # Errors
    /// If its name is not valid as that of a directory, or the calendar does not reach as far as
    /// `now`.
    pub fn new(
        grouping: Grouping,
        session: &Text,
        now: EpochSeconds,
        time_zone: &TimeZone,
    ) -> Result<Self, LayoutError> {
        let invalid = LayoutError::invalid("session name", session.clone());
        Ok(Self {
            grouping,
            session: FileName::parse(session).map_err(invalid)?,
            opened: date(now, time_zone)?,
        })
    }

    /// Directory of a stream whose producer sent this path, relative to the relay's output.
    ///
    /// # Errors
    /// If the path leads out of the output.
    pub fn directory(&self, sent: &Text) -> Result<TracePath, NameError> {
        let sent = TracePath::parse_rooted(sent)?;
        if self.grouping == Grouping::ByHost {
            return Ok(sent);
        }
        let text = sent.to_text();
        let mut parts = text.as_bytes().splitn(3, |&byte| byte == b'/');
        let (Some(host), Some(second)) = (parts.next(), parts.next()) else {
            return Ok(sent);
        };
        let rest = parts.next().unwrap_or_default();
        let session = self.session.as_os_str().as_encoded_bytes();
        let own_date = date_at_end(session).unwrap_or(self.opened.as_bytes());
        let (date, base): (Option<&[u8]>, &[u8]) = match second.strip_prefix(session) {
            None => (Some(own_date), second),
            Some([]) => (Some(own_date), &[]),
            Some(suffix) if suffix.len() == DATE_BYTES && date_at_end(suffix).is_some() => {
                (date_at_end(suffix), &[])
            }
            // A base path that begins with the session's name. Here lttng-relayd omits the date,
            // and so do we.
            Some(_) => (None, second),
        };
        let mut placed = [session, b"/", host].concat();
        if let Some(date) = date {
            placed.push(b'-');
            placed.extend_from_slice(date);
        }
        for below in [base, rest] {
            placed.push(b'/');
            placed.extend_from_slice(below);
        }
        TracePath::parse(&Text::from(placed.as_slice()))
    }
}

/// The date at the end of a name, without the dash before it.
fn date_at_end(name: &[u8]) -> Option<&[u8]> {
    let (_, end) = name.split_at_checked(name.len().checked_sub(DATE_BYTES)?)?;
    let fits = |(at, byte): (usize, &u8)| match at {
        0 | 9 => *byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    let is_date = end.iter().enumerate().all(fits);
    end.strip_prefix(b"-").filter(|_| is_date)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(grouping: Grouping, session: &str, sent: &str) -> Result<String, NameError> {
        let now = EpochSeconds(1_795_210_711);
        let paths = OldPaths::new(grouping, &Text::from(session), now, &TimeZone::UTC).unwrap();
        paths
            .directory(&Text::from(sent))
            .map(|path| path.to_string())
    }

    #[test]
    fn old_paths_grouped_by_host_stay_as_they_were_sent() {
        let sent = "/host/name-20200101-101010//ust/uid/0/64-bit";
        assert_eq!(
            placed(Grouping::ByHost, "name", sent).unwrap(),
            "host/name-20200101-101010/ust/uid/0/64-bit"
        );
    }

    #[test]
    fn old_paths_grouped_by_session_have_host_and_session_swapped() {
        for (session, sent, want) in [
            (
                "name",
                "/host/name-20200101-101010//ust/uid",
                "name/host-20200101-101010/ust/uid",
            ),
            ("name", "/host/name//ust", "name/host-20261120-213831/ust"),
            (
                "auto-20200101-101010",
                "/host/auto-20200101-101010//ust",
                "auto-20200101-101010/host-20200101-101010/ust",
            ),
            (
                "name",
                "/host/my/base//ust",
                "name/host-20261120-213831/my/base/ust",
            ),
            (
                "auto-20200101-101010",
                "/host/base//ust",
                "auto-20200101-101010/host-20200101-101010/base/ust",
            ),
            ("name", "/host/names//ust", "name/host/names/ust"),
            (
                "name",
                "/host/name-20200101-101010-1//ust",
                "name/host/name-20200101-101010-1/ust",
            ),
            ("name", "/host", "host"),
        ] {
            assert_eq!(
                placed(Grouping::BySession, session, sent).unwrap(),
                want,
                "{session} {sent}"
            );
        }
    }

    #[test]
    fn old_paths_lead_nowhere_outside_the_output() {
        for sent in ["/host/../..//ust", "//", "/../name", "/host/name/../.."] {
            assert!(placed(Grouping::BySession, "name", sent).is_err(), "{sent}");
        }
    }
}
