use std::sync::Arc;
use std::time::{Duration, Instant};

use ctf::decode::LostEvents;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use viewer::sink::{Loss, Lost};

use super::super::counts::Counts;
use super::*;

const SECOND: i64 = 1_000_000_000;

/// The lines of a screen of this size.
fn screen(width: u16, height: u16, state: &State, sampler: &Sampler) -> Vec<String> {
    let message = (Severity::Error, "something failed".to_owned());
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let drawn = terminal.draw(|frame| draw(frame, state, sampler, Some(&message)));
    drawn.unwrap();
    let buffer = terminal.backend().buffer();
    let cells: Vec<&str> = buffer.content().iter().map(|cell| cell.symbol()).collect();
    let lines = cells.chunks(usize::from(width.max(1)));
    lines
        .map(|cells| cells.concat().trim_end().to_owned())
        .collect()
}

/// Two samples of two sessions, the second with hostile names.
fn sampler() -> Sampler {
    let counts = Arc::new(Counts::default());
    let session = counts.add_session(0, "vm/my-session", false);
    let hostile = counts.add_session(
        1,
        "evil\u{1b}[2J\u{202e}/日本語日本語日本語日本語日本語",
        false,
    );
    let now = Instant::now();
    let mut sampler = Sampler::new(counts, 3, now);
    session.add_loss(&Loss {
        what: Lost::Events(LostEvents::Count(1234)),
        begin: None,
        end: None,
    });
    for name in ["my:event", "new\nline\u{1b}]0;title\u{7}"] {
        let row = session.add_row(&session.names, name).unwrap();
        row.events.add(500);
    }
    let process = session.add_row(&session.processes, "4711 app");
    process.unwrap().events.add(1000);
    session.events.add(1000);
    session.add_event(Some(3 * SECOND), true);
    hostile.events.add(3);
    sampler.sample(now + Duration::from_secs(1), 5 * SECOND);
    session.events.add(199);
    sampler.sample(now + Duration::from_secs(2), 6 * SECOND);
    sampler
}

fn state() -> State {
    State {
        title: "net://collector".to_owned(),
        ..State::default()
    }
}

fn press(state: &mut State, sampler: &Sampler, key: KeyCode) {
    state.handle_key(KeyEvent::new(key, KeyModifiers::NONE), sampler);
}

#[test]
fn sessions_are_drawn_at_80_by_24() {
    let lines = screen(80, 24, &state(), &sampler());
    assert_eq!(lines.len(), 24);
    assert_eq!(
        lines[0],
        "2 sessions  602 events/s  1234 events lost  net://collector"
    );
    assert_eq!(lines[1], "sort: rate  filter: none");
    assert_eq!(
        lines[2],
        "EVENTS/S   TOTAL     LAG   LOST          HISTORY SESSION"
    );
    assert_eq!(
        lines[3],
        "     600    1200    3.0s   1234               █▂ vm/my-session"
    );
    assert_eq!(
        lines[4].replace(' ', ""),
        "1.53-0█evil\\u{1b}[2J\\u{202e}/日本語日"
    );
    assert_eq!(lines[22], "something failed");
    assert!(lines[23].starts_with("q quit"));
}

#[test]
fn a_small_screen_leaves_columns_out() {
    let lines = screen(40, 10, &state(), &sampler());
    assert_eq!(lines.len(), 10);
    assert_eq!(lines[2], "EVENTS/S     LAG SESSION");
    assert_eq!(lines[3], "     600    3.0s vm/my-session");
    assert_eq!(lines[8], "something failed");
}

#[test]
fn one_session_shows_its_event_names_and_processes() {
    let (mut state, sampler) = (state(), sampler());
    press(&mut state, &sampler, KeyCode::Enter);
    let lines = screen(80, 24, &state, &sampler);
    assert!(lines[1].starts_with("vm/my-session  sort"), "{lines:#?}");
    assert_eq!(lines[2], "EVENTS/S   TOTAL          HISTORY EVENT");
    assert!(lines[3].ends_with("my:event"), "{lines:#?}");
    assert!(lines[4].ends_with("new\\u{a}line\\u{1b}]0;title\\u{7}"));
    let processes = lines.iter().position(|line| line.ends_with("PROCESS"));
    let first = &lines[processes.unwrap() + 1];
    assert!(first.ends_with("4711 app"), "{lines:#?}");
}

#[test]
fn the_selected_one_of_many_sessions_is_on_the_screen() {
    let counts = Arc::new(Counts::default());
    for id in 0..500 {
        counts.add_session(id, &format!("host/session-{id:03}"), false);
    }
    let mut sampler = Sampler::new(counts, 3, Instant::now());
    sampler.sample(Instant::now(), 0);
    let mut state = state();
    assert!(screen(80, 24, &state, &sampler)[3].ends_with("session-000"));
    press(&mut state, &sampler, KeyCode::End);
    let lines = screen(80, 24, &state, &sampler);
    assert!(lines[21].ends_with("session-499"), "{lines:#?}");
    press(&mut state, &sampler, KeyCode::PageUp);
    let lines = screen(80, 24, &state, &sampler);
    assert!(lines[21].ends_with("session-489"), "{lines:#?}");
}

#[test]
fn every_page_fits_every_size() {
    let sampler = sampler();
    let mut states = vec![state(), state(), state(), state()];
    press(&mut states[1], &sampler, KeyCode::Enter);
    press(&mut states[2], &sampler, KeyCode::Char('?'));
    press(&mut states[3], &sampler, KeyCode::Char('/'));
    press(&mut states[3], &sampler, KeyCode::Char('日'));
    for state in &states {
        for width in [1, 2, 5, 17, 30, 63, 200] {
            for height in [1, 2, 3, 4, 6, 60] {
                let lines = screen(width, height, state, &sampler);
                assert_eq!(lines.len(), usize::from(height));
            }
        }
    }
}

#[test]
fn filter_that_is_typed_and_its_error_are_in_the_status_line() {
    let (mut state, sampler) = (state(), sampler());
    for key in "/a =".chars() {
        press(&mut state, &sampler, KeyCode::Char(key));
    }
    assert_eq!(screen(80, 24, &state, &sampler)[22], "/a =_");
    press(&mut state, &sampler, KeyCode::Enter);
    let line = &screen(80, 24, &state, &sampler)[22];
    assert!(
        line.len() > "/a =_".len() && line.starts_with("/a ="),
        "{line}"
    );
}

#[test]
fn help_hints_and_keys_fit_80_columns_and_24_lines() {
    let (mut state, sampler) = (state(), sampler());
    press(&mut state, &sampler, KeyCode::Char('?'));
    let lines = screen(80, 24, &state, &sampler);
    let shown = lines.iter().skip(2).map(String::as_str);
    assert!(shown.take(HELP.len()).eq(HELP), "{lines:#?}");
    for keys in [SESSIONS_KEYS, SESSION_KEYS, INPUT_KEYS, HELP_KEYS] {
        assert!(keys.len() <= 80, "{keys}");
    }
}

#[test]
fn keys_are_those_of_what_is_shown() {
    let (mut state, sampler) = (state(), sampler());
    let keys = |state: &State| screen(80, 24, state, &sampler)[23].clone();
    assert_eq!(keys(&state), SESSIONS_KEYS);
    press(&mut state, &sampler, KeyCode::Enter);
    assert_eq!(keys(&state), SESSION_KEYS);
    press(&mut state, &sampler, KeyCode::Char('?'));
    assert_eq!(keys(&state), HELP_KEYS);
    press(&mut state, &sampler, KeyCode::Char(' '));
    press(&mut state, &sampler, KeyCode::Char('/'));
    assert_eq!(keys(&state), INPUT_KEYS);
}

#[test]
fn hint_for_sessions_without_processes_is_a_command_that_lttng_accepts() {
    let counts = Arc::new(Counts::default());
    let session = counts.add_session(0, "vm/s", false);
    let now = Instant::now();
    let mut sampler = Sampler::new(Arc::clone(&counts), 1, now);
    let mut hint = || {
        sampler.sample(now, 0);
        process_hint(sampler.session(0).unwrap())
    };
    assert_eq!(hint(), "no event yet");
    session.add_row(&session.names, "e");
    assert!(hint().contains("add-context -u -t vpid"));
    session.set_kernel();
    assert!(hint().contains("add-context -k -t pid"));
    assert!(hint().len() <= 80);
}
