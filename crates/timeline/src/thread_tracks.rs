//! Which track an event is on: that of its thread, or of its CPU if no thread is known, or of a
//! counter.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use ::tef::event::OwnerId;
use viewer::attach::TraceKey;
use viewer::interpret::name_numbers::shortened;

use super::store::{Session, Store, Track, TrackLabel};

/// Largest number of names of processes that are remembered. With one more, all are forgotten.
const MAX_PROCESS_NAMES: usize = 1 << 14;

/// Largest number of a process that the page can tell from its neighbours.
const MAX_PAGE_NUMBER: u64 = 1 << 53;

/// The id of a process or thread.
pub(super) type Id = OwnerId<'static>;

/// What a track stands for, besides its session and process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum TrackOf {
    Thread(Id),
    Cpu(i64),
    /// What a CPU does besides the thread that it runs.
    Interrupts(i64),
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
    process: Option<Id>,
    of: TrackOf,
}

/// A process or thread as its events describe it.
#[derive(Debug, Clone, Default)]
pub(super) struct Owner<'a> {
    pub(super) process: Option<Id>,
    /// The name of the process; empty if it is not known.
    pub(super) process_name: &'a str,
    /// The name of the thread; empty if it is not known.
    pub(super) thread_name: &'a str,
}

/// The tracks of all sessions, by what they stand for.
#[derive(Debug, Default)]
pub(super) struct ThreadTracks {
    tracks: HashMap<TrackKey, Arc<Track>>,
    process_names: HashMap<(u32, Id), String>,
}

impl ThreadTracks {
    /// The track of a thread, which is added if it is a new one.
    pub(super) fn track(
        &mut self,
        store: &Store,
        session: &Arc<Session>,
        of: TrackOf,
        owner: &Owner<'_>,
    ) -> Arc<Track> {
        let key = TrackKey {
            session: session.id,
            process: owner.process.clone(),
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

    /// Whether a track is that for threads which found no room.
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
        // Not at each new track: the time would grow with the square of their number.
        if self.tracks.len().is_multiple_of(256) {
            self.tracks
                .retain(|_, track| store.track(track.id).is_some());
        }
    }

    fn label(&self, key: &TrackKey, owner: &Owner<'_>) -> TrackLabel {
        let known = key.process.clone();
        let known = known.and_then(|pid| self.process_names.get(&(key.session, pid)));
        let name = known.map_or(owner.process_name, |name| name);
        let thread = match &key.of {
            TrackOf::Thread(id) if owner.thread_name.is_empty() => format!("thread {id}"),
            TrackOf::Thread(id) => format!("{} {id}", owner.thread_name),
            TrackOf::Cpu(cpu) => format!("CPU {cpu}"),
            TrackOf::Interrupts(cpu) => format!("CPU {cpu} interrupts"),
            TrackOf::Recording(_) => "calls".to_owned(),
            TrackOf::Stream(name) => name.clone(),
            TrackOf::Counter(name) => name.to_string(),
            TrackOf::Async(category) if category.is_empty() => "async".to_owned(),
            TrackOf::Async(category) => format!("async {category}"),
            TrackOf::Other => "other threads".to_owned(),
        };
        TrackLabel {
            process: process_label(name, key.process.as_ref()),
            pid: key.process.as_ref().and_then(page_number),
            thread,
            is_counter: matches!(key.of, TrackOf::Counter(_)),
        }
    }

    /// Names a process, as it says itself.
    pub(super) fn name_process(&mut self, session: u32, process: &Id, name: &str) {
        // Tracks that have a name keep it: only later ones miss theirs.
        if self.process_names.len() >= MAX_PROCESS_NAMES {
            self.process_names.clear();
        }
        let label = process_label(name, Some(process));
        self.process_names
            .insert((session, process.clone()), shortened(name).to_owned());
        for (key, track) in &self.tracks {
            if key.session == session && key.process.as_ref() == Some(process) {
                track.set_label(|of| of.process.clone_from(&label));
            }
        }
    }

    /// Names a process by its program, unless it has a name.
    pub(super) fn set_program(&mut self, session: u32, process: &Id, program: &str) {
        let name = Path::new(program).file_name();
        let name = name.map(|name| name.to_string_lossy()).unwrap_or_default();
        let key = (session, process.clone());
        if !name.is_empty() && !self.process_names.contains_key(&key) {
            self.name_process(session, process, &name);
        }
    }

    /// Names a thread, as it says itself.
    pub(super) fn name_thread(&self, session: u32, process: &Id, thread: &Id, name: &str) {
        let key = TrackKey {
            session,
            process: Some(process.clone()),
            of: TrackOf::Thread(thread.clone()),
        };
        if let Some(track) = self.tracks.get(&key) {
            track.set_label(|label| label.thread = format!("{name} {thread}"));
        }
    }

    /// Ends the track of a thread that is gone. Its number may be that of another one.
    pub(super) fn end_thread(&mut self, session: u32, process: Option<&Id>, thread: Id, time: i64) {
        let key = TrackKey {
            session,
            process: process.cloned(),
            of: TrackOf::Thread(thread),
        };
        if let Some(track) = self.tracks.remove(&key) {
            track.end(time);
        }
    }

    /// Says of a track which thread it is, and of which process if that is known.
    pub(super) fn describe(&self, track: &Track, process: Option<&Id>, thread: &str) {
        let session = track.session.id;
        track.set_label(|label| {
            thread.clone_into(&mut label.thread);
            let Some(process) = process else {
                return;
            };
            let name = self.process_names.get(&(session, process.clone()));
            label.process = process_label(name.map_or("", |name| name), Some(process));
            label.pid = page_number(process);
        });
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

/// The number of a process in messages to the page, if it is one there.
fn page_number(id: &Id) -> Option<i64> {
    let number = id.number();
    number.filter(|number| number.unsigned_abs() <= MAX_PAGE_NUMBER)
}

fn process_label(name: &str, process: Option<&Id>) -> String {
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
        let store = Store::new(1000, None);
        let session = store.add_session("h/s", false);
        let mut tracks = ThreadTracks::default();
        let (process, thread) = (Id::Number(7), Id::Number(8));
        let owner = Owner {
            process: Some(process.clone()),
            ..Owner::default()
        };
        let of = TrackOf::Thread(thread.clone());
        let track = tracks.track(&store, &session, of.clone(), &owner);
        assert_eq!(track.label.lock().process, "process 7");
        tracks.set_program(session.id, &process, "/usr/bin/app");
        tracks.name_process(session.id, &process, "server");
        tracks.set_program(session.id, &process, "/usr/bin/other");
        tracks.name_thread(session.id, &process, &thread, "worker");
        let label = track.label.lock().clone();
        assert_eq!(
            (label.process.as_str(), label.thread.as_str()),
            ("server 7", "worker 8")
        );
        let again = tracks.track(&store, &session, of.clone(), &owner);
        assert!(Arc::ptr_eq(&track, &again));
        tracks.end_session(session.id, 0);
        assert!(track.is_ended());
        let later = tracks.track(&store, &session, of, &owner);
        assert!(!Arc::ptr_eq(&track, &later));
    }

    #[test]
    fn processes_and_threads_with_wide_ids_and_names_have_tracks_of_their_own() {
        let store = Store::new(1000, None);
        let session = store.add_session("h/s", false);
        let mut tracks = ThreadTracks::default();
        let (wide, name) = (Id::Number(140_589_156_634_432), Id::Text("main".into()));
        let mut ids = std::collections::HashSet::new();
        for process in [&wide, &name, &Id::Number(0)] {
            for thread in [&wide, &name, &Id::Number(0)] {
                let owner = Owner {
                    process: Some(process.clone()),
                    ..Owner::default()
                };
                let of = TrackOf::Thread(thread.clone());
                let track = tracks.track(&store, &session, of, &owner);
                assert!(ids.insert(track.id));
                let label = track.label.lock();
                assert_eq!(label.pid, process.number());
                assert_eq!(label.process, format!("process {process}"));
                assert_eq!(label.thread, format!("thread {thread}"));
            }
        }
        // Two such numbers are one to the page, which tells these processes apart by their names.
        assert_eq!(page_number(&Id::Number(i64::MAX)), None);
    }
}
