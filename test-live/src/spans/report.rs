//! The rows as a table and as JSON.

use std::cmp::Reverse;
use std::io::{self, Write};

use ::tef::event::OwnerId;
use daemon::event_text::{printable, push_duration};
use daemon::output;
use serde::Serialize;
use unicode_width::UnicodeWidthStr;
use viewer::interpret::name_numbers::OTHER;
use viewer::interpret::span_meter::SpanMeter;
use viewer::interpret::span_owners::SpanOwner;

use super::table::{SpanRow, SpanTable};
use crate::cli::{SpanGroup, SpanSort};

/// Largest number of columns of a name or process by which those of other rows are moved.
const MAX_PADDED_COLUMNS: usize = 40;
/// Number of columns of a terminal that are for processes and names.
const MIN_NAME_COLUMNS: usize = 24;
/// The columns that are left out on a narrow terminal, the first one first.
const OPTIONAL_COLUMNS: [&str; 6] = ["NO BEGIN", "MEAN", "P90", "OPEN", "P50", "MAX"];

/// A row with the names that are known now.
#[derive(Debug)]
pub(super) struct NamedRow<'a> {
    pub(super) row: &'a SpanRow,
    pub(super) name: &'a str,
    /// The process, or process and thread, of the row. Absent if rows have none.
    owner: Option<RowOwner>,
}

/// The process and thread of a row, also as people see them.
#[derive(Debug)]
struct RowOwner {
    owner: SpanOwner,
    process: String,
    thread: String,
}

/// How rows are shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReportOptions {
    pub(super) group: Option<SpanGroup>,
    pub(super) sort: SpanSort,
    pub(super) limit: Option<usize>,
}

/// The id of a process or thread: a number, or what the program calls it.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ReportedId<'a> {
    Number(i64),
    Text(&'a str),
}

/// A row as JSON.
#[derive(Debug, Serialize)]
struct ReportedRow<'a> {
    #[serde(flatten)]
    owner: Option<ReportedOwner<'a>>,
    name: &'a str,
    count: u64,
    total_ns: u64,
    self_ns: u64,
    mean_ns: u64,
    min_ns: u64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    max_ns: u64,
    open: u64,
    without_begin: u64,
}

#[derive(Debug, Serialize)]
struct ReportedOwner<'a> {
    host: &'a str,
    process: &'a str,
    pid: Option<ReportedId<'a>>,
    #[serde(flatten)]
    thread: Option<ReportedThread<'a>>,
}

#[derive(Debug, Serialize)]
struct ReportedThread<'a> {
    thread: &'a str,
    tid: Option<ReportedId<'a>>,
}

/// The rows in the order in which they are shown.
pub(super) fn sorted_rows<'a>(
    meter: &'a SpanMeter<SpanTable>,
    options: ReportOptions,
) -> Vec<NamedRow<'a>> {
    let has_hosts = meter.has_several_hosts();
    let named = meter.observer().rows().map(|row| NamedRow {
        row,
        name: row.key.map_or(OTHER, |key| meter.names().shown(key.name)),
        owner: options.group.map(|_| {
            let owner = meter.owner(row.key.map_or(0, |key| key.owner));
            RowOwner {
                process: printable(&owner.process_label(has_hosts)),
                thread: printable(&owner.thread_label()),
                owner,
            }
        }),
    });
    let mut rows: Vec<_> = named.collect();
    let of_row = |row: &SpanRow| match options.sort {
        SpanSort::Total => row.total,
        SpanSort::SelfTime => row.own,
        SpanSort::Count => row.count,
        SpanSort::Mean => row.mean(),
        SpanSort::P50 => row.percentile(50),
        SpanSort::P90 => row.percentile(90),
        SpanSort::P99 => row.percentile(99),
        SpanSort::Max => row.max,
        SpanSort::Name => 0,
    };
    // The names decide between equals, so that the order is the same each time.
    rows.sort_by_cached_key(|named| {
        let owner = named.owner.as_ref();
        let owner = owner.map(|owner| (owner.process.clone(), owner.thread.clone()));
        (Reverse(of_row(named.row)), named.name, owner)
    });
    rows.truncate(options.limit.unwrap_or(usize::MAX));
    rows
}

/// Writes the rows as a JSON array.
pub(super) fn write_json(
    rows: &[NamedRow<'_>],
    group: Option<SpanGroup>,
    out: &mut impl Write,
) -> io::Result<()> {
    let reported = rows.iter().map(|NamedRow { row, name, owner }| {
        let owner = owner.as_ref().map(|RowOwner { owner, .. }| ReportedOwner {
            host: &owner.host,
            process: &owner.process,
            pid: owner.pid.as_ref().map(reported_id),
            thread: (group == Some(SpanGroup::Thread)).then(|| ReportedThread {
                thread: &owner.thread,
                tid: owner.tid.as_ref().map(reported_id),
            }),
        });
        ReportedRow {
            owner,
            name,
            count: row.count,
            total_ns: row.total,
            self_ns: row.own,
            mean_ns: row.mean(),
            min_ns: row.min,
            p50_ns: row.percentile(50),
            p90_ns: row.percentile(90),
            p99_ns: row.percentile(99),
            max_ns: row.max,
            open: row.open,
            without_begin: row.without_begin,
        }
    });
    output::write_json(&reported.collect::<Vec<_>>(), out)
}

/// The rows as a table. Without room in `width`, optional columns are left out.
pub(super) fn table_text(rows: &[NamedRow<'_>], group: Option<SpanGroup>, width: usize) -> String {
    let has_open = rows.iter().any(|of| of.row.open > 0);
    let is_any_without_begin = rows.iter().any(|of| of.row.without_begin > 0);
    let is_thread = group == Some(SpanGroup::Thread);
    let mut columns: Vec<(&str, Vec<String>)> = vec![
        ("COUNT", cells(rows, |row| row.count.to_string())),
        ("TOTAL", cells(rows, |row| duration(row, row.total))),
        ("SELF", cells(rows, own_time)),
        ("MEAN", cells(rows, |row| duration(row, row.mean()))),
        ("P50", cells(rows, |row| duration(row, row.percentile(50)))),
        ("P90", cells(rows, |row| duration(row, row.percentile(90)))),
        ("P99", cells(rows, |row| duration(row, row.percentile(99)))),
        ("MAX", cells(rows, |row| duration(row, row.max))),
    ];
    if has_open {
        columns.push(("OPEN", cells(rows, |row| row.open.to_string())));
    }
    if is_any_without_begin {
        let cell = |row: &SpanRow| row.without_begin.to_string();
        columns.push(("NO BEGIN", cells(rows, cell)));
    }
    for title in OPTIONAL_COLUMNS {
        let widths = columns.iter().map(|(title, cells)| width_of(title, cells));
        if widths.map(|width| width + 2).sum::<usize>() + MIN_NAME_COLUMNS > width {
            columns.retain(|(of, _)| *of != title);
        }
    }
    let mut lines = vec![String::new(); rows.len() + 1];
    for (title, cells) in columns {
        let width = width_of(title, &cells);
        let cells = std::iter::once(title.to_owned()).chain(cells);
        for (line, cell) in lines.iter_mut().zip(cells) {
            line.push_str(&format!("{cell:>width$}  "));
        }
    }
    let mut texts = Vec::new();
    if group.is_some() {
        let owners = rows.iter().filter_map(|row| row.owner.as_ref());
        let processes = owners.clone().map(|owner| owner.process.clone());
        texts.push(("PROCESS", processes.collect()));
        if is_thread {
            let threads = owners.map(|owner| owner.thread.clone());
            texts.push(("THREAD", threads.collect::<Vec<_>>()));
        }
    }
    texts.push(("NAME", rows.iter().map(|row| printable(row.name)).collect()));
    let last = texts.len() - 1;
    for (place, (title, cells)) in texts.into_iter().enumerate() {
        let width = width_of(title, &cells).min(MAX_PADDED_COLUMNS);
        let cells = std::iter::once(title.to_owned()).chain(cells);
        for (line, cell) in lines.iter_mut().zip(cells) {
            line.push_str(&cell);
            if place < last {
                let padding = width.saturating_sub(cell.width()) + 2;
                line.extend(std::iter::repeat_n(' ', padding));
            }
        }
    }
    lines
        .iter()
        .flat_map(|line| [line.trim_end(), "\n"])
        .collect()
}

/// The width of a column.
fn width_of(title: &str, cells: &[String]) -> usize {
    let widths = cells.iter().map(|cell| cell.width());
    widths.max().unwrap_or(0).max(title.len())
}

fn cells(rows: &[NamedRow<'_>], cell: impl Fn(&SpanRow) -> String) -> Vec<String> {
    rows.iter().map(|of| cell(of.row)).collect()
}

/// A duration of spans, if there are any.
fn duration(row: &SpanRow, nanoseconds: u64) -> String {
    if row.count == 0 {
        return "-".to_owned();
    }
    let mut text = String::new();
    push_duration(&mut text, nanoseconds);
    text
}

fn own_time(row: &SpanRow) -> String {
    match row.without_own {
        0 => duration(row, row.own),
        // While programs send spans that may be around others.
        _ => "?".to_owned(),
    }
}

fn reported_id<'a>(id: &'a OwnerId<'_>) -> ReportedId<'a> {
    match id {
        OwnerId::Number(number) => ReportedId::Number(*number),
        OwnerId::Text(text) => ReportedId::Text(text),
    }
}

#[cfg(test)]
mod tests {
    use viewer::interpret::span_observer::SpanObserver;
    use viewer::interpret::span_owners::OwnerNumber;

    use super::*;

    #[test]
    fn a_narrow_table_leaves_out_columns_and_keeps_names() {
        let mut table = SpanTable::new(None);
        let owner = OwnerNumber {
            process: 1,
            thread: 1,
        };
        for duration in [1_500_000, 2_500_000] {
            let mark = table.begin(owner, 0, None);
            table.end(mark, duration);
            table.add_own_time(mark, 1_000_000);
        }
        table.miss_begin(owner, 0);
        let rows: Vec<_> = table.rows().collect();
        let rows = rows.iter().map(|row| NamedRow {
            row,
            name: "日本\n",
            owner: None,
        });
        let rows: Vec<_> = rows.collect();
        let whole = table_text(&rows, None, usize::MAX);
        let expected = "\
COUNT    TOTAL     SELF     MEAN      P50      P90      P99      MAX  NO BEGIN  NAME
    2  4.00 ms  2.00 ms  2.00 ms  1.50 ms  2.50 ms  2.50 ms  2.50 ms         1  日本\\n
";
        assert_eq!(whole, expected);
        let narrow = table_text(&rows, None, 80);
        let expected = "\
COUNT    TOTAL     SELF      P50      P99      MAX  NAME
    2  4.00 ms  2.00 ms  1.50 ms  2.50 ms  2.50 ms  日本\\n
";
        assert_eq!(narrow, expected);
        let narrowest = table_text(&rows, None, 0);
        assert!(narrowest.starts_with("COUNT    TOTAL     SELF      P99  NAME\n"));
    }
}
