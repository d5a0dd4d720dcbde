//! The counts as plain text: a table for each interval, for scripts.

use std::io::{self, Write};
use std::time::Duration;

use viewer::sink::losses::LossSum;

use super::sampler::{SampledRow, SampledSession, Sampler};
use super::state::SortKey;

/// Event names and processes of a session in each table; the most frequent.
pub(super) const MAX_BATCH_ROWS: usize = 10;

/// Writes a table of the last sample, which is over `interval`. `time` says when that was.
pub(super) fn write_table(
    out: &mut impl Write,
    sampler: &Sampler,
    time: &str,
    interval: Duration,
) -> io::Result<()> {
    let sessions = SortKey::Rate.sessions(sampler);
    let count = sessions.len();
    let plural = if count == 1 { "" } else { "s" };
    let seconds = interval.as_secs_f64();
    let failures = match sampler.failures() {
        0 => String::new(),
        1 => "  1 failure".to_owned(),
        more => format!("  {more} failures"),
    };
    writeln!(
        out,
        "{time}  interval {seconds:.1} s  {count} session{plural}{failures}"
    )?;
    let (kind, rate, total) = ("KIND", "EVENTS/S", "TOTAL");
    let (lag, lost) = ("LAG", "LOST");
    writeln!(
        out,
        "{kind:<7} {rate:>12} {total:>14} {lag:>10} {lost:>10}  NAME"
    )?;
    for session in sessions {
        write_session(out, session)?;
        for (kind, rows) in [("event", &session.names), ("process", &session.processes)] {
            for row in SortKey::Rate.rows(rows).into_iter().take(MAX_BATCH_ROWS) {
                write_row(out, kind, row)?;
            }
        }
    }
    writeln!(out)?;
    out.flush()
}

fn write_session(out: &mut impl Write, session: &SampledSession) -> io::Result<()> {
    let (rate, total) = (decimal_rate(session.events.rate), session.events.total);
    let lag = decimal_seconds(session.lag);
    let lost = decimal_losses(&session.losses);
    let name = session.name();
    let kind = "session";
    writeln!(
        out,
        "{kind:<7} {rate:>12} {total:>14} {lag:>10} {lost:>10}  {name}"
    )
}

fn write_row(out: &mut impl Write, kind: &str, row: &SampledRow) -> io::Result<()> {
    let (rate, total) = (decimal_rate(row.events.rate), row.events.total);
    let (lag, lost, name) = ("-", "-", row.name());
    writeln!(
        out,
        "{kind:<7} {rate:>12} {total:>14} {lag:>10} {lost:>10}  {name}"
    )
}

/// Events per 1000 seconds as events per second with one decimal.
fn decimal_rate(per_kilosecond: u64) -> String {
    let tenths = per_kilosecond.saturating_add(50) / 100;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Nanoseconds as seconds with three decimals; `-` if they are not known.
fn decimal_seconds(nanoseconds: Option<i64>) -> String {
    let Some(nanoseconds) = nanoseconds else {
        return "-".to_owned();
    };
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let milliseconds = nanoseconds.unsigned_abs() / 1_000_000;
    format!("{sign}{}.{:03}", milliseconds / 1000, milliseconds % 1000)
}

/// The number of lost events and packets; `?` if that is not known.
fn decimal_losses(losses: &LossSum) -> String {
    match losses.events.saturating_add(losses.packets) {
        0 if losses.uncertain > 0 => "?".to_owned(),
        lost => lost.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::super::counts::Counts;
    use super::*;

    #[test]
    fn table_has_a_row_for_each_session_event_name_and_process() {
        let counts = Arc::new(Counts::default());
        let session = counts.add_session(0, "vm/s\n1", false);
        counts.add_session(1, "vm/idle", false);
        let now = Instant::now();
        let mut sampler = Sampler::new(Arc::clone(&counts), 1, now);
        for (table, name) in [(&session.names, "my:event"), (&session.processes, "42 app")] {
            session.add_row(table, name).unwrap().events.add(5);
        }
        session.events.add(4);
        counts.failures.add(1);
        session.add_event(Some(1_000_000_000), true);
        let interval = Duration::from_secs(2);
        sampler.sample(now + interval, 1_250_000_000);
        let mut table = Vec::new();
        write_table(&mut table, &sampler, "NOW", interval).unwrap();
        let table = String::from_utf8(table).unwrap();
        let lines: Vec<String> = table
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            lines,
            [
                "NOW interval 2.0 s 2 sessions 1 failure",
                "KIND EVENTS/S TOTAL LAG LOST NAME",
                "session 2.5 5 0.250 0 vm/s\\u{a}1",
                "event 2.5 5 - - my:event",
                "process 2.5 5 - - 42 app",
                "session 0.0 0 - 0 vm/idle",
                "",
            ]
        );
    }

    #[test]
    fn negative_lag_is_written_with_its_sign() {
        assert_eq!(decimal_seconds(Some(-1_500_000_000)), "-1.500");
        assert_eq!(decimal_seconds(Some(i64::MIN)), "-9223372036.854");
    }
}
