//! Following a relay that does all that relays may do, and more.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at what it did not expect"
)]

mod fake;

use std::time::{Duration, Instant};

use fake::{Fake, Session, inactive, is_packet, ready, record, retry};
use test_live::attach::backlog::Backlog;
use test_live::attach::list::list;
use test_live::attach::relay::{Handle, Missing, Options, spawn};
use test_live::attach::target::{RelayTarget, Target};
use test_live::attach::{News, StreamKey, TraceKey};
use tokio::sync::mpsc::{self, Receiver, error::TryRecvError};
use tokio::sync::watch;
use viewer_proto::attention::Attention;
use viewer_proto::index::{IndexStatus, NEW_METADATA, NEW_STREAMS, NextIndex};
use viewer_proto::push::{Notification, PacketsWait, Quiet};
use viewer_proto::session::{AttachStatus, Seek};
use viewer_proto::{Command, CommandCode};
use wire::{Bits, SessionId, StreamId, Timestamp};

/// How long anything may take before a test takes it to have failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// A source, and what it has said, in words: `packet a/chan 0`, say.
struct Watch {
    news: Receiver<News>,
    handle: Handle,
    held_back: watch::Sender<bool>,
    traces: Vec<(TraceKey, String)>,
    streams: Vec<(StreamKey, String, Backlog)>,
    /// Take packets off their backlog as they come.
    decodes: bool,
    said: Vec<String>,
}

fn target(fake: &Fake, path: &str) -> RelayTarget {
    match format!("net://{}{path}", fake.address).parse() {
        Ok(Target::Relay(relay)) => relay,
        other => panic!("{other:?}"),
    }
}

fn options() -> Options {
    Options {
        seek: Seek::Beginning,
        ..Options::default()
    }
}

fn watch(fake: &Fake, path: &str, options: Options) -> Watch {
    let (sender, news) = mpsc::channel(4);
    let (held_back, is_held_back) = watch::channel(true);
    let handle = spawn(target(fake, path), options, sender, is_held_back).unwrap();
    Watch {
        news,
        handle,
        held_back,
        traces: Vec::new(),
        streams: Vec::new(),
        decodes: true,
        said: Vec::new(),
    }
}

impl Watch {
    /// Hears the next, if there is any before `deadline`.
    fn hear(&mut self, deadline: Instant) -> bool {
        loop {
            match self.news.try_recv() {
                Ok(news) => {
                    let said = self.in_words(news);
                    self.said.push(said);
                    return true;
                }
                Err(TryRecvError::Disconnected) => {
                    panic!("ended without a word: {:#?}", self.said)
                }
                Err(TryRecvError::Empty) if Instant::now() > deadline => return false,
                Err(TryRecvError::Empty) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn hear_until(&mut self, last: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.said.iter().any(|said| said.starts_with(last)) {
            assert!(self.hear(deadline), "no {last} in {:#?}", self.said);
        }
    }

    /// What is said up to and with the end, notices left out.
    fn hear_the_rest(mut self) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        while !matches!(self.said.last(), Some(said) if said == "done" || said.starts_with("failed"))
        {
            assert!(self.hear(deadline), "no end of {:#?}", self.said);
        }
        self.handle.join();
        self.said.retain(|said| !said.starts_with("notice"));
        self.said
    }

    fn in_words(&mut self, news: News) -> String {
        let trace_of = |this: &Self, key| {
            let found = this.traces.iter().find(|(trace, _)| *trace == key);
            found.expect("it was announced").1.clone()
        };
        let stream_of = |this: &Self, key| {
            let found = this.streams.iter().find(|(stream, ..)| *stream == key);
            let (_, name, backlog) = found.expect("it was announced");
            (name.clone(), backlog.clone())
        };
        match news {
            News::Trace { trace, name } => {
                self.traces.push((trace, name.clone()));
                format!("trace {name}")
            }
            News::Metadata { trace, bytes } => {
                let text = String::from_utf8(bytes).unwrap();
                format!("metadata {}: {text}", trace_of(self, trace))
            }
            News::Stream {
                stream,
                trace,
                name,
                backlog,
            } => {
                trace_of(self, trace);
                self.streams.push((stream, name.clone(), backlog));
                format!("stream {name}")
            }
            News::Packet { stream, bytes } => {
                let (name, backlog) = stream_of(self, stream);
                if self.decodes {
                    backlog.take();
                }
                let (_, number) = is_packet(&bytes).expect("a packet is whole");
                format!("packet {name} {number}")
            }
            News::Quiet { stream, until } => format!("quiet {} {until}", stream_of(self, stream).0),
            News::StreamEnd { stream } => format!("end {}", stream_of(self, stream).0),
            News::TraceEnd { trace } => format!("end {}", trace_of(self, trace)),
            News::Notice(text) => format!("notice {text}"),
            News::Failed(text) => format!("failed {text}"),
            News::Done => "done".to_owned(),
        }
    }
}

/// A session `s` with one trace of one stream, 2, and metadata stream 1.
fn one_stream() -> Fake {
    let records = vec![record(1, 1, "a", "metadata"), record(2, 1, "a", "c")];
    let fake = Fake::start(vec![Session::new(1, "s", vec![records])]);
    fake.put_metadata(1, &["m1"]);
    fake
}

fn assert_said(said: &[String], want: &[&str]) {
    assert_eq!(said, want, "{said:#?}");
}

#[test]
fn a_session_is_followed_to_its_end() {
    let fake = one_stream();
    fake.put(
        2,
        [
            ready(0, 0),
            retry(0),
            inactive(20, 0),
            inactive(20, 0),
            ready(2, 0),
        ],
    );
    fake.end();
    fake.world().sessions[0].is_listed = true;
    let said = watch(&fake, "/host/vm/s", options()).hear_the_rest();
    assert_said(
        &said,
        &[
            "trace vm/s/a",
            "stream a/c",
            "metadata vm/s/a: m1",
            "packet a/c 0",
            "quiet a/c 20",
            "packet a/c 2",
            "end a/c",
            "end vm/s/a",
            "done",
        ],
    );
    assert_eq!(
        fake.count(|asked| matches!(asked, Command::DetachSession(_))),
        1
    );
    let hung_up = fake.count(|asked| *asked == Command::GetNextIndex(StreamId(2)));
    assert_eq!(hung_up, 6, "a stream that has ended is not asked again");
}

#[test]
fn all_sessions_of_a_name_are_one_and_others_are_left_alone() {
    let batch = |first: u64| {
        vec![
            record(first, first, "a", "metadata"),
            record(first + 1, first, "a", "c"),
        ]
    };
    let fake = Fake::start(vec![
        Session::new(1, "s", vec![batch(1)]),
        Session::new(2, "other", vec![]),
        Session::new(3, "s", vec![batch(3)]),
    ]);
    fake.put_metadata(1, &["m1"]);
    fake.put_metadata(3, &["m3"]);
    fake.put(2, [ready(0, 0)]);
    fake.put(4, [ready(0, 0)]);
    let mut watch = watch(&fake, "/host/vm/s", options());
    watch.hear_until("packet");
    fake.end();
    let said = watch.hear_the_rest();
    let packets = said.iter().filter(|said| said.starts_with("packet"));
    assert_eq!(packets.count(), 2, "{said:#?}");
    let attached = fake.count(|asked| matches!(asked, Command::AttachSession(_)));
    assert_eq!(attached, 2);
}

#[test]
fn without_a_name_sessions_are_followed_as_they_come_and_go() {
    let fake = one_stream();
    let mut watch = watch(&fake, "", options());
    watch.hear_until("metadata");
    let records = vec![record(3, 3, "b", "metadata"), record(4, 3, "b", "c")];
    fake.put_metadata(3, &["m3"]);
    fake.put(4, [ready(0, 0)]);
    fake.world()
        .sessions
        .push(Session::new(2, "late", vec![records]));
    watch.hear_until("packet b/c 0");
    fake.end();
    let said = watch.hear_the_rest();
    assert!(said.contains(&"trace vm/late/b".to_owned()), "{said:#?}");
    assert_eq!(
        said.iter().filter(|said| said.starts_with("end")).count(),
        4
    );
}

#[test]
fn a_new_stream_is_announced_before_time_passes_it() {
    for status in [
        inactive(90, NEW_STREAMS),
        retry(NEW_STREAMS),
        ready(0, NEW_STREAMS),
    ] {
        let fake = one_stream();
        fake.put(2, [status, inactive(95, 0)]);
        let late = vec![record(3, 3, "b", "metadata"), record(4, 3, "b", "c")];
        fake.put_metadata(3, &["m3"]);
        fake.put(4, [ready(8, 0)]);
        fake.world().sessions[0].batches.push_back(late);
        let mut watch = watch(&fake, "/host/vm/s", options());
        watch.hear_until("quiet a/c 95");
        fake.end();
        let said = watch.hear_the_rest();
        let place = |word: &str| said.iter().position(|said| said.starts_with(word)).unwrap();
        assert!(place("metadata vm/s/b") < place("quiet"), "{said:#?}");
        assert!(place("stream b/c") < place("quiet"), "{said:#?}");
        assert!(said.contains(&"packet b/c 8".to_owned()), "{said:#?}");
    }
}

#[test]
fn metadata_in_pieces_comes_before_the_packet_that_needs_it() {
    let fake = one_stream();
    // The second part comes with the second index, and empty replies mean "again".
    fake.put_metadata(1, &["", "m2"]);
    fake.put(2, [ready(0, 0)]);
    let mut watch = watch(&fake, "/host/vm/s", options());
    watch.hear_until("packet a/c 0");
    fake.put_metadata(1, &["", "m3"]);
    fake.put(2, [ready(1, NEW_METADATA)]);
    watch.hear_until("packet a/c 1");
    fake.put_metadata(1, &["m4"]);
    fake.put(2, [inactive(50, NEW_METADATA)]);
    fake.end();
    assert_said(
        &watch.hear_the_rest(),
        &[
            "trace vm/s/a",
            "stream a/c",
            "metadata vm/s/a: m1",
            "metadata vm/s/a: m2",
            "packet a/c 0",
            "metadata vm/s/a: m3",
            "packet a/c 1",
            "metadata vm/s/a: m4",
            "quiet a/c 50",
            "end a/c",
            "end vm/s/a",
            "done",
        ],
    );
}

#[test]
fn a_packet_in_many_replies_is_whole() {
    let fake = one_stream();
    fake.world().most_bytes = 5;
    fake.put(2, [ready(0, 0), ready(1, 0)]);
    fake.end();
    fake.world().sessions[0].is_listed = true;
    let said = watch(&fake, "/host/vm/s", options()).hear_the_rest();
    assert!(said.contains(&"packet a/c 1".to_owned()), "{said:#?}");
    let asked = fake.count(|asked| matches!(asked, Command::GetPacket(_)));
    assert_eq!(asked, 8);
}

#[test]
fn a_packet_is_asked_for_again_after_what_the_flags_say() {
    let fake = one_stream();
    fake.put(2, [ready(0, 0)]);
    // Failed, with a flag: for new streams, of which there are none; then for metadata.
    fake.answer_instead(
        CommandCode::GetPacket,
        &[0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 2],
    );
    fake.answer_instead(
        CommandCode::GetPacket,
        &[0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1],
    );
    fake.answer_instead(
        CommandCode::GetPacket,
        &[0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0],
    );
    fake.end();
    fake.world().sessions[0].is_listed = true;
    let said = watch(&fake, "/host/vm/s", options()).hear_the_rest();
    assert!(said.contains(&"packet a/c 0".to_owned()), "{said:#?}");
}

#[test]
fn a_packet_that_is_gone_is_lost_aloud_and_an_empty_one_not_asked_for() {
    let fake = one_stream();
    let mut empty = ready(1, NEW_STREAMS);
    (empty.packet.packet_size, empty.packet.content_size) = (Bits(0), Bits(0));
    fake.put(2, [ready(0, 0), empty, ready(2, 0)]);
    // Overwritten.
    fake.answer_instead(
        CommandCode::GetPacket,
        &[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0],
    );
    let mut watch = watch(&fake, "/host/vm/s", options());
    watch.hear_until("packet a/c 2");
    assert!(
        watch
            .said
            .iter()
            .any(|said| said.contains("lost a packet of a/c"))
    );
    assert_eq!(
        fake.count(|asked| matches!(asked, Command::GetPacket(_))),
        2
    );
}

#[test]
fn metadata_and_streams_may_come_late() {
    let fake = Fake::start(vec![Session::new(
        1,
        "s",
        vec![
            vec![],
            vec![record(2, 1, "a", "c")],
            vec![],
            vec![record(1, 1, "a", "metadata")],
        ],
    )]);
    fake.put(2, [ready(0, 0)]);
    let mut watch = watch(&fake, "/host/vm/s", options());
    watch.hear_until("stream a/c");
    let deadline = Instant::now() + PATIENCE;
    while fake.count(|asked| matches!(asked, Command::GetMetadata(_))) == 0 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(1));
    }
    fake.put_metadata(1, &["m1"]);
    watch.hear_until("packet a/c 0");
    let place = |word: &str| watch.said.iter().position(|said| said.starts_with(word));
    assert!(place("metadata") < place("packet"), "{:#?}", watch.said);
}

#[test]
fn an_idle_session_is_asked_less_and_less() {
    let fake = one_stream();
    fake.world().sessions[0].timer = 1_000_000;
    let mut watch = watch(&fake, "/host/vm/s", options());
    watch.hear_until("metadata");
    let begun = Instant::now();
    watch.hear(begun + Duration::from_millis(500));
    let asked = fake.count(|asked| matches!(asked, Command::GetNextIndex(_)));
    // 10 + 20 + 40 + 80 + 100 + ... ms; more if this machine was slow.
    let most = 6 + begun.elapsed().as_millis() / 100;
    assert!((3..=most).contains(&(asked as u128)), "{asked}");
}

#[test]
fn a_stream_whose_packets_are_not_decoded_is_fetched_no_further() {
    let fake = one_stream();
    fake.put(2, (0..100).map(|number| ready(number, 0)));
    let mut watch = watch(&fake, "/host/vm/s", options());
    watch.decodes = false;
    watch.hear_until("packet a/c 7");
    assert!(!watch.hear(Instant::now() + Duration::from_millis(300)));
    watch.decodes = true;
    let (_, _, backlog) = watch.streams[0].clone();
    (0..8).for_each(|_| backlog.take());
    watch.hear_until("packet a/c 99");
}

#[test]
fn what_makes_no_sense_ends_it_with_a_reason() {
    let bare = |status| {
        let mut bytes = Vec::new();
        wire::Field::write(&NextIndex::bare(status, 0), &mut bytes);
        bytes
    };
    let hostile_head = [0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0];
    let empty_head = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    let metadata = [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let mut unknown = bare(IndexStatus::Ready);
    unknown[59] = 9;
    for (command, reply, why) in [
        (
            CommandCode::GetNextIndex,
            &bare(IndexStatus::Failed)[..],
            "next packet of stream 2",
        ),
        (
            CommandCode::GetNextIndex,
            &bare(IndexStatus::EndOfFile),
            "next packet of stream 2",
        ),
        (CommandCode::GetNextIndex, &unknown, "malformed reply"),
        (
            CommandCode::GetPacket,
            &hostile_head,
            "announces 256, at most 16",
        ),
        (CommandCode::GetPacket, &empty_head, "nothing of a packet"),
        (CommandCode::GetMetadata, &metadata, "announces"),
        (
            CommandCode::ListSessions,
            &[0xff; 4],
            "announces 4294967295",
        ),
        (
            CommandCode::AttachSession,
            &[0, 0, 0, 1, 0xff, 0, 0, 0],
            "announces",
        ),
        (
            CommandCode::AttachSession,
            &[0, 0, 0, 2, 0, 0, 0, 0],
            "Already",
        ),
        (
            CommandCode::CreateViewerSession,
            &[0, 0, 0, 2],
            "another viewer",
        ),
        (CommandCode::Connect, &[0; 20], "speaks protocol 0"),
        (CommandCode::Connect, &[], "may speak another version"),
        (CommandCode::GetNextIndex, &[], "hung up"),
    ] {
        let fake = one_stream();
        fake.put(2, [ready(0, 0)]);
        fake.answer_instead(command, reply);
        let said = watch(&fake, "/host/vm/s", options()).hear_the_rest();
        let last = said.last().unwrap();
        assert!(
            last.starts_with("failed") && last.contains(why),
            "{command:?}: {last}"
        );
    }
}

#[test]
fn streams_announced_twice_are_refused() {
    for batch in [
        vec![record(2, 1, "a", "c"), record(2, 1, "a", "c")],
        vec![record(1, 1, "a", "metadata"), record(2, 1, "a", "metadata")],
    ] {
        let fake = Fake::start(vec![Session::new(1, "s", vec![batch])]);
        let said = watch(&fake, "", options()).hear_the_rest();
        assert!(said.last().unwrap().starts_with("failed"), "{said:#?}");
    }
}

#[test]
fn a_stream_that_makes_no_sense_is_left_out_and_the_others_go_on() {
    let odd = |change: fn(&mut NextIndex)| {
        let mut index = ready(0, 0);
        change(&mut index);
        index
    };
    for index in [
        odd(|index| index.packet.packet_size = Bits(129)),
        odd(|index| index.packet.content_size = Bits(129)),
        odd(|index| index.packet.packet_size = Bits((1 << 33) + 8)),
    ] {
        let records = vec![
            record(1, 1, "a", "metadata"),
            record(2, 1, "a", "c"),
            record(3, 1, "a", "d"),
        ];
        let fake = Fake::start(vec![Session::new(1, "s", vec![records])]);
        fake.put_metadata(1, &["m1"]);
        fake.put(2, [index, ready(1, 0)]);
        fake.put(3, [ready(0, 0)]);
        let mut watch = watch(&fake, "/host/vm/s", options());
        watch.hear_until("packet a/d 0");
        fake.end();
        let said = watch.hear_the_rest();
        assert!(said.contains(&"end a/c".to_owned()), "{said:#?}");
        assert!(!said.contains(&"packet a/c 1".to_owned()), "{said:#?}");
        assert_eq!(said.last().unwrap(), "done");
    }
}

#[test]
fn a_session_that_is_missing_is_waited_for_or_not() {
    let missing = |missing| Options {
        missing,
        ..options()
    };
    let fake = Fake::start(vec![]);
    let said = watch(&fake, "/host/vm/s", missing(Missing::End)).hear_the_rest();
    assert_said(&said, &["done"]);
    let said = watch(&fake, "/host/vm/s", missing(Missing::Fail)).hear_the_rest();
    assert!(
        said[0].starts_with("failed") && said[0].contains("no live session"),
        "{said:?}"
    );

    let mut waiting = watch(&fake, "/host/vm/s", missing(Missing::Wait));
    waiting.hear_until("notice");
    let records = vec![record(1, 1, "a", "metadata"), record(2, 1, "a", "c")];
    fake.put_metadata(1, &["m1"]);
    fake.put(2, [ready(0, 0)]);
    fake.world()
        .sessions
        .push(Session::new(1, "s", vec![records]));
    waiting.hear_until("packet a/c 0");
    fake.end();
    assert_eq!(waiting.hear_the_rest().last().unwrap(), "done");
}

#[test]
fn a_session_that_is_not_live_is_no_session() {
    let fake = one_stream();
    fake.world().sessions[0].timer = 0;
    let mut watch = watch(&fake, "/host/vm/s", options());
    watch.hear_until("done");
    assert!(watch.said[0].contains("not live"), "{:?}", watch.said);
    let fake = one_stream();
    fake.world().sessions[0].attach = AttachStatus::Unknown;
    assert_said(&watch_s(&fake), &["done"]);
}

fn watch_s(fake: &Fake) -> Vec<String> {
    watch(fake, "/host/vm/s", options()).hear_the_rest()
}

#[test]
fn after_a_cut_nothing_is_shown_twice_and_nothing_is_missing() {
    let fake = one_stream();
    fake.put(2, (0..3).map(|number| ready(number, 0)));
    let retrying = Options {
        retry: true,
        ..options()
    };
    let mut watch = watch(&fake, "/host/vm/s", retrying);
    watch.hear_until("packet a/c 2");
    {
        // As a relay does on a new connection: everything from its beginning.
        let records = vec![record(1, 1, "a", "metadata"), record(2, 1, "a", "c")];
        fake.world().sessions[0].batches.push_back(vec![]);
        fake.answer_instead(CommandCode::GetNextIndex, &[]);
        let deadline = Instant::now() + PATIENCE;
        while !fake.world().instead[&4].is_empty() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(1));
        }
        fake.world().sessions[0].batches = vec![records].into();
    }
    fake.put_metadata(1, &["m1"]);
    fake.put(2, (0..5).map(|number| ready(number, 0)));
    watch.hear_until("packet a/c 4");
    fake.end();
    let said = watch.hear_the_rest();
    assert_said(
        &said,
        &[
            "trace vm/s/a",
            "stream a/c",
            "metadata vm/s/a: m1",
            "packet a/c 0",
            "packet a/c 1",
            "packet a/c 2",
            "end a/c",
            "end vm/s/a",
            "trace vm/s/a",
            "stream a/c",
            "metadata vm/s/a: m1",
            "packet a/c 3",
            "packet a/c 4",
            "end a/c",
            "end vm/s/a",
            "done",
        ],
    );
    assert_eq!(fake.world().connections, 2);
}

#[test]
fn stopping_detaches_whether_or_not_anybody_listens() {
    let fake = one_stream();
    fake.put(2, (0..100).map(|number| ready(number, 0)));
    let watch = watch(&fake, "/host/vm/s", options());
    let deadline = Instant::now() + PATIENCE;
    // The channel is full by then: nobody takes anything out of it.
    while fake.count(|asked| matches!(asked, Command::GetMetadata(_))) == 0 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(1));
    }
    let begun = Instant::now();
    watch.handle.stop();
    watch.handle.join();
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert_eq!(
        fake.count(|asked| matches!(asked, Command::DetachSession(_))),
        1
    );
}

#[test]
fn a_relay_that_is_not_there_is_said_so_or_tried_again() {
    let fake = one_stream();
    let mut nowhere = target(&fake, "");
    nowhere.port = 1;
    let (sender, mut news) = mpsc::channel(4);
    let (_held_back, is_held_back) = watch::channel(true);
    let handle = spawn(nowhere.clone(), options(), sender, is_held_back.clone()).unwrap();
    let Some(News::Failed(text)) = news.blocking_recv() else {
        panic!("it should fail")
    };
    assert!(text.contains("cannot connect to 127.0.0.1:1: "), "{text}");
    handle.join();

    let (sender, mut news) = mpsc::channel(4);
    let retrying = Options {
        retry: true,
        ..options()
    };
    let handle = spawn(nowhere, retrying, sender, is_held_back).unwrap();
    assert!(matches!(news.blocking_recv(), Some(News::Notice(_))));
    handle.stop();
    handle.join();
}

#[test]
fn sessions_are_listed_by_relays_old_and_new() {
    for minor in [10, 15] {
        let fake = one_stream();
        fake.world().minor = minor;
        let listing = list(&target(&fake, ""), PATIENCE).unwrap();
        let want = format!(
            "net://{}/host/vm/s (timer = 1000, 0 stream(s), 0 client(s) connected)\n",
            fake.address
        );
        assert_eq!(listing.to_string(), want);
    }
}

fn quiet(until: u64) -> Notification {
    Notification::Quiet(Quiet {
        stream: StreamId(2),
        until: Timestamp(until),
    })
}

#[test]
fn a_relay_that_pushes_is_asked_only_when_there_is_something() {
    let fake = one_stream();
    let pusher = fake.pusher();
    let mut watch = watch(&fake, "/host/vm/s", options());
    pusher.send(quiet(10)).unwrap();
    watch.hear_until("quiet a/c 10");
    let asked = |fake: &Fake| fake.count(|asked| matches!(asked, Command::GetNextIndex(_)));
    let before = asked(&fake);
    for until in 11..200 {
        pusher.send(quiet(until)).unwrap();
    }
    watch.hear_until("quiet a/c 199");
    // Now and then all is asked, should the relay have forgotten something.
    assert!(asked(&fake) <= before + 3, "{before} {}", asked(&fake));

    fake.put(2, [ready(20, 0)]);
    let (stream, unread) = (StreamId(2), 1);
    pusher
        .send(Notification::Packets(PacketsWait { stream, unread }))
        .unwrap();
    watch.hear_until("packet a/c 20");

    // What comes behind news of streams waits for them.
    let late = vec![record(3, 3, "b", "metadata"), record(4, 3, "b", "c")];
    fake.world().sessions[0].batches.push_back(late);
    fake.put_metadata(3, &["m3"]);
    fake.put(2, [inactive(300, 0)]);
    pusher.send(Notification::NewStreams(SessionId(1))).unwrap();
    pusher.send(quiet(300)).unwrap();
    watch.hear_until("quiet a/c 300");
    let place = |word: &str| watch.said.iter().position(|said| said.starts_with(word));
    assert!(
        place("stream b/c") < place("quiet a/c 300"),
        "{:#?}",
        watch.said
    );
    assert!(place("stream b/c").is_some());

    // Without a push connection everything goes on.
    drop(pusher);
    fake.put(2, [ready(40, 0)]);
    watch.hear_until("packet a/c 40");
    fake.end();
    assert_eq!(watch.hear_the_rest().last().unwrap(), "done");
}

#[test]
fn a_relay_that_pushes_is_told_whether_promises_are_waited_for() {
    let fake = one_stream();
    let pusher = fake.pusher();
    let mut watch = watch(&fake, "/host/vm/s", options());
    // At first it takes it that they are.
    pusher.send(quiet(10)).unwrap();
    watch.hear_until("quiet a/c 10");
    assert_eq!(fake.world().attentions, []);
    let told = [
        Attention::AtEase,
        Attention::Waiting,
        Attention::AtEase,
        Attention::Waiting,
    ];
    for number in 0..told.len() {
        watch.held_back.send_replace(number % 2 == 1);
        let deadline = Instant::now() + PATIENCE;
        while fake.world().attentions.len() <= number {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(fake.world().attentions, told);
    fake.end();
    assert_eq!(watch.hear_the_rest().last().unwrap(), "done");
}

#[test]
fn a_relay_that_does_not_push_is_told_nothing() {
    let fake = one_stream();
    let mut watch = watch(&fake, "/host/vm/s", options());
    watch.hear_until("metadata");
    watch.held_back.send_replace(false);
    fake.put(2, [ready(0, 0)]);
    watch.hear_until("packet a/c 0");
    watch.held_back.send_replace(true);
    fake.end();
    assert_eq!(watch.hear_the_rest().last().unwrap(), "done");
    assert_eq!(fake.world().attentions, []);
}

#[test]
fn a_packet_without_any_metadata_does_not_hold_up_the_end() {
    let records = vec![record(2, 1, "a", "c")];
    let fake = Fake::start(vec![Session::new(1, "s", vec![records])]);
    fake.put(2, [ready(0, 0)]);
    let mut watch = watch(&fake, "/host/vm/s", options());
    watch.hear_until("stream");
    fake.end();
    let said = watch.hear_the_rest();
    assert_said(
        &said,
        &[
            "trace vm/s/a",
            "stream a/c",
            "end a/c",
            "end vm/s/a",
            "done",
        ],
    );
}

#[test]
fn stopping_waits_for_no_relay_that_does_not_answer() {
    let fake = one_stream();
    let mut watch = watch(&fake, "/host/vm/s", options());
    watch.hear_until("metadata");
    let silent = fake.world();
    let begun = Instant::now();
    watch.handle.stop();
    watch.handle.join();
    assert!(begun.elapsed() < Duration::from_secs(3));
    drop(silent);
}
