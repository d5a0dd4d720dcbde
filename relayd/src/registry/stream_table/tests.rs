use wire::{Bytes, FileName, FixedText, Text, TraceId};

use super::entry::VISITS;
use super::*;
use crate::ingest::reorder::ReorderWindow;
use crate::ingest::{DataStream, DiskFullPolicy, MetadataStream};
use crate::store::chunk::{Chunk, Holding};
use crate::store::metadata::MetadataFile;
use crate::store::pool::Pool;
use crate::store::stream_files::{StreamFiles, StreamLayout};

/// A table, and where its streams write.
struct Fixture {
    table: StreamTable,
    pool: Arc<Pool>,
    chunk: Holding,
    next: u64,
    _output: tempfile::TempDir,
}

fn path(text: &str) -> TracePath {
    TracePath::parse(&Text::from(text)).unwrap()
}

impl Fixture {
    fn new() -> Self {
        let output = tempfile::tempdir().unwrap();
        Self {
            table: StreamTable::default(),
            pool: Pool::new(10_000),
            chunk: Chunk::whole_output(output.path()),
            next: 0,
            _output: output,
        }
    }

    fn add(&mut self, directory: &str, is_metadata: bool) -> SessionStream {
        self.next += 1;
        let (id, directory) = (StreamId(self.next), path(directory));
        let name = FileName::parse(&Text::from(format!("file_{id}").as_str())).unwrap();
        let (pool, chunk) = (Arc::clone(&self.pool), self.chunk.clone());
        let full = DiskFullPolicy::Pause;
        let stream = if is_metadata {
            let file =
                MetadataFile::create(pool, directory.clone(), name, chunk, Arc::default()).unwrap();
            let stream = MetadataStream::new(id, directory.clone(), file, full);
            SessionStream::Metadata(Arc::new(stream))
        } else {
            let layout = StreamLayout {
                directory: directory.clone(),
                name,
                limits: None,
                index_format: None,
            };
            let files = StreamFiles::create(layout, pool, chunk, Arc::default()).unwrap();
            let window = ReorderWindow {
                packets: 1,
                bytes: Bytes(1),
            };
            SessionStream::Data(DataStream::new(id, files, window, true, full))
        };
        let trace = self.table.trace_id(&directory, || TraceId(1));
        let content = stream.content();
        let since = holds_back(&content).then_some(Timestamp(self.next * 10));
        let record = viewer_proto::stream::StreamRecord {
            stream: id,
            trace,
            is_metadata: u32::from(is_metadata),
            path: FixedText(directory.to_text()),
            channel: FixedText(Text::default()),
        };
        let listed = Arc::new(ListedStream { record, content });
        let added = stream.clone();
        self.table.add(added, directory, listed, since, 3);
        stream
    }

    /// Closes a stream and removes it from the table. Returns the number of visited entries.
    fn close(&mut self, stream: &SessionStream) -> usize {
        match stream {
            SessionStream::Data(stream) => stream.lock().close_after(None).unwrap(),
            SessionStream::Metadata(stream) => stream.close(),
        }
        VISITS.set(0);
        self.table.forget(stream.id());
        VISITS.get()
    }
}

fn ids(listed: &[Arc<ListedStream>]) -> Vec<u64> {
    listed.iter().map(|one| one.record.stream.0).collect()
}

#[test]
fn the_cost_of_closing_a_stream_does_not_grow_with_the_number_of_streams() {
    let mut fixture = Fixture::new();
    let metadata: Vec<_> = (0..100).map(|_| fixture.add("ust/one", true)).collect();
    let data: Vec<_> = (0..400).map(|_| fixture.add("ust/one", false)).collect();
    let mut visits = 0;
    for stream in metadata.iter().chain(&data) {
        visits += fixture.close(stream);
        fixture.table.oldest_awaited();
        VISITS.set(0);
        assert!(fixture.table.len() == 0 || fixture.table.has_unpolled_streams());
        let _ = (fixture.table.metadata_streams(), fixture.table.published());
        assert_eq!(VISITS.get(), 0, "these are counted, not looked for");
    }
    assert!(visits <= 3 * (metadata.len() + data.len()), "{visits}");
    assert_eq!(fixture.table.len(), 0);
    assert_eq!(fixture.table.metadata_streams(), 0);
}

#[test]
fn closed_metadata_stays_until_the_last_data_stream_of_its_trace_is_closed() {
    let mut fixture = Fixture::new();
    let data = [fixture.add("ust/one", false), fixture.add("ust/one", false)];
    let other = fixture.add("ust/two", false);
    let metadata = fixture.add("ust/one", true);
    fixture.close(&metadata);
    fixture.close(&metadata);
    assert_eq!(fixture.table.metadata_streams(), 1);
    fixture.close(&data[0]);
    assert!(fixture.table.get(metadata.id()).is_some());
    fixture.close(&data[1]);
    assert!(fixture.table.get(metadata.id()).is_none());
    assert_eq!(fixture.table.metadata_streams(), 0);
    assert_eq!(fixture.table.len(), 1);
    // Without data streams it goes at once.
    let alone = fixture.add("ust/three", true);
    fixture.close(&alone);
    assert!(fixture.table.get(alone.id()).is_none());
    fixture.close(&other);
    assert_eq!(fixture.table.len(), 0);
}

#[test]
fn streams_are_announced_once_published_and_described_in_either_order() {
    let mut fixture = Fixture::new();
    fixture.add("ust/one", false);
    fixture.add("ust/two", false);
    assert!(fixture.table.describe(&path("ust/two")).unwrap().is_empty());
    assert!(fixture.table.describe(&path("ust/two")).is_none());
    assert_eq!(ids(&fixture.table.publish()), [2]);
    fixture.add("ust/one", false);
    assert_eq!(
        ids(&fixture.table.describe(&path("ust/one")).unwrap()),
        [1],
        "the third is not published"
    );
    assert_eq!(ids(&fixture.table.publish()), [3]);
    assert_eq!(fixture.table.published(), 3);
    assert_eq!(fixture.table.counts.unannounced, 0);
}

#[test]
fn viewers_are_held_back_for_the_oldest_stream_that_they_wait_for() {
    let mut fixture = Fixture::new();
    let first = fixture.add("ust/one", false);
    fixture.table.tick();
    let second = fixture.add("ust/two", false);
    fixture.add("ust/two", true);
    assert_eq!(fixture.table.oldest_awaited(), Some(Timestamp(10)));
    fixture.close(&first);
    assert!(!fixture.table.is_awaited(first.id()));
    assert_eq!(fixture.table.oldest_awaited(), Some(Timestamp(20)));
    (0..2).for_each(|_| fixture.table.tick());
    assert_eq!(fixture.table.oldest_awaited(), Some(Timestamp(20)));
    fixture.table.tick();
    assert_eq!(fixture.table.oldest_awaited(), None);
    assert!(!fixture.table.is_awaited(second.id()));
    fixture.add("ust/two", false);
    fixture.table.publish();
    assert!(fixture.table.has_timeouts());
    fixture.table.describe(&path("ust/two"));
    assert!(!fixture.table.has_timeouts());
}

#[test]
fn a_round_of_questions_leaves_out_streams_that_are_open_and_were_not_asked_about() {
    let mut fixture = Fixture::new();
    let data = fixture.add("ust/one", false);
    let metadata = fixture.add("ust/one", true);
    assert!(fixture.table.has_unpolled_streams());
    for _ in 0..2 {
        fixture.table.begin_data_pending();
        assert!(fixture.table.has_unpolled_streams());
        fixture.table.mark_asked(data.id());
        fixture.table.mark_asked(data.id());
        assert!(fixture.table.has_unpolled_streams());
        fixture.table.mark_asked(metadata.id());
        assert!(!fixture.table.has_unpolled_streams());
    }
    fixture.close(&metadata);
    fixture.table.begin_data_pending();
    fixture.table.mark_asked(metadata.id());
    assert!(fixture.table.has_unpolled_streams());
    fixture.table.mark_asked(data.id());
    assert!(!fixture.table.has_unpolled_streams());
    fixture.close(&data);
    assert!(!fixture.table.has_unpolled_streams());
}

#[test]
fn ended_streams_and_unused_traces_are_forgotten_before_there_are_too_many() {
    let mut fixture = Fixture::new();
    fixture.table.counts.prune_unannounced_at = 4;
    fixture.table.counts.prune_traces_at = 4;
    let open = fixture.add("ust/open", false);
    let ended: Vec<_> = (0..3)
        .map(|number| fixture.add(&format!("ust/{number}"), false))
        .collect();
    ended.iter().for_each(|stream| {
        fixture.close(stream);
    });
    // A trace is in use until each of its streams is announced, or never will be.
    let next = fixture.add("ust/next", false);
    assert_eq!(fixture.table.counts.unannounced, 2);
    fixture.table.counts.prune_traces_at = 5;
    let last = fixture.add("ust/last", false);
    assert_eq!(fixture.table.traces.len(), 3);
    let left = [open, next, last].map(|stream| stream.id().0);
    for trace in ["ust/open", "ust/next", "ust/last"] {
        fixture.table.describe(&path(trace));
    }
    assert_eq!(ids(&fixture.table.publish()), left);
}
