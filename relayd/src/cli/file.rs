//! Configuration files: long options in the section `[relayd]`, one `NAME=VALUE` per line. The
//! options of all files together are parsed as a command line, so that both accept the same names
//! and values.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use clap::{ArgAction, CommandFactory, Parser};
use thiserror::Error;

use super::Arguments;
use crate::config::parse_boolean;

/// Configuration file of the system.
const SYSTEM_FILE: &str = "/etc/lttng/lttng.conf";

/// Configuration file of the user, relative to the home directory.
const USER_FILE: &str = ".lttng/lttng.conf";

/// Section of this program. Other sections belong to the other programs of LTTng.
const SECTION: &str = "relayd";

/// Options that are rejected in a file.
const COMMAND_LINE_ONLY: [&str; 3] = ["config", "help", "version"];

/// A configuration file that the relay cannot start with.
#[derive(Debug, Error)]
pub enum FileError {
    /// The file of `--config` does not exist, cannot be read or is not UTF-8.
    #[error("cannot read configuration file {}: {source}", .path.display())]
    Unreadable {
        /// Path as given on the command line.
        path: PathBuf,
        /// Error of the read.
        source: io::Error,
    },
    /// An option has an invalid value.
    #[error("{at}: {reason}")]
    Value {
        /// File and number of the line.
        at: String,
        /// Message of the option parser.
        reason: String,
    },
    /// Options exclude each other.
    #[error("invalid configuration in {}: {reason}", .paths.join(", "))]
    Conflict {
        /// All files that were read, in order: they are merged before.
        paths: Vec<String>,
        /// Message of the option parser.
        reason: String,
    },
}

/// The merged options of all configuration files.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// Values by option name. A later file overrides an earlier one.
    options: BTreeMap<String, Value>,
    paths: Vec<String>,
    /// Lines that were ignored, with file and line number. They are logged once the log is set up.
    pub(super) warnings: Vec<String>,
}

/// The reason why a line is not used.
enum LineError {
    /// The line is ignored.
    Malformed(String),
    /// The relay does not start.
    Value(String),
}

/// The message of the option parser, without its hint at `--help`.
fn reason(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

#[derive(Debug)]
enum Value {
    Switch(bool),
    Times(u8),
    Text(String),
}

impl Files {
    /// Reads the files of the system and of the user if they exist, then `named`, which must exist.
    pub(super) fn read(home: Option<&Path>, named: Option<&Path>) -> Result<Self, FileError> {
        let mut files = Self::default();
        let user = home.map(|home| home.join(USER_FILE));
        for path in [Some(Path::new(SYSTEM_FILE)), user.as_deref()]
            .into_iter()
            .flatten()
        {
            // Both are optional, and one without read permission is not meant for this user.
            if let Ok(text) = std::fs::read_to_string(path) {
                files.add_file(path, &text)?;
            }
        }
        if let Some(path) = named {
            let text = std::fs::read_to_string(path).map_err(|source| FileError::Unreadable {
                path: path.to_owned(),
                source,
            })?;
            files.add_file(path, &text)?;
        }
        Ok(files)
    }

    fn add_file(&mut self, path: &Path, text: &str) -> Result<(), FileError> {
        self.paths.push(path.display().to_string());
        // None before the first section.
        let mut is_ours = None;
        for (number, line) in text.lines().enumerate() {
            let line = without_comment(line).trim();
            if line.is_empty() {
                continue;
            }
            let at = || format!("{}:{}", path.display(), number + 1);
            if let Some(section) = line.strip_prefix('[') {
                let name = section.strip_suffix(']').map(str::trim);
                is_ours = Some(name == Some(SECTION));
                if name.is_none() {
                    let warning =
                        format!("{}: {line:?} is not a section; its lines are ignored", at());
                    self.warnings.push(warning);
                }
                continue;
            }
            let added = match is_ours {
                Some(true) => self.add_line(line),
                Some(false) => continue,
                None => Err(LineError::Malformed(format!(
                    "not in the section [{SECTION}]"
                ))),
            };
            match added {
                Ok(()) => {}
                Err(LineError::Malformed(reason)) => {
                    self.warnings
                        .push(format!("{}: {reason}; line ignored", at()));
                }
                Err(LineError::Value(reason)) => {
                    return Err(FileError::Value { at: at(), reason });
                }
            }
        }
        Ok(())
    }

    fn add_line(&mut self, line: &str) -> Result<(), LineError> {
        let (name, value) = line
            .split_once(['=', ':'])
            .ok_or_else(|| format!("{line:?} is not of the form NAME=VALUE"))
            .map_err(LineError::Malformed)?;
        let (name, value) = (name.trim(), value.trim());
        let command = Arguments::command();
        let option = command
            .get_arguments()
            .find(|option| option.get_long() == Some(name) && !COMMAND_LINE_ONLY.contains(&name))
            .ok_or_else(|| LineError::Malformed(format!("unknown option {name:?}")))?;
        let switched = parse_boolean(value);
        let invalid = || {
            let expected = "expected true, yes, on, false, no or off";
            LineError::Malformed(format!("invalid value {value:?} of {name}: {expected}"))
        };
        let value = match option.get_action() {
            ArgAction::SetTrue => Value::Switch(switched.ok_or_else(invalid)?),
            ArgAction::Count => {
                let times = switched.map(u8::from).or_else(|| value.parse().ok());
                Value::Times(times.ok_or_else(invalid)?)
            }
            _ => {
                // Alone, so that the line of an invalid value is known.
                Arguments::try_parse_from(["relayd", &format!("--{name}={value}")])
                    .map_err(|error| LineError::Value(reason(&error)))?;
                Value::Text(value.to_owned())
            }
        };
        self.options.insert(name.to_owned(), value);
        Ok(())
    }

    /// The options as the command line would give them.
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
        Arguments::try_parse_from(line).map_err(|error| FileError::Conflict {
            paths: self.paths.clone(),
            reason: reason(&error),
        })
    }
}

/// The line without its comment, which begins with a `#` or `;` at the start of the line or after a
/// blank.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn files(texts: &[&str]) -> Files {
        let mut files = Files::default();
        for text in texts {
            files.add_file(Path::new("lttng.conf"), text).unwrap();
        }
        files
    }

    #[test]
    fn long_options_in_the_relayd_section_are_read_and_other_sections_are_ignored() {
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
    fn later_configuration_file_overrides_earlier_one() {
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
    fn unknown_options_and_malformed_lines_are_warned_of_and_ignored() {
        let files = files(&[
            "[relayd]\nnonsense=1\nversion=yes\nconfig=/x\ndaemonize=perhaps\nalone\nverbose=much\n",
            "output=/x\n[other]\noutput=/x\n[relayd\noutput=/x\n",
        ]);
        assert_eq!(files.warnings.len(), 8, "{:?}", files.warnings);
        assert_eq!(files.arguments().unwrap().output, None);
        assert!(files.warnings[0].starts_with("lttng.conf:2: "));
        assert!(files.warnings[0].contains("nonsense"));
        assert_eq!(
            files.arguments().unwrap().mode(),
            super::super::Mode::Foreground
        );
    }

    #[test]
    fn invalid_option_value_and_missing_configuration_file_are_errors() {
        let text = "[relayd]\n\nfd-pool-size=7\n";
        let wrong = Files::default().add_file(Path::new("lttng.conf"), text);
        let message = wrong.unwrap_err().to_string();
        let begin = "lttng.conf:3: invalid value '7' for '--fd-pool-size <N>'";
        assert!(message.starts_with(begin), "{message}");
        let both = files(&["[relayd]\ngroup-output-by-host=1\ngroup-output-by-session=1\n"]);
        let message = both.arguments().unwrap_err().to_string();
        assert!(
            message.starts_with("invalid configuration in lttng.conf: "),
            "{message}"
        );
        let missing = Files::read(None, Some(Path::new("/no/such/file")));
        assert!(missing.unwrap_err().to_string().contains("/no/such/file"));
    }
}
