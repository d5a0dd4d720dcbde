//! Configuration files: options by their long names, in the section `[relayd]`. What a file says is
//! put as a command line would, and read as one.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use clap::{ArgAction, CommandFactory, Parser};
use thiserror::Error;

use super::Arguments;

/// The file of the whole system.
const SYSTEM: &str = "/etc/lttng/lttng.conf";

/// The user's, below the home directory.
const USER: &str = ".lttng/lttng.conf";

/// Section for this program; others are for the other programs of LTTng.
const SECTION: &str = "relayd";

/// Options that make no sense in a file.
const NOT_HERE: [&str; 3] = ["config", "help", "version"];

/// Why a configuration file is no use.
#[derive(Debug, Error)]
pub enum FileError {
    /// It was asked for and is not there, or is not text.
    #[error("cannot read configuration {}: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// An option has a value that it cannot have.
    #[error("in the configuration files {}: {why}", .paths.join(", "))]
    Value {
        /// Those that were read.
        paths: Vec<String>,
        /// What is wrong.
        why: String,
    },
}

/// What the configuration files say together.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// By name; a later file takes the place of an earlier one.
    options: BTreeMap<String, Value>,
    read: Vec<String>,
    /// What was not understood, to be told once there is a log.
    pub(super) warnings: Vec<String>,
}

#[derive(Debug)]
enum Value {
    Switch(bool),
    Times(u8),
    Text(String),
}

impl Files {
    /// Reads those of the system and of the user, if they are there, and then `named`, which must be.
    pub(super) fn read(home: Option<&Path>, named: Option<&Path>) -> Result<Self, FileError> {
        let mut files = Self::default();
        let user = home.map(|home| home.join(USER));
        for path in [Some(Path::new(SYSTEM)), user.as_deref()]
            .into_iter()
            .flatten()
        {
            // One that may not be read is none of this user's.
            if let Ok(text) = std::fs::read_to_string(path) {
                files.add(path, &text);
            }
        }
        if let Some(path) = named {
            let text = std::fs::read_to_string(path).map_err(|source| FileError::Unreadable {
                path: path.to_owned(),
                source,
            })?;
            files.add(path, &text);
        }
        Ok(files)
    }

    fn add(&mut self, path: &Path, text: &str) {
        self.read.push(path.display().to_string());
        let mut is_ours = false;
        for (number, line) in text.lines().enumerate() {
            let line = without_comment(line).trim();
            if line.is_empty() {
                continue;
            }
            if let Some(section) = line.strip_prefix('[') {
                is_ours = section.split(']').next().map(str::trim) == Some(SECTION);
                continue;
            }
            if !is_ours {
                continue;
            }
            if let Err(doubt) = self.take(line) {
                let at = format!("{}:{}", path.display(), number + 1);
                self.warnings.push(format!("{at}: {doubt}"));
            }
        }
    }

    fn take(&mut self, line: &str) -> Result<(), String> {
        let (name, value) = line
            .split_once(['=', ':'])
            .ok_or_else(|| format!("{line:?} is not of the form NAME=VALUE"))?;
        let (name, value) = (name.trim(), value.trim());
        let command = Arguments::command();
        let option = command
            .get_arguments()
            .find(|option| option.get_long() == Some(name) && !NOT_HERE.contains(&name))
            .ok_or_else(|| format!("no option {name:?} is known"))?;
        let switched = switch(value);
        let wrong = || format!("{name}: {value:?} is neither true, yes, on nor false, no, off");
        let value = match option.get_action() {
            ArgAction::SetTrue => Value::Switch(switched.ok_or_else(wrong)?),
            ArgAction::Count => {
                let times = switched.map(u8::from).or_else(|| value.parse().ok());
                Value::Times(times.ok_or_else(wrong)?)
            }
            _ => Value::Text(value.to_owned()),
        };
        self.options.insert(name.to_owned(), value);
        Ok(())
    }

    /// The arguments that would say the same.
    pub(super) fn arguments(&self) -> Result<Arguments, FileError> {
        let words = self.options.iter().flat_map(|(name, value)| {
            let (word, times) = match value {
                Value::Switch(on) => (format!("--{name}"), usize::from(*on)),
                Value::Times(times) => (format!("--{name}"), usize::from(*times)),
                Value::Text(text) => (format!("--{name}={text}"), 1),
            };
            std::iter::repeat_n(word, times)
        });
        let line = std::iter::once("relayd".to_owned()).chain(words);
        Arguments::try_parse_from(line).map_err(|error| FileError::Value {
            paths: self.read.clone(),
            why: error.to_string().trim_end().to_owned(),
        })
    }
}

/// A line up to a `#` or `;` that begins it or follows a blank.
fn without_comment(line: &str) -> &str {
    let mut after_blank = true;
    for (at, letter) in line.char_indices() {
        if after_blank && matches!(letter, '#' | ';') {
            return line.split_at(at).0;
        }
        after_blank = letter.is_whitespace();
    }
    line
}

/// The value of a switch, in a file or a variable.
pub(crate) fn switch(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(texts: &[&str]) -> Files {
        let mut files = Files::default();
        for text in texts {
            files.add(Path::new("lttng.conf"), text);
        }
        files
    }

    #[test]
    fn options_stand_by_their_long_names_in_the_section_of_the_relay() {
        let files = files(&["\
# A comment.
[sessiond]
output=/not/ours
[relayd]
output = /traces ; where there is room
disallow-clear=Yes
background:on
verbose=2
"]);
        let arguments = files.arguments().unwrap();
        assert_eq!(arguments.output, Some(PathBuf::from("/traces")));
        assert!(arguments.disallow_clear && arguments.background && !arguments.daemonize);
        assert_eq!(arguments.verbose, 2);
        assert!(files.warnings.is_empty());
    }

    #[test]
    fn the_later_file_counts() {
        let files = files(&[
            "[relayd]\ndisallow-clear=true\noutput=/a\ngroup=b",
            "[relayd]\ndisallow-clear=off\noutput=/c#d",
        ]);
        let arguments = files.arguments().unwrap();
        assert!(!arguments.disallow_clear);
        assert_eq!(arguments.output, Some(PathBuf::from("/c#d")));
        assert_eq!(arguments.group.as_deref(), Some("b"));
    }

    #[test]
    fn what_is_not_understood_is_told_and_passed_over() {
        let files = files(&[
            "[relayd]\nnonsense=1\nversion=yes\nconfig=/x\ndaemonize=perhaps\nalone\nverbose=much\n",
        ]);
        assert_eq!(files.warnings.len(), 6, "{:?}", files.warnings);
        assert!(files.warnings[0].starts_with("lttng.conf:2: "));
        assert!(files.warnings[0].contains("nonsense"));
        assert_eq!(
            files.arguments().unwrap().mode(),
            super::super::Mode::Foreground
        );
    }

    #[test]
    fn a_value_that_an_option_cannot_have_is_an_error() {
        let wrong = files(&["[relayd]\nfd-pool-size=7\n"]);
        let said = wrong.arguments().unwrap_err().to_string();
        assert!(
            said.contains("lttng.conf") && said.contains("fd-pool-size"),
            "{said}"
        );
        let missing = Files::read(None, Some(Path::new("/no/such/file")));
        assert!(missing.unwrap_err().to_string().contains("/no/such/file"));
    }
}
