//! Tables written by `test-live --sink parquet`, read by DuckDB.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tests::lab::Lab;
use tests::{peers, test_live};

/// Lets `test-live` write the tables of an input. Returns their directory.
pub(crate) fn write(lab: &Lab, input: &Path, name: &str) -> PathBuf {
    let output = lab.path().join(name);
    let words = [
        "--quiet",
        "--sink",
        "parquet",
        "--output",
        output.to_str().unwrap(),
    ];
    let ended = test_live::read(lab, &words, input);
    assert!(
        ended.status.success(),
        "{}: {:?}",
        input.display(),
        ended.stderr
    );
    output
}

/// Returns all rows of a directory of tables, in the order of files and of rows in them.
pub(crate) fn rows(directory: &Path) -> Vec<Value> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/export/rows.py");
    let read = peers::python_with_duckdb()
        .arg(script)
        .arg(directory)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&read.stderr);
    assert!(read.status.success(), "{}: {errors}", directory.display());
    let text = String::from_utf8(read.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns the lines of `--sink json` for an input.
pub(crate) fn json_lines(lab: &Lab, input: &Path) -> Vec<Value> {
    let ended = test_live::read(lab, &["--quiet", "--sink", "json"], input);
    let lines = ended.expect_success();
    lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns the paths of all files at or below a directory, relative to it and in order.
pub(crate) fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => left.push(path),
                false => found.push(path.strip_prefix(directory).unwrap().to_owned()),
            }
        }
    }
    found.sort();
    found
}
