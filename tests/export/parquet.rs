//! Tables have what `--sink json` shows of the same traces, row for row.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use ctf::write::{FieldType, Value as FieldValue};
use ctf::{Timestamp, TraceWriter};
use serde_json::Value;
use tests::lab::Lab;
use tests::{collections, peers, test_live, traces};

use super::canonical::{of_line, of_row};
use super::{inputs, tables};

/// Fails unless the tables of an input have what JSON has, in order of time in each file.
fn assert_same_rows(lab: &Lab, input: &Path, name: &str) -> Vec<Value> {
    let lines = tables::json_lines(lab, input);
    let rows = tables::rows(&tables::write(lab, input, name));
    assert_equal(&rows, &lines, input);
    let times: Vec<_> = lines
        .iter()
        .filter_map(|line| line["time"].as_i64())
        .collect();
    if !times.is_sorted() {
        // The clock was set back.
        return rows;
    }
    let mut last: HashMap<&str, i64> = HashMap::new();
    for row in &rows {
        let Some(time) = row["ts"].as_i64() else {
            continue;
        };
        let last = last
            .entry(row["filename"].as_str().unwrap())
            .or_insert(i64::MIN);
        assert!(*last <= time, "{}: {row}", input.display());
        *last = time;
    }
    rows
}

/// Fails unless rows are those of the lines, in whatever order.
pub(crate) fn assert_equal(rows: &[Value], lines: &[Value], what: &Path) {
    let mut shown: Vec<_> = rows.iter().map(of_row).collect();
    let mut want: Vec<_> = lines.iter().map(of_line).collect();
    shown.sort();
    want.sort();
    let what = what.display();
    for (shown, want) in shown.iter().zip(&want) {
        assert_eq!(shown, want, "{what}");
    }
    assert_eq!(shown.len(), want.len(), "{what}");
}

#[test]
fn tables_of_synthetic_traces_have_the_rows_of_json() {
    let lab = Lab::new();
    for (number, input) in inputs::synthetic(&lab).iter().enumerate() {
        let rows = assert_same_rows(&lab, input, &format!("tables-{number}"));
        assert!(!rows.is_empty(), "{}", input.display());
    }
}

#[test]
fn tables_of_every_class_of_fields_have_the_rows_of_json() {
    let lab = Lab::new();
    let (mut with_rows, mut shown) = (0, 0);
    let cases = inputs::reader_cases(&lab);
    for (number, input) in cases.iter().enumerate() {
        // Some cases are pieces of metadata that no directory has.
        let json = test_live::read(&lab, &["--quiet", "--sink", "json"], input);
        if json.status.success() {
            let rows = assert_same_rows(&lab, input, &format!("tables-{number}"));
            with_rows += usize::from(!rows.is_empty());
            shown += 1;
        }
    }
    assert!(
        shown > 60 && with_rows > 50,
        "{with_rows} of {shown} of {}",
        cases.len()
    );
}

#[test]
fn tables_of_recordings_have_the_rows_of_json() {
    let lab = Lab::new();
    for buffers in ["--buffers-uid", "--buffers-pid"] {
        let lab = Lab::new();
        let input = traces::recorded_by_lttng(&lab, buffers, 3000);
        let rows = assert_same_rows(&lab, &input, "tables");
        assert!(rows.len() >= 6000, "{buffers}: {}", rows.len());
        let is_named = |row: &Value| row["session"].as_str() == Some("recording");
        assert!(rows.iter().all(is_named), "{buffers}: {:?}", rows.first());
    }
    for (number, input) in inputs::captured(&lab).iter().enumerate() {
        let rows = assert_same_rows(&lab, input, &format!("tables-{number}"));
        assert!(!rows.is_empty(), "{}", input.display());
    }
}

#[test]
fn tables_of_collected_traces_have_the_rows_of_json() {
    let lab = Lab::new();
    for (name, input) in &collections::valid_traces() {
        assert_same_rows(&lab, input, name);
        fs::remove_dir_all(lab.path().join(name)).unwrap();
    }
}

/// Writes a trace with some events of one class.
fn write_trace(
    directory: &Path,
    name: &str,
    fields: &[(&str, FieldType)],
    values: &[FieldValue<'_>],
) {
    let mut trace = TraceWriter::create(directory).unwrap();
    let class = trace.event_class(name, fields).unwrap();
    trace.write(&class, Timestamp(1_000_000), values).unwrap();
    trace.finish().unwrap();
}

#[test]
fn classes_of_one_name_with_other_fields_are_joined_by_name() {
    let lab = Lab::new();
    let input = lab.directory("input");
    let number = FieldType::Unsigned(ctf::write::Width::Bits64);
    let texts = [("id", FieldType::Text), ("Name", FieldType::Text)];
    let numbers = [
        ("id", number.clone()),
        ("name", FieldType::Text),
        ("count", number),
    ];
    let (a, b, max) = (
        FieldValue::Text("a"),
        FieldValue::Text("b"),
        FieldValue::Unsigned(u64::MAX),
    );
    write_trace(&input.join("one"), "app:step", &texts, &[a, b]);
    write_trace(
        &input.join("two"),
        "app:step",
        &numbers,
        &[max, b, FieldValue::Unsigned(1)],
    );
    write_trace(&input.join("three"), "app:step", &texts, &[b, a]);
    let output = tables::write(&lab, &input, "tables");
    // Those of equal classes are in one file.
    assert_eq!(tables::files(&output).len(), 2);
    let mut rows: Vec<_> = tables::rows(&output)
        .iter()
        .map(|row| row["fields"].to_string())
        .collect();
    rows.sort();
    assert_eq!(rows.len(), 3, "{rows:#?}");
    assert!(
        rows.iter().any(|row| row.contains("18446744073709551615")),
        "{rows:#?}"
    );
    assert_eq!(
        rows.iter().filter(|row| row.contains("\"a\"")).count(),
        2,
        "{rows:#?}"
    );
}

#[test]
fn hostile_names_are_directories_within_the_output_and_read_back() {
    let lab = Lab::new();
    let input = lab.directory("input");
    let names = [
        "../../etc/passwd",
        "..",
        "a=b/c%2F",
        "\u{1b}[2J' \"*?[x]{y}",
        "é€",
        "1",
        "1.5",
    ];
    for (number, name) in names.iter().enumerate() {
        let values = [FieldValue::Text("x")];
        write_trace(
            &input.join(number.to_string()),
            name,
            &[(name, FieldType::Text)],
            &values,
        );
    }
    let output = tables::write(&lab, &input, "tables");
    let files = tables::files(&output);
    assert_eq!(files.len(), names.len(), "{files:?}");
    assert!(
        files.iter().all(|file| file.components().count() == 4),
        "{files:?}"
    );
    let rows = tables::rows(&output);
    let mut events: Vec<_> = rows
        .iter()
        .map(|row| row["event"].as_str().unwrap())
        .collect();
    events.sort_unstable();
    let mut want = names;
    want.sort_unstable();
    assert_eq!(events, want);
}

#[test]
fn duckdb_reads_only_the_row_groups_of_the_times_that_are_asked_for() {
    let lab = Lab::new();
    let input = traces::with_numbered_events(&lab, "app:step", 20_000, 1000);
    let output = tables::write(&lab, &input, "tables");
    let query = format!(
        "SELECT count(*) > 1, count(stats_min) = count(*), count(DISTINCT stats_max) = count(*) \
         FROM parquet_metadata('{}/**/*.parquet') WHERE path_in_schema = 'ts'",
        output.display()
    );
    let script = "import duckdb, sys; print(*duckdb.sql(sys.argv[1]).fetchall()[0])";
    let read = peers::python_with_duckdb()
        .args(["-c", script, &query])
        .output()
        .unwrap();
    // Several row groups, with the least and the greatest time of each.
    assert_eq!(
        String::from_utf8_lossy(&read.stdout),
        "True True True\n",
        "{read:?}"
    );
}
