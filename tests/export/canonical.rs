//! Rows of tables and lines of JSON in one form, in which they are equal if they say the same.
//!
//! JSON shows of a variant the option that is taken, a table all options, of which the others are
//! null. So within the scopes, null members are left out, and a structure with one member is that
//! member, on both sides.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The columns of a table that the lines of JSON say too, by the names of both.
const SAME: [(&str, &str); 5] = [
    ("trace", "trace"),
    ("stream", "stream"),
    ("procname", "procname"),
    ("vpid", "vpid"),
    ("loglevel", "loglevel"),
];
const SCOPES: [&str; 4] = ["packet", "context", "event_context", "fields"];

/// The seconds of a day.
const DAY: i64 = 86_400;

/// A row in the form that both sides have.
type Canonical = BTreeMap<String, String>;

/// Returns a row of a table, as DuckDB reads it.
pub(crate) fn of_row(row: &Value) -> Canonical {
    let mut columns = Canonical::new();
    for name in ["ts", "event", "day", "host", "cpu"] {
        insert(&mut columns, name, row[name].clone());
    }
    for (name, _) in SAME {
        insert(&mut columns, name, row[name].clone());
    }
    for scope in SCOPES {
        let mut fields = row.get(scope).cloned().unwrap_or_default();
        let is_sent = row["event"]
            .as_str()
            .is_some_and(|name| name.starts_with("tef:"));
        if is_sent && let Some(args) = fields.get_mut("args") {
            *args = sent_arguments(args);
        }
        insert_scope(&mut columns, scope, fields);
    }
    columns
}

/// Returns a line of JSON as the row of a table.
pub(crate) fn of_line(line: &Value) -> Canonical {
    let mut columns = Canonical::new();
    let time = line["time"].as_i64();
    insert(&mut columns, "ts", time.map_or(Value::Null, Value::from));
    let day = time.map(|time| date(time.div_euclid(1_000_000_000 * DAY)));
    insert(&mut columns, "day", day.map_or(Value::Null, Value::from));
    for (name, of) in [("event", "event"), ("host", "host")]
        .into_iter()
        .chain(SAME)
    {
        insert(
            &mut columns,
            name,
            line.get(of).cloned().unwrap_or_default(),
        );
    }
    insert(&mut columns, "cpu", line["packet"]["cpu_id"].clone());
    for scope in SCOPES {
        insert_scope(
            &mut columns,
            scope,
            line.get(scope).cloned().unwrap_or_default(),
        );
    }
    columns
}

fn insert(columns: &mut Canonical, name: &str, value: Value) {
    if !value.is_null() {
        columns.insert(name.to_owned(), value.to_string());
    }
}

/// Adds a scope: its members have their names, those within them are simplified.
fn insert_scope(columns: &mut Canonical, scope: &str, fields: Value) {
    let Value::Object(members) = fields else {
        assert!(fields.is_null(), "{scope}: {fields}");
        return;
    };
    for (name, value) in members {
        // A column has a name.
        let name = if name.is_empty() { "_" } else { &name };
        insert(columns, &format!("{scope}.{name}"), simplified(value));
    }
}

fn simplified(value: Value) -> Value {
    match value {
        Value::Array(elements) => elements.into_iter().map(simplified).collect(),
        Value::Object(members) => simplified_structure(members),
        other => other,
    }
}

fn simplified_structure(mut members: Map<String, Value>) -> Value {
    // An enumeration: a table has all labels as one text.
    let is_labelled = members.len() == 2 && members.get("value").is_some_and(Value::is_number);
    let labels = members.get("labels").and_then(Value::as_array);
    let labels = labels.and_then(|labels| labels.iter().map(Value::as_str).collect());
    if is_labelled && let Some::<Vec<_>>(labels) = labels {
        let label = match labels.is_empty() {
            true => Value::Null,
            false => labels.join(" | ").into(),
        };
        members.remove("labels");
        members.insert("label".to_owned(), label);
    }
    let members = members
        .into_iter()
        .map(|(name, value)| (name, simplified(value)));
    let mut members: Map<_, _> = members.filter(|(_, value)| !value.is_null()).collect();
    match members.len() {
        // A structure without members is true in a table.
        0 => true.into(),
        1 => members.values_mut().next().unwrap().take(),
        _ => members.into(),
    }
}

/// The arguments of an event of Trace Event Format, of which a table has the text.
fn sent_arguments(args: &Value) -> Value {
    let Some(text) = args.as_str() else {
        return args.clone();
    };
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) if !text.contains('\n') => object.into(),
        _ if text.is_empty() => Value::Null,
        _ => args.clone(),
    }
}

/// The date of a day that is counted from 1970, in the calendar that repeats every 400 years.
fn date(day: i64) -> String {
    // Days from 0000-03-01: years that begin in March end with the day that leap years add.
    let day = day + 719_468;
    let (era, day) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + next)
}

#[test]
fn the_date_of_a_day_is_that_of_the_calendar() {
    for (day, want) in [
        (0, "1970-01-01"),
        (-1, "1969-12-31"),
        (59, "1970-03-01"),
        (19_782, "2024-02-29"),
        (19_783, "2024-03-01"),
    ] {
        assert_eq!(date(day), want);
    }
}
