//! The whole path, live: a program that is killed, the consumer, a relay, and viewers that are
//! attached meanwhile.

use std::path::Path;
use std::time::Duration;

use tests::babeltrace::Babeltrace;
use tests::lab::Lab;
use tests::process::Process;
use tests::relay::Relay;
use tests::test_live;
use tests::tree::files;
use tests::viewer::{Viewer, hostname};
use tests::wait_until;
use viewer_proto::index::IndexStatus;
use viewer_proto::session::Seek;

use crate::system::{Agent, Shown, Writer, Writing, session_directory};

/// The language of a traced program.
#[derive(Debug, Clone, Copy)]
enum Language {
    Rust,
    C,
}

/// A writer whose session viewers watch.
struct Watched<'a> {
    lab: &'a Lab,
    relay: &'a Relay,
    agent: Agent,
    writer: Writer,
}

impl<'a> Watched<'a> {
    fn start(lab: &'a Lab, relay: &'a Relay, language: Language) -> Self {
        let agent = Agent::start(lab, relay, &[]);
        let writing = Writing {
            pause: Duration::from_millis(1),
            ..Writing::default()
        };
        let writer = match language {
            Language::Rust => Writer::start(
                lab,
                "live",
                Writing {
                    threads: 2,
                    ..writing
                },
            ),
            Language::C => Writer::start_in_c(lab, "live", writing),
        };
        Viewer::connect(relay.live).wait_for_session(&writer.session());
        Self {
            lab,
            relay,
            agent,
            writer,
        }
    }

    /// Starts `test-live`, which shows all events from the first one on.
    fn follow_with_test_live(&self) -> Process {
        let url = test_live::url(self.relay.live, &hostname(), &self.writer.session());
        test_live::start(self.lab, &["--no-delta", "--seek", "beginning", &url])
    }

    fn follow_with_babeltrace(&self) -> Process {
        let session = self.writer.session();
        Process::start(&mut Babeltrace::Two.follow_command(self.relay, &session))
    }

    /// Waits until the viewers are attached. Returns the number of the first event that all of them
    /// will see.
    fn wait_for_viewers(&self, viewers: u32) -> u64 {
        test_live::wait_until_attached(self.relay, &self.writer.session(), viewers);
        let attached_at = self.writer.progress().into_iter().max().unwrap();
        // Viewers may begin with a later packet. The number of an event is that of the events
        // before it.
        self.writer.wait_for_events(attached_at + 1000);
        attached_at + 999
    }

    /// Kills the writer, waits until the viewers have ended, and returns what they have shown and
    /// what is recorded.
    fn kill(self, viewers: Vec<Process>) -> (Vec<Vec<String>>, Shown) {
        let pid = self.writer.pid();
        let written = self.writer.kill();
        let shown: Vec<_> = viewers
            .into_iter()
            .map(|viewer| viewer.wait().expect_success())
            .collect();
        self.agent.stop(self.lab);
        let recorded = Shown::read(&session_directory(&self.relay.output, pid));
        recorded.assert_without_loss(&written);
        for line in shown.iter().flatten() {
            assert!(
                line.contains("ring-writer") && line.contains("vtid = "),
                "{line}"
            );
            assert!(line.contains(&format!("vpid = {pid}")), "{line}");
        }
        (shown, recorded)
    }
}

/// Checks that what babeltrace2 has shown since it has attached is the rest of what is recorded.
fn assert_is_rest(lines: &[String], recorded: &Shown, begin: u64) {
    let tail = shown_by(lines);
    assert_eq!(tail.threads.len(), recorded.threads.len());
    for (thread, numbers) in &tail.threads {
        assert!(recorded.threads[thread].ends_with(numbers), "{thread}");
        assert!(numbers.contains(&begin), "{thread}: {numbers:?}");
    }
}

fn shown_by(lines: &[String]) -> Shown {
    let mut shown = Shown::default();
    lines.iter().for_each(|line| shown.add(line));
    shown
}

#[test]
fn last_events_of_a_killed_program_are_shown_live_by_our_relay() {
    for language in [Language::Rust, Language::C] {
        let (lab, relay) = Relay::start_in_new_lab();
        let watched = Watched::start(&lab, &relay, language);
        let ours = watched.follow_with_test_live();
        let theirs = watched.follow_with_babeltrace();
        let begin = watched.wait_for_viewers(2);
        let (shown, recorded) = watched.kill(vec![ours, theirs]);
        assert_eq!(shown_by(&shown[0]).threads, recorded.threads);
        assert_is_rest(&shown[1], &recorded, begin);
    }
}

#[test]
fn last_events_of_a_killed_program_are_shown_live_by_lttng_relayd() {
    for language in [Language::Rust, Language::C] {
        let lab = Lab::new();
        let relay = Relay::start_reference(&lab);
        // This relay has one viewer for each session.
        let watched = Watched::start(&lab, &relay, language);
        let theirs = watched.follow_with_babeltrace();
        let begin = watched.wait_for_viewers(1);
        let (shown, recorded) = watched.kill(vec![theirs]);
        assert_is_rest(&shown[0], &recorded, begin);
    }
}

#[test]
fn test_live_shows_every_event_of_a_killed_program_from_lttng_relayd() {
    for language in [Language::Rust, Language::C] {
        let lab = Lab::new();
        let relay = Relay::start_reference(&lab);
        let watched = Watched::start(&lab, &relay, language);
        let ours = watched.follow_with_test_live();
        watched.wait_for_viewers(1);
        let (shown, recorded) = watched.kill(vec![ours]);
        assert_eq!(shown_by(&shown[0]).threads, recorded.threads);
    }
}

#[test]
fn viewer_that_is_behind_when_a_session_ends_gets_every_packet_from_lttng_relayd() {
    let lab = Lab::new();
    let relay = Relay::start_reference(&lab);
    let watched = Watched::start(&lab, &relay, Language::Rust);
    let session = watched.writer.session();
    let (mut viewer, id, mut streams) = Viewer::attached(relay.live, &session, Seek::Beginning);
    wait_until("the streams of both threads are announced", || {
        streams.extend(viewer.new_streams(id).1);
        streams.retain(|stream| stream.is_metadata == 0);
        streams.len() == 2
    });
    // The relay opens the files of a stream with the first index that a viewer asks for.
    for stream in &streams {
        wait_until("the stream has a packet", || {
            viewer.next_index(stream.stream).status == IndexStatus::Ready
        });
    }
    watched.writer.wait_for_events(1000);
    let pid = watched.writer.pid();
    watched.kill(Vec::new());
    let recorded = packets_of(&session_directory(&relay.output, pid));
    let mut read = streams.len();
    for stream in &streams {
        while viewer.wait_for_index(stream.stream).status == IndexStatus::Ready {
            read += 1;
        }
    }
    assert_eq!(read, recorded);
    assert!(recorded > 20, "{recorded}");
}

/// Returns the number of packets of a recorded session, by the sizes of its index files.
fn packets_of(session: &Path) -> usize {
    let packets = |index: Vec<u8>| {
        let entry = u32::from_be_bytes(index[12..16].try_into().unwrap());
        (index.len() - 16) / usize::try_from(entry).unwrap()
    };
    files(session, ".idx").into_values().map(packets).sum()
}

#[test]
fn program_that_has_died_before_the_consumer_starts_is_sent() {
    let (lab, relay) = Relay::start_in_new_lab();
    let writing = Writing {
        threads: 3,
        events: 100,
        ..Writing::default()
    };
    let written = Writer::start(&lab, "dead", writing).end();
    let agent = Agent::start(&lab, &relay, &[]);
    agent.stop(&lab);
    let directory = session_directory(&relay.output, written.pid);
    Shown::read(&directory).assert_without_loss(&written);
}

#[test]
fn program_that_lives_when_the_consumer_stops_is_continued_by_the_next_one() {
    let (lab, relay) = Relay::start_in_new_lab();
    let writing = Writing {
        pause: Duration::from_micros(200),
        ..Writing::default()
    };
    let writer = Writer::start(&lab, "continued", writing);
    let first = Agent::start(&lab, &relay, &[]);
    Viewer::connect(relay.live).wait_for_session(&writer.session());
    writer.wait_for_events(100);
    first.stop_with_live_programs();
    writer.wait_for_events(writer.progress()[0] + 100);
    let second = Agent::start(&lab, &relay, &[]);
    let written = writer.kill();
    second.stop(&lab);
    let mut shown = Shown::default();
    let directories = crate::system::session_directories(&relay.output, written.pid);
    let parts = directories.iter().map(|directory| Shown::read(directory));
    let mut parts: Vec<_> = parts.collect();
    assert_eq!(parts.len(), 2);
    parts.sort_by_key(|part| part.threads[&0].first().copied());
    parts.into_iter().for_each(|part| shown.append(part));
    shown.assert_without_loss(&written);
}

#[test]
fn events_that_a_ring_had_no_room_for_are_reported_as_discarded() {
    let (lab, relay) = Relay::start_in_new_lab();
    for (mode, threads) in [("discard", 1), ("overwrite", 2)] {
        let writing = Writing {
            threads,
            events: 20_000,
            environment: &[("TRACE_RING", mode), ("TRACE_RING_SIZE", "64K")],
            ..Writing::default()
        };
        // No consumer runs: most events do not fit.
        let written = Writer::start(&lab, mode, writing).end();
        Agent::start(&lab, &relay, &[]).stop(&lab);
        let shown = Shown::read(&session_directory(&relay.output, written.pid));
        shown.assert_complete(&written);
        assert!(shown.discarded > 0);
        let last = shown.threads[&0].last().copied();
        match mode {
            "discard" => assert!(last < Some(19_999)),
            _ => assert_eq!(last, Some(19_999)),
        }
    }
}
