//! Traces of a directory, sent by `consumer replay` to our relay and to LTTng's: on their disks, and on
//! viewers' screens, are the events of the original.

use std::path::Path;
use std::process::Command;

use tests::babeltrace::Babeltrace;
use tests::consumer::{Held, replay_command};
use tests::lab::Lab;
use tests::process::{Ended, Process};
use tests::recording;
use tests::relay::Relay;
use tests::replay::HOST;
use tests::test_live;
use tests::viewer::Viewer;
use tests::wait_until;
use viewer_proto::session::ListedSession;

/// Both relays.
fn relays(lab: &Lab) -> [Relay; 2] {
    [Relay::start(lab), Relay::start_reference(lab)]
}

/// The traces that are made up, and one that LTTng recorded.
fn recordings(lab: &Lab) -> [std::path::PathBuf; 5] {
    [
        recording::every_type(lab),
        recording::at_the_same_time(lab),
        recording::with_losses(lab),
        recording::with_idle_streams(lab),
        recording::of_lttng(lab, "--buffers-pid", 300),
    ]
}

fn name(directory: &Path) -> String {
    let name = directory.file_name().unwrap().to_str().unwrap();
    name.to_owned()
}

/// Events as Babeltrace shows them, without the trace's name: it is called as the directory, and that
/// is another one.
fn events(directory: &Path) -> Vec<String> {
    let shown = Babeltrace::Two.read_with(&["--no-delta", "--clock-cycles"], directory);
    shown.succeeded()
}

/// The directory of the only session of that name.
fn directory_of(relay: &Relay, session: &str) -> std::path::PathBuf {
    let sessions = directories_of(relay, session);
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    sessions.into_iter().next().unwrap()
}

fn directories_of(relay: &Relay, session: &str) -> Vec<std::path::PathBuf> {
    // `<session>-YYYYmmdd-HHMMSS`
    const DATE: usize = "-20260101-000000".len();
    let host = std::fs::read_dir(relay.output.join(HOST)).unwrap();
    let entries = host.map(|entry| entry.unwrap().path());
    let is_of = |path: &std::path::PathBuf| {
        let name = name(path);
        name.len() == session.len() + DATE && name.starts_with(session)
    };
    let mut found: Vec<_> = entries.filter(is_of).collect();
    found.sort();
    found
}

fn replay(lab: &Lab, relay: &Relay, directory: &Path) -> Ended {
    let session = name(directory);
    Process::start(&mut replay_command(lab, relay, &session, directory)).wait()
}

#[test]
fn a_directory_that_was_replayed_holds_the_events_of_the_original() {
    let lab = Lab::new();
    let relays = relays(&lab);
    for directory in recordings(&lab) {
        let want = events(&directory);
        assert!(want.len() > 3);
        for relay in &relays {
            replay(&lab, relay, &directory).succeeded();
            let copy = directory_of(relay, &name(&directory));
            assert!(events(&copy) == want, "{}", copy.display());
        }
    }
}

/// Who looks on.
#[derive(Clone, Copy)]
enum Watcher {
    Babeltrace,
    TestLive,
}

impl Watcher {
    fn start(self, lab: &Lab, relay: &Relay, session: &str) -> Process {
        let options = ["--clock-cycles", "--no-delta"];
        match self {
            Self::Babeltrace => {
                let url = format!("net://{}/host/{HOST}/{session}", relay.live);
                let mut command = Command::new(tests::peers::program("babeltrace2"));
                command.args(options).args(["-i", "lttng-live", &url]);
                Process::start(&mut command)
            }
            Self::TestLive => test_live::follow(lab, relay, (HOST, session), &options),
        }
    }
}

/// Replays a directory live, with viewers attached from the beginning, who are to show so many lines.
/// What each of them has shown.
fn watch(
    lab: &Lab,
    relay: &Relay,
    (directory, session): (&Path, &str),
    watchers: &[Watcher],
    lines: usize,
) -> Vec<Ended> {
    let mut held = Held::open(replay_command(lab, relay, session, directory));
    let start = |watcher: &Watcher| watcher.start(lab, relay, session);
    let viewers: Vec<_> = watchers.iter().map(start).collect();
    let all = |listed: &ListedSession| listed.viewers as usize == viewers.len();
    Viewer::connect(relay.live).wait_for_listed(session, all);
    held.send();
    // Viewers of LTTng's relay may miss what they have not read when its streams end.
    for viewer in &viewers {
        wait_until("all has been shown", || viewer.stdout().len() >= lines);
    }
    held.end().wait().succeeded();
    viewers.into_iter().map(Process::wait).collect()
}

#[test]
fn viewers_of_a_live_replay_see_the_events_of_the_original() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    for directory in recordings(&lab) {
        let (want, session) = (events(&directory), name(&directory));
        let both = [Watcher::Babeltrace, Watcher::TestLive];
        for shown in watch(&lab, &relay, (&directory, &session), &both, want.len()) {
            assert!(shown.succeeded() == want, "{session}");
        }
        assert!(events(&directory_of(&relay, &session)) == want, "{session}");
    }
}

#[test]
fn viewers_of_a_live_replay_through_the_relay_of_lttng_do_too() {
    let lab = Lab::new();
    let relay = Relay::start_reference(&lab);
    for directory in recordings(&lab) {
        let want = events(&directory);
        // It lets one viewer at a time see a session.
        let each = [("bt", Watcher::Babeltrace), ("tl", Watcher::TestLive)];
        for (who, watcher) in each {
            let session = format!("{who}-{}", name(&directory));
            let shown = watch(&lab, &relay, (&directory, &session), &[watcher], want.len());
            for shown in shown {
                assert!(shown.succeeded() == want, "{session}");
            }
            assert!(events(&directory_of(&relay, &session)) == want, "{session}");
        }
    }
}
