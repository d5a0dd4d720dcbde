//! The commands of a page of the documentation, so that tests run what users read.

use std::fs;
use std::path::Path;

/// A page, and which of its blocks of commands a test has used.
#[derive(Debug)]
pub struct Page {
    name: String,
    blocks: Vec<Block>,
}

/// A block of commands: what stands between "```sh" and "```".
#[derive(Debug)]
struct Block {
    text: String,
    is_used: bool,
}

impl Page {
    /// Reads a page. `name` is its path below the root of the workspace.
    ///
    /// # Panics
    /// If there is no such page.
    #[must_use]
    pub fn open(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
        let text = fs::read_to_string(&path).unwrap();
        let mut blocks = Vec::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line.starts_with("```") {
                let is_shell = line == "```sh";
                let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
                if is_shell {
                    blocks.push(Block {
                        text: block.join("\n"),
                        is_used: false,
                    });
                }
            }
        }
        Self {
            name: name.to_owned(),
            blocks,
        }
    }

    /// Returns the only block that contains a text, with the names of the machines in place of
    /// COLLECTOR and TRACED.
    ///
    /// # Panics
    /// If there is no such block, or there are several.
    pub fn commands(&mut self, text: &str) -> String {
        let name = &self.name;
        let mut found = self
            .blocks
            .iter_mut()
            .filter(|block| block.text.contains(text));
        let block = found
            .next()
            .unwrap_or_else(|| panic!("{name} has no block with {text:?}"));
        assert!(found.next().is_none(), "{name} has several with {text:?}");
        block.is_used = true;
        block
            .text
            .replace("COLLECTOR", "collector")
            .replace("TRACED", "traced")
    }

    /// Checks that the test has used all blocks, except those that contain one of these texts and
    /// cannot be run.
    ///
    /// # Panics
    /// If a block was not used.
    pub fn assert_all_used(&self, not_run: &[&str]) {
        let is_excepted = |block: &&Block| not_run.iter().any(|text| block.text.contains(text));
        let left: Vec<&str> = self
            .blocks
            .iter()
            .filter(|block| !block.is_used && !is_excepted(block))
            .map(|block| block.text.as_str())
            .collect();
        assert!(left.is_empty(), "{}: never run: {left:#?}", self.name);
    }
}
