//! Messages between the page and the server, over a WebSocket. Requests are JSON; replies are JSON,
//! but for the rows in view, which are binary. Times are nanoseconds; in JSON they are text,
//! because a number of JavaScript has 53 bits only.

use std::collections::HashSet;

use serde::{Deserialize, Deserializer, Serialize};

use super::block::NumberedRow;
use super::details::Details;
use super::row::RowKind;
use super::search::FoundRow;
use super::summary::RangeSummary;
use super::view::{View, VisibleRow};

/// Largest number of bytes of a request.
pub(super) const MAX_REQUEST_BYTES: usize = 64 << 10;
/// Largest number of tracks in view.
const MAX_TRACKS_IN_VIEW: usize = 512;
/// Largest number of bytes of what is searched for, and of a filter.
pub(super) const MAX_TEXT_BYTES: usize = 4096;
/// Largest width of a view, in pixels.
const MAX_WIDTH: u32 = 16_384;
/// Longest and shortest time in view, in nanoseconds: ten years, and one nanosecond for each of a
/// few pixels.
const SPANS: std::ops::RangeInclusive<i64> = 10..=10 * 365 * 86_400 * 1_000_000_000;
/// Largest number of rows in a frame, which then has 4 MiB. A large screen that is full of the
/// smallest rows has about as many; of a view with more, smaller rows are merged.
pub(super) const MAX_ROWS_OF_FRAME: usize = 1 << 17;

/// What a page asks for.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
#[serde(deny_unknown_fields)]
pub(super) enum Request {
    /// The part of the timeline to show from now on.
    View(ViewRequest),
    /// A frame has been shown.
    Ack { frame: u32 },
    /// The fields of the event of a row, of whose number the lower 32 bits are given.
    Details { number: u32, track: u32, row: u32 },
    /// The rows whose names contain a text, and the next one after or before a time.
    Search {
        number: u32,
        text: String,
        /// Whether the text is a whole name, in this case.
        is_whole: bool,
        #[serde(deserialize_with = "time")]
        from: i64,
        is_backward: bool,
    },
    /// The number of spans, instants and values of counters in a range.
    Count {
        number: u32,
        #[serde(deserialize_with = "time")]
        from: i64,
        #[serde(deserialize_with = "time")]
        to: i64,
    },
    /// What the rows of a range amount to.
    Summary {
        number: u32,
        #[serde(deserialize_with = "time")]
        from: i64,
        #[serde(deserialize_with = "time")]
        to: i64,
    },
    /// Shows from now on only events that match an expression; all, if it is empty.
    Filter { number: u32, text: String },
}

/// The answer to a request that has one.
#[derive(Debug, PartialEq, Serialize)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub(super) enum Reply {
    Details {
        number: u32,
        #[serde(flatten)]
        details: Details,
    },
    Search {
        number: u32,
        /// The number of rows with such a name that are kept.
        total: u64,
        /// The next one.
        found: Option<FoundRow>,
        /// The first of those that begin at the time or later, in order of time.
        hits: Vec<FoundRow>,
    },
    Count {
        number: u32,
        rows: u64,
        /// Why there is no file of the range; empty if there is one.
        refused: String,
    },
    Summary {
        number: u32,
        #[serde(flatten)]
        summary: RangeSummary,
    },
    Filter {
        number: u32,
        /// Why the expression is invalid; empty if it is valid.
        error: String,
    },
}

/// A part of the timeline.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ViewRequest {
    /// Number of the request, which frames repeat.
    pub(super) number: u32,
    /// The first time, in nanoseconds.
    #[serde(deserialize_with = "time")]
    pub(super) from: i64,
    /// The last time, in nanoseconds; if the page follows, only its distance from the first counts.
    #[serde(deserialize_with = "time")]
    pub(super) to: i64,
    pub(super) is_following: bool,
    /// The width of the view, in pixels; at least 1.
    pub(super) width: u32,
    /// The tracks that are visible.
    pub(super) tracks: Vec<u32>,
    /// Whether the page is told how many rows each track has in view.
    #[serde(default)]
    pub(super) counts_rows: bool,
}

fn time<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map_err(serde::de::Error::custom)
}

/// Why a request is rejected. The connection is closed: only a defect or an attack leads here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid request: {0}")]
pub(super) struct InvalidRequest(String);

impl Request {
    /// Parses a request, and checks its limits.
    pub(super) fn parse(text: &str) -> Result<Self, InvalidRequest> {
        let mut request: Self =
            serde_json::from_str(text).map_err(|error| InvalidRequest(error.to_string()))?;
        match &mut request {
            Self::View(view) => {
                view.check()?;
                // A track that is named twice would be sent twice, and take the room of others.
                let mut seen = HashSet::new();
                view.tracks.retain(|track| seen.insert(*track));
            }
            Self::Search { text, .. } if text.len() > MAX_TEXT_BYTES => {
                return Err(InvalidRequest("text is too long".to_owned()));
            }
            _ => {}
        }
        Ok(request)
    }
}

impl ViewRequest {
    fn check(&self) -> Result<(), InvalidRequest> {
        let span = self.to.checked_sub(self.from);
        let rules = [
            (span.is_some_and(|span| SPANS.contains(&span)), "time range"),
            ((1..=MAX_WIDTH).contains(&self.width), "width"),
            (self.tracks.len() <= MAX_TRACKS_IN_VIEW, "number of tracks"),
        ];
        match rules.iter().find(|(is_kept, _)| !is_kept) {
            None => Ok(()),
            Some((_, what)) => Err(InvalidRequest((*what).to_owned())),
        }
    }

    /// The view at a time, which is its end if the page follows.
    pub(super) fn at(&self, edge: i64) -> View {
        let (from, to) = match self.is_following {
            true => (edge.saturating_sub(self.to - self.from), edge),
            false => (self.from, self.to),
        };
        View {
            from,
            // Whatever was asked for, the end is later than the begin.
            to: to.max(from.saturating_add(1)),
            width: self.width,
        }
    }
}

/// What has changed since the message before.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StateMessage {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    /// The time up to which the timeline goes: now, if it is live.
    pub(super) edge: Option<String>,
    /// Whether events may still come.
    pub(super) is_live: bool,
    /// The earliest time of an event.
    pub(super) first: Option<String>,
    pub(super) dropped_until: Option<String>,
    /// The number of rows that are kept.
    pub(super) rows: usize,
    /// The number of packets that the filter of the page has been applied to.
    pub(super) filtered_packets: u64,
    /// Names in the filter of the page that no event has; empty if there are none.
    pub(super) filter_hint: String,
    pub(super) sessions: Vec<SessionState>,
    /// Tracks that are new or have changed.
    pub(super) tracks: Vec<TrackState>,
    pub(super) removed_tracks: Vec<u32>,
    /// The tracks with rows in view, each with how many. Absent if nothing has changed, or it was
    /// not asked for.
    pub(super) active: Option<Vec<(u32, u64)>>,
    /// The number of the first name in `names`.
    pub(super) first_name: usize,
    pub(super) names: Vec<String>,
    pub(super) histogram: Option<HistogramState>,
}

/// A session as the page shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionState {
    pub(super) id: u32,
    pub(super) name: String,
    pub(super) is_ended: bool,
    pub(super) is_recording: bool,
    /// What has been read of a recording, in percent.
    pub(super) percent_read: Option<u8>,
    pub(super) events: u64,
    /// What was lost, in words; empty if nothing was.
    pub(super) lost: String,
    /// How the clock of its host is aligned, in words; empty if times are shown as they are.
    pub(super) clock: String,
    /// Milliseconds since the latest event, if the clock counts from 1970.
    pub(super) lag: Option<i64>,
}

/// A track as the page shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TrackState {
    pub(super) id: u32,
    pub(super) session: u32,
    pub(super) process: String,
    pub(super) pid: Option<i64>,
    pub(super) thread: String,
    pub(super) is_counter: bool,
    /// The number of lines that the spans of the track need.
    pub(super) depths: u16,
    /// When the session of the track ended: the track has no value and no span after that. Absent
    /// while events may come.
    pub(super) ended_at: Option<String>,
}

/// Events and losses per bucket of time.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HistogramState {
    pub(super) begin: String,
    pub(super) width: String,
    pub(super) events: Vec<u32>,
    pub(super) losses: Vec<u32>,
}

/// The rows in view, as the page reads them: little-endian, all parts multiples of eight bytes.
///
/// Head: number of the frame, number of the request (`u32`), begin and end of the view, nanoseconds
/// from the latest event of a live session until now or [`NO_AGE`] (`i64`), number of tracks, zero
/// (`u32`). Each track: id, number of rows. Each row: begin and end in nanoseconds from the begin
/// of the view (`f64`; the end of an open span is infinite, that of a counter its value), name,
/// count, row (`u32`), depth (`u16`), kind (`u8`), zero.
#[derive(Debug)]
pub(super) struct Frame {
    bytes: Vec<u8>,
    view: View,
}

/// Where the number of tracks is in a frame.
const TRACK_COUNT_OFFSET: usize = 32;
/// The age of the latest event if there is none.
const NO_AGE: i64 = i64::MIN;

impl Frame {
    /// A frame without tracks. `age`: nanoseconds since the latest event of a live session.
    pub(super) fn new(frame: u32, request: u32, view: View, age: Option<i64>) -> Self {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&frame.to_le_bytes());
        bytes.extend_from_slice(&request.to_le_bytes());
        bytes.extend_from_slice(&view.from.to_le_bytes());
        bytes.extend_from_slice(&view.to.to_le_bytes());
        bytes.extend_from_slice(&age.unwrap_or(NO_AGE).to_le_bytes());
        // The number of tracks is counted up as they are added.
        bytes.extend_from_slice(&[0; 8]);
        Self { bytes, view }
    }

    /// Adds the rows of a track.
    pub(super) fn add_track(&mut self, track: u32, rows: &[VisibleRow]) {
        let count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        let out = &mut self.bytes;
        out.extend_from_slice(&track.to_le_bytes());
        out.extend_from_slice(&count.to_le_bytes());
        for merged in rows {
            let NumberedRow {
                number,
                row: longest,
            } = &merged.longest;
            // Relative, because a number of JavaScript has 53 bits, and a time since 1970 needs
            // more.
            let relative = |time: i64| time.saturating_sub(self.view.from) as f64;
            let end = match longest.kind {
                RowKind::Counter => longest.value(),
                _ if merged.end == super::row::OPEN => f64::INFINITY,
                _ => relative(merged.end),
            };
            out.extend_from_slice(&relative(merged.start).to_le_bytes());
            out.extend_from_slice(&end.to_le_bytes());
            out.extend_from_slice(&longest.name.to_le_bytes());
            out.extend_from_slice(&merged.count.to_le_bytes());
            let low = number & u64::from(u32::MAX);
            let low = u32::try_from(low).unwrap_or(u32::MAX);
            out.extend_from_slice(&low.to_le_bytes());
            out.extend_from_slice(&longest.depth.to_le_bytes());
            out.extend_from_slice(&[longest.kind.code(), 0]);
        }
        let count = out
            .get_mut(TRACK_COUNT_OFFSET..)
            .and_then(<[u8]>::first_chunk_mut::<4>);
        if let Some(count) = count {
            *count = (u32::from_le_bytes(*count) + 1).to_le_bytes();
        }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::EventPlace;
    use super::super::track::TrackRows;
    use super::*;

    #[test]
    fn track_that_a_view_names_again_is_in_it_once() {
        let view = r#"{"type":"view","number":1,"from":"0","to":"99","isFollowing":false,"width":1,"tracks":[7,5,7,7,5]}"#;
        match Request::parse(view).unwrap() {
            Request::View(view) => assert_eq!(view.tracks, [7, 5]),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn requests_beyond_the_limits_are_rejected() {
        let view = |from: &str, to: &str, width: u64, tracks: usize| {
            let tracks = vec!["1"; tracks].join(",");
            Request::parse(&format!(
                r#"{{"type":"view","number":1,"from":"{from}","to":"{to}","isFollowing":false,"width":{width},"tracks":[{tracks}]}}"#
            ))
        };
        assert!(view("0", "1000", 100, 3).is_ok());
        for (from, to, width, tracks) in [
            ("0", "0", 100, 1),
            ("9223372036854775807", "-9223372036854775808", 100, 1),
            ("-9223372036854775808", "9223372036854775807", 100, 1),
            ("9223372036854775808", "0", 100, 1),
            ("0", "1000", 0, 1),
            ("0", "1000", 1 << 20, 1),
            ("0", "1000", 1 << 40, 1),
            ("0", "1000", 100, MAX_TRACKS_IN_VIEW + 1),
            ("x", "1000", 100, 1),
        ] {
            assert!(view(from, to, width, tracks).is_err(), "{from} {to}");
        }
        for text in [
            "",
            "{}",
            "[]",
            r#"{"type":"ack"}"#,
            r#"{"type":"ack","frame":-1}"#,
        ] {
            assert!(Request::parse(text).is_err(), "{text}");
        }
        let ack = Request::parse(r#"{"type":"ack","frame":7}"#);
        assert_eq!(ack, Ok(Request::Ack { frame: 7 }));
    }

    #[test]
    fn following_view_ends_at_the_edge() {
        let request = ViewRequest {
            from: 0,
            to: 100,
            is_following: true,
            width: 10,
            ..ViewRequest::default()
        };
        let view = request.at(5000);
        assert_eq!((view.from, view.to), (4900, 5000));
        assert_eq!(request.at(i64::MIN).from, i64::MIN);
    }

    #[test]
    fn frame_has_a_fixed_layout() {
        let mut track = TrackRows::default();
        let view = View {
            from: 1_700_000_000_000_000_000,
            to: 1_700_000_000_000_001_000,
            width: 1000,
        };
        let place = EventPlace::default();
        track.complete(view.from + 1, view.from + 501, 5, place);
        track.begin(view.from + 600, 6, None, place);
        let mut rows = Vec::new();
        assert!(track.visible(view, None, usize::MAX, &mut rows));
        let mut frame = Frame::new(3, 4, view, Some(7));
        frame.add_track(9, &rows);
        let bytes = frame.into_bytes();
        assert_eq!(bytes.len(), 40 + 8 + 2 * 32);
        let float = |at: usize| f64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((number(0), number(4), number(24)), (3, 4, 7));
        assert_eq!((number(32), number(40), number(44)), (1, 9, 2));
        assert_eq!((float(48), float(56)), (1.0, 501.0));
        assert_eq!((number(64), number(68), number(72)), (5, 1, 0));
        assert_eq!(float(88), f64::INFINITY);
    }
}
