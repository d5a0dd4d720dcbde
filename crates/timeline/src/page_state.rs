//! What the server knows of one page: which part it shows, and what it has been told.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use viewer::filter::Filter;

use super::details::row_details;
use super::download;
use super::matches::{FilterThread, PageFilter};
use super::packet_log::PacketLog;
use super::protocol::{
    Frame, HistogramState, MAX_ROWS_OF_FRAME, MAX_TEXT_BYTES, Reply, Request, SessionState,
    StateMessage, TrackState, ViewRequest,
};
use super::search::{Sought, count_rows, search};
use super::store::{Session, Store, Track};
use super::summary::summarize;
use super::view::{View, VisibleRow};

/// Frames that a page may have been sent and not yet shown. A slow page gets fewer frames, never
/// older ones.
const MAX_FRAMES_IN_FLIGHT: u32 = 2;
/// Names in one message.
const MAX_NAMES_OF_MESSAGE: usize = 4096;

/// The state of one page, for as long as it is connected.
#[derive(Debug, Default)]
pub(super) struct PageState {
    view: Option<ViewRequest>,
    /// Whether the view was changed since the last frame.
    is_view_new: bool,
    frames: u32,
    acknowledged: u32,
    /// The number of rows when the last frame was made.
    rows_added: u64,
    names: usize,
    tracks: HashMap<u32, TrackState>,
    sessions: Vec<SessionState>,
    histogram: Option<HistogramState>,
    active: Option<Vec<(u32, u64)>>,
    filter: Option<PageFilter>,
    /// The thread that applies the filters. Absent before the first one.
    filter_thread: Option<FilterThread>,
    /// The packets that the filter had been applied to at the last frame.
    filtered_packets: u64,
}

/// The end of the timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edge {
    /// The time of the end, in nanoseconds.
    pub(super) time: i64,
    /// Whether the end moves with the clock.
    pub(super) is_live: bool,
}

/// Nanoseconds since the latest event of all live sessions whose clocks count from 1970.
fn latest_age(store: &Store, now: i64) -> Option<i64> {
    let sessions = store.sessions();
    let live = sessions.iter().filter(|session| is_live(session));
    let last = live.filter_map(|session| session.last_unix_time()).max()?;
    Some(now.saturating_sub(last))
}

fn is_live(session: &Session) -> bool {
    !session.is_ended() && !session.is_recording
}

/// The end of the timeline: `now`, in nanoseconds since 1970, if a session whose clock counts from
/// 1970 is live, else the latest event. Absent before the first event.
pub(super) fn edge(store: &Store, now: i64) -> Option<Edge> {
    let (_, last) = store.times()?;
    let is_live = |session: &Arc<Session>| is_live(session) && session.last_unix_time().is_some();
    let is_live = store.sessions().iter().any(is_live);
    let time = if is_live { last.max(now) } else { last };
    Some(Edge { time, is_live })
}

impl PageState {
    /// Handles a request, and returns the answer if it has one.
    pub(super) fn handle(
        &mut self,
        request: Request,
        store: &Store,
        log: &Arc<PacketLog>,
    ) -> Option<Reply> {
        match request {
            Request::View(view) => {
                self.is_view_new = true;
                self.view = Some(view);
                None
            }
            // A page cannot have shown what it was not sent.
            Request::Ack { frame } => {
                if frame <= self.frames {
                    self.acknowledged = self.acknowledged.max(frame);
                }
                None
            }
            Request::Details { number, track, row } => {
                let row = store.track(track).and_then(|track| {
                    let rows = track.rows.lock();
                    rows.row(rows.number_of(row))
                });
                let details = row.map(|row| row_details(&row, track, store, log));
                let details = details.unwrap_or_default();
                Some(Reply::Details { number, details })
            }
            Request::Search {
                number,
                text,
                is_whole,
                from,
                is_backward,
            } => {
                let matches = self
                    .filter
                    .as_ref()
                    .map(|filter| filter.state.matches.read());
                let sought = Sought {
                    text: &text,
                    is_whole,
                    from,
                    is_backward,
                };
                let found = search(store, matches.as_deref(), sought);
                Some(Reply::Search {
                    number,
                    total: found.total,
                    found: found.next,
                    hits: found.hits,
                })
            }
            Request::Count { number, from, to } => {
                let matches = self
                    .filter
                    .as_ref()
                    .map(|filter| filter.state.matches.read());
                let rows = count_rows(store, matches.as_deref(), from, to);
                let refused = download::packets(log, from, to).err();
                Some(Reply::Count {
                    number,
                    rows,
                    refused: refused.map_or_else(String::new, |refused| refused.to_string()),
                })
            }
            // Takes longer than a page waits: asked for with `summary`.
            Request::Summary { .. } => None,
            Request::Filter { number, text } => {
                let error = self.set_filter(&text, log).err().unwrap_or_default();
                Some(Reply::Filter { number, error })
            }
        }
    }

    /// What answers a request for a summary of a range. It takes up to seconds, and needs nothing
    /// of the page.
    pub(super) fn summary(
        &self,
        (number, from, to): (u32, i64, i64),
        store: Arc<Store>,
        now: i64,
    ) -> impl FnOnce() -> Reply + Send + 'static {
        let filter = self.filter.as_ref();
        let filter = filter.map(|filter| Arc::clone(&filter.state));
        move || {
            // What has not ended goes on until now, not until the end of the range.
            let to = edge(&store, now).map_or(to, |edge| to.min(edge.time));
            let summary = summarize(&store, filter.as_deref(), from, to);
            Reply::Summary { number, summary }
        }
    }

    /// Whether the page shows another part of the timeline since the last frame.
    pub(super) fn needs_frame(&self) -> bool {
        self.is_view_new
    }

    fn set_filter(&mut self, text: &str, log: &Arc<PacketLog>) -> Result<(), String> {
        let filter = match text.trim() {
            "" => None,
            // A link may contain anything.
            text if text.len() > MAX_TEXT_BYTES => {
                return Err(format!("more than {MAX_TEXT_BYTES} bytes"));
            }
            text => {
                let filter = Filter::parse(text).map_err(|error| error.to_string())?;
                // Started with the first filter, because most pages have none.
                let thread = match self.filter_thread.take() {
                    Some(thread) => thread,
                    None => {
                        FilterThread::start(Arc::clone(log)).map_err(|error| error.to_string())?
                    }
                };
                Some(self.filter_thread.insert(thread).apply(filter))
            }
        };
        self.filter = filter;
        self.is_view_new = true;
        Ok(())
    }

    /// The rows in view, if the page needs them: it has shown what it was sent, and something has
    /// changed.
    pub(super) fn next_frame(&mut self, store: &Store, now: i64) -> Option<Vec<u8>> {
        let request = self.view.as_ref()?;
        if self.frames - self.acknowledged >= MAX_FRAMES_IN_FLIGHT {
            return None;
        }
        let edge = edge(store, now)?;
        let added = store.changes();
        let filtered = self.filtered_packets();
        // A view that follows moves with the clock, whether events come or not.
        let is_moving = request.is_following && edge.is_live;
        let is_unchanged = added == self.rows_added && filtered == self.filtered_packets;
        if !self.is_view_new && !is_moving && is_unchanged {
            return None;
        }
        self.filtered_packets = filtered;
        self.rows_added = added;
        self.is_view_new = false;
        self.frames = self.frames.wrapping_add(1);
        let mut view = request.at(edge.time);
        let age = latest_age(store, now);
        // With too many rows the view is made again in fewer pixels: then more rows are merged.
        loop {
            let mut frame = Frame::new(self.frames, request.number, view, age);
            let is_complete = self.add_tracks(&mut frame, view, &request.tracks, store);
            match view.halved().filter(|_| !is_complete) {
                Some(coarser) => view = coarser,
                None => return Some(frame.into_bytes()),
            }
        }
    }

    /// Adds what is to be seen of tracks to a frame. Returns false if these are too many rows, of
    /// which some are missing.
    fn add_tracks(&self, frame: &mut Frame, view: View, tracks: &[u32], store: &Store) -> bool {
        let mut rows: Vec<VisibleRow> = Vec::new();
        let mut room = MAX_ROWS_OF_FRAME;
        for id in tracks {
            let Some(track) = store.track(*id) else {
                continue;
            };
            rows.clear();
            let matches = self
                .filter
                .as_ref()
                .map(|filter| filter.state.matches.read());
            let matches = matches.as_deref();
            let is_complete = track.rows.lock().visible(view, matches, room, &mut rows);
            room -= rows.len();
            frame.add_track(*id, &rows);
            if !is_complete {
                return false;
            }
        }
        true
    }

    /// What the page has to be told.
    pub(super) fn state_message(&mut self, store: &Store, now: i64) -> StateMessage {
        let edge = edge(store, now);
        let names = store.names_from(self.names, MAX_NAMES_OF_MESSAGE);
        let first_name = self.names;
        self.names += names.len();
        let (tracks, removed_tracks) = self.changed_tracks(&store.tracks());
        let sessions = store.sessions();
        let sessions = sessions.iter().map(|session| session_state(session, now));
        self.sessions = sessions.collect();
        StateMessage {
            kind: "state",
            edge: edge.map(|edge| edge.time.to_string()),
            is_live: edge.is_some_and(|edge| edge.is_live),
            first: store.times().map(|(first, _)| first.to_string()),
            dropped_until: store.dropped_until().map(|time| time.to_string()),
            rows: store.row_count(),
            filtered_packets: self.filtered_packets(),
            filter_hint: self.filter_hint(),
            sessions: self.sessions.clone(),
            tracks,
            removed_tracks,
            active: edge.and_then(|edge| self.changed_activity(store, edge.time)),
            first_name,
            names: names.iter().map(|name| name.to_string()).collect(),
            histogram: self.changed_histogram(store),
        }
    }

    /// The tracks with rows in view, if the page has asked for them and they have changed.
    fn changed_activity(&mut self, store: &Store, edge: i64) -> Option<Vec<(u32, u64)>> {
        let view = self.view.as_ref().filter(|view| view.counts_rows);
        let active = view.map(|view| {
            let View { from, to, .. } = view.at(edge);
            let tracks = store.tracks().into_iter().map(|track| {
                let matches = self.filter.as_ref();
                let matches = matches.map(|filter| filter.state.matches.read());
                let rows = track.rows.lock();
                (track.id, rows.count((from, to), matches.as_deref()))
            });
            tracks.filter(|(_, rows)| *rows > 0).collect::<Vec<_>>()
        });
        let is_changed = active.is_some() && active != self.active;
        self.active.clone_from(&active);
        active.filter(|_| is_changed)
    }

    fn filtered_packets(&self) -> u64 {
        let filter = self.filter.as_ref();
        filter.map_or(0, |filter| filter.state.progress.load(Ordering::Relaxed))
    }

    fn filter_hint(&self) -> String {
        let filter = self.filter.as_ref();
        filter.map_or_else(String::new, |filter| filter.state.hint.lock().clone())
    }

    fn changed_tracks(&mut self, tracks: &[Arc<Track>]) -> (Vec<TrackState>, Vec<u32>) {
        let mut changed = Vec::new();
        // What is left in here at the end is no longer in the store.
        let mut known = std::mem::take(&mut self.tracks);
        for track in tracks {
            let state = track_state(track);
            if known.remove(&state.id).as_ref() != Some(&state) {
                changed.push(state.clone());
            }
            self.tracks.insert(state.id, state);
        }
        (changed, known.into_keys().collect())
    }

    fn changed_histogram(&mut self, store: &Store) -> Option<HistogramState> {
        let histogram = store.histogram.lock();
        let state = HistogramState {
            begin: histogram.begin.to_string(),
            width: histogram.width.to_string(),
            events: histogram.events.clone(),
            losses: histogram.losses.clone(),
        };
        // Unlocked before the comparison: each event is counted under this lock.
        drop(histogram);
        let is_new = self.histogram.as_ref() != Some(&state);
        is_new.then(|| self.histogram.insert(state).clone())
    }
}

fn track_state(track: &Track) -> TrackState {
    let label = track.label.lock();
    let rows = track.rows.lock();
    TrackState {
        id: track.id,
        session: track.session.id,
        process: label.process.clone(),
        pid: label.pid,
        thread: label.thread.clone(),
        is_counter: label.is_counter,
        depths: rows.depths,
        ended_at: rows.ended_at.map(|time| time.to_string()),
    }
}

fn session_state(session: &Session, now: i64) -> SessionState {
    let losses = session.losses();
    let last = session.last_unix_time().filter(|_| is_live(session));
    SessionState {
        id: session.id,
        name: session.name.clone(),
        is_ended: session.is_ended(),
        is_recording: session.is_recording,
        percent_read: session.percent_read(),
        events: session.events.load(Ordering::Relaxed),
        lost: match losses.is_empty() {
            true => String::new(),
            false => losses.to_string(),
        },
        clock: session.clock(),
        lag: last.map(|last| now.saturating_sub(last) / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::{EventPlace, Row, RowKind};
    use super::super::store::TrackLabel;
    use super::*;

    fn store() -> (Store, Arc<Track>) {
        let store = Store::new(1000, None);
        let session = store.add_session("h/s", false);
        let label = TrackLabel {
            process: "p 1".to_owned(),
            pid: Some(1),
            thread: "t 1".to_owned(),
            is_counter: false,
        };
        let track = store.add_track(&session, label);
        add_instant(&store, &track, 1000);
        (store, track)
    }

    fn add_instant(store: &Store, track: &Track, time: i64) {
        let row = Row::new(RowKind::Instant, time, time, 0, EventPlace::default());
        store.change_rows(track, |rows| rows.add(row));
        track.session.add_event(Some(time), true);
        store.count_event(time);
    }

    fn handle(page: &mut PageState, store: &Store, request: Request) {
        let log = Arc::new(PacketLog::new(1000, Arc::default()));
        assert_eq!(page.handle(request, store, &log), None);
    }

    fn view(track: u32, is_following: bool) -> Request {
        Request::View(ViewRequest {
            number: 1,
            from: 0,
            to: 2000,
            is_following,
            width: 100,
            tracks: vec![track, 12_345],
            counts_rows: false,
        })
    }

    #[test]
    fn slow_page_gets_no_more_frames_than_it_acknowledges() {
        let (store, track) = store();
        let mut page = PageState::default();
        assert_eq!(page.next_frame(&store, 5000), None, "no view was requested");
        handle(&mut page, &store, view(track.id, true));
        let mut sent = 0;
        for _ in 0..10 {
            sent += u32::from(page.next_frame(&store, 5000).is_some());
        }
        assert_eq!(sent, MAX_FRAMES_IN_FLIGHT);
        handle(&mut page, &store, Request::Ack { frame: 1000 });
        assert_eq!(page.next_frame(&store, 5000), None, "never sent so many");
        handle(&mut page, &store, Request::Ack { frame: 1 });
        assert!(page.next_frame(&store, 5000).is_some());
        assert_eq!(page.next_frame(&store, 5000), None);
    }

    #[test]
    fn page_that_does_not_follow_gets_a_frame_only_if_something_changed() {
        let (store, track) = store();
        let mut page = PageState::default();
        handle(&mut page, &store, view(track.id, false));
        assert!(page.next_frame(&store, 5000).is_some());
        handle(&mut page, &store, Request::Ack { frame: 1 });
        assert_eq!(page.next_frame(&store, 6000), None);
        add_instant(&store, &track, 1500);
        assert!(page.next_frame(&store, 6000).is_some());
    }

    #[test]
    fn frame_with_too_many_rows_is_merged_more_and_stays_complete() {
        let store = Store::new(1 << 21, None);
        let session = store.add_session("h/s", false);
        let mut tracks = Vec::new();
        for number in 0..40 {
            let label = TrackLabel {
                process: String::new(),
                pid: None,
                thread: number.to_string(),
                is_counter: false,
            };
            let track = store.add_track(&session, label);
            for time in 0..8000 {
                add_instant(&store, &track, time * 100);
            }
            tracks.push(track.id);
        }
        let mut page = PageState::default();
        let request = ViewRequest {
            counts_rows: false,
            number: 1,
            from: 0,
            to: 800_000,
            is_following: false,
            width: 16_384,
            tracks,
        };
        handle(&mut page, &store, Request::View(request));
        let frame = page.next_frame(&store, 5000).unwrap();
        let word = |at: usize| u32::from_le_bytes(frame[at..at + 4].try_into().unwrap());
        let (mut at, mut rows, mut events) = (40, 0, 0);
        for _ in 0..word(32) {
            let count = word(at + 4) as usize;
            at += 8;
            rows += count;
            events += (0..count).map(|row| word(at + row * 32 + 20)).sum::<u32>();
            at += count * 32;
        }
        assert_eq!((at, word(32)), (frame.len(), 40));
        assert!((1..=MAX_ROWS_OF_FRAME).contains(&rows), "{rows}");
        assert_eq!(events, 40 * 8000, "none is missing");
    }

    /// The threads of this process that apply filters, those of other tests included.
    fn count_filter_threads() -> usize {
        let threads = std::fs::read_dir("/proc/self/task").unwrap();
        let name = |path: std::path::PathBuf| std::fs::read_to_string(path.join("comm"));
        let names = threads.filter_map(|thread| name(thread.ok()?.path()).ok());
        names.filter(|name| name == "filter\n").count()
    }

    #[test]
    fn page_that_changes_its_filter_often_has_one_thread_for_it() {
        let (store, _) = store();
        let log = Arc::new(PacketLog::new(1000, Arc::default()));
        let mut page = PageState::default();
        for number in 0..100 {
            let text = format!("x == {number}");
            let request = Request::Filter { number, text };
            let error = String::new();
            let reply = page.handle(request, &store, &log);
            assert_eq!(reply, Some(Reply::Filter { number, error }));
            assert!(count_filter_threads() < 10);
        }
    }

    #[test]
    fn page_is_told_of_tracks_names_and_histogram_once() {
        let (store, track) = store();
        store.name("a");
        let mut page = PageState::default();
        let first = page.state_message(&store, 5000);
        assert_eq!((first.tracks.len(), first.names.len()), (1, 1));
        assert_eq!(first.sessions[0].lag, Some(0));
        assert!(first.histogram.is_some());
        let second = page.state_message(&store, 5000);
        assert!(second.tracks.is_empty() && second.names.is_empty());
        assert!(second.histogram.is_none());
        track.set_label(|label| label.thread = "named".to_owned());
        let third = page.state_message(&store, 5000);
        assert_eq!(third.tracks[0].thread, "named");
    }

    #[test]
    fn edge_is_the_clock_while_a_session_is_live_and_else_the_latest_event() {
        let (store, track) = store();
        let live = |time| Edge {
            time,
            is_live: true,
        };
        assert_eq!(edge(&store, 5000), Some(live(5000)));
        assert_eq!(edge(&store, 10), Some(live(1000)));
        track.session.set_ended(true);
        assert_eq!(edge(&store, 5000).map(|edge| edge.time), Some(1000));
        assert_eq!(edge(&Store::new(1, None), 5), None);
    }
}
