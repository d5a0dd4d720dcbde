//! Events of spans of one process, and the lines that they become.

use super::*;

/// The spans of a program, and the lines so far.
#[derive(Default)]
struct Shown {
    lines: SpanLines,
    open: OpenSpans<u32>,
    shown: Vec<String>,
}

const STEP: SpanStep<'_> = SpanStep {
    event: SpanEvent::New,
    group: 7,
    process: Some(100),
    id: Some(1),
    parent: None,
    name: "request",
    time: Some(0),
    is_selected: true,
};

impl Shown {
    fn step(&mut self, thread: u32, step: SpanStep<'_>, fields: &[(&str, &str)]) {
        let fields = fields.iter().copied();
        let line = self.lines.line(&mut self.open, thread, &step, fields);
        if let Some(SpanLine { depth, text }) = line {
            self.shown.push(format!("{}{text}", "    ".repeat(depth)));
        }
    }

    /// Shows an event of the span of this id on thread 1.
    fn event(&mut self, event: SpanEvent, id: u64, time: i64) {
        let step = SpanStep {
            event,
            id: Some(id),
            time: Some(time),
            ..STEP
        };
        self.step(1, step, &[]);
    }

    fn record(&mut self, id: u64, fields: &[(&str, &str)]) {
        let step = SpanStep {
            event: SpanEvent::Record,
            id: Some(id),
            ..STEP
        };
        self.step(1, step, fields);
    }
}

#[test]
fn the_events_of_spans_are_known_by_name_with_a_target_or_without() {
    for (class, want) in [
        ("span:new", Some((SpanEvent::New, ""))),
        ("app::db:span:enter", Some((SpanEvent::Enter, "app::db"))),
        ("app:span:exit", Some((SpanEvent::Exit, "app"))),
        ("app:span:record", Some((SpanEvent::Record, "app"))),
        ("app:span:close", Some((SpanEvent::Close, "app"))),
        ("lifespan:exit", None),
        ("app:span:news", None),
    ] {
        assert_eq!(SpanEvent::of(class), want, "{class}");
    }
}

#[test]
fn a_span_is_one_line_at_its_begin_and_one_at_its_end() {
    let mut spans = Shown::default();
    spans.step(1, STEP, &[("n", "7"), ("path", "\"a b\"")]);
    spans.event(SpanEvent::Enter, 1, 1_000);
    let inner = SpanStep {
        id: Some(2),
        parent: Some(1),
        name: "query",
        ..STEP
    };
    for event in [
        SpanEvent::New,
        SpanEvent::Enter,
        SpanEvent::Exit,
        SpanEvent::Close,
    ] {
        spans.step(1, SpanStep { event, ..inner }, &[]);
    }
    spans.record(1, &[("status", "200"), ("n", "8")]);
    spans.event(SpanEvent::Exit, 1, 3_000);
    spans.event(SpanEvent::Close, 1, 3_500);
    assert_eq!(
        spans.shown,
        [
            r#"-> request{n=7 path="a b"}"#,
            "    -> query",
            "    <- query (0 ns)",
            r#"<- request{n=8 path="a b" status=200} (2.50 us)"#,
        ]
    );
    assert_eq!((spans.lines.spans.len(), spans.lines.bytes), (0, 0));
}

#[test]
fn a_span_that_is_entered_again_on_any_thread_begins_once_and_says_how_long_it_was_busy() {
    let mut spans = Shown::default();
    spans.event(SpanEvent::New, 1, 0);
    for (thread, event, time) in [
        (1, SpanEvent::Enter, 0),
        (1, SpanEvent::Exit, 10),
        (2, SpanEvent::Enter, 500),
        (2, SpanEvent::Exit, 530),
        (3, SpanEvent::Close, 1_000),
    ] {
        let step = SpanStep {
            event,
            time: Some(time),
            ..STEP
        };
        spans.step(thread, step, &[]);
    }
    assert_eq!(
        spans.shown,
        ["-> request", "<- request (1.00 us, busy 40 ns)"]
    );
}

#[test]
fn a_span_that_is_never_entered_is_one_line_with_its_fields() {
    let mut spans = Shown::default();
    spans.step(1, STEP, &[("n", "7")]);
    spans.event(SpanEvent::Close, 1, 9);
    assert_eq!(spans.shown, ["<- request{n=7} (never entered)"]);
}

#[test]
fn a_parent_is_named_where_the_thread_is_not_in_it() {
    let mut spans = Shown::default();
    spans.event(SpanEvent::New, 1, 0);
    spans.event(SpanEvent::Enter, 1, 0);
    let task = SpanStep {
        id: Some(2),
        parent: Some(1),
        name: "task",
        ..STEP
    };
    spans.step(1, task, &[("k", "v")]);
    let enter = SpanStep {
        event: SpanEvent::Enter,
        ..task
    };
    spans.step(2, enter, &[]);
    // The parent of this one is not known.
    for event in [SpanEvent::New, SpanEvent::Enter] {
        let orphan = SpanStep {
            event,
            id: Some(3),
            parent: Some(99),
            ..STEP
        };
        spans.step(3, orphan, &[]);
    }
    assert_eq!(
        spans.shown,
        ["-> request", "-> task{k=v} parent=request", "-> request"]
    );
}

#[test]
fn spans_whose_begin_is_not_known_are_shown_whenever_a_thread_is_in_them() {
    let mut spans = Shown::default();
    spans.event(SpanEvent::Exit, 1, 5);
    spans.event(SpanEvent::Enter, 1, 10);
    spans.record(1, &[("status", "200")]);
    spans.event(SpanEvent::Exit, 1, 30);
    spans.event(SpanEvent::Close, 1, 40);
    spans.event(SpanEvent::Close, 2, 41);
    assert_eq!(
        spans.shown,
        ["<- request", "-> request", "<- request{status=200} (20 ns)"]
    );
    // The id is used again, and its `span:new` was lost.
    spans.shown.clear();
    spans.event(SpanEvent::New, 3, 50);
    let other = SpanStep {
        event: SpanEvent::Enter,
        id: Some(3),
        name: "other",
        ..STEP
    };
    spans.step(1, other, &[]);
    assert_eq!(spans.shown, ["-> other"]);
}

#[test]
fn an_event_of_a_span_without_id_or_name_is_that_of_the_innermost_span() {
    let mut spans = Shown::default();
    let step = SpanStep { id: None, ..STEP };
    let enter = SpanStep {
        event: SpanEvent::Enter,
        ..step
    };
    let exit = SpanStep {
        event: SpanEvent::Exit,
        name: "",
        time: Some(5),
        ..step
    };
    for step in [step, enter, exit] {
        spans.step(1, step, &[]);
    }
    assert_eq!(spans.shown, ["-> request", "<- request (5 ns)"]);
}

#[test]
fn after_a_loss_no_line_says_what_may_be_wrong() {
    let mut spans = Shown::default();
    for id in 1..=3 {
        spans.event(SpanEvent::New, id, 0);
    }
    spans.event(SpanEvent::Enter, 1, 0);
    spans.event(SpanEvent::Exit, 1, 10);
    spans.lines.add_loss();
    // Busy for longer, perhaps.
    spans.event(SpanEvent::Enter, 1, 20);
    spans.event(SpanEvent::Exit, 1, 30);
    spans.event(SpanEvent::Close, 1, 100);
    // Entered earlier, perhaps.
    spans.event(SpanEvent::Enter, 2, 200);
    spans.event(SpanEvent::Close, 2, 300);
    // Entered, perhaps.
    spans.event(SpanEvent::Close, 3, 400);
    // The exit of span 2 was lost, and the thread is not in it.
    spans.event(SpanEvent::New, 4, 500);
    spans.event(SpanEvent::Enter, 4, 510);
    spans.event(SpanEvent::Close, 4, 500);
    assert_eq!(
        spans.shown,
        [
            "-> request",
            "<- request (100 ns)",
            "-> request",
            "<- request",
            "<- request",
            "-> request",
            "<- request",
        ]
    );
}

#[test]
fn a_span_is_shown_if_one_of_its_events_is_selected() {
    let mut spans = Shown::default();
    let steps = |selected: SpanEvent| {
        [
            SpanEvent::New,
            SpanEvent::Enter,
            SpanEvent::Exit,
            SpanEvent::Close,
        ]
        .map(|event| SpanStep {
            event,
            is_selected: event == selected,
            ..STEP
        })
    };
    for (selected, lines) in [
        (SpanEvent::New, 2),
        (SpanEvent::Enter, 2),
        (SpanEvent::Exit, 1),
        (SpanEvent::Close, 1),
        (SpanEvent::Record, 0),
    ] {
        for step in steps(selected) {
            spans.step(1, step, &[]);
        }
        assert_eq!(spans.shown.len(), lines, "{selected:?}: {:?}", spans.shown);
        assert_eq!(spans.open.depth(&1), 0);
        spans.shown.clear();
    }
}

#[test]
fn names_and_fields_of_spans_control_nothing_on_the_terminal() {
    let mut spans = Shown::default();
    for event in [SpanEvent::New, SpanEvent::Enter] {
        let step = SpanStep {
            event,
            name: "a\u{1b}[2J\n",
            ..STEP
        };
        spans.step(1, step, &[]);
    }
    assert_eq!(spans.shown, [r"-> a\u{1b}[2J\n"]);
}

#[test]
fn memory_for_spans_and_their_fields_is_bounded() {
    let mut spans = Shown::default();
    for id in 0..2 * MAX_SPANS as u64 {
        spans.event(SpanEvent::New, id, 0);
        assert!(spans.lines.spans.len() <= MAX_SPANS);
    }
    let large = "x".repeat(MAX_BYTES / 16);
    for id in 0..64 {
        let step = SpanStep {
            id: Some(id),
            ..STEP
        };
        spans.step(1, step, &[("sql", &large)]);
        assert!(spans.lines.bytes <= MAX_BYTES + 2 * large.len());
    }
    spans.lines.forget_group(STEP.group);
    assert_eq!((spans.lines.spans.len(), spans.lines.bytes), (0, 0));
    // A value that is recorded again takes the place of the one before.
    spans.record(63, &[("sql", &large)]);
    let before = spans.lines.bytes;
    for _ in 0..64 {
        spans.record(63, &[("sql", &large)]);
    }
    assert_eq!(spans.lines.bytes, before);
}
