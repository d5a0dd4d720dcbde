//! Words that the vocabulary of the project replaces. `avoided-words.txt` lists them: each line has
//! one word as it would stand in code, and the term to use instead.

use crate::source::{packages, sources};

const AVOIDED: &str = include_str!("avoided-words.txt");

#[test]
fn no_source_file_contains_a_word_that_the_vocabulary_replaces() {
    let avoided: Vec<_> = AVOIDED
        .lines()
        .map(|line| line.split_once(" -> ").expect("a word and its replacement"))
        .collect();
    let mut found = Vec::new();
    for source in packages().into_iter().flat_map(|package| sources(&package)) {
        for (number, line) in (1..).zip(source.text.lines()) {
            let line = line.to_lowercase();
            let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            for word in words {
                if let Some((_, term)) = avoided.iter().find(|(avoided, _)| *avoided == word) {
                    let path = source.path.display();
                    found.push(format!("{path}:{number}: {word}: use {term}"));
                }
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}
