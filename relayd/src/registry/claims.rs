//! The directories that a recording writes to.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::{Path, PathBuf};

/// The directories, below the relay's output, that a recording writes to or may move: usually `ust`
/// and `kernel` in the directory of the recording.
#[derive(Debug, Default)]
pub(super) struct Claims(BTreeSet<PathBuf>);

impl Claims {
    /// Adds a directory. One that is claimed already is no error.
    pub(super) fn add(&mut self, directory: &Path) {
        self.0.insert(directory.to_owned());
    }

    /// Whether the recording has claimed none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the recording has claimed exactly this directory.
    pub(super) fn contains(&self, directory: &Path) -> bool {
        self.0.contains(directory)
    }

    /// Lists the directories, in the order of their paths.
    pub(super) fn directories(&self) -> Vec<PathBuf> {
        self.0.iter().cloned().collect()
    }

    /// Whether a claimed directory is this one, or lies above or below it.
    pub(super) fn overlap(&self, directory: &Path) -> bool {
        // In the order of paths, a directory is followed by those below it.
        let from = (Bound::Included(directory), Bound::Unbounded);
        let below = self.0.range::<Path, _>(from).next();
        directory.ancestors().any(|above| self.0.contains(above))
            || below.is_some_and(|below| below.starts_with(directory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_overlap_with_directories_above_and_below_and_not_with_siblings() {
        let mut claims = Claims::default();
        claims.add(Path::new("host/some/ust"));
        claims.add(Path::new("host/some.where/kernel"));
        for (directory, overlaps) in [
            ("host/some/ust", true),
            ("host/some", true),
            ("host", true),
            ("host/some/ust/uid", true),
            ("host/some.where", true),
            ("host/some/kernel", false),
            ("host/some/us", false),
            ("host/some/ust.x", false),
            ("host/so", false),
            ("hos", false),
        ] {
            assert_eq!(
                claims.overlap(Path::new(directory)),
                overlaps,
                "{directory}"
            );
        }
        assert!(claims.contains(Path::new("host/some/ust")));
        assert!(!claims.contains(Path::new("host/some")));
    }
}
