//! The history that pages show: sessions, their tracks, and the rows of each track. Bounded: the
//! oldest rows go to a file if there is one, and are dropped otherwise.
//!
//! The thread that decodes adds to it while others read. There is a lock for each track, held for
//! as long as it takes to find what one page shows of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use ctf::decode::LostEvents;
use parking_lot::{Mutex, RwLock};
use viewer::interpret::name_numbers::{NameNumbers, shortened};
use viewer::sink::losses::LossSum;
use viewer::sink::{Loss, Lost};
use viewer::time::{AtomicTime, Nanoseconds};

use super::arrows::Arrows;
use super::histogram::Histogram;
use super::row::{EventPlace, Row, RowKind};
use super::row_file::{BLOCK_ROWS, RowFile};
use super::span_log::SpanLog;
use super::track::TrackRows;

/// Largest number of tracks. With more, those that ended first are removed with their rows.
const MAX_TRACKS: usize = 1 << 14;
/// Largest number of sessions. With more, those that ended first are removed with their tracks.
const MAX_SESSIONS: usize = 1024;
/// Rows that may be added before room is made for them.
const ROOM_INTERVAL: usize = 4096;

/// A session of a target, or a recording.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: u32,
    pub(super) name: String,
    /// Whether the session is a recording on disk that is read at once.
    pub(super) is_recording: bool,
    is_ended: AtomicBool,
    pub(super) events: AtomicU64,
    /// The bytes of packets of a recording: all, and those that have been read.
    all_bytes: AtomicU64,
    read_bytes: AtomicU64,
    /// The time of the latest event or loss.
    last_time: AtomicTime,
    /// The time of the latest event. Absent if the clock does not count from 1970.
    last_unix_time: AtomicTime,
    losses: Mutex<LossSum>,
    /// How the clock of its host is aligned, for users. Empty if times are shown as they are.
    clock: Mutex<String>,
}

/// What is the same for a track as long as it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TrackLabel {
    /// The process; empty if it is not known.
    pub(super) process: String,
    /// The number of the process, by which tracks are put in order.
    pub(super) pid: Option<i64>,
    /// The thread, the CPU or the counter.
    pub(super) thread: String,
    /// Whether the track shows a counter.
    pub(super) is_counter: bool,
}

/// A thread, a CPU or a counter.
#[derive(Debug)]
pub(super) struct Track {
    pub(super) id: u32,
    pub(super) session: Arc<Session>,
    pub(super) label: Mutex<TrackLabel>,
    pub(super) rows: Mutex<TrackRows>,
    is_ended: AtomicBool,
}

/// Everything that pages show.
#[derive(Debug)]
pub(super) struct Store {
    /// Largest number of rows in memory.
    max_rows: usize,
    /// The number of rows in memory.
    rows: AtomicUsize,
    /// The number of rows in the file.
    stored: AtomicUsize,
    /// The file of the rows that memory has no room for.
    row_file: Option<Arc<RowFile>>,
    added: AtomicUsize,
    changes: AtomicU64,
    names: RwLock<NameNumbers>,
    sessions: RwLock<BTreeMap<u32, Arc<Session>>>,
    tracks: RwLock<BTreeMap<u32, Arc<Track>>>,
    next_id: AtomicUsize,
    pub(super) histogram: Mutex<Histogram>,
    pub(super) arrows: Arrows,
    pub(super) spans: SpanLog,
    /// The time up to which rows have been dropped, of any track.
    dropped_until: AtomicTime,
}

/// Adds 1 to a number that only the thread that decodes changes: it needs no locked instruction.
fn increase(number: &AtomicU64) {
    let increased = number.load(Ordering::Relaxed) + 1;
    number.store(increased, Ordering::Relaxed);
}

impl Session {
    /// Adds to the bytes of packets that a recording has.
    pub(super) fn add_bytes(&self, bytes: u64) {
        self.all_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds a packet that has been read to those of the session.
    pub(super) fn add_packet(&self, bytes: u64) {
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What has been read of a recording, in percent; 100 only when it has ended. Absent for other
    /// sessions.
    pub(super) fn percent_read(&self) -> Option<u8> {
        if !self.is_recording || self.is_ended() {
            return self.is_recording.then_some(100);
        }
        let all = u128::from(self.all_bytes.load(Ordering::Relaxed)).max(1);
        let read = u128::from(self.read_bytes.load(Ordering::Relaxed));
        // The last packet is begun before all of its events are there.
        u8::try_from((read * 100 / all).min(99)).ok()
    }

    pub(super) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Relaxed)
    }

    pub(super) fn set_ended(&self, is_ended: bool) {
        self.is_ended.store(is_ended, Ordering::Relaxed);
    }

    /// How the clock of its host is aligned, for users.
    pub(super) fn clock(&self) -> String {
        self.clock.lock().clone()
    }

    pub(super) fn set_clock(&self, clock: String) {
        *self.clock.lock() = clock;
    }

    pub(super) fn losses(&self) -> LossSum {
        *self.losses.lock()
    }

    /// The time of the latest event in nanoseconds since 1970. Absent before the first, and if the
    /// clock has another origin.
    pub(super) fn last_unix_time(&self) -> Option<i64> {
        self.last_unix_time.load().map(Nanoseconds::get)
    }

    /// The time of the latest event or loss, in nanoseconds since the clock's origin. Absent before
    /// the first.
    pub(super) fn last_time(&self) -> Option<i64> {
        self.last_time.load().map(Nanoseconds::get)
    }

    /// Counts an event of the session, at this time if it has one.
    #[inline]
    pub(super) fn add_event(&self, time: Option<i64>, is_unix_time: bool) {
        increase(&self.events);
        let Some(time) = time.and_then(Nanoseconds::new) else {
            return;
        };
        self.last_time.fetch_max(time);
        if is_unix_time {
            self.last_unix_time.fetch_max(time);
        }
    }
}

impl Track {
    pub(super) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Relaxed)
    }

    /// Ends the track and its open spans: no more events come for now.
    pub(super) fn end(&self, time: i64) {
        self.rows.lock().end_all(time);
        self.is_ended.store(true, Ordering::Relaxed);
    }

    /// Changes the label of the track, and cuts what is too long.
    pub(super) fn set_label(&self, change: impl FnOnce(&mut TrackLabel)) {
        let mut label = self.label.lock();
        change(&mut label);
        let TrackLabel {
            process, thread, ..
        } = &mut *label;
        for text in [process, thread] {
            if shortened(text).len() < text.len() {
                *text = shortened(text).to_owned();
            }
        }
    }
}

impl Store {
    /// An empty store for about this many rows in memory, and for others in a file.
    pub(super) fn new(max_rows: usize, file: Option<File>) -> Self {
        Self {
            max_rows,
            rows: AtomicUsize::new(0),
            stored: AtomicUsize::new(0),
            row_file: file.map(|file| Arc::new(RowFile::new(file, max_rows))),
            added: AtomicUsize::new(0),
            changes: AtomicU64::new(0),
            names: RwLock::default(),
            sessions: RwLock::default(),
            tracks: RwLock::default(),
            next_id: AtomicUsize::new(0),
            histogram: Mutex::default(),
            arrows: Arrows::default(),
            spans: SpanLog::default(),
            dropped_until: AtomicTime::default(),
        }
    }

    fn fresh_id(&self) -> u32 {
        // Far more than can be there: an id that comes again has long been removed.
        let id = self.next_id.fetch_add(1, Ordering::Relaxed) % (u32::MAX as usize);
        u32::try_from(id).unwrap_or(0)
    }

    /// Adds a session, and removes the first that has ended if there are too many.
    pub(super) fn add_session(&self, name: &str, is_recording: bool) -> Arc<Session> {
        let session = Arc::new(Session {
            id: self.fresh_id(),
            name: shortened(name).to_owned(),
            is_recording,
            is_ended: AtomicBool::new(false),
            events: AtomicU64::new(0),
            all_bytes: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            last_time: AtomicTime::default(),
            last_unix_time: AtomicTime::default(),
            losses: Mutex::default(),
            clock: Mutex::default(),
        });
        let mut sessions = self.sessions.write();
        sessions.insert(session.id, Arc::clone(&session));
        let oldest = match sessions.len() > MAX_SESSIONS {
            true => sessions.values().find(|session| session.is_ended()),
            false => None,
        };
        if let Some(id) = oldest.map(|oldest| oldest.id) {
            sessions.remove(&id);
            // Released before the tracks are locked: the two locks need no order then.
            drop(sessions);
            self.remove_tracks(|track| track.session.id == id);
        }
        session
    }

    /// Adds a track of a session.
    pub(super) fn add_track(&self, session: &Arc<Session>, label: TrackLabel) -> Arc<Track> {
        let track = Arc::new(Track {
            id: self.fresh_id(),
            session: Arc::clone(session),
            label: Mutex::new(TrackLabel {
                process: shortened(&label.process).to_owned(),
                thread: shortened(&label.thread).to_owned(),
                ..label
            }),
            rows: Mutex::default(),
            is_ended: AtomicBool::new(false),
        });
        let mut tracks = self.tracks.write();
        tracks.insert(track.id, Arc::clone(&track));
        let oldest = match tracks.len() > MAX_TRACKS {
            true => tracks.values().find(|track| track.is_ended()),
            false => None,
        };
        if let Some(id) = oldest.map(|oldest| oldest.id) {
            // The call takes this lock itself.
            drop(tracks);
            self.remove_tracks(|track| track.id == id);
        }
        track
    }

    /// Whether another track may be added. Otherwise none has ended, and the limit is reached.
    pub(super) fn has_room_for_track(&self) -> bool {
        self.tracks.read().len() <= MAX_TRACKS
    }

    fn remove_tracks(&self, is_removed: impl Fn(&Track) -> bool) {
        let mut tracks = self.tracks.write();
        tracks.retain(|_, track| {
            if !is_removed(track) {
                return true;
            }
            let rows = track.rows.lock();
            self.count_dropped(rows.len() - rows.stored_len(), rows.stored_len());
            let last = rows.blocks.back().map(|block| block.max_end);
            self.raise_dropped_until(last.or(rows.dropped_until));
            false
        });
    }

    /// Rows are dropped, in memory and in the file.
    fn count_dropped(&self, rows: usize, stored: usize) {
        self.rows.fetch_sub(rows, Ordering::Relaxed);
        self.stored.fetch_sub(stored, Ordering::Relaxed);
    }

    fn raise_dropped_until(&self, time: Option<i64>) {
        if let Some(time) = time.and_then(Nanoseconds::new) {
            self.dropped_until.fetch_max(time);
        }
    }

    /// Largest number of rows of one track in memory, with those for which room is still made.
    pub(super) fn max_rows_of_track(&self) -> usize {
        self.max_rows + 2 * ROOM_INTERVAL
    }

    /// All sessions, in the order in which they appeared.
    pub(super) fn sessions(&self) -> Vec<Arc<Session>> {
        self.sessions.read().values().cloned().collect()
    }

    /// All tracks, in the order in which they appeared.
    pub(super) fn tracks(&self) -> Vec<Arc<Track>> {
        self.tracks.read().values().cloned().collect()
    }

    /// The track of this id, unless it was removed.
    pub(super) fn track(&self, id: u32) -> Option<Arc<Track>> {
        self.tracks.read().get(&id).cloned()
    }

    /// The number of a name.
    pub(super) fn name(&self, name: &str) -> u32 {
        self.names.write().number(name)
    }

    /// The names from this number on, at most so many.
    pub(super) fn names_from(&self, number: usize, max: usize) -> Vec<Arc<str>> {
        let names = self.names.read();
        names.from(number).iter().take(max).cloned().collect()
    }

    /// The text of a name.
    pub(super) fn name_text(&self, number: u32) -> String {
        let names = self.names.read();
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        names
            .from(number)
            .first()
            .map_or_else(String::new, |name| name.to_string())
    }

    /// The number of changes of rows so far.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// The number of rows that are kept.
    pub(super) fn row_count(&self) -> usize {
        self.rows.load(Ordering::Relaxed) + self.stored.load(Ordering::Relaxed)
    }

    /// The earliest and the latest time of an event or a loss, in nanoseconds. Absent before the
    /// first.
    pub(super) fn times(&self) -> Option<(i64, i64)> {
        self.histogram.lock().times()
    }

    /// The time up to which rows have been dropped. Absent if none were.
    pub(super) fn dropped_until(&self) -> Option<i64> {
        self.dropped_until.load().map(Nanoseconds::get)
    }

    /// Counts an event at this time.
    #[inline]
    pub(super) fn count_event(&self, time: i64) {
        self.histogram.lock().add_event(time);
    }

    /// Something of a session is shown at this time, which may be later than all of its events.
    pub(super) fn extend(&self, session: &Session, time: i64) {
        if let Some(end) = Nanoseconds::new(time) {
            session.last_time.fetch_max(end);
            self.histogram.lock().extend(time);
        }
    }

    /// Changes the rows of a track.
    #[inline]
    pub(super) fn change_rows<T>(
        &self,
        track: &Track,
        change: impl FnOnce(&mut TrackRows) -> T,
    ) -> T {
        let mut rows = track.rows.lock();
        let before = rows.len();
        let changed = change(&mut rows);
        let added = rows.len() - before;
        drop(rows);
        // A session that is opened again goes on with the tracks that had ended.
        track.is_ended.store(false, Ordering::Relaxed);
        increase(&self.changes);
        if added > 0 {
            let kept = self.rows.load(Ordering::Relaxed) + added;
            self.rows.store(kept, Ordering::Relaxed);
            let since = self.added.load(Ordering::Relaxed) + added;
            self.added.store(since, Ordering::Relaxed);
            // To find the oldest blocks takes a look at all tracks: it is done for many rows at
            // once.
            if kept > self.max_rows && since >= ROOM_INTERVAL {
                self.added.store(0, Ordering::Relaxed);
                self.make_room();
            }
        }
        changed
    }

    /// Shows a loss on these tracks.
    pub(super) fn add_loss(&self, session: &Session, tracks: &[Arc<Track>], loss: &Loss) {
        session.losses.lock().add(loss);
        let name = self.name(&match loss.what {
            Lost::Events(LostEvents::Count(count)) => format!("{count} events discarded"),
            Lost::Events(LostEvents::Some) => "events may have been discarded".to_owned(),
            Lost::Packets(count) => format!("{count} packets lost"),
        });
        for track in tracks {
            self.change_rows(track, TrackRows::add_loss);
        }
        let Some((begin, end)) = loss.begin.zip(loss.end) else {
            return;
        };
        session.last_time.fetch_max(end);
        let (begin, end) = (begin.get(), end.get());
        self.histogram.lock().add_loss(end);
        for track in tracks {
            let row = Row::new(RowKind::Loss, begin, end, name, EventPlace::default());
            self.change_rows(track, |rows| rows.add(row));
        }
    }

    /// Moves the oldest blocks to the file, and drops those that it has no room for.
    fn make_room(&self) {
        loop {
            let mut is_file_full = true;
            if let Some(file) = &self.row_file {
                is_file_full = false;
                self.for_oldest(TrackRows::oldest_in_memory, |rows, _| {
                    if !self.has_too_many() {
                        return false;
                    }
                    is_file_full = !rows.store_oldest(file);
                    if !is_file_full {
                        self.rows.fetch_sub(BLOCK_ROWS, Ordering::Relaxed);
                        self.stored.fetch_add(BLOCK_ROWS, Ordering::Relaxed);
                    }
                    !is_file_full
                });
            }
            // Otherwise only blocks that are being filled are in memory.
            if !self.has_too_many() || !is_file_full {
                return;
            }
            // As many blocks of the file have room for those that are in memory.
            let excess = self.rows.load(Ordering::Relaxed) - self.max_rows;
            let mut blocks = excess.div_ceil(BLOCK_ROWS);
            let had = blocks;
            self.for_oldest(TrackRows::oldest, |rows, time| {
                let is_dropped = blocks > 0;
                if is_dropped {
                    blocks -= 1;
                    let (dropped, stored) = rows.drop_oldest();
                    self.count_dropped(dropped, stored);
                    self.raise_dropped_until(Some(time));
                }
                is_dropped
            });
            if blocks == had {
                return;
            }
        }
    }

    fn has_too_many(&self) -> bool {
        self.rows.load(Ordering::Relaxed) > self.max_rows
    }

    /// Changes tracks until `change` returns false: always the one of which `oldest`, a time, is
    /// the earliest.
    fn for_oldest(
        &self,
        oldest: impl Fn(&TrackRows) -> Option<i64>,
        mut change: impl FnMut(&mut TrackRows, i64) -> bool,
    ) {
        let tracks = self.tracks();
        let places = (0..).zip(&tracks);
        let begins = places.filter_map(|(place, track)| Some((oldest(&track.rows.lock())?, place)));
        let mut queue: BinaryHeap<Reverse<(i64, usize)>> = begins.map(Reverse).collect();
        while let Some(Reverse((time, place))) = queue.pop() {
            let Some(track) = tracks.get(place) else {
                return;
            };
            let mut rows = track.rows.lock();
            if !change(&mut rows, time) {
                return;
            }
            queue.extend(oldest(&rows).map(|time| Reverse((time, place))));
        }
    }
}

#[cfg(test)]
mod tests;
