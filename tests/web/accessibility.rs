//! The page can be used with the keyboard alone, on a narrow screen, and by people who see
//! otherwise: axe-core finds no serious fault.

use std::fs;

use serde_json::{Value, json};
use tests::browser::Browser;
use tests::lab::Lab;
use tests::{peers, wait_until};

use crate::made_recording::{self, BEGIN};
use crate::system::{Web, wait_for_row};

/// The sizes of a screen and of a telephone, in CSS pixels.
const SIZES: [(u32, u32); 2] = [(1280, 800), (390, 780)];
const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";
const TAB: &str = "\u{e004}";
const SPACE: &str = " ";

/// The faults that axe-core calls serious or critical: the rule, and where they are.
const FAULTS: &str = "const done = arguments[arguments.length - 1];
    axe.run(document, { resultTypes: ['violations'] }).then(result => done(
        result.violations
            .filter(of => of.impact === 'serious' || of.impact === 'critical')
            .flatMap(of => of.nodes.map(node => `${of.id}: ${node.target}: ${node.failureSummary}`))
            .concat(result.passes.length > 10 ? [] : [`only ${result.passes.length} rules`])),
        error => done([String(error)]))";

/// What is wider than the page, and in nothing that scrolls; and what is cut off above and below.
const OVERFLOWING: &str = "const width = document.documentElement.clientWidth;
    const scrolls = node => node !== null && (/auto|scroll/.test(getComputedStyle(node).overflowX) || scrolls(node.parentElement));
    const isCut = node => {
        const box = node.getBoundingClientRect(), bar = node.closest('header, footer')?.getBoundingClientRect();
        const isTall = bar !== undefined && (box.bottom > bar.bottom + 1 || box.top < bar.top - 1);
        return box.width > 0 && (isTall || box.right > width + 1 || box.left < -1);
    };
    return [...document.querySelectorAll('body *')]
        .filter(node => node.checkVisibility() && !scrolls(node) && isCut(node))
        .map(node => `${node.tagName} ${node.id} ${node.textContent.slice(0, 40)}`)";

fn text(browser: &Browser, id: &str) -> String {
    let text = browser.run(&format!(
        "return document.getElementById('{id}').textContent"
    ));
    text.as_str().unwrap().to_owned()
}

/// Types a text where the focus is.
fn type_text(browser: &Browser, text: &str) {
    for key in text.chars() {
        browser.press(&key.to_string());
    }
}

/// Goes on with the Tab key until the element with the focus is one that a script accepts.
fn tab_to(browser: &Browser, what: &str, is_it: &str) {
    let is_it = format!("const node = document.activeElement; return {is_it}");
    for _ in 0..100 {
        if browser.run(&is_it) == true {
            return;
        }
        browser.press(TAB);
    }
    panic!("the Tab key does not lead to {what}");
}

/// Opens a page whose panel can be filled.
fn open(lab: &Lab) -> (Web, Browser) {
    let web = Web::show_directory(lab, &made_recording::write(lab));
    let browser = Browser::start(lab);
    browser.open(&web.url);
    wait_for_row(&browser, "job");
    (web, browser)
}

/// The panels, by the keys that open them and what is in them.
const PANELS: [(&str, &[&str], &str); 6] = [
    ("nothing", &[], "return true"),
    (
        "help",
        &["?"],
        "return document.getElementById('help').open",
    ),
    (
        "tracks",
        &["r"],
        "return !!document.querySelector('#panel-tracks table button')",
    ),
    (
        "what is in view",
        &["v"],
        "return !!document.querySelector('#panel-summary table')",
    ),
    (
        "a range",
        &["m"],
        "return !!document.querySelector('#panel-summary table')",
    ),
    (
        "an event and what was found",
        &["/", "m", "a", "r", "k", ENTER],
        "return !!document.querySelector('#panel-found li button')
             && document.getElementById('panel-facts').textContent.includes('number')",
    ),
];

#[test]
fn no_panel_has_a_serious_fault_or_overflows_in_light_and_dark_on_screens_of_two_sizes() {
    let lab = Lab::new();
    let (_web, browser) = open(&lab);
    browser.run(&fs::read_to_string(peers::AXE.path()).unwrap());
    let mut faults: Vec<String> = Vec::new();
    for size in SIZES {
        for scheme in ["light", "dark"] {
            browser.emulate(size, scheme);
            let is_changed = format!(
                "return document.documentElement.dataset.theme === '{scheme}' && innerWidth === {}",
                size.0
            );
            browser.wait_for("the theme and the size", &is_changed);
            for (panel, keys, is_open) in PANELS {
                for key in keys {
                    browser.press(key);
                }
                browser.wait_for(panel, is_open);
                let found = browser.run_async(FAULTS);
                let wide = browser.run(OVERFLOWING);
                for of in [found, wide] {
                    let of = of.as_array().unwrap().iter().map(Value::to_string);
                    faults.extend(of.map(|fault| format!("{size:?} {scheme} {panel}: {fault}")));
                }
                // Out of the field, and then of the panel.
                browser.press(ESCAPE);
                browser.press(ESCAPE);
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn nothing_overflows_on_a_screen_of_any_width() {
    let lab = Lab::new();
    let (_web, browser) = open(&lab);
    // With a filter that is wrong the page says what is wrong.
    for filter in ["", "(("] {
        browser.run(&format!(
            "document.getElementById('filter-text').value = '{filter}';
             document.getElementById('filter').requestSubmit()"
        ));
        let is_answered = format!(
            "return document.getElementById('filter-result').classList.contains('wrong') === {}",
            !filter.is_empty()
        );
        browser.wait_for("the answer", &is_answered);
        for width in (360..=1400).step_by(40) {
            browser.emulate((width, 700), "light");
            browser.wait_for("the size", &format!("return innerWidth === {width}"));
            let wide = browser.run(OVERFLOWING);
            assert_eq!(wide, json!([]), "{width} pixels, filter {filter:?}");
        }
    }
}

#[test]
fn span_range_and_tracks_are_found_read_and_hidden_with_keys_alone() {
    let lab = Lab::new();
    let (_web, browser) = open(&lab);
    // A span is found by its name, and its details are read.
    browser.press("/");
    type_text(&browser, "part");
    browser.press(ENTER);
    browser.wait_for(
        "the span that was found",
        "return document.getElementById('panel-title').textContent === 'part'
             && document.getElementById('panel-facts').textContent.includes('vtid')",
    );
    // Another one of the list.
    let before = text(&browser, "panel-facts");
    tab_to(
        &browser,
        "the list",
        "node.closest('#panel-found') !== null",
    );
    browser.press(TAB);
    browser.press(TAB);
    browser.press(ENTER);
    wait_until("another span", || text(&browser, "panel-facts") != before);
    let is_in_list = "return document.activeElement.closest('#panel-found') !== null";
    assert_eq!(browser.run(is_in_list), true, "the focus stays in the list");
    // The keys of the page work there: the range of the span, and its summary.
    browser.press("m");
    browser.wait_for(
        "the summary of the span",
        "return document.getElementById('panel-title').textContent === 'Selected range'
             && /part/.test(document.querySelector('#panel-summary table')?.textContent ?? '')",
    );
    tab_to(
        &browser,
        "the tab of events",
        "node.id === 'summary-events'",
    );
    browser.press(ENTER);
    browser.wait_for(
        "the events",
        "return document.getElementById('summary-events').ariaSelected === 'true'
             && document.activeElement.id === 'summary-events'",
    );
    // A column puts the table in order, and keeps the focus.
    tab_to(&browser, "a column", "node.closest('th') !== null");
    browser.press(ENTER);
    let is_sorted = "return document.activeElement.closest('th')?.ariaSort ?? false";
    browser.wait_for("the order", is_sorted);
    browser.press("f");
    let is_fitted = format!(
        "return __view().from !== '{BEGIN}' && Number(BigInt(__view().to) - BigInt(__view().from)) < 3e6"
    );
    browser.wait_for("the range fills the view", &is_fitted);
    // A track is hidden, and shown again.
    browser.press("r");
    browser.wait_for("the tracks", PANELS[2].2);
    let hide = "node.ariaLabel === 'Hide: process 7 / thread 12'";
    tab_to(&browser, "the button", hide);
    browser.press(SPACE);
    let has_lane = "return __view().lanes.includes('thread 12')";
    wait_until("the track is hidden", || browser.run(has_lane) == false);
    let show = "node.ariaLabel === 'Show: process 7 / thread 12'";
    assert_eq!(
        browser.run(&format!(
            "const node = document.activeElement; return {show}"
        )),
        true,
        "the focus stays where it was"
    );
    browser.press(SPACE);
    wait_until("the track is shown", || browser.run(has_lane) == true);
    browser.press(ESCAPE);
    let is_closed = "return document.getElementById('panel').hidden";
    browser.wait_for("no panel", is_closed);
}
