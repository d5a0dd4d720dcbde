//! `consumer rings --print`: shows events as they are written, until it is stopped.
//!
//! An agent that drains the rings is not disturbed: the reader is an observer. Without an agent,
//! the producers wait for nobody, and would discard events when their rings are full; then the
//! reader frees what it has shown, but only in rings that are more than half full, so that an agent
//! that starts later finds as much as possible.
//!
//! Threads write to rings of their own, and a span may be entered by several: lines are made in the
//! order of time. What was written while rings were read may be later than what a ring that had
//! been read before has got since, and waits for the next turn.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Instant;

use daemon::event_text::LineStyle;
use daemon::open_spans::OpenSpans;
use daemon::output::{print_message, stdout};
use daemon::span_lines::{SpanLines, SpanStep};
use jiff::tz::TimeZone;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use trace_ring_core::Severity;
use trace_ring_core::format::{Mode, Record};
use tracing::{debug, warn};

use super::line::{LineContext, LineWriter, SpanParts, event_text, push_event};
use super::{find_processes, open_directory};
use crate::frontend::ring::classes::read_fields;
use crate::frontend::ring::directory::{DirectoryName, RunDirectory};
use crate::frontend::ring::producer::{Producer, ProducerRing};
use crate::frontend::ring::ring_reader::Role;
use crate::frontend::ring::user_budget::UserBudgets;
use crate::frontend::ring::{has_room, is_only_user, report_left_out};
use crate::limits::{
    RING_POLL_INTERVAL, RING_PRINT_TURN_BYTES, RING_SCAN_IDLE_RATIO, RING_SCAN_INTERVAL,
};
use crate::packetize::HostClock;

/// Chunks of a ring that are shown in one turn, in the order of time with those of other rings.
const CHUNKS_PER_TURN: usize = 4;

/// What is shown, and how.
#[derive(Debug, Clone)]
pub struct PrintSettings {
    /// The run directory of the programs.
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
    let mut printer = Printer::new(settings);
    printer.scan()?;
    if printer.processes.is_empty() {
        let directory = printer.settings.directory.display();
        print_message(format_args!(
            "consumer: no traced program in {directory}; waiting for one (its TRACE_RING_DIR)"
        ));
    }
    loop {
        // Before the turn, so that what was written until the stop is shown.
        let is_stopping = stop.is_cancelled();
        printer.scan()?;
        printer.read();
        printer.write_lines(is_stopping)?;
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
    processes: HashMap<DirectoryName, KnownProcess>,
    /// What is remembered of each user whose processes are known.
    users: HashMap<u32, User>,
    budgets: UserBudgets,
    /// Users who have more entries than are looked at.
    crowded: HashSet<u32>,
    next_scan: Instant,
    /// Number of the turn, and of processes so far.
    turn: u64,
    added: u64,
    /// Events of this turn, and those of the last one that had to wait.
    events: Vec<PendingEvent>,
    /// Processes that have ended in this turn, and in the last one: user and number.
    ended: [Vec<(u32, u64)>; 2],
}

/// An event that has been read, and is not shown yet.
struct PendingEvent {
    /// Nanoseconds since the epoch.
    time: i128,
    /// Whether nothing earlier is awaited.
    is_ready: bool,
    uid: u32,
    /// The number of the process and the id of the thread.
    thread: (u64, u32),
    is_selected: bool,
    /// The line, up to its indentation.
    head: String,
    content: EventContent,
}

/// What an event says after the head of its line.
enum EventContent {
    /// The text after the indentation.
    Text(String),
    Span(SpanParts),
    /// Events are missing; the line has nothing more.
    Lost,
}

/// A process directory that was found.
struct KnownProcess {
    uid: u32,
    /// `None`: it cannot be read, or is dead and shown.
    shown: Option<ShownProcess>,
}

/// What the processes of one user share, so that they take nothing from those of others.
#[derive(Default)]
struct User {
    /// The spans that each thread is in, by the number of its process and its id.
    open_spans: OpenSpans<(u64, u32)>,
    span_lines: SpanLines,
    /// Bytes that were read in this turn.
    read_bytes: usize,
}

/// A process that is shown.
struct ShownProcess {
    producer: Producer,
    /// No other process has it.
    number: u64,
    name: String,
    /// Nanoseconds from the epoch to the zero of its clock.
    clock_offset: i128,
    /// The turn in which it was read last.
    last_turn: u64,
    /// The ring with which the next turn begins.
    next_ring: u32,
}

/// One turn of a process: how its events are shown, and where they go.
struct Turn<'a> {
    settings: &'a PrintSettings,
    writer: &'a LineWriter,
    uid: u32,
    /// When the turn began, on the clock of all processes.
    begun: u64,
    user: &'a mut User,
    events: &'a mut Vec<PendingEvent>,
}

impl Printer {
    fn new(settings: PrintSettings) -> Self {
        Self {
            writer: LineWriter {
                style: LineStyle {
                    has_colors: settings.has_colors,
                },
                zone: TimeZone::system(),
            },
            settings,
            run: None,
            processes: HashMap::new(),
            users: HashMap::new(),
            budgets: UserBudgets::default(),
            crowded: HashSet::new(),
            next_scan: Instant::now(),
            turn: 0,
            added: 0,
            events: Vec::new(),
            ended: Default::default(),
        }
    }

    /// Finds new processes, and forgets those whose directory is gone.
    fn scan(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        if begun < self.next_scan {
            return Ok(());
        }
        if self.run.is_none() {
            self.run = open_directory(&self.settings.directory)?;
        }
        if let Some(run) = &self.run {
            let owner = |name: &DirectoryName| self.processes.get(name).map(|known| known.uid);
            let found = find_processes(run, &self.settings.pids, owner)?;
            report_left_out(&found, &mut self.crowded);
            self.update_processes(found.in_turns());
        }
        // More often than in an agent: somebody waits for the first line of a program, and nothing
        // tells of new entries here.
        let pause = (begun.elapsed() * RING_SCAN_IDLE_RATIO).max(RING_SCAN_INTERVAL / 20);
        self.next_scan = Instant::now() + pause;
        Ok(())
    }

    fn update_processes(&mut self, names: Vec<(DirectoryName, u32)>) {
        // The files of a process that a drainer has removed are still open: what was not shown yet
        // is in them.
        let listed: HashSet<_> = names.iter().map(|(name, _)| name).collect();
        self.processes
            .retain(|name, known| known.shown.is_some() || listed.contains(name));
        let processes = &self.processes;
        self.users
            .retain(|uid, _| processes.values().any(|known| known.uid == *uid));
        for (name, uid) in names {
            let Some(run) = &self.run else { return };
            if self.processes.contains_key(&name) || !self.has_room_for(uid) {
                continue;
            }
            let producer = match Producer::open(run, &name, Role::Observer, &self.budgets) {
                Ok(producer) => Some(producer),
                Err(fault) => {
                    debug!(process = name.as_str(), "not used: {fault}");
                    None
                }
            };
            self.added += 1;
            let shown = producer.map(|producer| ShownProcess::new(producer, self.added));
            self.processes.insert(name, KnownProcess { uid, shown });
        }
    }

    fn has_room_for(&self, uid: u32) -> bool {
        let shown = |known: &&KnownProcess| known.shown.is_some();
        let of_all = self.processes.values().filter(shown).count();
        let of_user = |known: &&KnownProcess| known.shown.is_some() && known.uid == uid;
        let of_user = self.processes.values().filter(of_user).count();
        has_room(of_user, of_all, is_only_user(uid))
    }

    /// Reads a part of each process. Of each user some is read before the turn of others, and the
    /// next turn begins with those processes that had to wait.
    fn read(&mut self) {
        let is_drained = self.run.as_ref().is_some_and(|run| !is_free(run));
        let begun = HostClock::now().0;
        self.turn += 1;
        self.users.values_mut().for_each(|user| user.read_bytes = 0);
        let mut order: Vec<&mut KnownProcess> = self.processes.values_mut().collect();
        order.sort_by_key(|known| known.shown.as_ref().map(|shown| shown.last_turn));
        for known in order {
            let Some(shown) = &mut known.shown else {
                continue;
            };
            let user = self.users.entry(known.uid).or_default();
            if user.read_bytes >= RING_PRINT_TURN_BYTES {
                continue;
            }
            shown.last_turn = self.turn;
            let is_dead = shown.producer.check_death().unwrap_or(false);
            let has_more = shown.read(&mut Turn {
                settings: &self.settings,
                writer: &self.writer,
                uid: known.uid,
                begun,
                user,
                events: &mut self.events,
            });
            if is_dead && !has_more {
                let [ended, _] = &mut self.ended;
                ended.push((known.uid, shown.number));
                known.shown = None;
            } else if !is_drained && !is_dead {
                shown.free_space();
            }
        }
    }

    /// Writes the lines of events in the order of their times; all with `is_last`.
    fn write_lines(&mut self, is_last: bool) -> io::Result<()> {
        let mut events = std::mem::take(&mut self.events);
        // The sort is stable, so that events of a thread with the same time keep their order.
        events.sort_by_key(|event| event.time);
        let mut out = stdout();
        for mut event in events {
            if !event.is_ready && !is_last {
                event.is_ready = true;
                self.events.push(event);
                continue;
            }
            let user = self.users.entry(event.uid).or_default();
            if let Some(line) = user.line(event) {
                writeln!(out, "{line}")?;
            }
        }
        let [ended, ended_before] = &mut self.ended;
        // Their last events were shown in this turn.
        for (uid, number) in ended_before.drain(..) {
            if let Some(user) = self.users.get_mut(&uid) {
                user.open_spans.forget_group(number);
                user.span_lines.forget_group(number);
            }
        }
        std::mem::swap(ended, ended_before);
        out.flush()
    }
}

impl User {
    /// Returns the line of an event, if it has one.
    fn line(&mut self, event: PendingEvent) -> Option<String> {
        let (thread, mut line) = (event.thread, event.head);
        match event.content {
            EventContent::Text(_) if !event.is_selected => return None,
            EventContent::Text(text) => {
                push_event(&mut line, self.open_spans.depth(&thread), &text);
            }
            EventContent::Span(parts) => {
                let step = SpanStep {
                    event: parts.event,
                    group: thread.0,
                    process: None,
                    id: parts.id,
                    parent: parts.parent,
                    name: &parts.name,
                    time: i64::try_from(event.time).ok(),
                    is_selected: event.is_selected,
                };
                let fields = parts.fields.iter();
                let fields = fields.map(|(name, value)| (&**name, &**value));
                let shown = &mut self.span_lines;
                let shown = shown.line(&mut self.open_spans, thread, &step, fields)?;
                push_event(&mut line, shown.depth, &parts.line_text(&shown.text));
            }
            EventContent::Lost => {
                self.open_spans.add_loss(thread.0);
                self.span_lines.add_loss();
            }
        }
        Some(line)
    }
}

/// Whether no drainer uses the run directory.
fn is_free(run: &RunDirectory) -> bool {
    match run.try_lock() {
        Ok(is_free) => {
            // Given back at once, because an agent may start at any moment.
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
    fn new(mut producer: Producer, number: u64) -> Self {
        let name = producer.name();
        let clock_offset = producer.meta().header().clock_offset.into();
        Self {
            producer,
            number,
            name,
            clock_offset,
            last_turn: 0,
            next_ring: 0,
        }
    }

    /// Reads a part of each ring, from the one on that had to wait in the last turn. Returns
    /// whether there is more.
    fn read(&mut self, turn: &mut Turn<'_>) -> bool {
        self.producer.update();
        // A class is in `meta` before its first event is committed.
        let _ = self.producer.update_meta();
        let first = std::mem::take(&mut self.next_ring);
        let numbers = self.producer.rings();
        let from_first = numbers.range(first..).chain(numbers.range(..first));
        let numbers: Vec<u32> = from_first.map(|(number, _)| *number).collect();
        let mut has_more = false;
        for number in numbers {
            if turn.user.read_bytes >= RING_PRINT_TURN_BYTES {
                self.next_ring = number;
                has_more = true;
                break;
            }
            has_more |= self.read_ring(number, turn);
        }
        let lost = self.producer.meta().take_lost();
        self.add_lost_line(0, lost, turn);
        has_more
    }

    /// Reads a part of a ring. Returns whether there is more.
    fn read_ring(&mut self, number: u32, turn: &mut Turn<'_>) -> bool {
        let mut buffer = Vec::new();
        let mut missing = 0;
        let mut has_more = false;
        for chunks in 0..CHUNKS_PER_TURN {
            let Some(ProducerRing::Open(reader)) = self.producer.rings().get_mut(&number) else {
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
            turn.user.read_bytes += buffer.len();
            missing += chunk.overwritten;
            let tid = reader.header().tid;
            let mut records = chunk.records(&buffer);
            for record in &mut records {
                let tid = if tid == 0 { record.tid } else { tid };
                match self.event(&record, tid, turn) {
                    Some(event) => turn.events.push(event),
                    None => missing += 1,
                }
            }
            let end = records.end();
            if let Some(ProducerRing::Open(reader)) = self.producer.rings().get_mut(&number) {
                reader.finish_chunk(&chunk, &buffer, end);
            }
            has_more |= chunks + 1 == CHUNKS_PER_TURN;
        }
        self.add_lost(number, missing, turn);
        has_more
    }

    /// Returns an event; `None` if it cannot be shown.
    fn event(&mut self, record: &Record<'_>, tid: u32, turn: &Turn<'_>) -> Option<PendingEvent> {
        let pid = self.producer.meta().header().pid;
        let class = self.producer.meta().class(record.class)?;
        let fields = read_fields(class, record.fields())?;
        let time = i128::from(record.timestamp) + self.clock_offset;
        let context = LineContext {
            time,
            program: &self.name,
            pid,
            tid,
        };
        let is_selected = class.severity <= turn.settings.max_severity;
        Some(PendingEvent {
            time,
            is_ready: record.timestamp <= turn.begun,
            uid: turn.uid,
            thread: (self.number, tid),
            is_selected,
            head: turn.writer.head(&context, class),
            content: match SpanParts::of(class, &fields) {
                Some(parts) => EventContent::Span(parts),
                None if !is_selected => EventContent::Text(String::new()),
                None => EventContent::Text(event_text(class, &fields)),
            },
        })
    }

    fn add_lost(&mut self, number: u32, missing: u64, turn: &mut Turn<'_>) {
        let Some(ProducerRing::Open(reader)) = self.producer.rings().get_mut(&number) else {
            return;
        };
        let lost = missing.saturating_add(reader.take_lost());
        let tid = reader.header().tid;
        self.add_lost_line(tid, lost, turn);
    }

    /// Adds a line for lost events, if there are any. `tid` is 0 if they are not of one thread.
    fn add_lost_line(&mut self, tid: u32, lost: u64, turn: &mut Turn<'_>) {
        if lost == 0 {
            return;
        }
        let time = i128::from(HostClock::now().0) + self.clock_offset;
        let context = LineContext {
            time,
            program: &self.name,
            pid: self.producer.meta().header().pid,
            tid,
        };
        turn.events.push(PendingEvent {
            time,
            is_ready: true,
            uid: turn.uid,
            thread: (self.number, tid),
            is_selected: true,
            head: turn.writer.lost(&context, lost),
            content: EventContent::Lost,
        });
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
