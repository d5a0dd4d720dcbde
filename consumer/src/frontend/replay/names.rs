//! Names of traces and streams on the relay: as on disk, but sanitized, truncated and unique.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::limits::{MAX_CHANNEL_BYTES, MAX_NAME_BYTES, MAX_TRACE_PATH_BYTES};

/// The path of a trace that lies in a root directory itself.
const ROOT: &str = "trace";

/// Names in a trace's directory that no stream may have.
const TAKEN: [&str; 2] = ["metadata", "index"];

/// The paths of traces below the session's directory that have been assigned.
#[derive(Debug)]
pub(super) struct TracePaths {
    roots: Vec<PathBuf>,
    taken: BTreeSet<String>,
}

impl TracePaths {
    /// The paths of traces below these directories, of which none is assigned yet.
    pub(super) fn new(roots: Vec<PathBuf>) -> Self {
        let taken = BTreeSet::new();
        Self { roots, taken }
    }

    /// Returns a path for the trace in `directory`.
    pub(super) fn unique_path(&mut self, directory: &Path) -> String {
        let root = self.roots.iter().find(|root| directory.starts_with(root));
        let below = root.and_then(|root| directory.strip_prefix(root).ok());
        let mut path = sanitize_path(below.unwrap_or(Path::new("")));
        if let (Some(root), 2..) = (root, self.roots.len()) {
            let name = root.file_name().unwrap_or_default();
            path = format!("{}/{path}", sanitize_name(&name.to_string_lossy()));
        }
        let mut path = path.trim_matches('/').to_owned();
        if path.is_empty() {
            ROOT.clone_into(&mut path);
        }
        // The last bytes are for a number that makes the path unique.
        truncate_name(&mut path, MAX_TRACE_PATH_BYTES - 4);
        make_unique(path, &mut self.taken)
    }
}

/// Returns a name for the stream with the first file `file`.
pub(super) fn stream_name(file: &Path, taken: &mut BTreeSet<String>) -> String {
    taken.extend(TAKEN.map(str::to_owned));
    let mut name = sanitize_name(&file.file_name().unwrap_or_default().to_string_lossy());
    if name.is_empty() {
        name.push_str("stream");
    }
    // The last bytes are for the number that makes the name unique.
    truncate_name(&mut name, MAX_CHANNEL_BYTES - 8);
    make_unique(name, taken)
}

/// Returns a name for the session that replays these directories.
pub(super) fn session_name(roots: &[PathBuf]) -> String {
    let name = roots.first().and_then(|root| root.file_name());
    sanitize_session_name(&name.unwrap_or_default().to_string_lossy(), "replay")
}

/// Returns a name that a session may have; `fallback` if nothing of this one is left.
pub(crate) fn sanitize_session_name(name: &str, fallback: &str) -> String {
    let mut name = sanitize_name(name);
    if name.is_empty() {
        name.push_str(fallback);
    }
    truncate_name(&mut name, MAX_NAME_BYTES);
    name
}

fn sanitize_path(path: &Path) -> String {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(sanitize_name(&name.to_string_lossy())),
        _ => None,
    });
    parts.collect::<Vec<_>>().join("/")
}

/// Sanitizes one part of a path: without leading dots, which would hide the file or lead to the
/// parent.
fn sanitize_name(name: &str) -> String {
    let kept = name.trim_start_matches('.');
    kept.replace(|c: char| c == '/' || c.is_control(), "_")
}

/// Truncates a text to at most `max` bytes.
fn truncate_name(text: &mut String, max: usize) {
    text.truncate(text.floor_char_boundary(max));
}

fn make_unique(mut name: String, taken: &mut BTreeSet<String>) -> String {
    if taken.insert(name.clone()) {
        return name;
    }
    let stem = name.len();
    for number in 2u32.. {
        name.truncate(stem);
        name.push_str(&format!("_{number}"));
        if taken.insert(name.clone()) {
            break;
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_path_is_the_path_below_the_root() {
        let mut paths = TracePaths::new(vec!["/data/rec".into()]);
        assert_eq!(paths.unique_path(Path::new("/data/rec")), "trace");
        assert_eq!(
            paths.unique_path(Path::new("/data/rec/ust/uid/0/64-bit")),
            "ust/uid/0/64-bit"
        );
        assert_eq!(paths.unique_path(Path::new("/data/rec/.x/a\nb")), "x/a_b");
        assert_eq!(paths.unique_path(Path::new("/data/rec/trace")), "trace_2");
    }

    #[test]
    fn trace_path_of_several_roots_begins_with_the_root_name() {
        let mut paths = TracePaths::new(vec!["/one/rec".into(), "/two/rec".into()]);
        assert_eq!(
            paths.unique_path(Path::new("/one/rec/kernel")),
            "rec/kernel"
        );
        assert_eq!(
            paths.unique_path(Path::new("/two/rec/kernel")),
            "rec/kernel_2"
        );
        assert_eq!(paths.unique_path(Path::new("/two/rec")), "rec");
    }

    #[test]
    fn long_names_are_truncated_and_stay_distinct() {
        let mut paths = TracePaths::new(vec!["/r".into()]);
        let long = PathBuf::from("/r").join("é".repeat(300));
        let (one, other) = (paths.unique_path(&long), paths.unique_path(&long));
        assert!(one.len() <= MAX_TRACE_PATH_BYTES && other.len() <= MAX_TRACE_PATH_BYTES);
        assert_ne!(one, other);
    }

    #[test]
    fn stream_names_avoid_reserved_file_names() {
        let mut taken = BTreeSet::new();
        let mut name = |file: &str| stream_name(Path::new(file), &mut taken);
        assert_eq!(name("/a/chan_0"), "chan_0");
        assert_eq!(name("/b/chan_0"), "chan_0_2");
        assert_eq!(name("/b/index"), "index_2");
        assert_eq!(name("/b/."), "b");
    }

    #[test]
    fn session_name_is_that_of_the_directory() {
        assert_eq!(session_name(&["/a/rec-1".into()]), "rec-1");
        assert_eq!(session_name(&["/a/.rec".into()]), "rec");
        assert_eq!(session_name(&["/".into()]), "replay");
    }
}
