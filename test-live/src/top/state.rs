//! What the screen shows, and what keys change of it. Knows no terminal: keys come in, actions go
//! out.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use viewer::filter::Filter;

use super::sampler::{SampledRow, SampledSession, Sampler};
use super::text::escape_name;

/// Rows by which Page Up and Page Down move.
const PAGE_ROWS: usize = 10;

/// Largest number of characters of a filter that are taken.
const MAX_FILTER_CHARACTERS: usize = 1024;

/// The order of rows. Of equals, the one whose name is first comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum SortKey {
    #[default]
    Rate,
    Total,
    /// The largest first; of event names and processes as [`Rate`](Self::Rate).
    Lag,
    /// The largest number of losses first; of event names and processes as [`Rate`](Self::Rate).
    Losses,
    Name,
}

/// The page that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Page {
    /// The list of all sessions.
    #[default]
    Sessions,
    /// The event names and processes of one session.
    Session {
        id: u64,
        /// Whether keys move in the list of processes, not in that of event names.
        is_in_processes: bool,
    },
}

/// A filter that is being typed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct FilterInput {
    pub(super) text: String,
    pub(super) error: Option<String>,
}

/// What a key asks the program to do.
#[derive(Debug)]
pub(super) enum Action {
    /// Draw the screen again.
    Draw,
    /// Count only the events of this filter, or all.
    Filter(Option<Box<Filter>>),
    Quit,
}

/// What the screen shows, besides the counts.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The targets, for the title.
    pub(super) title: String,
    pub(super) page: Page,
    /// The selected session. It may be gone.
    pub(super) selected: Option<u64>,
    /// The selected rows of the page of one session: of event names, and of processes.
    pub(super) rows: [usize; 2],
    pub(super) sort: SortKey,
    pub(super) is_paused: bool,
    pub(super) is_help_shown: bool,
    /// Whether all sources have ended.
    pub(super) is_complete: bool,
    pub(super) filter: Option<String>,
    pub(super) input: Option<FilterInput>,
}

impl SortKey {
    const ALL: [Self; 5] = [Self::Rate, Self::Total, Self::Lag, Self::Losses, Self::Name];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Total => "total",
            Self::Lag => "lag",
            Self::Losses => "lost",
            Self::Name => "name",
        }
    }

    fn next(self) -> Self {
        let mut keys = Self::ALL.iter().cycle();
        keys.find(|key| **key == self);
        keys.next().copied().unwrap_or_default()
    }

    /// The sessions in this order. Those that have ended come last.
    pub(super) fn sessions(self, sampler: &Sampler) -> Vec<&SampledSession> {
        let mut sessions: Vec<_> = sampler.sessions().collect();
        let size = |session: &SampledSession| match self {
            Self::Rate => (session.events.rate, session.events.total),
            Self::Total => (session.events.total, 0),
            Self::Lag => (unsigned_lag(session.lag), 0),
            Self::Losses => {
                let losses = &session.losses;
                (
                    losses.events.saturating_add(losses.packets),
                    losses.uncertain,
                )
            }
            Self::Name => (0, 0),
        };
        // A recording has ended as soon as it is read, and stays in its place.
        let is_over = |session: &SampledSession| session.is_ended() && !session.is_recording();
        sessions.sort_by(|a, b| {
            let order = is_over(a).cmp(&is_over(b));
            let order = order.then_with(|| size(b).cmp(&size(a)));
            let order = order.then_with(|| a.name().cmp(b.name()));
            // Sessions may have one name: their order must be the same in each picture.
            order.then_with(|| a.id().cmp(&b.id()))
        });
        sessions
    }

    /// Event names or processes in this order.
    pub(super) fn rows(self, rows: &[SampledRow]) -> Vec<&SampledRow> {
        let mut rows: Vec<_> = rows.iter().collect();
        let size = |row: &SampledRow| match self {
            Self::Rate | Self::Lag | Self::Losses => (row.events.rate, row.events.total),
            Self::Total => (row.events.total, 0),
            Self::Name => (0, 0),
        };
        rows.sort_by(|a, b| {
            let order = size(b).cmp(&size(a));
            order.then_with(|| a.name().cmp(b.name()))
        });
        rows
    }
}

/// A lag as a number to compare; an unknown one is the smallest.
fn unsigned_lag(lag: Option<i64>) -> u64 {
    lag.map_or(0, |lag| u64::try_from(lag).unwrap_or(0).saturating_add(1))
}

impl State {
    /// Handles a key that was pressed.
    pub(super) fn handle_key(&mut self, key: KeyEvent, sampler: &Sampler) -> Action {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        // In raw mode, the terminal sends no SIGINT for this key.
        if is_control && key.code == KeyCode::Char('c') {
            return Action::Quit;
        }
        if self.input.is_some() {
            return self.handle_input_key(key.code, is_control);
        }
        if self.is_help_shown {
            self.is_help_shown = false;
            return match key.code {
                KeyCode::Char('q') => Action::Quit,
                _ => Action::Draw,
            };
        }
        match key.code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.is_help_shown = true,
            KeyCode::Char(' ' | 'p') => self.is_paused = !self.is_paused,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('/') => {
                self.input = Some(FilterInput::default());
            }
            KeyCode::Up | KeyCode::Char('k') => self.move_by(1, true, sampler),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1, false, sampler),
            KeyCode::PageUp => self.move_by(PAGE_ROWS, true, sampler),
            KeyCode::PageDown => self.move_by(PAGE_ROWS, false, sampler),
            KeyCode::Home | KeyCode::Char('g') => self.move_by(usize::MAX, true, sampler),
            KeyCode::End | KeyCode::Char('G') => self.move_by(usize::MAX, false, sampler),
            KeyCode::Enter | KeyCode::Right => self.open_session(sampler),
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => self.page = Page::Sessions,
            KeyCode::Tab | KeyCode::BackTab => {
                if let Page::Session {
                    is_in_processes, ..
                } = &mut self.page
                {
                    *is_in_processes = !*is_in_processes;
                }
            }
            _ => {}
        }
        Action::Draw
    }

    // The iterator goes on after the key that was found.
    fn handle_input_key(&mut self, key: KeyCode, is_control: bool) -> Action {
        let Some(input) = &mut self.input else {
            return Action::Draw;
        };
        match key {
            KeyCode::Esc => self.input = None,
            KeyCode::Backspace => {
                input.text.pop();
            }
            // Shells recall what was typed before by this key.
            KeyCode::Up => input.text = self.filter.clone().unwrap_or_default(),
            // Shells clear their line by this key.
            KeyCode::Char('u') if is_control => input.text.clear(),
            KeyCode::Char(character)
                if !is_control && input.text.chars().count() < MAX_FILTER_CHARACTERS =>
            {
                input.text.push(character);
            }
            KeyCode::Enter => match parse_filter(&input.text) {
                Ok(filter) => {
                    let text = input.text.trim().to_owned();
                    self.filter = filter.is_some().then_some(text);
                    self.input = None;
                    return Action::Filter(filter.map(Box::new));
                }
                Err(error) => input.error = Some(escape_name(&error)),
            },
            _ => {}
        }
        Action::Draw
    }

    /// The place of the selected session among `sessions`.
    pub(super) fn selected_place(&self, sessions: &[&SampledSession]) -> usize {
        // By its number, because its place changes from sample to sample.
        let is_selected = |session: &&SampledSession| Some(session.id()) == self.selected;
        sessions.iter().position(is_selected).unwrap_or(0)
    }

    fn move_by(&mut self, rows: usize, is_up: bool, sampler: &Sampler) {
        let moved = |place: usize, length: usize| {
            let place = if is_up {
                place.saturating_sub(rows)
            } else {
                place.saturating_add(rows)
            };
            place.min(length.saturating_sub(1))
        };
        match self.page {
            Page::Sessions => {
                let sessions = self.sort.sessions(sampler);
                let place = moved(self.selected_place(&sessions), sessions.len());
                self.selected = sessions.get(place).map(|session| session.id());
            }
            Page::Session {
                id,
                is_in_processes,
            } => {
                let Some(session) = sampler.session(id) else {
                    return;
                };
                let [names, processes] = &mut self.rows;
                match is_in_processes {
                    false => *names = moved(*names, session.names.len()),
                    true => *processes = moved(*processes, session.processes.len()),
                }
            }
        }
    }

    fn open_session(&mut self, sampler: &Sampler) {
        if self.page != Page::Sessions {
            return;
        }
        let sessions = self.sort.sessions(sampler);
        if let Some(session) = sessions.get(self.selected_place(&sessions)) {
            let id = session.id();
            self.selected = Some(id);
            self.rows = [0; 2];
            self.page = Page::Session {
                id,
                is_in_processes: false,
            };
        }
    }
}

/// Parses what was typed as a filter: an expression, or a part of an event name. Returns none for
/// an empty text.
pub(super) fn parse_filter(text: &str) -> Result<Option<Filter>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let is_part_of_name = |c: char| c.is_alphanumeric() || "_:.-*?".contains(c);
    let filter = match text.chars().all(is_part_of_name) {
        true => Filter::parse(&format!("$name == \"*{text}*\"")),
        false => Filter::parse(text),
    };
    filter.map(Some).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::super::counts::Counts;
    use super::*;

    fn sampler(sessions: &[(&str, u64)]) -> Sampler {
        let counts = Arc::new(Counts::default());
        for (id, (name, events)) in (0..).zip(sessions) {
            let session = counts.add_session(id, name, false);
            session.events.add(*events);
            for name in ["a", "b", "c"] {
                session.add_row(&session.names, name);
            }
        }
        let now = Instant::now();
        let mut sampler = Sampler::new(counts, 1, now);
        sampler.sample(now + Duration::from_secs(1), 0);
        sampler
    }

    fn press(state: &mut State, sampler: &Sampler, keys: &[KeyCode]) -> Action {
        let mut action = Action::Draw;
        for key in keys {
            action = state.handle_key(KeyEvent::new(*key, KeyModifiers::NONE), sampler);
        }
        action
    }

    fn typed(text: &str) -> Vec<KeyCode> {
        text.chars().map(KeyCode::Char).collect()
    }

    #[test]
    fn arrows_select_a_session_and_enter_opens_it() {
        let sampler = sampler(&[("slow", 1), ("fast", 9), ("middle", 5)]);
        let mut state = State::default();
        press(&mut state, &sampler, &[KeyCode::Down]);
        assert_eq!(state.selected, Some(2));
        press(&mut state, &sampler, &[KeyCode::Down, KeyCode::Down]);
        assert_eq!(state.selected, Some(0), "the last one");
        press(&mut state, &sampler, &[KeyCode::Home, KeyCode::Enter]);
        let page = |is_in_processes| Page::Session {
            id: 1,
            is_in_processes,
        };
        assert_eq!(state.page, page(false));
        press(
            &mut state,
            &sampler,
            &[KeyCode::End, KeyCode::Tab, KeyCode::Down],
        );
        assert_eq!((state.page, state.rows), (page(true), [2, 0]));
        press(&mut state, &sampler, &[KeyCode::Esc]);
        assert_eq!((state.page, state.selected), (Page::Sessions, Some(1)));
    }

    #[test]
    fn sort_key_changes_the_order_and_comes_back_to_the_first() {
        let sampler = sampler(&[("b", 1), ("a", 1), ("c", 9)]);
        let mut state = State::default();
        let names = |state: &State| -> Vec<String> {
            let sessions = state.sort.sessions(&sampler);
            sessions.iter().map(|of| of.name().to_owned()).collect()
        };
        assert_eq!(names(&state), ["c", "a", "b"]);
        press(&mut state, &sampler, &typed("ssss"));
        assert_eq!(
            (state.sort, names(&state).concat()),
            (SortKey::Name, "abc".to_owned())
        );
        press(&mut state, &sampler, &typed("s"));
        assert_eq!(state.sort, SortKey::Rate);
    }

    #[test]
    fn filter_is_typed_and_an_invalid_one_can_be_corrected() {
        let sampler = sampler(&[]);
        let mut state = State::default();
        press(&mut state, &sampler, &typed("/size >q"));
        let action = press(&mut state, &sampler, &[KeyCode::Enter]);
        assert!(matches!(action, Action::Draw));
        assert!(state.input.as_ref().unwrap().error.is_some());
        press(&mut state, &sampler, &[KeyCode::Backspace]);
        press(&mut state, &sampler, &typed("1"));
        let action = press(&mut state, &sampler, &[KeyCode::Enter]);
        assert!(matches!(action, Action::Filter(Some(_))));
        assert_eq!(
            (state.filter.as_deref(), &state.input),
            (Some("size >1"), &None)
        );
        press(&mut state, &sampler, &typed("/"));
        assert_eq!(state.input.as_ref().unwrap().text, "");
        press(&mut state, &sampler, &[KeyCode::Up]);
        assert_eq!(state.input.as_ref().unwrap().text, "size >1");
        let control = KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL);
        state.handle_key(control, &sampler);
        let action = press(&mut state, &sampler, &[KeyCode::Enter]);
        assert!(matches!(action, Action::Filter(None)));
        assert_eq!(state.filter, None);
    }

    #[test]
    fn a_word_is_a_filter_for_parts_of_event_names() {
        for text in ["sched", "my_provider:*", "a.b-c"] {
            assert!(parse_filter(text).unwrap().is_some(), "{text}");
        }
        assert!(parse_filter(" ").unwrap().is_none());
        assert!(parse_filter("\"").is_err());
    }

    #[test]
    fn q_and_control_c_quit_on_every_page() {
        let sampler = sampler(&[]);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        for before in ["", "?", "/abc"] {
            let mut state = State::default();
            press(&mut state, &sampler, &typed(before));
            let action = state.handle_key(control_c, &sampler);
            assert!(matches!(action, Action::Quit), "{before}");
        }
        let mut state = State::default();
        let action = press(&mut state, &sampler, &typed("?q"));
        assert!(matches!(action, Action::Quit));
        let action = press(&mut state, &sampler, &typed(" q"));
        assert!(matches!(action, Action::Quit) && state.is_paused);
    }
}
