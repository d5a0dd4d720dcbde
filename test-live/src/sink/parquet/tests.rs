//! The budget of memory and files.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::destination::Destination;
use super::schema::{KnownFields, TableSchema};
use super::tables::{Limits, TableKey, Tables};

fn key(number: usize) -> TableKey {
    TableKey {
        event: Some(format!("e{number}").into()),
        day: None,
        host: None,
        schema: 1,
    }
}

#[expect(clippy::unwrap_used, reason = "a helper of tests")]
fn files(directory: &Path) -> usize {
    let entries = fs::read_dir(directory).unwrap();
    let count = |path: &Path| match path.is_dir() {
        true => files(path),
        false => 1,
    };
    entries.map(|entry| count(&entry.unwrap().path())).sum()
}

#[test]
fn tables_beyond_the_file_limit_have_no_file_until_they_are_written() {
    let root = tempfile::tempdir().unwrap();
    let limits = Limits {
        max_files: 3,
        ..Limits::default()
    };
    let mut tables = Tables::new(Destination::open(root.path(), None).unwrap(), limits);
    let schema = TableSchema::without_fields(&mut KnownFields::default()).unwrap();
    let schema = Arc::new(schema);
    for number in 0..10 {
        tables.place(key(number), &schema).unwrap();
    }
    assert_eq!(files(root.path()), 3);
    tables.finish().unwrap();
    assert_eq!(files(root.path()), 3);
}

#[test]
fn tables_without_rows_count_in_the_memory_budget() {
    let root = tempfile::tempdir().unwrap();
    let limits = Limits {
        max_bytes: 100_000,
        ..Limits::default()
    };
    let mut tables = Tables::new(Destination::open(root.path(), None).unwrap(), limits);
    let schema = TableSchema::without_fields(&mut KnownFields::default()).unwrap();
    let schema = Arc::new(schema);
    for number in 0..1000 {
        tables.place(key(number), &schema).unwrap();
        tables.enforce_budget().unwrap();
        assert!(tables.bytes() <= 100_000, "{}", tables.bytes());
    }
}

#[test]
fn files_end_at_their_deadline_and_not_before() {
    let root = tempfile::tempdir().unwrap();
    let mut tables = Tables::new(
        Destination::open(root.path(), None).unwrap(),
        Limits::default(),
    );
    let schema = TableSchema::without_fields(&mut KnownFields::default()).unwrap();
    let place = tables.place(key(1), &Arc::new(schema)).unwrap();
    let now = Instant::now();
    assert!(tables.close_old(now).unwrap().is_some());
    assert!(tables.is_open(place));
    assert_eq!(
        tables.close_old(now + Duration::from_secs(61)).unwrap(),
        None
    );
    assert!(!tables.is_open(place));
}
