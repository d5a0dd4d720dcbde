//! `consumer rings --print`: shows events as they are written, until it is stopped.
//!
//! An agent that drains the rings is not disturbed: the reader is an observer. Without an agent, the producers wait for
//! nobody, and would discard events when their rings are full; then the reader frees what it has shown, but only in
//! rings that are more than half full, so that an agent that starts later finds as much as possible.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::PathBuf;

use daemon::event_text::LineStyle;
use daemon::open_spans::{OpenSpans, SpanEdge};
use daemon::output::stdout;
use jiff::tz::TimeZone;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use trace_ring_core::Severity;
use trace_ring_core::format::{Mode, Record};
use tracing::{debug, warn};

use super::line::{Edge, LineContext, LineWriter, span_id, span_name};
use super::{is_selected, open_directory, open_producer};
use crate::frontend::ring::classes::read_fields;
use crate::frontend::ring::directory::{DirectoryName, RunDirectory};
use crate::frontend::ring::producer::{Producer, ProducerRing};
use crate::limits::{MAX_RING_PROCESSES, RING_POLL_INTERVAL, RING_SCAN_INTERVAL};
use crate::packetize::HostClock;

/// Chunks of a ring that are shown in one turn, in the order of time with those of other rings.
const CHUNKS_PER_TURN: usize = 4;

/// What is shown, and how.
#[derive(Debug, Clone)]
pub struct PrintSettings {
    /// The run directory.
    pub directory: PathBuf,
    /// The processes; all if there are none.
    pub pids: Vec<u32>,
    /// The least important severity that is shown.
    pub max_severity: Severity,
    /// Whether to use colours.
    pub has_colors: bool,
}

/// Shows events on standard output until `stop` is cancelled.
///
/// # Errors
/// If the run directory or standard output fails.
pub async fn print(settings: PrintSettings, stop: CancellationToken) -> anyhow::Result<()> {
    let mut printer = Printer {
        writer: LineWriter {
            style: LineStyle {
                has_colors: settings.has_colors,
            },
            zone: TimeZone::system(),
        },
        settings,
        run: None,
        processes: HashMap::new(),
        scanned: None,
        lines: Vec::new(),
    };
    loop {
        let is_stopping = stop.is_cancelled();
        printer.scan()?;
        printer.read();
        printer.write_lines()?;
        if is_stopping {
            return Ok(());
        }
        stop.run_until_cancelled(sleep(RING_POLL_INTERVAL)).await;
    }
}

struct Printer {
    settings: PrintSettings,
    writer: LineWriter,
    run: Option<RunDirectory>,
    /// `None`: it cannot be read, or is dead and shown.
    processes: HashMap<DirectoryName, Option<ShownProcess>>,
    scanned: Option<std::time::Instant>,
    /// Lines of the turn, with their times.
    lines: Vec<(i128, String)>,
}

/// A process that is shown.
struct ShownProcess {
    producer: Producer,
    name: String,
    /// Nanoseconds from the epoch to the zero of its clock.
    clock_offset: i128,
    /// The spans that each thread is in.
    spans: OpenSpans<u32>,
}

impl Printer {
    /// Finds new processes, and forgets those whose directory is gone.
    fn scan(&mut self) -> io::Result<()> {
        let is_recent = |at: std::time::Instant| at.elapsed() < RING_SCAN_INTERVAL / 20;
        if self.scanned.is_some_and(is_recent) {
            return Ok(());
        }
        self.scanned = Some(std::time::Instant::now());
        if self.run.is_none() {
            self.run = open_directory(&self.settings.directory)?;
        }
        let Some(run) = &self.run else { return Ok(()) };
        let (names, _) = run.names()?;
        for name in &names {
            if self.processes.contains_key(name)
                || !is_selected(name, &self.settings.pids)
                || self.processes.len() >= MAX_RING_PROCESSES
            {
                continue;
            }
            let process = open_producer(run, name).map(ShownProcess::new);
            self.processes.insert(name.clone(), process);
        }
        // The files of a process that a drainer has removed are still open: what was not shown yet is in them.
        self.processes
            .retain(|name, process| process.is_some() || names.contains(name));
        Ok(())
    }

    fn read(&mut self) {
        let is_drained = self.run.as_ref().is_some_and(|run| !is_free(run));
        for process in self.processes.values_mut() {
            let Some(shown) = process else { continue };
            let is_dead = shown.producer.check_death().unwrap_or(false);
            let has_more = shown.read(&self.settings, &self.writer, &mut self.lines);
            if is_dead && !has_more {
                *process = None;
            } else if !is_drained && !is_dead {
                shown.free_space();
            }
        }
    }

    /// Writes the lines in the order of their times.
    fn write_lines(&mut self) -> io::Result<()> {
        self.lines.sort_by_key(|(time, _)| *time);
        let mut out = stdout();
        for (_, line) in self.lines.drain(..) {
            writeln!(out, "{line}")?;
        }
        out.flush()
    }
}

/// Whether no drainer uses the run directory.
fn is_free(run: &RunDirectory) -> bool {
    match run.try_lock() {
        Ok(is_free) => {
            if is_free && let Err(error) = run.unlock() {
                warn!(%error, "run directory stays locked");
            }
            is_free
        }
        Err(error) => {
            debug!(%error, "lock of the run directory not checked");
            false
        }
    }
}

impl ShownProcess {
    fn new(mut producer: Producer) -> Self {
        let name = producer.name();
        let clock_offset = producer.meta().header().clock_offset.into();
        Self {
            producer,
            name,
            clock_offset,
            spans: OpenSpans::default(),
        }
    }

    /// Reads a part of each ring. Returns whether there is more.
    fn read(
        &mut self,
        settings: &PrintSettings,
        writer: &LineWriter,
        lines: &mut Vec<(i128, String)>,
    ) -> bool {
        self.producer.update();
        // A class is in `meta` before its first event is committed.
        let _ = self.producer.meta().update();
        let numbers: Vec<u32> = self.producer.rings().keys().copied().collect();
        let mut has_more = false;
        for number in numbers {
            let mut buffer = Vec::new();
            let mut missing = 0;
            for turn in 0..CHUNKS_PER_TURN {
                let Some(ProducerRing::Open(reader)) = self.producer.rings().get_mut(&number)
                else {
                    break;
                };
                let chunk = match reader.read_chunk(&mut buffer) {
                    Ok(Some(chunk)) => chunk,
                    Ok(None) => break,
                    Err(fault) => {
                        self.producer.close_broken(number, &fault);
                        break;
                    }
                };
                missing += chunk.overwritten;
                let tid = reader.header().tid;
                let mut records = chunk.records(&buffer);
                for record in &mut records {
                    let tid = if tid == 0 { record.tid } else { tid };
                    match self.line(&record, tid, settings, writer) {
                        Some(Some(line)) => lines.push(line),
                        Some(None) => {}
                        None => missing += 1,
                    }
                }
                let end = records.end();
                if let Some(ProducerRing::Open(reader)) = self.producer.rings().get_mut(&number) {
                    reader.finish_chunk(&chunk, &buffer, end);
                }
                has_more |= turn + 1 == CHUNKS_PER_TURN;
            }
            self.add_lost(number, missing, writer, lines);
        }
        let lost = self.producer.meta().take_lost();
        self.add_lost_line(0, lost, writer, lines);
        has_more
    }

    /// The line of an event, with its time; `Some(None)` if it is not selected, `None` if it cannot be shown.
    fn line(
        &mut self,
        record: &Record<'_>,
        tid: u32,
        settings: &PrintSettings,
        writer: &LineWriter,
    ) -> Option<Option<(i128, String)>> {
        let pid = self.producer.meta().header().pid;
        let class = self.producer.meta().class(record.class)?;
        let fields = read_fields(class, record.fields())?;
        let time = i128::from(record.timestamp) + self.clock_offset;
        let mut edge = Edge::of(class);
        let name = edge.map(|_| span_name(class, &fields)).unwrap_or_default();
        let span = SpanEdge {
            name: Some(&name),
            time: i64::try_from(time).ok(),
            clock: 0,
            id: edge.and_then(|_| span_id(class, &fields)),
        };
        let mut depth = self.spans.depth(&tid);
        if let Some(Edge::End(duration)) = &mut edge {
            let ended = self.spans.end(&tid, span);
            (*duration, depth) = (ended.duration, ended.depth);
        }
        let context = LineContext {
            time,
            program: &self.name,
            pid,
            tid,
            depth,
            edge,
        };
        if edge == Some(Edge::Begin) {
            self.spans.begin(tid, 0, span, ());
        }
        if class.severity > settings.max_severity {
            return Some(None);
        }
        Some(Some((context.time, writer.event(&context, class, &fields))))
    }

    fn add_lost(
        &mut self,
        number: u32,
        missing: u64,
        writer: &LineWriter,
        lines: &mut Vec<(i128, String)>,
    ) {
        let Some(ProducerRing::Open(reader)) = self.producer.rings().get_mut(&number) else {
            return;
        };
        let lost = missing.saturating_add(reader.take_lost());
        let tid = reader.header().tid;
        self.add_lost_line(tid, lost, writer, lines);
    }

    /// Adds a line for lost events, if there are any. `tid` is 0 if they are not of one thread.
    fn add_lost_line(
        &mut self,
        tid: u32,
        lost: u64,
        writer: &LineWriter,
        lines: &mut Vec<(i128, String)>,
    ) {
        if lost == 0 {
            return;
        }
        self.spans.add_loss(0);
        let now = i128::from(HostClock::now().0) + self.clock_offset;
        let context = LineContext {
            time: now,
            program: &self.name,
            pid: self.producer.meta().header().pid,
            tid,
            depth: 0,
            edge: None,
        };
        lines.push((now, writer.lost(&context, lost)));
    }

    /// Frees what is shown, in rings in which new events would be discarded soon.
    fn free_space(&mut self) {
        let mut full = Vec::new();
        for (number, ring) in self.producer.rings() {
            if let ProducerRing::Open(reader) = ring
                && reader.header().mode == Mode::Discard
                && reader.fill() > reader.header().data_size() / 2
            {
                full.push(*number);
            }
        }
        for number in full {
            if let Err(error) = self.producer.free_space(number) {
                debug!(ring = number, %error, "ring not freed");
            }
        }
    }
}
