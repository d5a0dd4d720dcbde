//! Which track an event is on: that of its thread, or of its CPU if no thread is known, or of a counter.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::store::{Session, Store, Track, TrackLabel};
use crate::attach::TraceKey;

/// Largest number of names of processes that are remembered. With one more, all are forgotten.
const MAX_PROCESS_NAMES: usize = 1 << 14;

/// What a track stands for, besides its session and process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum TrackOf {
    Thread(i64),
    Cpu(i64),
    /// The one thread of a recording of CodeTracer.
    Recording(TraceKey),
    /// A stream on which something was lost before its first event.
    Stream(String),
    Counter(Arc<str>),
    /// Spans of a category that belong to no thread.
    Async(Arc<str>),
    /// All that have no track of their own, because there are too many.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct TrackKey {
    session: u32,
    process: Option<i64>,
    of: TrackOf,
}

/// A process or thread as its events describe it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Owner<'a> {
    pub(super) process: Option<i64>,
    /// The name of the process; empty if it is not known.
    pub(super) process_name: &'a str,
    /// The name of the thread; empty if it is not known.
    pub(super) thread_name: &'a str,
}

/// The tracks of all sessions, by what they stand for.
#[derive(Debug, Default)]
pub(super) struct ThreadTracks {
    tracks: HashMap<TrackKey, Arc<Track>>,
    process_names: HashMap<(u32, i64), String>,
}

impl ThreadTracks {
    /// The track of a thread, which is added if it is a new one.
    pub(super) fn track(
        &mut self,
        store: &Store,
        session: &Arc<Session>,
        of: TrackOf,
        owner: Owner<'_>,
    ) -> Arc<Track> {
        let key = TrackKey {
            session: session.id,
            process: owner.process,
            of,
        };
        if let Some(track) = self.tracks.get(&key) {
            return Arc::clone(track);
        }
        self.forget_removed(store);
        let key = match store.has_room_for_track() {
            true => key,
            false => TrackKey {
                process: None,
                of: TrackOf::Other,
                ..key
            },
        };
        if let Some(track) = self.tracks.get(&key) {
            return Arc::clone(track);
        }
        let track = store.add_track(session, self.label(&key, owner));
        self.tracks.insert(key, Arc::clone(&track));
        track
    }

    /// Whether it is the track for threads that found no room.
    pub(super) fn is_shared(&self, track: &Track) -> bool {
        let key = TrackKey {
            session: track.session.id,
            process: None,
            of: TrackOf::Other,
        };
        self.tracks
            .get(&key)
            .is_some_and(|shared| shared.id == track.id)
    }

    /// Forgets tracks that the store has removed, when there are many.
    fn forget_removed(&mut self, store: &Store) {
        if self.tracks.len().is_multiple_of(256) {
            self.tracks
                .retain(|_, track| store.track(track.id).is_some());
        }
    }

    fn label(&self, key: &TrackKey, owner: Owner<'_>) -> TrackLabel {
        let known = key
            .process
            .and_then(|pid| self.process_names.get(&(key.session, pid)));
        let name = known.map_or(owner.process_name, |name| name);
        let thread = match &key.of {
            TrackOf::Thread(id) if owner.thread_name.is_empty() => format!("thread {id}"),
            TrackOf::Thread(id) => format!("{} {id}", owner.thread_name),
            TrackOf::Cpu(cpu) => format!("CPU {cpu}"),
            TrackOf::Recording(_) => "calls".to_owned(),
            TrackOf::Stream(name) => name.clone(),
            TrackOf::Counter(name) => name.to_string(),
            TrackOf::Async(category) if category.is_empty() => "async".to_owned(),
            TrackOf::Async(category) => format!("async {category}"),
            TrackOf::Other => "other threads".to_owned(),
        };
        TrackLabel {
            process: process_label(name, key.process),
            pid: key.process,
            thread,
            is_counter: matches!(key.of, TrackOf::Counter(_)),
        }
    }

    /// Names a process, as it says itself.
    pub(super) fn name_process(&mut self, session: u32, process: i64, name: &str) {
        if self.process_names.len() >= MAX_PROCESS_NAMES {
            self.process_names.clear();
        }
        let label = process_label(name, Some(process));
        self.process_names
            .insert((session, process), name.to_owned());
        for (key, track) in &self.tracks {
            if (key.session, key.process) == (session, Some(process)) {
                track.set_label(|of| of.process.clone_from(&label));
            }
        }
    }

    /// Names a process by its program, unless it has a name.
    pub(super) fn set_program(&mut self, session: u32, process: i64, program: &str) {
        let name = Path::new(program).file_name();
        let name = name.map(|name| name.to_string_lossy()).unwrap_or_default();
        if !name.is_empty() && !self.process_names.contains_key(&(session, process)) {
            self.name_process(session, process, &name);
        }
    }

    /// Names a thread, as it says itself.
    pub(super) fn name_thread(&self, session: u32, process: i64, thread: i64, name: &str) {
        let key = TrackKey {
            session,
            process: Some(process),
            of: TrackOf::Thread(thread),
        };
        if let Some(track) = self.tracks.get(&key) {
            track.set_label(|label| label.thread = format!("{name} {thread}"));
        }
    }

    /// Ends all tracks of a session.
    pub(super) fn end_session(&mut self, session: u32, time: i64) {
        self.tracks.retain(|key, track| {
            if key.session == session {
                track.end(time);
            }
            key.session != session
        });
        self.process_names.retain(|(of, _), _| *of != session);
    }
}

fn process_label(name: &str, process: Option<i64>) -> String {
    match (name, process) {
        ("", None) => String::new(),
        ("", Some(pid)) => format!("process {pid}"),
        (name, None) => name.to_owned(),
        (name, Some(pid)) => format!("{name} {pid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_and_thread_names_appear_on_their_tracks() {
        let store = Store::new(1000);
        let session = store.add_session("h/s", false);
        let mut tracks = ThreadTracks::default();
        let owner = Owner {
            process: Some(7),
            ..Owner::default()
        };
        let of = TrackOf::Thread(8);
        let track = tracks.track(&store, &session, of.clone(), owner);
        assert_eq!(track.label.lock().process, "process 7");
        tracks.set_program(session.id, 7, "/usr/bin/app");
        tracks.name_process(session.id, 7, "server");
        tracks.set_program(session.id, 7, "/usr/bin/other");
        tracks.name_thread(session.id, 7, 8, "worker");
        let label = track.label.lock().clone();
        assert_eq!(
            (label.process.as_str(), label.thread.as_str()),
            ("server 7", "worker 8")
        );
        let again = tracks.track(&store, &session, of.clone(), owner);
        assert!(Arc::ptr_eq(&track, &again));
        tracks.end_session(session.id, 0);
        assert!(track.is_ended());
        let later = tracks.track(&store, &session, of, owner);
        assert!(!Arc::ptr_eq(&track, &later));
    }
}
