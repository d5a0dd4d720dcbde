//! Checked names of files and paths. Only these names of a peer may become files.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

use thiserror::Error;

use crate::Text;

/// Longest name of a file or directory on the file systems that traces are kept on.
pub const NAME_MAX: usize = 255;

/// The reason why a name from a peer may not become a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NameError {
    /// The name is empty.
    #[error("it is empty")]
    Empty,
    /// A part of the path is `.` or `..`, which may lead out of the directory that it belongs in.
    #[error("it has a part `.` or `..`")]
    Dots,
    /// The path starts at the root of the file system.
    #[error("it is absolute")]
    Absolute,
    /// The name has a slash, where only a single name is allowed.
    #[error("it has a `/`")]
    Slash,
    /// The name is longer than a file system or the protocol allows.
    #[error("it is longer than {max} bytes")]
    TooLong {
        /// The longest allowed length, in bytes.
        max: usize,
    },
}

/// The name of one file or directory: not empty, no `/`, not `.` or `..`, at most 255 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileName(OsString);

impl FileName {
    /// Checks the name of a single file or directory.
    ///
    /// # Errors
    /// Whatever makes it something else than one name inside a directory.
    pub fn parse(name: &Text) -> Result<Self, NameError> {
        let bytes = name.as_bytes();
        if bytes.contains(&b'/') {
            return Err(NameError::Slash);
        }
        component(bytes)?;
        Ok(Self(OsString::from_vec(bytes.to_vec())))
    }

    /// The name with something appended: the number of a tracefile, say.
    ///
    /// # Errors
    /// [`NameError`] if the result is no file name any more.
    pub fn with_suffix(&self, suffix: &str) -> Result<Self, NameError> {
        let mut name = self.0.clone();
        name.push(suffix);
        // Checked again, because the suffix may make the name too long.
        Self::parse(&Text::from(name.as_bytes()))
    }

    /// The name as the file system takes it.
    #[must_use]
    pub fn as_os_str(&self) -> &OsStr {
        &self.0
    }

    /// The name as peers send it.
    #[must_use]
    pub fn to_text(&self) -> Text {
        Text::from(self.0.as_bytes())
    }
}

impl AsRef<Path> for FileName {
    fn as_ref(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_text().fmt(f)
    }
}

/// A path below a directory of ours: relative, with at least one part, none of them `.` or `..`.
/// Clones share its bytes: every stream has the path of its trace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TracePath(Arc<OsStr>);

impl TracePath {
    /// Checks a path. Doubled and trailing slashes are dropped, as producers before LTTng 2.11
    /// send them.
    ///
    /// # Errors
    /// Whatever would let it lead out of the directory that it belongs in.
    pub fn parse(path: &Text) -> Result<Self, NameError> {
        let bytes = path.as_bytes();
        if bytes.first() == Some(&b'/') {
            return Err(NameError::Absolute);
        }
        let mut kept = Vec::with_capacity(bytes.len());
        // Part by part and not by `Path`, which drops `.` without saying so.
        for part in bytes
            .split(|&byte| byte == b'/')
            .filter(|part| !part.is_empty())
        {
            component(part)?;
            if !kept.is_empty() {
                kept.push(b'/');
            }
            kept.extend_from_slice(part);
        }
        if kept.is_empty() {
            return Err(NameError::Empty);
        }
        Ok(Self(OsString::from_vec(kept).into()))
    }

    /// Checks a path as [`Self::parse`] does, but drops one leading slash first: producers before
    /// LTTng 2.11 put one before a path that is relative all the same.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_rooted(path: &Text) -> Result<Self, NameError> {
        let bytes = path.as_bytes();
        Self::parse(&Text::from(bytes.strip_prefix(b"/").unwrap_or(bytes)))
    }

    /// The length in bytes, never 0.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never: a path has at least one part.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // clippy asks for this beside `len`.
        false
    }

    /// The path as text for a peer.
    #[must_use]
    pub fn to_text(&self) -> Text {
        Text::from(self.0.as_bytes())
    }
}

impl From<FileName> for TracePath {
    fn from(name: FileName) -> Self {
        Self(name.0.into())
    }
}

impl AsRef<Path> for TracePath {
    fn as_ref(&self) -> &Path {
        Path::new(&*self.0)
    }
}

impl fmt::Display for TracePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_text().fmt(f)
    }
}

fn component(part: &[u8]) -> Result<(), NameError> {
    match part {
        b"" => Err(NameError::Empty),
        b"." | b".." => Err(NameError::Dots),
        // Refused here, because the file system would refuse it only when the file is made.
        _ if part.len() > NAME_MAX => Err(NameError::TooLong { max: NAME_MAX }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_trace_path_that_leaves_its_root_is_refused() {
        for (path, want) in [
            ("", NameError::Empty),
            ("///", NameError::Absolute),
            ("/etc/passwd", NameError::Absolute),
            ("..", NameError::Dots),
            ("../x", NameError::Dots),
            ("a/../b", NameError::Dots),
            ("a/..", NameError::Dots),
            ("a/./b", NameError::Dots),
        ] {
            assert_eq!(TracePath::parse(&Text::from(path)), Err(want), "{path:?}");
        }
    }

    #[test]
    fn extra_slashes_of_an_old_producers_path_are_removed() {
        let old = Text::from("/host/session-20261120-213900//ust/uid/0/64-bit");
        let path = TracePath::parse_rooted(&old).unwrap();
        assert_eq!(
            path.to_string(),
            "host/session-20261120-213900/ust/uid/0/64-bit"
        );
        assert_eq!(
            TracePath::parse_rooted(&Text::from("//etc")),
            Err(NameError::Absolute)
        );
        assert_eq!(
            TracePath::parse_rooted(&Text::from("/")),
            Err(NameError::Empty)
        );
    }

    #[test]
    fn a_file_name_has_a_single_path_component() {
        for (name, want) in [
            ("", NameError::Empty),
            (".", NameError::Dots),
            ("..", NameError::Dots),
            ("a/b", NameError::Slash),
            ("../a", NameError::Slash),
        ] {
            assert_eq!(FileName::parse(&Text::from(name)), Err(want), "{name:?}");
        }
        let long = FileName::parse(&Text::from("x".repeat(255).as_str())).unwrap();
        assert_eq!(
            long.with_suffix(".idx"),
            Err(NameError::TooLong { max: 255 })
        );
        let name = FileName::parse(&Text::from("chan_0")).unwrap();
        assert_eq!(name.with_suffix("_3").unwrap().to_string(), "chan_0_3");
    }

    proptest! {
        #[test]
        fn an_accepted_path_stays_below_its_directory(path in "[./a]{0,12}") {
            if let Ok(path) = TracePath::parse_rooted(&Text::from(path.as_str())) {
                let joined = Path::new("/top").join(&path);
                prop_assert!(joined.starts_with("/top"));
                prop_assert!(joined.components().count() > 2);
                prop_assert!(!joined.components().any(|c| c == std::path::Component::ParentDir));
            }
        }
    }
}
