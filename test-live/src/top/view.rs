//! Draws the state and the last sample. Lines are cut to the columns that there are; on a small
//! terminal, columns of less interest are left out.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use viewer::sink::losses::LossSum;

use super::messages::Severity;
use super::sampler::{MAX_SAMPLES, Sampled, SampledRow, SampledSession, Sampler};
use super::state::{FilterInput, Page, State};
use super::text::{cut_to_width, escape_name, short_duration, short_number, short_rate, sparkline};

/// The keys of the list of sessions, of the page of one, while a filter is typed, and of the help.
const SESSIONS_KEYS: &str = "q quit  ? help  / filter  s sort  space pause  Enter session";
const SESSION_KEYS: &str =
    "q quit  ? help  / filter  s sort  space pause  Tab other list  Esc back";
const INPUT_KEYS: &str = "Enter apply  Esc cancel  Up filter as it is  Ctrl-U clear  Ctrl-C quit";
const HELP_KEYS: &str = "q quit  any other key closes the help";

const HELP: [&str; 16] = [
    "Up Down k j     select a session or row",
    "Page Up, Down   move by ten; Home and End to the first and last",
    "Enter           show the event names and processes of the session",
    "Tab             go to the other list of the session",
    "Esc             back to the sessions",
    "s               sort by rate, total, lag, losses, name",
    "/               count only some events, from zero: a part of an event name,",
    "                or an expression as for --filter; empty: all events. Up",
    "                edits the filter that there is",
    "space           pause the screen; events are counted nevertheless",
    "? h             this help",
    "q Ctrl-C        quit",
    "",
    "EVENTS/S        mean of the last seconds; of a recording: per second of it",
    "LAG             time since the latest event; -: its clock has no known origin",
    "LOST            events and packets; ?: more may have been lost",
];

/// Draws all of the screen.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    state: &State,
    sampler: &Sampler,
    message: Option<&(Severity, String)>,
) {
    let lines = [
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
        Constraint::Length(1),
    ];
    let [title, info, body, status, keys] = Layout::vertical(lines).areas(frame.area());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    let text = title_line(state, sampler);
    draw_line(frame, title, &text, bold);
    draw_line(frame, info, &info_line(state, sampler), Style::new());
    if state.is_help_shown {
        let help: Vec<Line<'_>> = HELP.iter().map(|line| Line::from(*line)).collect();
        frame.render_widget(Paragraph::new(help), body);
    } else {
        draw_page(frame, body, state, sampler);
    }
    match (&state.input, message) {
        (Some(input), _) => draw_input(frame, status, input),
        (None, Some((severity, text))) => {
            draw_line(frame, status, text, severity_style(*severity));
        }
        (None, None) => {}
    }
    let usable = match (&state.input, state.is_help_shown, state.page) {
        (Some(_), ..) => INPUT_KEYS,
        (None, true, _) => HELP_KEYS,
        (None, false, Page::Sessions) => SESSIONS_KEYS,
        (None, false, Page::Session { .. }) => SESSION_KEYS,
    };
    draw_line(frame, keys, usable, reversed);
}

fn severity_style(severity: Severity) -> Style {
    match severity {
        Severity::Notice => Style::new(),
        Severity::Warning => Style::new().yellow(),
        Severity::Error => Style::new().red(),
    }
}

/// Draws one line over all of `area`.
fn draw_line(frame: &mut Frame<'_>, area: Rect, text: &str, style: Style) {
    let columns = usize::from(area.width);
    let line = Line::styled(cut_to_width(text, columns), style);
    frame.render_widget(Paragraph::new(line).style(style), area);
}

fn title_line(state: &State, sampler: &Sampler) -> String {
    let mut rate = 0u64;
    let mut losses = LossSum {
        is_partial: sampler.failures() > 0,
        ..LossSum::default()
    };
    let mut count = 0;
    for session in sampler.sessions() {
        rate = rate.saturating_add(session.events.rate);
        losses.events = losses.events.saturating_add(session.losses.events);
        losses.packets = losses.packets.saturating_add(session.losses.packets);
        losses.uncertain += session.losses.uncertain;
        count += usize::from(!session.is_ended() || session.is_recording());
    }
    let paused = if state.is_paused { "PAUSED  " } else { "" };
    let ended = if state.is_complete { "ENDED  " } else { "" };
    let plural = if count == 1 { "" } else { "s" };
    let rate = short_rate(rate);
    format!(
        "{paused}{ended}{count} session{plural}  {rate} events/s  {losses}  {}",
        state.title
    )
}

fn info_line(state: &State, sampler: &Sampler) -> String {
    let filter = state.filter.as_deref().unwrap_or("none");
    let mut line = format!(
        "sort: {}  filter: {}",
        state.sort.name(),
        escape_name(filter)
    );
    if let Page::Session { id, .. } = state.page {
        let session = sampler.session(id);
        let name = session.map_or("the session is gone", SampledSession::name);
        line = format!("{name}  {line}");
    }
    line
}

fn draw_input(frame: &mut Frame<'_>, area: Rect, input: &FilterInput) {
    let text = match &input.error {
        Some(error) => format!("/{}  {error}", input.text),
        None => format!("/{}_", input.text),
    };
    draw_line(frame, area, &text, Style::new().yellow());
}

fn draw_page(frame: &mut Frame<'_>, area: Rect, state: &State, sampler: &Sampler) {
    let columns = Columns::for_width(area.width);
    match state.page {
        Page::Sessions => {
            let sessions = state.sort.sessions(sampler);
            let selected = state.selected_place(&sessions);
            let table = DrawnTable {
                heading: columns.heading("SESSION", true),
                selected: Some(selected),
                empty: "no session yet",
            };
            let line = |place: usize| Some(session_line(sessions.get(place)?, columns));
            table.draw(frame, area, sessions.len(), line);
        }
        Page::Session {
            id,
            is_in_processes,
        } => {
            let Some(session) = sampler.session(id) else {
                return;
            };
            let heights = [Constraint::Fill(1), Constraint::Fill(1)];
            let [upper, lower] = Layout::vertical(heights).areas(area);
            let [name_row, process_row] = state.rows;
            for (area, title, rows, selected, empty) in [
                (
                    upper,
                    "EVENT",
                    &session.names,
                    (!is_in_processes).then_some(name_row),
                    "no event yet",
                ),
                (
                    lower,
                    "PROCESS",
                    &session.processes,
                    is_in_processes.then_some(process_row),
                    process_hint(session),
                ),
            ] {
                let rows = state.sort.rows(rows);
                let table = DrawnTable {
                    heading: columns.heading(title, false),
                    selected,
                    empty,
                };
                let line = |place: usize| Some(row_line(rows.get(place)?, columns));
                table.draw(frame, area, rows.len(), line);
            }
        }
    }
}

/// What to do if no event of a session says its process.
fn process_hint(session: &SampledSession) -> &'static str {
    match (session.names.is_empty(), session.is_kernel()) {
        (true, _) => "no event yet",
        (false, true) => {
            "processes unknown: lttng add-context -k -t pid -t procname, then lttng start"
        }
        (false, false) => {
            "processes unknown: lttng add-context -u -t vpid -t procname, then lttng start"
        }
    }
}

/// A heading, and as many lines as fit, among them the selected one.
struct DrawnTable<'t> {
    heading: String,
    selected: Option<usize>,
    /// The text if there are no lines.
    empty: &'t str,
}

impl DrawnTable<'_> {
    fn draw(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        length: usize,
        line: impl Fn(usize) -> Option<Line<'static>>,
    ) {
        let width = usize::from(area.width);
        let height = usize::from(area.height).saturating_sub(1);
        let underlined = Style::new().add_modifier(Modifier::UNDERLINED);
        let heading = Line::styled(cut_to_width(&self.heading, width), underlined);
        let mut lines = vec![heading];
        if length == 0 {
            lines.push(Line::from(cut_to_width(self.empty, width)));
        }
        // There may be fewer rows than when one was selected.
        let selected = self
            .selected
            .map(|place| place.min(length.saturating_sub(1)));
        let first = selected.map_or(0, |place| (place + 1).saturating_sub(height));
        for place in first..length.min(first.saturating_add(height)) {
            let Some(line) = line(place) else { break };
            let is_selected = selected == Some(place);
            lines.push(match is_selected {
                true => line.patch_style(Style::new().add_modifier(Modifier::REVERSED)),
                false => line,
            });
        }
        frame.render_widget(Paragraph::new(lines), area);
    }
}

/// Which columns fit beside the name.
#[derive(Debug, Clone, Copy)]
struct Columns {
    has_total: bool,
    has_lag: bool,
    has_losses: bool,
    /// Columns of the sparkline.
    history: usize,
}

impl Columns {
    fn for_width(width: u16) -> Self {
        Self {
            has_total: width >= 50,
            has_lag: width >= 30,
            has_losses: width >= 50,
            history: match width {
                0..64 => 0,
                64..110 => MAX_SAMPLES / 2,
                _ => MAX_SAMPLES,
            },
        }
    }

    fn heading(self, name: &str, is_session: bool) -> String {
        let mut text = format!("{:>8} ", "EVENTS/S");
        if self.has_total {
            text.push_str(&format!("{:>7} ", "TOTAL"));
        }
        if is_session && self.has_lag {
            text.push_str(&format!("{:>7} ", "LAG"));
        }
        if is_session && self.has_losses {
            text.push_str(&format!("{:>6} ", "LOST"));
        }
        if self.history > 0 {
            text.push_str(&format!("{:>1$} ", "HISTORY", self.history));
        }
        text + name
    }

    fn numbers(self, events: &Sampled) -> String {
        let mut text = format!("{:>8} ", short_rate(events.rate));
        if self.has_total {
            text.push_str(&format!("{:>7} ", short_number(events.total)));
        }
        text
    }

    fn history(self, events: &Sampled) -> String {
        match self.history {
            0 => String::new(),
            columns => sparkline(events.history.iter().copied(), columns) + " ",
        }
    }
}

// Names are cut where the line ends, by their graphemes.
fn session_line(session: &SampledSession, columns: Columns) -> Line<'static> {
    let mut spans = vec![Span::from(columns.numbers(&session.events))];
    if columns.has_lag {
        spans.push(Span::from(format!("{:>7} ", short_duration(session.lag))));
    }
    if columns.has_losses {
        let is_lossless = session.losses.is_empty();
        let text = format!("{:>6} ", short_losses(&session.losses));
        let style = if is_lossless {
            Style::new()
        } else {
            Style::new().red()
        };
        spans.push(Span::styled(text, style));
    }
    spans.push(Span::from(columns.history(&session.events)));
    spans.push(Span::from(session.name().to_owned()));
    let line = Line::from(spans);
    if session.is_ended() && !session.is_recording() {
        let mut line = line.patch_style(Style::new().add_modifier(Modifier::DIM));
        line.push_span(" (ended)");
        return line;
    }
    line
}

fn row_line(row: &SampledRow, columns: Columns) -> Line<'static> {
    Line::from(vec![
        Span::from(columns.numbers(&row.events)),
        Span::from(columns.history(&row.events)),
        Span::from(row.name().to_owned()),
    ])
}

/// Lost events and packets in at most six characters; with `?` if there may be more.
fn short_losses(losses: &LossSum) -> String {
    let lost = losses.events.saturating_add(losses.packets);
    match (lost, losses.uncertain) {
        (0, 1..) => "?".to_owned(),
        (lost, _) => short_number(lost),
    }
}

#[cfg(test)]
mod tests;
