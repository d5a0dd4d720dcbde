//! Filter directives, as in `RUST_LOG`: `warn`, `off`, `app::db=debug`, separated by commas.

use crate::Severity;

/// Which call sites may write: a list of directives, of which the one with the longest matching
/// target decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    directives: Vec<Directive>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Directive {
    target: String,
    /// The least important severity that passes; `None` if nothing does.
    max_severity: Option<Severity>,
}

/// Why a text is no filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a filter directive: '{directive}'")]
pub struct FilterError {
    /// The part that was not understood.
    pub directive: String,
}

impl Filter {
    /// The directives of a process that was told nothing.
    pub const DEFAULT: &str = "info";

    /// Reads directives `[target=]severity`, separated by commas. `off` is a severity that lets
    /// nothing pass; a target alone lets everything of it pass. The empty text is
    /// [`Self::DEFAULT`].
    ///
    /// # Errors
    /// When a directive is neither a severity nor a target with or without one.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let mut directives = Vec::new();
        for directive in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            directives.push(parse_directive(directive)?);
        }
        if directives.is_empty() {
            directives.push(Directive {
                target: String::new(),
                max_severity: Some(Severity::Info),
            });
        }
        Ok(Self { directives })
    }

    /// Returns the least important severity that passes for any target, `None` when nothing does.
    #[must_use]
    pub fn max_severity(&self) -> Option<Severity> {
        let passing = self
            .directives
            .iter()
            .filter_map(|directive| directive.max_severity);
        passing.max()
    }

    /// Whether an event of this target and severity passes. A directive's target matches itself and
    /// everything below it (`app` matches `app::db`); the longest match decides, of equal ones the
    /// last.
    #[must_use]
    pub fn is_enabled(&self, target: &str, severity: Severity) -> bool {
        let decisive = self
            .directives
            .iter()
            .filter(|directive| directive.matches(target))
            .max_by_key(|directive| directive.target.len());
        decisive
            .and_then(|directive| directive.max_severity)
            .is_some_and(|max| severity <= max)
    }
}

impl Directive {
    fn matches(&self, target: &str) -> bool {
        let rest = target.strip_prefix(self.target.as_str());
        rest.is_some_and(|rest| self.target.is_empty() || rest.is_empty() || rest.starts_with("::"))
    }
}

fn parse_directive(text: &str) -> Result<Directive, FilterError> {
    let error = || FilterError {
        directive: text.to_owned(),
    };
    let parse_level = |level: &str| {
        if level.eq_ignore_ascii_case("off") {
            Ok(None)
        } else {
            level.parse().map(Some)
        }
    };
    let is_target = |target: &str| {
        target
            .chars()
            .all(|c| c.is_alphanumeric() || "_:-./".contains(c))
    };
    if let Some((target, level)) = text.split_once('=') {
        let target = target.trim();
        if target.is_empty() || !is_target(target) {
            return Err(error());
        }
        let max_severity = parse_level(level.trim()).map_err(|()| error())?;
        return Ok(Directive {
            target: target.to_owned(),
            max_severity,
        });
    }
    if let Ok(max_severity) = parse_level(text) {
        return Ok(Directive {
            target: String::new(),
            max_severity,
        });
    }
    if !is_target(text) {
        return Err(error());
    }
    Ok(Directive {
        target: text.to_owned(),
        max_severity: Some(Severity::Trace),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enabled(text: &str, target: &str, severity: Severity) -> bool {
        Filter::parse(text).unwrap().is_enabled(target, severity)
    }

    #[test]
    fn a_severity_alone_holds_for_every_target() {
        assert!(enabled("warn", "app", Severity::Warn));
        assert!(!enabled("WARN", "app", Severity::Info));
        assert!(!enabled("off", "app", Severity::Error));
        assert!(enabled("", "app", Severity::Info) && !enabled("", "app", Severity::Debug));
    }

    #[test]
    fn the_longest_matching_target_decides() {
        let text = "info, app=off, app::db=debug";
        assert!(enabled(text, "app::db::pool", Severity::Debug));
        assert!(!enabled(text, "app::web", Severity::Error));
        assert!(enabled(text, "application", Severity::Info));
        assert!(!enabled(text, "application", Severity::Debug));
    }

    #[test]
    fn the_last_of_equal_directives_decides() {
        assert!(enabled("app=off,app=trace", "app", Severity::Trace));
        assert!(!enabled("trace,off", "app", Severity::Error));
    }

    #[test]
    fn a_target_alone_lets_everything_of_it_pass_and_nothing_else() {
        assert!(enabled("app", "app::db", Severity::Trace));
        assert!(!enabled("app", "lib", Severity::Error));
    }

    #[test]
    fn what_is_no_directive_is_refused_by_name() {
        for text in [
            "app=loud",
            "=info",
            "a b",
            "app=info=debug",
            "app[span]=info",
        ] {
            let error = Filter::parse(text).unwrap_err();
            assert_eq!(error.directive, text);
        }
    }
}
