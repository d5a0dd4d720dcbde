//! What is drawn is where it happened: pixels of the timeline, read back.

use serde_json::Value;
use tests::lab::Lab;
use tests::wait_until;

use crate::expected::Loss;
use crate::made_recording::{self, BEGIN};
use crate::truth::{GUTTER, PLOT, Page};

const MS: i64 = 1_000_000;
/// A box of more pixels than this ends this much before the next pixel.
const MAX_DENSE_WIDTH: f64 = 3.0;
const BOX_GAP: f64 = 0.75;
/// The height of a line of spans, and of its boxes, in pixels.
const LINE: i64 = 18;
const BOX: i64 = 17;
/// The pixels of an instant.
const INSTANT: f64 = 3.0;

/// A colour, as red, green and blue.
type Color = Vec<u8>;

/// A part of the timeline in which a column of pixels is a number of nanoseconds.
struct Columns<'p> {
    page: &'p Page,
    from: i64,
    ns: i64,
    /// What is drawn in each column where there is no track.
    empty: Vec<Color>,
}

impl<'p> Columns<'p> {
    fn show(page: &'p Page, from: i64, ns: i64) -> Self {
        let to = from + PLOT as i64 * ns;
        page.show(from, to);
        page.check_drawing(from, to);
        let _ = page.texts();
        let bottom = "return document.getElementById('timeline').clientHeight - 4";
        let bottom = page.browser.run(bottom).as_i64().unwrap();
        let empty = line(page, bottom);
        Self {
            page,
            from,
            ns,
            empty,
        }
    }

    /// The place of a time, in columns.
    fn place(&self, time: i64) -> f64 {
        (time - self.from) as f64 / self.ns as f64
    }

    /// How much of each column the spans of a thread cover, of those within so many others; the
    /// instants are within two.
    fn covered(&self, thread: &str, depth: usize) -> Vec<f64> {
        let recording = &self.page.recording;
        let spans = recording.spans.iter();
        let spans: Vec<_> = spans.filter(|span| span.thread == thread).collect();
        let mut boxes = Vec::new();
        for span in &spans {
            let is_around = |outer: &&&crate::expected::Span| {
                outer.begin <= span.begin && outer.end >= span.end && !std::ptr::eq(**outer, *span)
            };
            if spans.iter().filter(is_around).count() == depth {
                let begin = self.place(span.begin).max(0.0);
                let width = (self.place(span.end) - begin).max(1.0);
                let gap = if width > MAX_DENSE_WIDTH {
                    BOX_GAP
                } else {
                    0.0
                };
                boxes.push((begin, begin + width - gap, span.end >= self.from));
            }
        }
        if depth == 2 {
            let instants = recording.instants.iter();
            let instants = instants.filter(|instant| instant.thread == thread);
            boxes.extend(instants.map(|instant| {
                let begin = self.place(instant.time);
                (begin, begin + INSTANT, begin >= 0.0)
            }));
        }
        let covers = |column: f64, (begin, end, is_shown): &(f64, f64, bool)| {
            let part = end.min(column + 1.0) - begin.max(column);
            if *is_shown { part.max(0.0) } else { 0.0 }
        };
        let columns = (0..PLOT as usize).map(|column| {
            let column = column as f64;
            boxes.iter().map(|of| covers(column, of)).sum()
        });
        columns.collect()
    }

    /// Checks each column of a line of a thread: it has the colour of a box, or nothing. Where
    /// something was lost `is_left_out` says so. Returns how many columns have a box.
    fn check(
        &self,
        (thread, top): (&str, i64),
        depth: usize,
        is_left_out: impl Fn(i64) -> bool,
    ) -> usize {
        // Above the names.
        let shown = line(self.page, top + depth as i64 * LINE + 2);
        let mut filled: Option<&Color> = None;
        let mut count = 0;
        for (column, covered) in self.covered(thread, depth).into_iter().enumerate() {
            if is_left_out(self.from + column as i64 * self.ns) {
                continue;
            }
            let color = &shown[column];
            let what = format!("{thread}, depth {depth}, column {column}");
            if covered < 1e-6 {
                assert_eq!(color, &self.empty[column], "{what}");
            } else if covered > 0.999_999 {
                assert_ne!(color, &self.empty[column], "{what}");
                // There is one name on each line.
                assert_eq!(color, *filled.get_or_insert(color), "{what}");
                count += 1;
            }
        }
        count
    }

    /// Checks the columns of a loss: they are red, and nothing else is drawn in them.
    fn check_gap(&self, loss: &Loss, top: i64) {
        let shown = line(self.page, top + 8);
        let (begin, end) = (
            self.place(loss.begin) as usize,
            self.place(loss.end) as usize,
        );
        // The first one is an edge in full red.
        for color in &shown[begin + 1..end] {
            let [red, green, blue] = color[..] else {
                panic!("no colour");
            };
            assert!(red > green + 20 && red > blue + 20, "{color:?}");
        }
        assert_eq!(shown[begin - 1], self.empty[begin - 1]);
        assert_ne!(shown[end], shown[end - 1]);
    }
}

/// The colours of a line of pixels, from the first column of the part with rows on.
fn line(page: &Page, y: i64) -> Vec<Color> {
    let pixels = page.browser.run(&format!(
        "const context = document.getElementById('timeline').getContext('2d');
         return [...context.getImageData({GUTTER}, {y}, {PLOT}, 1).data]"
    ));
    let pixels: Vec<u8> = serde_json::from_value(pixels).unwrap();
    pixels.chunks(4).map(|pixel| pixel[..3].to_vec()).collect()
}

/// The first line of a thread, in pixels of the timeline.
fn top(page: &Page, thread: &str) -> i64 {
    let top = page.browser.run(&format!(
        "const canvas = document.getElementById('timeline').getBoundingClientRect();
         const row = __view().shown.find(row => row.thread === 'thread {thread}' && row.kind === 0);
         return row ? row.y - canvas.top - row.depth * {LINE} : null"
    ));
    top.as_f64().unwrap() as i64
}

fn open(lab: &Lab) -> Page {
    let page = Page::open(lab, &made_recording::write(lab));
    let ratio = page.browser.run("return devicePixelRatio");
    assert_eq!(ratio, Value::from(1));
    page
}

#[test]
fn span_that_begins_at_the_edge_of_a_column_colours_that_column_and_none_before_it() {
    let lab = Lab::new();
    let page = open(&lab);
    let recording = &page.recording;
    // A column is a millisecond, a microsecond, and 20 nanoseconds.
    let jobs = BEGIN + 200 * MS;
    for (from, ns) in [
        (BEGIN - 20 * MS, MS),
        (jobs - 100_000, 1000),
        (jobs - 2000, 20),
    ] {
        let columns = Columns::show(&page, from, ns);
        let top = top(&page, "11");
        let is_lost = |time: i64| {
            let near = |loss: &&Loss| loss.begin <= time + ns && loss.end >= time - 3 * ns;
            recording.losses.iter().any(|loss| near(&loss))
        };
        for depth in 0..3 {
            let filled = columns.check(("7 11", top), depth, is_lost);
            let is_in_view = depth == 0 || ns >= MS;
            assert!(filled > 0 || !is_in_view, "{ns} ns, depth {depth}");
        }
    }
}

#[test]
fn nothing_is_drawn_in_a_gap_but_what_was_lost() {
    let lab = Lab::new();
    let page = open(&lab);
    let columns = Columns::show(&page, BEGIN - 20 * MS, MS);
    let lost = page.recording.losses.iter().find(|loss| loss.is_packets);
    let lost = lost.unwrap();
    let top = top(&page, "11");
    for y in [top, top + LINE, top + 2 * LINE] {
        columns.check_gap(lost, y);
    }
    // A thread that pauses has no red, and nothing else.
    let quiet = self::top(&page, "12");
    let filled = columns.check(("7 12", quiet), 0, |_| false);
    assert!(filled > 400, "{filled}");
}

#[test]
fn nothing_is_drawn_after_the_end_of_a_session_or_before_its_begin() {
    let lab = Lab::new();
    let page = open(&lab);
    let columns = Columns::show(&page, BEGIN + 900 * MS, MS);
    let (ended, begun) = (99, 600);
    for thread in ["11", "12"] {
        let top = top(&page, thread);
        let filled = columns.check((&format!("7 {thread}"), top), 0, |_| false);
        assert!(filled > 60, "{thread}: {filled}");
        for y in top..top + BOX {
            let shown = line(&page, y);
            assert_eq!(shown[ended..], columns.empty[ended..], "{thread}, {y}");
        }
    }
    let top = top(&page, "21");
    for y in top..top + 3 * LINE {
        let shown = line(&page, y);
        assert_eq!(shown[..begun], columns.empty[..begun], "{y}");
    }
    assert!(columns.check(("7 21", top), 0, |_| false) > 100);
    // A click there selects nothing.
    let is_closed = "return document.getElementById('panel').hidden";
    page.browser.click(220 + ended as i64 + 50, top + 100);
    wait_until("no panel", || page.browser.run(is_closed) == true);
}
