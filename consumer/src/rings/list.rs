//! `consumer rings --list`: a table of the processes and their rings.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::Path;

use daemon::event_text::printable;
use serde::Serialize;
use trace_ring_core::format::{Mode, SeverityClass};

use super::{find_processes, open_directory, open_without_classes};
use crate::frontend::ring::producer::{Producer, ProducerRing, until_nul};
use crate::frontend::ring::report_left_out;
use crate::frontend::ring::ring_reader::RingReader;

const HEADINGS: [&str; COLUMNS] = [
    "PID", "STATE", "USER", "RING", "THREAD", "TID", "EVENTS", "MODE", "SIZE", "USED", "LOST",
    "PROGRAM",
];
const COLUMNS: usize = 12;

/// The processes of a run directory, with their rings. As JSON it is an array.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub struct RingTable {
    rows: Vec<RingRow>,
}

/// A ring of a process.
#[derive(Debug, Clone, Serialize)]
struct RingRow {
    pid: u32,
    /// `live` or `dead`.
    state: &'static str,
    /// The user who owns the files of the process.
    user: u32,
    program: String,
    /// The number of the ring in its process. Absent: the process has none, or has lost events for
    /// want of one.
    ring: Option<u32>,
    /// Absent if the ring has been closed.
    #[serde(flatten)]
    open: Option<OpenRing>,
    /// Events that have been lost. Absent if that is not known.
    lost: Option<u64>,
}

/// What the control words of a ring say.
#[derive(Debug, Clone, Serialize)]
struct OpenRing {
    /// Empty if all threads share the ring.
    thread: String,
    /// 0 if all threads share the ring.
    tid: u32,
    /// The severities of the ring: `all`, `info` or `debug`.
    events: &'static str,
    /// `discard` or `overwrite`.
    mode: &'static str,
    size_bytes: u64,
    used_bytes: u64,
}

impl RingTable {
    /// Reads the control words of all rings of the selected processes; of all processes if none is
    /// selected.
    ///
    /// # Errors
    /// If the run directory cannot be read. It is no error if there is none.
    pub fn read(directory: &Path, pids: &[u32]) -> io::Result<Self> {
        let mut table = Self::default();
        let Some(run) = open_directory(directory)? else {
            return Ok(table);
        };
        let found = find_processes(&run, pids, |_| None)?;
        report_left_out(&found, &mut HashSet::new());
        let mut names = found.in_turns();
        names.sort_by_key(|(name, _)| (name.pid(), name.clone()));
        for (name, _) in &names {
            if let Some(producer) = open_without_classes(&run, name) {
                table.add(producer);
            }
        }
        Ok(table)
    }

    fn add(&mut self, mut producer: Producer) {
        producer.update();
        let is_dead = producer.check_death().unwrap_or(false);
        let of_process = RingRow {
            pid: producer.meta().header().pid,
            state: if is_dead { "dead" } else { "live" },
            user: producer.directory().uid(),
            program: producer.name(),
            ring: None,
            open: None,
            lost: None,
        };
        let mut rings = 0;
        for (number, ring) in producer.rings() {
            rings += 1;
            let mut row = RingRow {
                ring: Some(*number),
                ..of_process.clone()
            };
            if let ProducerRing::Open(reader) = ring {
                (row.open, row.lost) = (Some(describe(reader)), Some(reader.lost()));
            }
            self.rows.push(row);
        }
        let lost = producer.meta().header().lost_no_ring;
        if rings == 0 || lost > 0 {
            self.rows.push(RingRow {
                lost: Some(lost).filter(|lost| *lost > 0),
                ..of_process
            });
        }
    }
}

fn describe(reader: &RingReader) -> OpenRing {
    let header = reader.header();
    let thread = String::from_utf8_lossy(until_nul(&header.thread_name));
    let size = header.data_size();
    let (mode, used) = match header.mode {
        Mode::Discard => ("discard", reader.fill()),
        // A flight recorder is full as soon as it has wrapped, drained or not.
        Mode::Overwrite => ("overwrite", reader.committed().min(size)),
    };
    OpenRing {
        thread: thread.into_owned(),
        tid: header.tid,
        events: match header.severity_class {
            SeverityClass::All => "all",
            SeverityClass::Normal => "info",
            SeverityClass::Debug => "debug",
        },
        mode,
        size_bytes: size,
        used_bytes: used,
    }
}

impl RingRow {
    fn cells(&self) -> [String; COLUMNS] {
        let number = |number: Option<u64>| number.map_or("-".to_owned(), |own| own.to_string());
        let open = self.open.as_ref();
        let cell = |cell: fn(&OpenRing) -> String| open.map_or("-".to_owned(), cell);
        [
            self.pid.to_string(),
            self.state.to_owned(),
            self.user.to_string(),
            self.ring.map_or("-".to_owned(), |ring| ring.to_string()),
            cell(|ring| match ring.tid {
                0 => "(shared)".to_owned(),
                _ => printable(&ring.thread).replace(' ', "_"),
            }),
            cell(|ring| ring.tid.to_string()),
            cell(|ring| ring.events.to_owned()),
            cell(|ring| ring.mode.to_owned()),
            cell(|ring| format!("{}K", ring.size_bytes >> 10)),
            cell(|ring| {
                let used = ring.used_bytes.saturating_mul(100) / ring.size_bytes.max(1);
                format!("{used}%")
            }),
            number(self.lost),
            printable(&self.program),
        ]
    }
}

impl fmt::Display for RingTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headings = HEADINGS.map(str::to_owned);
        let rows = self.rows.iter().map(RingRow::cells);
        let rows: Vec<_> = std::iter::once(headings).chain(rows).collect();
        let mut widths = [0; COLUMNS];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for row in &rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(widths) {
                line.push_str(&format!("{cell:<width$}  "));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}
