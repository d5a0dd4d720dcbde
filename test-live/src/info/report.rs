//! What is known of traces, as text and JSON.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use ::tef::event::OwnerId;
use ctf::directory::TraceDirectory;
use ctf::metadata::Trace;
use ctf::model::EnvironmentValue;
use jiff::Timestamp;
use serde::Serialize;
use viewer::align::HostAlignment;
use viewer::attach::archive::ArchivedTrace;
use viewer::attach::list::Listing;
use viewer::sources::without_repeated_host;
use viewer::terminal::printable;

use super::contents::Contents;
use super::messages::MessageCounts;

/// What is known of the traces of one or more directories and archives.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    /// First and last time of any packet or event, in nanoseconds since 1970. Absent if there is
    /// none, or if clocks are more than 292 years from their origin.
    begin_ns: Option<i64>,
    end_ns: Option<i64>,
    duration_ns: Option<u64>,
    /// The size of all packets.
    bytes: u64,
    packets: usize,
    hosts: BTreeSet<String>,
    clocks: Vec<ReportedClock>,
    /// How far the clocks of hosts are apart. Empty if nothing is known of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    offsets: Vec<ReportedOffset>,
    traces: Vec<ReportedTrace>,
    /// The number of events. Absent, as all that follows, if the events were not decoded.
    event_count: Option<u64>,
    losses: Option<ReportedLosses>,
    /// Messages between hosts. Absent if there are none.
    messages: Option<MessageCounts>,
    processes: Option<Vec<ReportedProcess>>,
    events: Option<Vec<ReportedEvent>>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct ReportedClock {
    name: String,
    frequency: u64,
    is_absolute: bool,
}

#[derive(Debug, Serialize)]
struct ReportedOffset {
    host: String,
    /// What `--align` adds to the times of the host at its last sample or packet, in nanoseconds,
    /// and by how much that may be wrong. Absent if the host is unaligned.
    ahead_ns: Option<i64>,
    error_ns: Option<u64>,
    samples: usize,
    packets: usize,
    /// Why no packets align the host. Absent if it is aligned, or was to be by samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip)]
    text: String,
}

#[derive(Debug, Serialize)]
struct ReportedTrace {
    name: String,
    uuid: Option<String>,
    paths: Vec<String>,
    streams: Vec<ReportedStream>,
}

#[derive(Debug, Serialize)]
struct ReportedStream {
    name: String,
    class: u64,
    id: u64,
    bytes: u64,
    packets: usize,
    begin_ns: Option<i64>,
    end_ns: Option<i64>,
}

#[derive(Debug, Serialize)]
struct ReportedLosses {
    events: u64,
    packets: u64,
    /// Streams that may have lost events before their first packet ended.
    uncertain_streams: u64,
    /// Whether something could not be read, of which nothing else is known.
    is_partial: bool,
    #[serde(skip)]
    text: String,
}

#[derive(Debug, Serialize)]
struct ReportedProcess {
    host: String,
    name: String,
    pid: ReportedId,
}

/// The id of a process: a number, or what the process calls itself.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ReportedId {
    Number(i64),
    Text(String),
}

#[derive(Debug, Serialize)]
struct ReportedEvent {
    name: String,
    count: u64,
    /// Events per second of the duration of the report, to three decimals. Absent if that is 0 or
    /// unknown.
    per_second: Option<f64>,
}

/// What is known of a trace without decoding its events.
pub(super) struct TraceSummary<'a> {
    name: &'a str,
    declared: &'a Trace,
    paths: Vec<String>,
    streams: Vec<ReportedStream>,
}

impl<'a> TraceSummary<'a> {
    /// What the metadata and the heads of packets say.
    pub(super) fn of_directory(trace: &'a TraceDirectory) -> Self {
        let declared = trace.metadata.trace();
        let streams = trace.streams.iter().map(|stream| {
            let file = stream.files.first().and_then(|file| file.file_name());
            let name = file.unwrap_or_default().to_string_lossy().into_owned();
            ReportedStream {
                bytes: stream.bytes(),
                packets: stream.packets(),
                ..ReportedStream::new(declared, name, (stream.class, stream.id), stream.span())
            }
        });
        let paths = trace.paths.iter();
        Self {
            name: &trace.name,
            declared,
            paths: paths.map(|path| path.display().to_string()).collect(),
            streams: streams.collect(),
        }
    }

    /// What the metadata and the directories of the objects say.
    pub(super) fn of_archive(trace: &'a ArchivedTrace) -> Self {
        let declared = trace.metadata.trace();
        let streams = trace.streams.iter().map(|stream| {
            let (name, key) = (stream.name.clone(), (stream.class, stream.id));
            ReportedStream {
                bytes: stream.bytes,
                packets: usize::try_from(stream.packets).unwrap_or(usize::MAX),
                ..ReportedStream::new(declared, name, key, stream.span)
            }
        });
        Self {
            name: &trace.name,
            declared,
            paths: vec![trace.url.clone()],
            streams: streams.collect(),
        }
    }
}

impl ReportedStream {
    /// A stream of no packets, with the times `span` in cycles.
    fn new(
        declared: &Trace,
        name: String,
        (class, id): (u64, u64),
        span: Option<(u64, u64)>,
    ) -> Self {
        let scale = declared.stream(class).and_then(|class| class.timescale());
        // The times of clocks far from their origin do not fit into nanoseconds.
        let scale = scale.filter(|scale| scale.far_seconds() == 0);
        let at = |cycles| scale.and_then(|scale| scale.nanoseconds(cycles));
        Self {
            name,
            class,
            id,
            bytes: 0,
            packets: 0,
            begin_ns: span.and_then(|(begin, _)| at(begin)),
            end_ns: span.and_then(|(_, end)| at(end)),
        }
    }
}

impl Report {
    /// What is known of traces without decoding their events.
    pub(super) fn of_traces<'a>(traces: impl Iterator<Item = TraceSummary<'a>>) -> Self {
        let mut report = Self::default();
        for trace in traces {
            let declared = trace.declared;
            if let Some(EnvironmentValue::Text(host)) = declared.environment_value("hostname") {
                report.hosts.insert(host.to_string());
            }
            for clock in declared.clocks() {
                let clock = ReportedClock {
                    name: clock.name.to_string(),
                    frequency: clock.frequency,
                    is_absolute: clock.absolute,
                };
                // The traces of one recording have the same clock.
                if !report.clocks.contains(&clock) {
                    report.clocks.push(clock);
                }
            }
            for stream in &trace.streams {
                report.bytes = report.bytes.saturating_add(stream.bytes);
                report.packets = report.packets.saturating_add(stream.packets);
                report.extend_span(stream.begin_ns, stream.end_ns);
            }
            report.traces.push(ReportedTrace {
                name: trace.name.to_owned(),
                uuid: declared.uuid().map(|uuid| uuid.to_string()),
                paths: trace.paths,
                streams: trace.streams,
            });
        }
        report
    }

    /// Adds what samples or packets say of the clocks.
    pub(super) fn set_offsets(&mut self, hosts: &[HostAlignment]) {
        let is_known = |host: &HostAlignment| host.offset.is_some() || host.reason.is_some();
        if !hosts.iter().any(is_known) {
            return;
        }
        let offsets = hosts.iter().map(|host| ReportedOffset {
            host: host.host.clone(),
            ahead_ns: host.offset.map(|offset| offset.ahead),
            error_ns: host.offset.map(|offset| offset.error),
            samples: host.samples,
            packets: host.packets,
            reason: host.reason.clone(),
            text: host.to_string(),
        });
        self.offsets = offsets.collect();
    }

    /// Adds what the events say.
    pub(super) fn set_contents(&mut self, contents: &Contents) {
        let (first, last) = contents.span.unzip();
        self.extend_span(first, last);
        let duration = self.duration_ns.filter(|duration| *duration > 0);
        self.event_count = Some(contents.events.values().sum());
        let losses = &contents.losses;
        self.losses = Some(ReportedLosses {
            events: losses.events,
            packets: losses.packets,
            uncertain_streams: losses.uncertain,
            is_partial: losses.is_partial,
            text: losses.to_string(),
        });
        self.messages = Some(contents.messages).filter(|counts| counts.matched > 0);
        let processes = contents.processes.iter().map(|process| ReportedProcess {
            host: process.host.clone(),
            name: process.name.clone(),
            pid: match &process.pid {
                OwnerId::Number(pid) => ReportedId::Number(*pid),
                OwnerId::Text(pid) => ReportedId::Text(pid.to_string()),
            },
        });
        self.processes = Some(processes.collect());
        let events = contents.events.iter().map(|(name, count)| ReportedEvent {
            name: name.clone(),
            count: *count,
            per_second: duration.map(|duration| rate(*count, duration)),
        });
        let mut events: Vec<_> = events.collect();
        // The name decides between equals, so that the order is the same each time.
        events.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
        self.events = Some(events);
    }

    fn extend_span(&mut self, begin: Option<i64>, end: Option<i64>) {
        self.begin_ns = [self.begin_ns, begin].into_iter().flatten().min();
        self.end_ns = self.end_ns.max(end);
        self.duration_ns = match (self.begin_ns, self.end_ns) {
            (Some(begin), Some(end)) if begin <= end => Some(end.abs_diff(begin)),
            _ => None,
        };
    }
}

/// Events per second, to three decimals.
fn rate(count: u64, duration_ns: u64) -> f64 {
    let duration = u128::from(duration_ns);
    // With half of the divisor, the quotient is rounded.
    let thousandths = (u128::from(count) * 1_000_000_000_000 + duration / 2) / duration;
    thousandths as f64 / 1e3
}

/// A rate with as many decimals as say something.
fn shown_rate(rate: f64) -> String {
    match rate {
        0.0..10.0 => format!("{rate:.2}"),
        10.0..100.0 => format!("{rate:.1}"),
        _ => format!("{rate:.0}"),
    }
}

/// The path of a stream below the directory that was given, after the host of its trace.
fn stream_path(trace: &str, stream: &str) -> String {
    match without_repeated_host(trace) {
        "" => stream.to_owned(),
        trace => format!("{trace}/{stream}"),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |nanoseconds: Option<i64>| match nanoseconds {
            Some(time) => Timestamp::from_nanosecond(i128::from(time))
                .unwrap_or_default()
                .to_string(),
            None => "unknown".to_owned(),
        };
        let duration = self
            .duration_ns
            .map_or(Duration::ZERO, Duration::from_nanos);
        writeln!(f, "begin      {}", time(self.begin_ns))?;
        writeln!(f, "end        {}", time(self.end_ns))?;
        writeln!(f, "duration   {duration:.3?}")?;
        let streams: usize = self.traces.iter().map(|trace| trace.streams.len()).sum();
        let (bytes, packets, traces) = (self.bytes, self.packets, self.traces.len());
        writeln!(
            f,
            "size       {bytes} bytes, {packets} packets, {streams} streams, {traces} traces"
        )?;
        // Names come from traces: no character of theirs may control the terminal.
        let hosts: Vec<String> = self.hosts.iter().map(|host| shown(host)).collect();
        writeln!(f, "hosts      {}", hosts.join(", "))?;
        for clock in &self.clocks {
            let origin = if clock.is_absolute {
                ", since 1970"
            } else {
                ""
            };
            writeln!(
                f,
                "clock      {}, {} Hz{origin}",
                shown(&clock.name),
                clock.frequency
            )?;
        }
        for offset in &self.offsets {
            writeln!(f, "offset     {}", offset.text)?;
        }
        if let Some(losses) = &self.losses {
            writeln!(f, "losses     {}", losses.text)?;
        }
        if let Some(messages) = &self.messages {
            writeln!(f, "messages   {messages}")?;
        }
        if let Some(count) = self.event_count {
            writeln!(f, "events     {count}")?;
        }
        writeln!(f, "\n{:>12} {:>9}  STREAM", "BYTES", "PACKETS")?;
        for trace in &self.traces {
            for stream in &trace.streams {
                let name = stream_path(&trace.name, &stream.name);
                writeln!(
                    f,
                    "{:>12} {:>9}  {}",
                    stream.bytes,
                    stream.packets,
                    shown(&name)
                )?;
            }
        }
        if let Some(processes) = self.processes.as_ref().filter(|all| !all.is_empty()) {
            writeln!(f, "\n{:>12}  PROCESS", "PID")?;
            for process in processes {
                let name = match process.name.as_str() {
                    "" => "-",
                    name => name,
                };
                // One host stands in a line of its own.
                let name = match self.hosts.len() {
                    0..=1 => name.to_owned(),
                    _ => format!("{name} @ {}", process.host),
                };
                let pid = match &process.pid {
                    ReportedId::Number(pid) => pid.to_string(),
                    ReportedId::Text(pid) => shown(pid),
                };
                writeln!(f, "{pid:>12}  {}", shown(&name))?;
            }
        }
        if let Some(events) = &self.events {
            writeln!(f, "\n{:>12} {:>12}  EVENT", "COUNT", "PER SECOND")?;
            for event in events {
                let rate = event.per_second.map_or_else(|| "-".to_owned(), shown_rate);
                writeln!(f, "{:>12} {rate:>12}  {}", event.count, shown(&event.name))?;
            }
        }
        Ok(())
    }
}

/// Writes what a relay says of its sessions.
pub(super) fn write_sessions(listing: &Listing, out: &mut impl Write) -> io::Result<()> {
    for session in &listing.sessions {
        // The URL has the host and the name.
        writeln!(out, "session    {}", session.url)?;
        match session.timer_us {
            0 => writeln!(out, "live       no")?,
            timer => writeln!(
                out,
                "live       yes, live timer {:.3?}",
                Duration::from_micros(timer.into())
            )?,
        }
        writeln!(out, "streams    {}", session.stream_count)?;
        writeln!(out, "viewers    {}", session.client_count)?;
        writeln!(out, "format     {}\n", session.trace_format)?;
    }
    Ok(())
}

fn shown(text: &str) -> String {
    printable(text).collect()
}

#[cfg(test)]
mod tests {
    use super::super::contents::Process;
    use super::*;

    #[test]
    fn rates_are_of_the_duration_that_is_shown_and_have_decimals_if_they_are_low() {
        for (count, seconds, want) in [
            (5, 10, "0.50"),
            (1, 3, "0.33"),
            (7, 1, "7.00"),
            (123, 10, "12.3"),
            (28_325, 1, "28325"),
        ] {
            let rate = rate(count, seconds * 1_000_000_000);
            assert_eq!(shown_rate(rate), want);
        }
        let mut contents = Contents::default();
        contents.events.insert("e".to_owned(), 5);
        contents.span = Some((0, 1_000_000_000));
        let mut report = Report {
            begin_ns: Some(-9_000_000_000),
            ..Report::default()
        };
        report.set_contents(&contents);
        assert_eq!(report.duration_ns, Some(10_000_000_000));
        assert_eq!(report.events.as_ref().unwrap()[0].per_second, Some(0.5));
        assert!(report.to_string().contains("duration   10.000s\n"));
    }

    #[test]
    fn host_of_a_stream_stands_there_once() {
        assert_eq!(stream_path("vm/vm/shop", "s_0"), "vm/shop/s_0");
        assert_eq!(stream_path("vm", "s_0"), "vm/s_0");
        assert_eq!(stream_path("vm/vmx/shop", "s_0"), "vm/vmx/shop/s_0");
        assert_eq!(stream_path("", "s_0"), "s_0");
    }

    #[test]
    fn process_without_a_name_is_a_dash_and_its_host_is_named_if_there_are_several() {
        let process = |host: &str, name: &str, pid| Process {
            host: host.to_owned(),
            name: name.to_owned(),
            pid: OwnerId::Number(pid),
        };
        let mut contents = Contents::default();
        contents.processes.insert(process("vm", "", 7));
        contents.processes.insert(process("vm", "shop", 8));
        let mut report = Report::default();
        report.hosts.insert("vm".to_owned());
        report.set_contents(&contents);
        let lines = |report: &Report| {
            let text = report.to_string();
            let rows = text.lines().skip_while(|line| !line.ends_with(" PROCESS"));
            let rows = rows.skip(1).take(2);
            rows.map(|row| row.trim().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(lines(&report), ["7  -", "8  shop"]);
        report.hosts.insert("other".to_owned());
        assert_eq!(lines(&report), ["7  - @ vm", "8  shop @ vm"]);
    }
}
