//! The counts of sessions, event names and processes. One thread counts, and others read at any
//! time: there is no lock and no allocation for an event whose session, name and process are known.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use ctf::decode::LostEvents;
use parking_lot::Mutex;
use viewer::sink::losses::LossSum;
use viewer::sink::{Loss, Lost};
use viewer::time::{AtomicTime, Nanoseconds};

use super::text::escape_name;

/// Largest number of sessions that have rows of their own. Further ones are counted together.
pub(super) const MAX_SESSIONS: usize = 1024;
/// Largest number of event names and of processes of a session. Further ones are counted together.
const MAX_ROWS_PER_TABLE: usize = 1024;
/// Largest number of event names and processes of all sessions. A row takes at most about 1.5 KiB.
const MAX_ROWS: usize = 1 << 16;
/// The row of all names or processes that have none of their own.
pub(super) const OTHER: &str = "<other>";

/// A number that one thread increases and others read.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    /// Increases the number. Only one thread calls this: no locked instruction is needed.
    #[inline]
    pub(super) fn add(&self, amount: u64) {
        let before = self.0.load(Ordering::Relaxed);
        self.0
            .store(before.saturating_add(amount), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The events of one name, or of one process.
#[derive(Debug)]
pub(super) struct CountRow {
    /// The name, without characters that a terminal interprets. That of a process may be told after
    /// its first event.
    name: Mutex<String>,
    pub(super) events: Count,
}

impl CountRow {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: Mutex::new(escape_name(name)),
            events: Count::default(),
        }
    }

    pub(super) fn name(&self) -> String {
        self.name.lock().clone()
    }

    pub(super) fn rename(&self, name: &str) {
        *self.name.lock() = escape_name(name);
    }
}

/// Rows of a session. Rows are added, and never removed.
#[derive(Debug, Default)]
pub(super) struct Table(Mutex<Vec<Arc<CountRow>>>);

impl Table {
    /// Appends the rows from `from` on to `rows`.
    pub(super) fn rows_from(&self, from: usize, rows: &mut Vec<Arc<CountRow>>) {
        let all = self.0.lock();
        rows.extend(all.get(from..).unwrap_or_default().iter().cloned());
    }
}

/// The counts of one session.
#[derive(Debug)]
pub(super) struct SessionCounts {
    /// The number of the session. Never used again, except if the counts of a session begin again.
    pub(super) id: u64,
    /// The name, without characters that a terminal interprets.
    pub(super) name: String,
    /// Whether the session is a recording on disk that is read at once: its rates are per second of
    /// the trace.
    pub(super) is_recording: bool,
    pub(super) events: Count,
    lost_events: Count,
    lost_packets: Count,
    uncertain_losses: Count,
    /// Times of the earliest and latest event.
    first_time: AtomicTime,
    last_time: AtomicTime,
    /// Whether these times count from 1970.
    is_unix_time: AtomicBool,
    is_ended: AtomicBool,
    /// Whether events of it are of a kernel.
    is_kernel: AtomicBool,
    pub(super) names: Table,
    pub(super) processes: Table,
    /// The number of rows of all sessions.
    all_rows: Arc<AtomicUsize>,
}

impl SessionCounts {
    /// Counts an event at `time`, in nanoseconds since the clock's origin.
    #[inline]
    pub(super) fn add_event(&self, time: Option<i64>, is_unix_time: bool) {
        self.events.add(1);
        let Some(time) = time.and_then(Nanoseconds::new) else {
            return;
        };
        // Only one thread writes these times: no locked instruction is needed.
        if Some(time) > self.last_time.load() {
            self.last_time.store(time);
        }
        if self.first_time.load().is_none_or(|first| time < first) {
            self.first_time.store(time);
            self.is_unix_time.store(is_unix_time, Ordering::Relaxed);
        }
    }

    pub(super) fn add_loss(&self, loss: &Loss) {
        match loss.what {
            Lost::Events(LostEvents::Count(count)) => self.lost_events.add(count),
            Lost::Events(LostEvents::Some) => self.uncertain_losses.add(1),
            Lost::Packets(count) => self.lost_packets.add(count),
        }
    }

    pub(super) fn losses(&self) -> LossSum {
        LossSum {
            events: self.lost_events.get(),
            uncertain: self.uncertain_losses.get(),
            packets: self.lost_packets.get(),
            is_partial: false,
        }
    }

    /// Time of the latest event in nanoseconds since 1970. Absent before the first event, and if
    /// the clock has another origin.
    pub(super) fn last_unix_time(&self) -> Option<i64> {
        let last = self.last_time.load();
        let last = last.filter(|_| self.is_unix_time.load(Ordering::Relaxed));
        last.map(Nanoseconds::get)
    }

    /// The time between the earliest and the latest event, in nanoseconds.
    pub(super) fn trace_time(&self) -> u64 {
        let times = self.first_time.load().zip(self.last_time.load());
        let span = times.map_or(0, |(first, last)| last.get().saturating_sub(first.get()));
        u64::try_from(span).unwrap_or(0)
    }

    pub(super) fn set_ended(&self, is_ended: bool) {
        self.is_ended.store(is_ended, Ordering::Relaxed);
    }

    pub(super) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Relaxed)
    }

    pub(super) fn set_kernel(&self) {
        self.is_kernel.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_kernel(&self) -> bool {
        self.is_kernel.load(Ordering::Relaxed)
    }

    /// Adds a row to one of the session's tables. Returns none if there are too many already.
    pub(super) fn add_row(&self, table: &Table, name: &str) -> Option<Arc<CountRow>> {
        let mut rows = table.0.lock();
        let is_full =
            rows.len() >= MAX_ROWS_PER_TABLE || self.all_rows.load(Ordering::Relaxed) >= MAX_ROWS;
        // The row of all others is added in any case: nothing may be left uncounted.
        if is_full && name != OTHER {
            return None;
        }
        let row = Arc::new(CountRow::new(name));
        self.all_rows.fetch_add(1, Ordering::Relaxed);
        rows.push(Arc::clone(&row));
        Some(row)
    }
}

impl Drop for SessionCounts {
    fn drop(&mut self) {
        let rows = self.names.0.get_mut().len() + self.processes.0.get_mut().len();
        self.all_rows.fetch_sub(rows, Ordering::Relaxed);
    }
}

/// The counts of all sessions.
#[derive(Debug, Default)]
pub(super) struct Counts {
    sessions: Mutex<Vec<Arc<SessionCounts>>>,
    /// What could not be read: streams, traces, directories.
    pub(super) failures: Count,
    all_rows: Arc<AtomicUsize>,
}

impl Counts {
    /// Adds a session, whose counts are zero.
    pub(super) fn add_session(
        &self,
        id: u64,
        name: &str,
        is_recording: bool,
    ) -> Arc<SessionCounts> {
        let session = Arc::new(self.new_session(id, escape_name(name), is_recording));
        self.sessions.lock().push(Arc::clone(&session));
        session
    }

    /// Replaces the counts of a session by new ones, which begin at zero, except those of losses.
    pub(super) fn restart_session(&self, old: &SessionCounts) -> Arc<SessionCounts> {
        let new = self.new_session(old.id, old.name.clone(), old.is_recording);
        let losses = old.losses();
        // Losses stay, because no filter tells which events were lost.
        new.lost_events.add(losses.events);
        new.lost_packets.add(losses.packets);
        new.uncertain_losses.add(losses.uncertain);
        new.set_ended(old.is_ended());
        let new = Arc::new(new);
        let mut sessions = self.sessions.lock();
        for session in sessions.iter_mut().filter(|session| session.id == old.id) {
            *session = Arc::clone(&new);
        }
        new
    }

    /// Removes the session with this number, if it is there.
    pub(super) fn remove_session(&self, id: u64) {
        self.sessions.lock().retain(|session| session.id != id);
    }

    /// All sessions, also those that have ended and have not been removed.
    pub(super) fn sessions(&self) -> Vec<Arc<SessionCounts>> {
        self.sessions.lock().clone()
    }

    fn new_session(&self, id: u64, name: String, is_recording: bool) -> SessionCounts {
        SessionCounts {
            id,
            name,
            is_recording,
            events: Count::default(),
            lost_events: Count::default(),
            lost_packets: Count::default(),
            uncertain_losses: Count::default(),
            first_time: AtomicTime::default(),
            last_time: AtomicTime::default(),
            is_unix_time: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
            is_kernel: AtomicBool::new(false),
            names: Table::default(),
            processes: Table::default(),
            all_rows: Arc::clone(&self.all_rows),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_beyond_the_limit_of_a_table_are_refused_and_given_back_with_the_session() {
        let counts = Counts::default();
        let session = counts.add_session(1, "h/s", false);
        for number in 0..MAX_ROWS_PER_TABLE {
            let row = session.add_row(&session.names, &format!("e{number}"));
            assert!(row.is_some());
        }
        assert!(session.add_row(&session.names, "more").is_none());
        assert!(session.add_row(&session.names, OTHER).is_some());
        assert!(session.add_row(&session.processes, "1 p").is_some());
        let rows = || counts.all_rows.load(Ordering::Relaxed);
        assert_eq!(rows(), MAX_ROWS_PER_TABLE + 2);
        counts.remove_session(1);
        drop(session);
        assert_eq!((rows(), counts.sessions().len()), (0, 0));
    }

    #[test]
    fn counts_of_a_restarted_session_begin_at_zero_and_keep_its_losses() {
        let counts = Counts::default();
        let session = counts.add_session(1, "h/s", false);
        session.add_event(Some(5), true);
        session.add_loss(&Loss {
            what: Lost::Packets(2),
            begin: None,
            end: None,
        });
        assert_eq!(session.last_unix_time(), Some(5));
        let new = counts.restart_session(&session);
        assert_eq!((new.events.get(), new.losses().packets), (0, 2));
        assert_eq!(new.last_unix_time(), None);
        assert!(Arc::ptr_eq(&counts.sessions()[0], &new));
    }

    #[test]
    fn time_of_a_clock_without_an_origin_is_no_unix_time() {
        let counts = Counts::default();
        let session = counts.add_session(1, "h/s", false);
        session.add_event(Some(5), false);
        session.add_event(Some(9), false);
        assert_eq!(session.last_unix_time(), None);
        assert_eq!(session.trace_time(), 4);
    }
}
