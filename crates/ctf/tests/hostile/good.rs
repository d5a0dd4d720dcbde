//! Small valid metadata texts, which together have all field classes, in both byte orders.
#![allow(unreachable_pub, reason = "the fuzz targets use it too")]

use ctf::Metadata;

const TEXTS: [&str; 6] = [
    include_str!("metadata/classes.tsdl"),
    include_str!("metadata/bits.tsdl"),
    include_str!("metadata/empty.tsdl"),
    include_str!("metadata/written.tsdl"),
    include_str!("metadata/classes.json"),
    include_str!("metadata/optional.json"),
];

/// Each of the texts, little-endian at the even places, big-endian at the odd ones.
pub fn texts() -> Vec<String> {
    let orders = |text: &str| {
        let big = text
            .replace("byte_order = le", "byte_order = be")
            .replace("little-endian", "big-endian")
            .replace("-16le", "-16be");
        [sequence(text), sequence(&big)]
    };
    TEXTS.iter().flat_map(|text| orders(text)).collect()
}

/// All of them, read.
#[allow(dead_code, reason = "for the fuzz target")]
pub fn all() -> Vec<Metadata> {
    let read = |text: &String| Metadata::read(text.as_bytes());
    let all: Result<Vec<_>, _> = texts().iter().map(read).collect();
    all.unwrap_or_else(|error| unreachable!("good metadata: {error}"))
}

/// Each JSON fragment is a line, so that the files are text.
fn sequence(text: &str) -> String {
    if !text.starts_with('{') {
        return text.to_owned();
    }
    text.lines().map(|line| format!("\x1e{line}\n")).collect()
}
