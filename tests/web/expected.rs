//! What a page has to show of a recording, computed from `--sink json` alone and without the code
//! of the server: spans by their begins and ends, values of counters, losses, and their sums.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde_json::Value;
use tests::lab::Lab;
use tests::test_live;

/// The buckets that the graph of events has at most, and the width of the first.
const MAX_BUCKETS: i64 = 1024;
const FIRST_WIDTH: i64 = 1_000_000;

/// What is recorded.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    /// The time of each event, in nanoseconds since 1970, where it is shown.
    pub(crate) times: Vec<i64>,
    pub(crate) spans: Vec<Span>,
    pub(crate) instants: Vec<Instant>,
    pub(crate) counters: BTreeMap<String, Vec<(i64, f64)>>,
    pub(crate) losses: Vec<Loss>,
}

#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) session: String,
    pub(crate) thread: String,
    pub(crate) name: String,
    pub(crate) begin: i64,
    pub(crate) end: i64,
}

#[derive(Debug)]
pub(crate) struct Instant {
    pub(crate) thread: String,
    pub(crate) name: String,
    pub(crate) time: i64,
}

/// Events or packets that are lost: the text without its number, the number and the time.
#[derive(Debug)]
pub(crate) struct Loss {
    pub(crate) session: String,
    pub(crate) is_packets: bool,
    pub(crate) count: u64,
    pub(crate) begin: i64,
    pub(crate) end: i64,
}

/// The spans of a name within a range.
#[derive(Debug, Default)]
pub(crate) struct SpanSum {
    pub(crate) durations: Vec<i64>,
    pub(crate) own: i64,
}

/// What an event is by the end of the name of its class.
const BEGINS: [&str; 2] = ["_begin", "_start"];
const ENDS: [&str; 1] = ["_end"];

impl Recording {
    /// Reads a recording with `test-live --sink json`.
    pub(crate) fn read(lab: &Lab, directory: &Path) -> Self {
        let words = ["--sink", "json", "--clock-seconds"];
        let ended = test_live::read(lab, &words, directory);
        assert!(ended.status.success(), "{:?}", ended.stderr);
        let mut recording = Self::default();
        for line in &ended.stderr {
            recording.losses.extend(Loss::parse(line));
        }
        // Of each session and thread those that have not ended; of each client what is added to
        // its times.
        let mut open: BTreeMap<(String, String), Vec<Span>> = BTreeMap::new();
        let mut offsets: HashMap<String, i64> = HashMap::new();
        let mut last: HashMap<String, i64> = HashMap::new();
        for line in &ended.stdout {
            let event: Value = serde_json::from_str(line).unwrap();
            let session = event["trace"].as_str().unwrap().to_owned();
            let name = event["event"].as_str().unwrap();
            let (context, fields) = (&event["context"], &event["fields"]);
            let mut time = event["time"].as_i64().unwrap();
            let mut span = None;
            let thread = format!("{} {}", context["vpid"], context["vtid"]);
            if let Some(kind) = name.strip_prefix("tef:") {
                if let (Some(ts), false) = (fields["ts"].as_i64(), kind == "metadata") {
                    let end = ts + fields["dur"].as_i64().unwrap_or(0);
                    let client = format!("{session} {}", fields["client"]);
                    time = ts + *offsets.entry(client).or_insert(time - end);
                }
                span = Some((kind, fields["name"].as_str().unwrap_or_default()));
            }
            recording.times.push(time);
            let ended = last.entry(session.clone()).or_insert(time);
            *ended = time.max(*ended);
            let named = |name: &str, end| Span {
                session: session.clone(),
                thread: thread.clone(),
                name: name.to_owned(),
                begin: time,
                end,
            };
            let open = open.entry((session.clone(), thread.clone())).or_default();
            let begin = BEGINS.iter().find_map(|end| name.strip_suffix(end));
            let end = ENDS.iter().find_map(|end| name.strip_suffix(end));
            match (span, begin, end) {
                (Some(("client" | "metadata", _)), ..) => {}
                (Some(("begin", name)), ..) | (None, Some(name), _) => {
                    open.push(named(name, i64::MAX));
                }
                (Some(("end", _)), ..) | (None, _, Some(_)) => match open.pop() {
                    Some(span) => recording.spans.push(Span { end: time, ..span }),
                    None => recording.add_instant(&thread, "<end>", time),
                },
                (Some(("complete", name)), ..) => {
                    let end = time + fields["dur"].as_i64().unwrap();
                    *ended = end.max(*ended);
                    recording.spans.push(named(name, end));
                }
                (Some(("counter", name)), ..) => {
                    let values = fields["args"].as_object().unwrap();
                    for (series, value) in values {
                        let label = match values.len() {
                            1 => name.to_owned(),
                            _ => format!("{name} {series}"),
                        };
                        let value = (time, value.as_f64().unwrap());
                        recording.counters.entry(label).or_default().push(value);
                    }
                }
                (Some((_, name)), ..) => recording.add_instant(&thread, name, time),
                (None, None, None) => {
                    recording.add_instant(&thread, name, time);
                }
            }
        }
        // Nothing is known of a session after its latest event or loss.
        for loss in &recording.losses {
            if let Some(last) = last.get_mut(&loss.session) {
                *last = loss.end.max(*last);
            }
        }
        for ((session, _), spans) in open {
            let end = last[&session];
            recording
                .spans
                .extend(spans.into_iter().map(|span| Span { end, ..span }));
        }
        recording
    }

    fn add_instant(&mut self, thread: &str, name: &str, time: i64) {
        let (thread, name) = (thread.to_owned(), name.to_owned());
        self.instants.push(Instant { thread, name, time });
    }

    /// The first and the last time.
    pub(crate) fn range(&self) -> (i64, i64) {
        let losses = self.losses.iter().map(|loss| loss.end);
        let ends = self.spans.iter().map(|span| span.end).chain(losses);
        let first = self.times.iter().min().unwrap();
        (
            *first,
            self.times.iter().copied().chain(ends).max().unwrap(),
        )
    }

    /// The number of rows: spans, instants, values and losses.
    pub(crate) fn rows(&self) -> usize {
        let values: usize = self.counters.values().map(Vec::len).sum();
        self.spans.len() + self.instants.len() + values + self.losses.len()
    }

    /// The number of spans, instants and values that are at least partly within a range.
    pub(crate) fn rows_within(&self, from: i64, to: i64) -> usize {
        let is_within = |time: i64| (from..=to).contains(&time);
        let spans = self
            .spans
            .iter()
            .filter(|of| of.begin <= to && of.end >= from);
        let instants = self.instants.iter().filter(|of| is_within(of.time));
        let values = self
            .counters
            .values()
            .flatten()
            .filter(|of| is_within(of.0));
        spans.count() + instants.count() + values.count()
    }

    /// The rows and losses that are drawn of a range: also the values that last from before it.
    pub(crate) fn drawn_within(&self, from: i64, to: i64) -> (usize, usize) {
        let lasting = self.counters.values().filter(|values| {
            let is_before = values.iter().any(|value| value.0 < from);
            is_before && from < self.range().1
        });
        let losses = self
            .losses
            .iter()
            .filter(|of| of.begin <= to && of.end >= from);
        (self.rows_within(from, to) + lasting.count(), losses.count())
    }

    /// What a session has lost, as the page says it.
    pub(crate) fn lost(&self, session: &str) -> String {
        let sum = |is_packets: bool, what: &str| {
            let of_session = self.losses.iter().filter(|of| of.session == session);
            let of_kind = of_session.filter(|of| of.is_packets == is_packets);
            match of_kind.map(|of| of.count).sum() {
                0_u64 => None,
                1 => Some(format!("1 {what}")),
                count => Some(format!("{count} {what}s")),
            }
        };
        let parts = [sum(false, "event"), sum(true, "packet")];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        match parts.is_empty() {
            true => String::new(),
            false => format!("{} lost", parts.join(" and ")),
        }
    }

    /// The spans of each name.
    pub(crate) fn span_sums(&self, from: i64, to: i64) -> BTreeMap<String, SpanSum> {
        let mut sums: BTreeMap<String, SpanSum> = BTreeMap::new();
        for span in self
            .spans
            .iter()
            .filter(|of| of.begin <= to && of.end >= from)
        {
            let sum = sums.entry(span.name.clone()).or_default();
            sum.durations.push(span.end.min(to) - span.begin.max(from));
        }
        for (path, took) in self.moments(from, to) {
            if let Some(sum) = path.last().and_then(|name| sums.get_mut(name)) {
                sum.own += took;
            }
        }
        for sum in sums.values_mut() {
            sum.durations.sort_unstable();
        }
        sums
    }

    /// The time of each name within names, with what is within it.
    pub(crate) fn graph(&self, from: i64, to: i64) -> BTreeMap<Vec<String>, i64> {
        let mut nodes = BTreeMap::new();
        for (path, took) in self.moments(from, to) {
            for depth in 1..=path.len() {
                *nodes.entry(path[..depth].to_vec()).or_default() += took;
            }
        }
        nodes.retain(|_, took| *took > 0);
        nodes
    }

    /// The time between each two times at which a span of a thread begins or ends, with the names
    /// of the spans that are open then, from the outside.
    fn moments(&self, from: i64, to: i64) -> Vec<(Vec<String>, i64)> {
        let mut threads: BTreeMap<(&str, &str), Vec<&Span>> = BTreeMap::new();
        for span in self
            .spans
            .iter()
            .filter(|of| of.begin <= to && of.end >= from)
        {
            let thread = (span.session.as_str(), span.thread.as_str());
            threads.entry(thread).or_default().push(span);
        }
        let mut moments = Vec::new();
        for spans in threads.values_mut() {
            // The outer one is first.
            spans.sort_by_key(|span| (span.begin, -span.end));
            let edges = spans.iter().flat_map(|span| [span.begin, span.end]);
            let mut edges: Vec<_> = edges.map(|time| time.clamp(from, to)).collect();
            edges.sort_unstable();
            edges.dedup();
            let mut first = 0;
            for pair in edges.windows(2) {
                let is_open = |span: &&&Span| span.begin <= pair[0] && span.end >= pair[1];
                while spans[first].end <= pair[0] && first + 1 < spans.len() {
                    first += 1;
                }
                let near = spans[first..]
                    .iter()
                    .take_while(|span| span.begin <= pair[0]);
                let path: Vec<_> = near.filter(is_open).map(|span| span.name.clone()).collect();
                if !path.is_empty() {
                    moments.push((path, pair[1] - pair[0]));
                }
            }
        }
        moments
    }

    /// The number of instants of each name.
    pub(crate) fn instant_counts(&self, from: i64, to: i64) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        let within = |of: &&Instant| (from..=to).contains(&of.time);
        for instant in self.instants.iter().filter(within) {
            *counts.entry(instant.name.clone()).or_default() += 1;
        }
        counts
    }

    /// Number, minimum, mean over the time and maximum of each counter that has a value.
    pub(crate) fn counter_sums(&self, from: i64, to: i64) -> BTreeMap<String, [f64; 4]> {
        let to = to.min(self.range().1);
        let mut sums = BTreeMap::new();
        for (name, values) in &self.counters {
            let mut values = values.clone();
            values.sort_by_key(|value| value.0);
            let (mut area, mut time, mut count) = (0.0, 0.0, 0.0);
            let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
            for (place, (begin, value)) in values.iter().enumerate() {
                let end = values.get(place + 1).map_or(to, |next| next.0.min(to));
                // One that another replaces as the range begins is not in it.
                let is_replaced = values.get(place + 1).is_some_and(|next| next.0 <= from);
                if *begin > to || is_replaced {
                    continue;
                }
                let lasts = (end - (*begin).max(from)).max(0) as f64;
                (area, time) = (area + value * lasts, time + lasts);
                (min, max) = (value.min(min), value.max(max));
                count += f64::from(u8::from(*begin >= from));
            }
            if min <= max {
                let mean = if time > 0.0 { area / time } else { min };
                sums.insert(name.clone(), [count, min, mean, max]);
            }
        }
        sums
    }

    /// The events of each column of the graph above the timeline, when it has room for so many,
    /// and the nanoseconds of a column.
    pub(crate) fn histogram(&self, room: i64) -> (Vec<u64>, i64) {
        let (first, last) = (self.times.iter().min().unwrap(), self.range().1);
        let mut width = FIRST_WIDTH;
        while last.div_euclid(width) - first.div_euclid(width) >= MAX_BUCKETS {
            width *= 2;
        }
        let begin = first.div_euclid(width);
        let buckets = last.div_euclid(width) - begin + 1;
        let of_column = (buckets + room - 1) / room;
        let columns = (buckets + of_column - 1) / of_column;
        let mut counts = vec![0; usize::try_from(columns).unwrap()];
        for time in &self.times {
            let column = (time.div_euclid(width) - begin) / of_column;
            counts[usize::try_from(column).unwrap()] += 1;
        }
        (counts, width * of_column)
    }
}

impl Loss {
    /// Reads a message of standard error: `WARNING: Tracer discarded 7 events between
    /// [SECONDS.NANOSECONDS] and [...] in trace "NAME"`.
    fn parse(line: &str) -> Option<Self> {
        let rest = line.strip_prefix("WARNING: Tracer discarded ")?;
        let mut words = rest.split(' ');
        let count = words.next()?.parse().ok()?;
        let is_packets = words.next()?.starts_with("packet");
        let mut times = rest.split(['[', ']']).skip(1).step_by(2);
        let mut time = || times.next()?.replace('.', "").parse().ok();
        Some(Self {
            session: rest.split('"').nth(1)?.to_owned(),
            is_packets,
            count,
            begin: time()?,
            end: time()?,
        })
    }
}
