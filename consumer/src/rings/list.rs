//! `consumer rings --list`: a table of the processes and their rings.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::Path;

use daemon::event_text::printable;
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

/// The processes of a run directory, with their rings.
#[derive(Debug, Default)]
pub struct RingTable {
    rows: Vec<[String; COLUMNS]>,
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
        let of_process = [
            producer.meta().header().pid.to_string(),
            if is_dead { "dead" } else { "live" }.to_owned(),
            producer.directory().uid().to_string(),
        ];
        let program = printable(&producer.name());
        let mut rings = 0;
        for (number, ring) in producer.rings() {
            rings += 1;
            let cells = match ring {
                ProducerRing::Open(reader) => describe(reader),
                ProducerRing::Closed => ["-"; COLUMNS - 5].map(str::to_owned),
            };
            self.add_row(&of_process, number.to_string(), cells, &program);
        }
        let lost = producer.meta().header().lost_no_ring;
        if rings == 0 || lost > 0 {
            let mut none = ["-"; COLUMNS - 5].map(str::to_owned);
            if let Some(cell) = none.last_mut().filter(|_| lost > 0) {
                *cell = lost.to_string();
            }
            self.add_row(&of_process, "-".to_owned(), none, &program);
        }
    }

    fn add_row(
        &mut self,
        of_process: &[String; 3],
        number: String,
        ring: [String; COLUMNS - 5],
        program: &str,
    ) {
        let [pid, state, user] = of_process.clone();
        let [thread, tid, events, mode, size, used, lost] = ring;
        let program = program.to_owned();
        self.rows.push([
            pid, state, user, number, thread, tid, events, mode, size, used, lost, program,
        ]);
    }
}

/// Returns the cells of a ring from its thread to its losses.
fn describe(reader: &RingReader) -> [String; COLUMNS - 5] {
    let header = reader.header();
    let thread = String::from_utf8_lossy(until_nul(&header.thread_name));
    let thread = match header.tid {
        0 => "(shared)".to_owned(),
        _ => printable(&thread).replace(' ', "_"),
    };
    let events = match header.severity_class {
        SeverityClass::All => "all",
        SeverityClass::Normal => "info",
        SeverityClass::Debug => "debug",
    };
    let size = header.data_size();
    let (mode, used) = match header.mode {
        Mode::Discard => ("discard", reader.fill()),
        // A flight recorder is full as soon as it has wrapped, drained or not.
        Mode::Overwrite => ("overwrite", reader.committed().min(size)),
    };
    [
        thread,
        header.tid.to_string(),
        events.to_owned(),
        mode.to_owned(),
        format!("{}K", size >> 10),
        format!("{}%", used.saturating_mul(100) / size.max(1)),
        reader.lost().to_string(),
    ]
}

impl fmt::Display for RingTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headings = HEADINGS.map(str::to_owned);
        let rows = || std::iter::once(&headings).chain(&self.rows);
        let mut widths = [0; COLUMNS];
        for row in rows() {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for row in rows() {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(widths) {
                line.push_str(&format!("{cell:<width$}  "));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}
