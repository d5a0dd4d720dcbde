//! The report of the `doctor` commands: what was checked, what is wrong, and what mends it.

pub mod host;
pub mod listener;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::event_text::printable;

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Whether the checked thing is as it should be.
    pub state: State,
    /// What the check has found, in one sentence.
    pub text: String,
    /// A command or a setting that mends it.
    pub remedy: Option<String>,
}

/// The state of a checked thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The thing is as it should be.
    Ok,
    /// The thing works, but probably not as the user expects.
    Warning,
    /// The thing does not work.
    Problem,
}

/// All findings, in the order of the checks. It is displayed as one or two lines for each; as JSON
/// it is an array.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Report {
    findings: Vec<Finding>,
}

impl Report {
    /// Adds what is as it should be.
    pub fn ok(&mut self, text: impl Into<String>) {
        self.add(State::Ok, text.into(), None);
    }

    /// Adds what works, but probably not as the user expects.
    pub fn warning(&mut self, text: impl Into<String>, remedy: impl Into<String>) {
        self.add(State::Warning, text.into(), Some(remedy.into()));
    }

    /// Adds what does not work.
    pub fn problem(&mut self, text: impl Into<String>, remedy: impl Into<String>) {
        self.add(State::Problem, text.into(), Some(remedy.into()));
    }

    fn add(&mut self, state: State, text: String, remedy: Option<String>) {
        self.findings.push(Finding {
            state,
            text,
            remedy,
        });
    }

    /// Adds the findings of another report.
    pub fn append(&mut self, mut other: Self) {
        self.findings.append(&mut other.findings);
    }

    /// Returns all findings, in the order of the checks.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Returns the number of findings in this state.
    #[must_use]
    pub fn count(&self, state: State) -> usize {
        let findings = self.findings.iter();
        findings.filter(|finding| finding.state == state).count()
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            // Names of files and programs may be those of a hostile user.
            writeln!(f, "{:8} {}", finding.state, printable(&finding.text))?;
            if let Some(remedy) = &finding.remedy {
                writeln!(f, "{:8} -> {}", "", printable(remedy))?;
            }
        }
        let [problems, warnings] = [State::Problem, State::Warning].map(|state| self.count(state));
        let plural = |count| if count == 1 { "" } else { "s" };
        writeln!(
            f,
            "{problems} problem{}, {warnings} warning{}",
            plural(problems),
            plural(warnings)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_listed_with_their_remedies_and_counted() {
        let mut report = Report::default();
        report.ok("the disk has 3.0 GB");
        report.problem("port 5342 is in use", "systemctl stop other");
        report.warning("few files", "ulimit -n 4096");
        assert_eq!(
            report.to_string(),
            "ok       the disk has 3.0 GB\n\
             problem  port 5342 is in use\n         -> systemctl stop other\n\
             warning  few files\n         -> ulimit -n 4096\n\
             1 problem, 1 warning\n"
        );
        assert_eq!(report.count(State::Ok), 1);
        assert_eq!(report.findings().len(), 3);
    }
}
