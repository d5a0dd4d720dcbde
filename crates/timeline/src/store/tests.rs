//! Bounds of the store, and what happens beyond them.

use super::*;

fn label(thread: &str) -> TrackLabel {
    TrackLabel {
        process: String::new(),
        pid: None,
        thread: thread.to_owned(),
        is_counter: false,
    }
}

fn add_instant(store: &Store, track: &Track, time: i64) {
    let row = Row::new(RowKind::Instant, time, time, 0, EventPlace::default());
    store.change_rows(track, |rows| rows.add(row));
    store.count_event(time);
}

#[test]
fn recording_is_read_in_percent_until_it_ends() {
    let store = Store::new(1000, None);
    let recording = store.add_session("recording", true);
    assert_eq!(recording.percent_read(), Some(0));
    recording.add_bytes(300);
    recording.add_bytes(100);
    recording.add_packet(172);
    assert_eq!(recording.percent_read(), Some(43));
    // Files may have grown since they were opened.
    recording.add_packet(1000);
    assert_eq!(recording.percent_read(), Some(99));
    recording.set_ended(true);
    assert_eq!(recording.percent_read(), Some(100));
    assert_eq!(store.add_session("live", false).percent_read(), None);
}

#[test]
fn oldest_rows_of_all_tracks_are_dropped_first() {
    let store = Store::new(20_000, None);
    let session = store.add_session("h/s", false);
    let tracks = ["old", "new"].map(|name| store.add_track(&session, label(name)));
    for time in 0..10_000 {
        add_instant(&store, &tracks[0], time);
    }
    for time in 10_000..110_000 {
        add_instant(&store, &tracks[1], time);
    }
    assert!(store.row_count() <= 20_000 + 2 * ROOM_INTERVAL);
    assert!(tracks[0].rows.lock().len() <= BLOCK_ROWS);
    assert!(store.dropped_until().unwrap() > 80_000);
    let kept: usize = tracks.iter().map(|track| track.rows.lock().len()).sum();
    assert_eq!(kept, store.row_count());
    assert_eq!(store.times(), Some((0, 109_999)));
}

/// Writes 200,000 rows of two tracks to a store for 50,000, with a file.
fn fill(file: File) -> Store {
    let store = Store::new(50_000, Some(file));
    let session = store.add_session("h/s", false);
    let tracks = ["one", "two"].map(|name| store.add_track(&session, label(name)));
    for time in 0..100_000 {
        tracks
            .iter()
            .for_each(|track| add_instant(&store, track, time));
    }
    let in_memory = store.rows.load(Ordering::Relaxed);
    assert!(in_memory <= 50_000 + 2 * ROOM_INTERVAL, "{in_memory}");
    let rows: usize = tracks.iter().map(|track| track.rows.lock().len()).sum();
    assert_eq!(rows, store.row_count());
    store
}

#[test]
fn rows_that_memory_has_no_room_for_are_in_the_file() {
    let store = fill(tempfile::tempfile().unwrap());
    assert_eq!(store.row_count(), 200_000);
    assert_eq!(store.dropped_until(), None);
    // Until it is full.
    let session = store.add_session("h/s", false);
    let track = store.add_track(&session, label("three"));
    for time in 100_000..200_000 {
        add_instant(&store, &track, time);
    }
    let kept = store.row_count();
    assert!(
        (250_000..=250_000 + 2 * ROOM_INTERVAL).contains(&kept),
        "{kept}"
    );
    let dropped = store.dropped_until().unwrap();
    assert!((20_000..=25_000).contains(&dropped), "{dropped}");
    store.remove_tracks(|_| true);
    assert_eq!(store.row_count(), 0);
}

#[test]
fn oldest_rows_are_dropped_if_the_file_fails() {
    let named = tempfile::NamedTempFile::new().unwrap();
    // Nothing can be written to it.
    let store = fill(File::open(named.path()).unwrap());
    assert!(store.row_count() <= 50_000 + 2 * ROOM_INTERVAL);
    assert!(store.dropped_until().unwrap() > 70_000);
}

#[test]
fn rows_of_blocks_that_are_being_filled_are_no_reason_to_drop_others() {
    let store = Store::new(2000, Some(tempfile::tempfile().unwrap()));
    let session = store.add_session("h/s", false);
    let tracks: Vec<_> = (0..100)
        .map(|number| store.add_track(&session, label(&number.to_string())))
        .collect();
    for time in 0..100 {
        for track in &tracks {
            add_instant(&store, track, time);
        }
    }
    assert!(store.rows.load(Ordering::Relaxed) > 2000);
    assert_eq!(store.dropped_until(), None);
}

#[test]
fn tracks_that_ended_first_are_removed_when_there_are_too_many() {
    let store = Store::new(1000, None);
    let session = store.add_session("h/s", false);
    let first = store.add_track(&session, label("first"));
    add_instant(&store, &first, 5);
    first.end(6);
    for number in 0..MAX_TRACKS {
        store.add_track(&session, label(&number.to_string()));
    }
    assert!(store.track(first.id).is_none());
    assert_eq!(store.row_count(), 0);
    assert_eq!(store.dropped_until(), Some(5));
    store.add_track(&session, label("one more"));
    assert!(!store.has_room_for_track());
}
