//! What the environment asks for.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::filter::Filter;
use crate::format::{Mode, RingHeader, SeverityClass};

/// Number of sub-buffers of a ring.
const SUB_BUFFER_COUNT: u32 = 16;
/// Bytes of a ring: 25,000 events of 40 bytes.
const DEFAULT_RING_SIZE: u64 = 1 << 20;
/// Smallest ring: 16 sub-buffers of a page.
const MIN_RING_SIZE: u64 = 64 << 10;
/// Largest ring: 16 sub-buffers of 16 MiB.
const MAX_RING_SIZE: u64 = 256 << 20;

/// Directives in force when the environment has none, instead of [`Filter::DEFAULT`].
static DEFAULT_DIRECTIVES: OnceLock<&'static str> = OnceLock::new();

/// Sets the directives of an environment without any. The first call counts.
pub(crate) fn set_default_directives(directives: &'static str) {
    let _ = DEFAULT_DIRECTIVES.set(directives);
}

/// The settings of a process, read once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// `None`: tracing is off.
    pub(crate) mode: Option<Mode>,
    pub(crate) sub_buffer_size: u32,
    /// Times come from the processor's counter where they can.
    pub(crate) wants_counter: bool,
    /// Directives that [`Filter`] can read.
    pub(crate) directives: String,
    /// Parent of the process directories.
    pub(crate) run_directory: PathBuf,
    /// What was wrong with a variable; its default is in force.
    pub(crate) warnings: Vec<String>,
}

impl Settings {
    pub(crate) fn from_environment() -> Self {
        let directives = DEFAULT_DIRECTIVES.get().copied();
        Self::from_variables(directives.unwrap_or(Filter::DEFAULT), |name| {
            std::env::var_os(name)
        })
    }

    fn from_variables(default: &str, variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let mut warnings = Vec::new();
        let text = |name: &str| {
            let value = variable(name)?.to_string_lossy().trim().to_owned();
            (!value.is_empty()).then_some(value)
        };
        let mode = match text("TRACE_RING").as_deref() {
            None | Some("discard") => Some(Mode::Discard),
            Some("overwrite") => Some(Mode::Overwrite),
            Some("off") => None,
            Some(other) => {
                warnings.push(format!(
                    "TRACE_RING={other}: not off, discard or overwrite; using discard"
                ));
                Some(Mode::Discard)
            }
        };
        let wants_counter = match text("TRACE_RING_CLOCK").as_deref() {
            None | Some("monotonic") => false,
            Some("counter") => true,
            Some(other) => {
                warnings.push(format!(
                    "TRACE_RING_CLOCK={other}: not monotonic or counter; using monotonic"
                ));
                false
            }
        };
        let ring_size = text("TRACE_RING_SIZE").map_or(DEFAULT_RING_SIZE, |size| {
            parse_size(&size).unwrap_or_else(|| {
                warnings.push(format!("TRACE_RING_SIZE={size}: not a size; using 1M"));
                DEFAULT_RING_SIZE
            })
        });
        let directives = text("TRACE_RING_FILTER").map_or(default.to_owned(), |filter| {
            Filter::parse(&filter)
                .map(|_| filter)
                .unwrap_or_else(|error| {
                    warnings.push(format!("TRACE_RING_FILTER: {error}; using {default}"));
                    default.to_owned()
                })
        });
        let path = |name: &str| {
            variable(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let run_directory = path("TRACE_RING_DIR")
            .or_else(|| path("XDG_RUNTIME_DIR").map(|directory| directory.join("ring")))
            .unwrap_or_else(|| Path::new("/run/ring").to_owned());
        let sub_buffer_size = u32::try_from(ring_size / u64::from(SUB_BUFFER_COUNT));
        Self {
            mode,
            sub_buffer_size: sub_buffer_size.unwrap_or_default(),
            wants_counter,
            directives,
            run_directory,
            warnings,
        }
    }

    /// Returns the header of a ring of this process.
    pub(crate) fn ring_header(&self, number: u32, severity_class: SeverityClass) -> RingHeader {
        RingHeader {
            number,
            sub_buffer_size: self.sub_buffer_size,
            sub_buffer_count: SUB_BUFFER_COUNT,
            mode: self.mode.unwrap_or(Mode::Discard),
            severity_class,
            tid: 0,
            thread_name: [0; 16],
            created: 0,
        }
    }
}

/// Reads bytes with an optional `K` or `M`; the result is a power of two within the limits.
fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
    let unit: u64 = match text.get(digits.len()..)? {
        "" => 1,
        "K" | "k" => 1 << 10,
        "M" | "m" => 1 << 20,
        _ => return None,
    };
    let size = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    Some(size.clamp(MIN_RING_SIZE, MAX_RING_SIZE).next_power_of_two())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Settings {
        Settings::from_variables(Filter::DEFAULT, |name| {
            variables
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value.into())
        })
    }

    #[test]
    fn defaults_are_discard_info_and_one_mebibyte() {
        let settings = settings(&[]);
        assert_eq!(settings.mode, Some(Mode::Discard));
        assert!(!settings.wants_counter);
        assert_eq!(settings.directives, "info");
        assert_eq!(
            settings.ring_header(0, SeverityClass::Normal).data_size(),
            1 << 20
        );
        assert_eq!(settings.run_directory, Path::new("/run/ring"));
        assert!(settings.warnings.is_empty());
    }

    #[test]
    fn the_run_directory_is_the_one_asked_for_before_that_of_the_user() {
        let user = ("XDG_RUNTIME_DIR", "/run/user/7");
        assert_eq!(
            settings(&[user]).run_directory,
            Path::new("/run/user/7/ring")
        );
        assert_eq!(
            settings(&[user, ("TRACE_RING_DIR", "/x")]).run_directory,
            Path::new("/x")
        );
        assert_eq!(
            settings(&[user, ("TRACE_RING_DIR", "")]).run_directory,
            Path::new("/run/user/7/ring")
        );
    }

    #[test]
    fn ring_sizes_are_rounded_up_and_limited() {
        for (text, size) in [
            ("1", 64 << 10),
            ("100K", 128 << 10),
            ("4M", 4 << 20),
            ("9999M", 256 << 20),
        ] {
            let settings = settings(&[("TRACE_RING_SIZE", text)]);
            assert_eq!(
                settings.ring_header(0, SeverityClass::Normal).data_size(),
                size,
                "{text}"
            );
        }
    }

    #[test]
    fn a_wrong_setting_is_reported_and_its_default_used() {
        let wrong = [
            ("TRACE_RING", "loud"),
            ("TRACE_RING_SIZE", "big"),
            ("TRACE_RING_CLOCK", "sundial"),
            ("TRACE_RING_FILTER", "a=b"),
        ];
        let settings = settings(&wrong);
        assert_eq!(settings.warnings.len(), 4);
        assert!(!settings.wants_counter);
        assert_eq!(
            (settings.mode, settings.directives.as_str()),
            (Some(Mode::Discard), "info")
        );
    }
}
