//! The status report of a running agent: JSON on its socket, a table for people.

use std::fmt;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::counters::{ConnectionState, EndedSessions, SessionCounters, StatusRegistry};
use super::spool::SpoolReport;

/// The status of an agent and all its sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusReport {
    /// Process id of the agent.
    pub process: u32,
    /// Version of the agent.
    pub version: String,
    /// The sessions that are open, in the order in which they were opened.
    pub sessions: Vec<SessionReport>,
    /// Totals of the sessions that have ended.
    pub ended: EndedSessions,
    /// The spool, if the agent has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spool: Option<SpoolReport>,
}

/// The status of one session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as in SessionCounters, which it is a copy of")]
pub struct SessionReport {
    pub name: String,
    pub host: String,
    #[serde(flatten)]
    pub state: ConnectionState,
    pub queued_packets: u64,
    pub queued_bytes: u64,
    /// Seconds for which a relay has acknowledged nothing while packets were queued.
    #[serde(default)]
    pub unacknowledged_s: u64,
    pub sent: u64,
    pub acknowledged: u64,
    pub acknowledged_bytes: u64,
    pub lost: u64,
    #[serde(default)]
    pub abandoned: u64,
    pub reconnects: u64,
}

impl StatusReport {
    /// Makes the report of this process.
    #[must_use]
    pub fn of(registry: &StatusRegistry) -> Self {
        let (open, ended) = registry.sessions();
        Self {
            process: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            sessions: open
                .iter()
                .map(|counters| SessionReport::of(counters))
                .collect(),
            ended,
            spool: registry.spool().as_ref().map(SpoolReport::of),
        }
    }
}

impl SessionReport {
    fn of(counters: &SessionCounters) -> Self {
        Self {
            name: counters.name.clone(),
            host: counters.host.clone(),
            state: counters.connection_state(),
            queued_packets: counters.queued_packets.get(),
            queued_bytes: counters.queued_bytes.get(),
            unacknowledged_s: counters.unacknowledged_for(Instant::now()).as_secs(),
            sent: counters.sent.get(),
            acknowledged: counters.acknowledged.get(),
            acknowledged_bytes: counters.acknowledged_bytes.get(),
            lost: counters.lost.get(),
            abandoned: counters.abandoned.get(),
            reconnects: counters.reconnects.get(),
        }
    }

    fn row(&self) -> [String; 8] {
        let state = match &self.state {
            ConnectionState::Connecting => "connecting".to_owned(),
            ConnectionState::Connected { path, relay, since } => {
                let connected = match self.unacknowledged_s {
                    MIN_UNACKNOWLEDGED_S.. => format!(
                        "connected, but nothing acknowledged for {} s, as when the relay has no disk space",
                        self.unacknowledged_s
                    ),
                    _ => "connected".to_owned(),
                };
                match &relay[..] {
                    "" => format!("{connected}: {path}"),
                    relay => format!("{connected}: {path} at {relay} since {since}"),
                }
            }
            ConnectionState::Waiting { why } => format!("waiting: {why}"),
        };
        [
            format!("{}/{}", self.host, self.name),
            self.queued_packets.to_string(),
            self.queued_bytes.to_string(),
            self.sent.to_string(),
            self.acknowledged.to_string(),
            self.lost.to_string(),
            self.reconnects.to_string(),
            state,
        ]
    }
}

/// Seconds without an acknowledgement that are not normal.
const MIN_UNACKNOWLEDGED_S: u64 = 5;

const HEADINGS: [&str; 8] = [
    "SESSION",
    "QUEUED",
    "BYTES",
    "SENT",
    "ACKED",
    "LOST",
    "RECONNECTS",
    "STATE",
];

impl fmt::Display for StatusReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = vec![HEADINGS.map(str::to_owned)];
        rows.extend(self.sessions.iter().map(SessionReport::row));
        let mut widths = [0; HEADINGS.len()];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for row in &rows {
            for (place, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                match place {
                    0 => write!(f, "{cell:<width$}")?,
                    // The last column is not padded.
                    7 => writeln!(f, "  {cell}")?,
                    _ => write!(f, "  {cell:>width$}")?,
                }
            }
        }
        let EndedSessions {
            sessions,
            acknowledged,
            lost,
        } = self.ended;
        writeln!(
            f,
            "process {}, version {}; {sessions} sessions ended, {acknowledged} packets acknowledged, {lost} lost",
            self.process, self.version
        )?;
        match &self.spool {
            Some(spool) => writeln!(f, "{spool}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> StatusReport {
        let registry = StatusRegistry::default();
        let one = registry.add_session("slow", "db7");
        one.queued_packets.add(12);
        one.set_connection_state(ConnectionState::Waiting {
            why: "connection refused".into(),
        });
        let other = registry.add_session("s", "h");
        other.acknowledged.add(3);
        other.set_connection_state(ConnectionState::Connected {
            path: "h/s-1".into(),
            relay: "net://collector:5342:5343 (10.0.0.2)".into(),
            since: "2026-11-28T17:06:49Z".into(),
        });
        let ended = registry.add_session("gone", "h");
        ended.lost.add(5);
        registry.end_session(&ended);
        let process = 7;
        StatusReport {
            process,
            ..StatusReport::of(&registry)
        }
    }

    #[test]
    fn status_table_aligns_its_columns() {
        let text = report().to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[0],
            "SESSION   QUEUED  BYTES  SENT  ACKED  LOST  RECONNECTS  STATE"
        );
        assert_eq!(
            lines[1],
            "db7/slow      12      0     0      0     0           0  waiting: connection refused"
        );
        assert_eq!(
            lines[2],
            "h/s            0      0     0      3     0           0  connected: h/s-1 at net://collector:5342:5343 (10.0.0.2) since 2026-11-28T17:06:49Z"
        );
        assert!(lines[3].ends_with("1 sessions ended, 0 packets acknowledged, 5 lost"));
    }

    #[test]
    fn status_says_that_a_connected_relay_acknowledges_nothing() {
        let mut session = report().sessions.remove(1);
        for (seconds, says) in [(4, "connected: h/s-1"), (5, "nothing acknowledged for 5 s")] {
            session.unacknowledged_s = seconds;
            let [.., state] = session.row();
            assert!(state.contains(says), "{state}");
        }
        let counters = SessionCounters::new("s", "h");
        let now = Instant::now();
        counters.record_progress(now);
        let later = now + std::time::Duration::from_secs(7);
        assert_eq!(counters.unacknowledged_for(later).as_secs(), 0);
        counters.queued_packets.add(1);
        assert_eq!(counters.unacknowledged_for(later).as_secs(), 7);
    }

    #[test]
    fn status_report_reads_back_as_it_was_written() {
        let json = serde_json::to_string(&report()).unwrap();
        assert!(json.contains(r#""state":"waiting""#), "{json}");
        let relay =
            r#""relay":"net://collector:5342:5343 (10.0.0.2)","since":"2026-11-28T17:06:49Z""#;
        assert!(json.contains(relay), "{json}");
        let old: ConnectionState =
            serde_json::from_str(r#"{"state":"connected","path":"h/s-1"}"#).unwrap();
        assert!(matches!(old, ConnectionState::Connected { path, .. } if path == "h/s-1"));
        assert_eq!(
            serde_json::from_str::<StatusReport>(&json).unwrap(),
            report()
        );
    }
}
